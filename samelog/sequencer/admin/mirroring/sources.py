"""Answers who mirrors topics of this cluster elsewhere: what there is of them.

Invariant: nothing is told of a topic or a group that who asks may not read.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from samelog.admin import mirror_answers as told
from samelog.admin.mirror_requests import GetSource
from samelog.format.steps import StepWork, mapped
from samelog.runtime.slices import paced
from samelog.sequencer.admin.parts import ServedNode
from samelog.sequencer.admin.placement import partitions_here
from samelog.sequencer.state.tables.partitions import Partition
from samelog.sequencer.state.tables.topics import Topic
from samelog.sequencer.state.types import State


async def source_state(node: ServedNode, request: GetSource, identity: str) -> told.SourceState:
    """What may be mirrored from here. Raises TimeoutError."""
    await node.raft.proposer.catch_up()
    state, rights = node.logs.machine.state, node.member.rights
    readable = await paced(_readable(node, identity))
    topics = [topic for topic in readable if not topic.is_placed]
    placed = [topic for topic in readable if topic.is_placed]
    may_use = partial(rights.may_use_group, identity)
    used = await paced(mapped(lambda name: (name, may_use(name)), tuple(state.groups.by_id)))
    groups = [name for name, may in used if may]
    whole = [await paced(_source_topic(state, each, _partitions(state, each))) for each in topics]
    held = [
        await paced(_source_topic(state, each, _partitions_here(node, each))) for each in placed
    ]
    return told.SourceState(
        state.members.cluster_id,
        tuple(whole),
        tuple(await paced(_positions(state, groups, readable))),
        {topic.name: topic.partitions for topic in placed},
        tuple(held),
    )


def _partitions(state: State, topic: Topic) -> Iterable[Partition]:
    numbers = tuple(topic.partition_numbers)
    return (
        state.partitions.by_number[each] for each in numbers if each in state.partitions.by_number
    )


def _partitions_here(node: ServedNode, topic: Topic) -> Iterable[Partition]:
    return partitions_here(node.data_groups, topic.partition_numbers)


def _readable(node: ServedNode, identity: str) -> StepWork[list[Topic]]:
    found, rights = [], node.member.rights
    for each in tuple(node.logs.machine.state.topics.by_id.values()):
        if rights.may_subscribe(identity, each.name):
            found.append(each)
        yield
    return found


def _source_topic(
    state: State, topic: Topic, partitions: Iterable[Partition]
) -> StepWork[told.SourceTopic]:
    found = yield from mapped(_source_partition, partitions)
    known = state.mirrors.topics.get(topic.topic_id)
    return told.SourceTopic(
        topic.name,
        topic.log_id,
        topic.settings,
        len(topic.schemas),
        () if known is None else tuple(known.source.origins),
        state.mirrors.of_topic(topic.topic_id) is not None,
        tuple(found),
    )


def _source_partition(partition: Partition) -> told.SourcePartition:
    return told.SourcePartition(
        partition.index,
        partition.log_start,
        partition.next_offset,
        partition.start_segment,
        partition.start_checksum,
        partition.checked_offset,
        partition.checked_sum,
        tuple(partition.schema_since),
    )


def _positions(
    state: State, groups: Iterable[str], topics: Iterable[Topic]
) -> StepWork[list[told.SourcePosition]]:
    found, readable = [], {topic.topic_id: topic.name for topic in topics}
    for name in groups:
        group = state.groups.by_id.get(name)
        for number, known in () if group is None else tuple(group.offsets.items()):
            partition = state.partitions.by_number.get(number)
            topic = None if partition is None else readable.get(partition.topic_id)
            if partition is not None and topic is not None:
                place = topic, partition.index, known.offset, known.leader_epoch
                found.append(told.SourcePosition(name, *place, known.metadata, known.at_ms))
            yield
    return found
