"""Answers sidecars that mirror topics, at the source and at the destination, and administrators
about mirrors.

Invariant: nothing is told of a topic that who asks may not read, nor done to a mirror that who asks
may not bring records to; no right but `mirror` allows that (docs/mirror.md, M22). What is answered
with success is committed.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from msgspec import UNSET

from samelog.admin import mirror_answers as told
from samelog.admin import mirror_requests as asked
from samelog.admin.answers import SchemaSet
from samelog.admin.requests import PARTITION_S
from samelog.config.authorisation import ANONYMOUS
from samelog.format.steps import StepWork
from samelog.runtime.slices import paced
from samelog.sequencer.admin.parts import ServedNode
from samelog.sequencer.admin.schemas import set_version
from samelog.sequencer.admin.topics import (
    check_partitions,
    check_settings,
    find_partition,
    find_topic,
)
from samelog.sequencer.cluster.changes import ChangeRefused
from samelog.sequencer.state.command_base import Rejection
from samelog.sequencer.state.commands import AnyCommand
from samelog.sequencer.state.tables.groups import CommittedOffset
from samelog.sequencer.state.tables.mirrors import (
    CreateMirror,
    FollowSource,
    Mirror,
    MirrorGap,
    MirrorSource,
    PromoteMirrors,
)
from samelog.sequencer.state.tables.topics import AddPartitions, AlterTopicCommand, Topic
from samelog.sequencer.state.types import State
from samelog.sequencer.state.units.mirrors import is_own, open_before_gap
from samelog.wire.errors import FaultCode

CODES = {
    "TOPIC_EXISTS": FaultCode.ALREADY_EXISTS,
    "UNKNOWN_TOPIC": FaultCode.UNKNOWN_TOPIC,
    "PRECONDITION": FaultCode.CHANGE_PENDING,
}


# --- at the destination ---------------------------------------------------------------------------


async def list_mirrors(
    node: ServedNode, request: asked.ListMirrors, identity: str
) -> told.MirrorRows:
    """All mirrors, as far as who asks may know of them. Raises TimeoutError."""
    await node.raft.proposer.catch_up()
    state, rights = node.logs.machine.state, node.member.rights
    sees_all = identity == ANONYMOUS or rights.is_admin(identity)
    topics = [state.topics.by_id[topic_id] for topic_id in state.mirrors.topics]
    seen = [each for each in topics if sees_all or rights.may_mirror(identity, each.name)]
    rows = [
        await paced(mirror_info(state, each))
        for each in seen
        if each.topic_id in state.mirrors.topics
    ]
    return told.MirrorRows(state.members.cluster_id, tuple(rows))


def mirror_info(state: State, topic: Topic) -> StepWork[told.MirrorInfo]:
    """One mirror; it may have been promoted."""
    known = state.mirrors.topics[topic.topic_id]
    source, partitions = known.source, []
    for number in tuple(topic.partition_numbers):
        if number in state.partitions.by_number:
            partitions.append(_mirrored(state, number))
        yield
    return told.MirrorInfo(
        topic.name,
        topic.log_id,
        source.cluster_id,
        source.topic,
        source.log_id,
        tuple(source.origins),
        source.keeps_epochs,
        known.since_ms,
        known.promoted_ms,
        tuple(known.ends),
        topic.settings,
        len(topic.schemas),
        tuple(partitions),
    )


def _mirrored(state: State, number: int) -> told.MirroredPartition:
    partition, place = state.partitions.by_number[number], state.mirrors.places.get(number)
    ends = partition.log_start, partition.next_offset
    if place is None:
        return told.MirroredPartition(partition.index, *ends, None, None)
    left_open = open_before_gap(state, number)
    known = place.crc, place.checksum, left_open, place.behind
    return told.MirroredPartition(partition.index, *ends, *known)


async def put_mirror(node: ServedNode, request: asked.PutMirror, identity: str) -> told.MirrorInfo:
    """Have it made, or be as it is wanted. Raises ChangeRefused, TimeoutError."""
    _check_right(node, identity, request.topic)
    check_partitions(request.partitions)
    check_settings(node, request.settings)
    await node.raft.proposer.catch_up()
    machine = node.logs.machine
    topic = machine.state.topics.named(request.topic)
    if topic is None:
        await _create(node, request)
    else:
        await _change(node, request, topic, _checked(machine.state, topic, request))
    return await paced(mirror_info(machine.state, find_topic(node, request.topic)))


async def _create(node: ServedNode, request: asked.PutMirror) -> None:
    origins = [*request.origins]
    source = MirrorSource(
        request.cluster_id, request.source_topic, request.log_id, origins, request.keeps_epochs
    )
    wanted = request.topic, request.partitions, request.settings, node.member.clock.wall_ms()
    await _propose(
        node,
        CreateMirror(uuid.uuid4().hex, *wanted, source),
        longer_s=request.partitions * PARTITION_S,
    )


def _checked(state: State, topic: Topic, request: asked.PutMirror) -> Mirror:
    """A topic that is a mirror of this very log. Raises ChangeRefused."""
    known = state.mirrors.of_topic(topic.topic_id)
    if known is None:
        text = f"topic {topic.name!r} is there, and no mirror"
        raise ChangeRefused(FaultCode.ALREADY_EXISTS, text, "mirror it under another name")
    source = known.source
    if (source.cluster_id, source.topic) != (request.cluster_id, request.source_topic):
        text = f"{topic.name!r} is a mirror of {source.topic!r} of cluster {source.cluster_id}"
        raise ChangeRefused(FaultCode.ALREADY_EXISTS, text, "use a prefix: as = 'eu.{topic}'")
    if source.log_id != request.log_id:
        text = f"{topic.name!r} is a mirror of another log of {source.topic!r}, {source.log_id}"
        remedy = (
            "the source was reset, or its topic recreated: delete the mirror and create it again"
        )
        raise ChangeRefused(FaultCode.ALREADY_EXISTS, text, remedy)
    return known


async def _change(node: ServedNode, request: asked.PutMirror, topic: Topic, known: Mirror) -> None:
    if request.partitions > topic.partitions:
        longer_s = request.partitions * PARTITION_S
        await _propose(node, AddPartitions(topic.topic_id, request.partitions), longer_s=longer_s)
    news = {
        key: value for key, value in request.settings.items() if topic.settings.get(key) != value
    }
    if news:
        await _propose(node, AlterTopicCommand(topic.topic_id, news, []))


async def leave_gap(node: ServedNode, request: asked.LeaveGap, identity: str) -> told.MirrorInfo:
    """Let a mirror go on behind offsets that its source has not. Raises ChangeRefused."""
    _check_right(node, identity, request.topic)
    await _propose(
        node,
        MirrorGap(
            find_partition(node, request.topic, request.partition),
            request.base_offset,
            request.next_offset,
            request.start_offset,
            None if request.checksum is UNSET else request.checksum,
            node.member.clock.wall_ms(),
            request.reason,
        ),
    )
    return await paced(mirror_info(node.logs.machine.state, find_topic(node, request.topic)))


async def copy_schema(node: ServedNode, request: asked.CopySchema, identity: str) -> SchemaSet:
    """Let a mirror have the next version of its source's schema. Raises ChangeRefused."""
    _check_right(node, identity, request.topic)
    _find_mirror(node, request.topic)
    return await set_version(node, request.topic, request.follows, request.schema)


