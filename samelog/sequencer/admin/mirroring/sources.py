"""Answers who mirrors topics of this cluster elsewhere: what there is of them.

Invariant: nothing is told of a topic or a group that who asks may not read.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

from samelog.admin import mirror_answers as told
from samelog.admin.mirror_requests import GetSource
from samelog.sequencer.admin.parts import ServedNode
from samelog.sequencer.state.types import Partition, State, Topic


async def source_state(node: ServedNode, request: GetSource, identity: str) -> told.SourceState:
    """What may be mirrored from here. Raises TimeoutError."""
    await node.raft.proposer.catch_up()
    state, rights = node.logs.machine.state, node.member.rights
    readable = [t for t in state.topics.values() if rights.may_subscribe(identity, t.name)]
    topics, placed = _by_place(readable)
    groups = [name for name in state.groups.by_id if rights.may_use_group(identity, name)]
    positions = _positions(state, groups, topics)
    return told.SourceState(
        state.cluster_id,
        tuple(map(partial(_source_topic, state), topics)),
        tuple(positions),
        placed,
    )


def _by_place(topics: Sequence[Topic]) -> tuple[list[Topic], tuple[str, ...]]:
    """Those of group 0, and the names of those in data groups."""
    here = [topic for topic in topics if not topic.is_placed]
    return here, tuple(topic.name for topic in topics if topic.is_placed)


def _source_topic(state: State, topic: Topic) -> told.SourceTopic:
    known = state.mirrors.topics.get(topic.topic_id)
    return told.SourceTopic(
        topic.name,
        topic.log_id,
        topic.settings,
        len(topic.schemas),
        () if known is None else tuple(known.source.origins),
        state.mirrors.of_topic(topic.topic_id) is not None,
        tuple(_source_partition(state.partitions[number]) for number in topic.partition_numbers),
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
    read = {number for topic in topics for number in topic.partition_numbers}
    for name in groups:
        for number, known in state.groups.by_id[name].offsets.items():
            if number in read:
                partition = state.partitions[number]
                where = state.topics[partition.topic_id].name, partition.index
                yield told.SourcePosition(
                    name, *where, known.offset, known.leader_epoch, known.metadata, known.at_ms
                )
