"""Answers who mirrors topics of this cluster elsewhere: what there is of them.

Invariant: nothing is told of a topic or a group that who asks may not read.
"""

from __future__ import annotations

from collections.abc import Iterable

from samelog.admin import mirror_answers as told
from samelog.admin.mirror_requests import GetSource
from samelog.sequencer.admin.parts import ServedNode
from samelog.sequencer.admin.placement import partitions_here
from samelog.sequencer.state.types import Partition, State, Topic


async def source_state(node: ServedNode, request: GetSource, identity: str) -> told.SourceState:
    """What may be mirrored from here. Raises TimeoutError."""
    await node.raft.proposer.catch_up()
    state, rights = node.logs.machine.state, node.member.rights
    readable = _readable(node, identity)
    topics = [topic for topic in readable if not topic.is_placed]
    placed = [topic for topic in readable if topic.is_placed]
    groups = [name for name in state.groups.by_id if rights.may_use_group(identity, name)]
    whole = (_source_topic(state, topic, _partitions(state, topic)) for topic in topics)
    here = (_source_topic(state, topic, _partitions_here(node, topic)) for topic in placed)
    return told.SourceState(
        state.cluster_id,
        tuple(whole),
        tuple(_positions(state, groups, readable)),
        {topic.name: topic.partitions for topic in placed},
        tuple(here),
    )


def _partitions(state: State, topic: Topic) -> list[Partition]:
    return [state.partitions[each] for each in topic.partition_numbers]


def _partitions_here(node: ServedNode, topic: Topic) -> Iterable[Partition]:
    return partitions_here(node.data_groups, topic.partition_numbers)


def _readable(node: ServedNode, identity: str) -> list[Topic]:
    topics, rights = node.logs.machine.state.topics.values(), node.member.rights
    return [each for each in topics if rights.may_subscribe(identity, each.name)]


def _source_topic(state: State, topic: Topic, partitions: Iterable[Partition]) -> told.SourceTopic:
    known = state.mirrors.topics.get(topic.topic_id)
    return told.SourceTopic(
        topic.name,
        topic.log_id,
        topic.settings,
        len(topic.schemas),
        () if known is None else tuple(known.source.origins),
        state.mirrors.of_topic(topic.topic_id) is not None,
        tuple(map(_source_partition, partitions)),
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
) -> Iterable[told.SourcePosition]:
    read = {
        number: (topic.name, index)
        for topic in topics
        for index, number in enumerate(topic.partition_numbers)
    }
    for name in groups:
        for number, known in state.groups.by_id[name].offsets.items():
            if number in read:
                yield told.SourcePosition(
                    name,
                    *read[number],
                    known.offset,
                    known.leader_epoch,
                    known.metadata,
                    known.at_ms,
                )