async def follow_mirrored(
    node: ServedNode, request: asked.FollowMirrored, identity: str
) -> told.SourceFollowed:
    """Let groups be where they are at the source. Raises ChangeRefused, TimeoutError."""
    _check_right(node, identity, request.topic)
    topic = _find_mirror(node, request.topic)
    numbers = topic.partition_numbers
    positions: dict[str, list[tuple[int, CommittedOffset]]] = {}
    for each in request.positions:
        if each.partition < len(numbers):
            where = each.offset, each.leader_epoch, each.metadata, each.at_ms
            committed = numbers[each.partition], CommittedOffset(*where)
            positions.setdefault(each.group, []).append(committed)
    since = [
        (numbers[each.partition], [(begin.offset, begin.version) for begin in each.since])
        for each in request.since
        if each.partition < len(numbers)
    ]
    await _propose(node, FollowSource(list(positions.items()), since))
    return told.SourceFollowed(_own(node.logs.machine.state, positions))


def _own(state: State, positions: dict[str, list[tuple[int, CommittedOffset]]]) -> tuple[str, ...]:
    found = (
        group
        for group, committed in positions.items()
        if any(is_own(state, group, number) for number, _ in committed)
    )
    return tuple(sorted(found))


async def promote_topics(
    node: ServedNode, request: asked.PromoteTopics, identity: str
) -> told.MirrorsPromoted:
    """Let mirrors be topics of their own. Raises ChangeRefused, TimeoutError."""
    await node.raft.proposer.catch_up()
    topics = [find_topic(node, name) for name in dict.fromkeys(request.topics)]
    now_ms = node.member.clock.wall_ms()
    await _propose(node, PromoteMirrors([each.topic_id for each in topics], now_ms, identity))
    return told.MirrorsPromoted(_ends(node.logs.machine.state, topics))


def _ends(state: State, topics: Sequence[Topic]) -> dict[str, tuple[int, ...]]:
    return {each.name: tuple(state.mirrors.topics[each.topic_id].ends) for each in topics}


# --- what all need --------------------------------------------------------------------------------


def _check_right(node: ServedNode, identity: str, topic: str) -> None:
    if not node.member.rights.may_mirror(identity, topic):
        text = f"{identity} may not bring records to a mirror {topic!r}"
        remedy = f"grant it in the nodes' configuration: mirror = ['{topic}']"
        raise ChangeRefused(FaultCode.NOT_AUTHORISED, text, remedy)


def _find_mirror(node: ServedNode, name: str) -> Topic:
    topic = find_topic(node, name)
    if node.logs.machine.state.mirrors.of_topic(topic.topic_id) is None:
        raise ChangeRefused(FaultCode.OUT_OF_RANGE, f"topic {name!r} is no mirror")
    return topic


async def _propose(node: ServedNode, command: AnyCommand, *, longer_s: float = 0.0) -> None:
    outcome = await node.raft.proposer.propose(command, longer_s=longer_s)
    if isinstance(outcome, Rejection):
        raise ChangeRefused(CODES.get(outcome.code, FaultCode.OUT_OF_RANGE), outcome.message)
