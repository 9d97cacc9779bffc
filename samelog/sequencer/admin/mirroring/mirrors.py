"""Answers sidecars that mirror topics, at the source and at the destination, and administrators
about mirrors. What concerns a partition is answered by a node that has a replica of it.

Invariant: nothing is told of a topic that who asks may not read, nor done to a mirror that who asks
may not bring records to; no right but `mirror` allows that (docs/mirror.md, M22). What is answered
with success is committed.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Collection, Iterator, Sequence

from msgspec import UNSET

from samelog.admin import mirror_answers as told
from samelog.admin import mirror_requests as asked
from samelog.admin.answers import SchemaSet
from samelog.config.authorisation import ANONYMOUS
from samelog.format.steps import StepWork
from samelog.placement.defaults import copies_of_new, goal_of_topic
from samelog.runtime.slices import paced
from samelog.sequencer.admin.parts import ServedNode, parts_here, parts_of
from samelog.sequencer.admin.schemas import set_version
from samelog.sequencer.admin.topics import (
    check_partitions,
    check_settings,
    create_open,
    find_partition,
    find_topic,
    widen,
)
from samelog.sequencer.admin.waits import until_settled
from samelog.sequencer.cluster.changes import ChangeRefused
from samelog.sequencer.parts import RaftParts
from samelog.sequencer.raft.replica import Replica
from samelog.sequencer.state.command_base import Rejection
from samelog.sequencer.state.commands import AnyCommand
from samelog.sequencer.state.tables.groups import CommittedOffset
from samelog.sequencer.state.tables.mirror_source import MirrorSource
from samelog.sequencer.state.tables.mirrors import (
    FollowSource,
    Mirror,
    MirrorGap,
    PromoteMirrors,
)
from samelog.sequencer.state.tables.topics import AlterTopicCommand, CreateTopicCommand, Topic
from samelog.sequencer.state.types import State
from samelog.sequencer.state.units.mirrors import (
    gap_to_come,
    groups_ending,
    is_own,
    open_before_gap,
)
from samelog.wire.errors import FaultCode

PROMOTE_S = 8.0
"""So long a promotion waits for data groups."""
CODES = {
    "TOPIC_EXISTS": FaultCode.ALREADY_EXISTS,
    "UNKNOWN_TOPIC": FaultCode.UNKNOWN_TOPIC,
    "PRECONDITION": FaultCode.CHANGE_PENDING,
    "ON_ITS_WAY": FaultCode.CHANGE_PENDING,
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
        await paced(mirror_info(node, each))
        for each in seen
        if each.topic_id in state.mirrors.topics
    ]
    return told.MirrorRows(state.members.cluster_id, tuple(rows))


def mirror_info(node: ServedNode, topic: Topic) -> StepWork[told.MirrorInfo]:
    """One mirror, with the partitions that this node has; it may have been promoted."""
    state, partitions = node.logs.machine.state, list[told.MirroredPartition]()
    known = state.mirrors.topics[topic.topic_id]
    source = known.source
    for number in tuple(topic.partition_numbers):
        if (parts := parts_of(node, number)) is not None:
            partitions += mirrored_partition(parts[0].machine.state, number)
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
        topic.partitions,
        state.mirrors.promotion_of(topic.topic_id) is not None,
    )


def mirrored_partition(state: State, number: int) -> Iterator[told.MirroredPartition]:
    """One partition, by the state of its group: none if it is being made, or copied."""
    partition, place = state.partitions.by_number.get(number), state.mirrors.places.get(number)
    if partition is None or state.transfers.is_coming(number):
        return
    ends = partition.log_start, partition.next_offset
    if place is None:
        yield told.MirroredPartition(partition.index, *ends, None, None)
        return
    left_open = open_before_gap(state, number)
    known = place.crc, place.checksum, left_open, place.behind
    yield told.MirroredPartition(partition.index, *ends, *known)


async def put_mirror(node: ServedNode, request: asked.PutMirror, identity: str) -> told.MirrorInfo:
    """Have it made, or be as it is wanted. Raises ChangeRefused, TimeoutError."""
    _check_right(node, identity, request.topic)
    check_partitions(request.partitions)
    await node.raft.proposer.catch_up()
    machine = node.logs.machine
    topic = machine.state.topics.named(request.topic)
    if topic is None:
        await _create(node, request)
    else:
        check_settings(
            node, request.settings, goal_of_topic(machine.state.placement, topic.partition_numbers)
        )
        await _change(node, request, topic, _checked(machine.state, topic, request))
    return await paced(mirror_info(node, find_topic(node, request.topic)))


async def _create(node: ServedNode, request: asked.PutMirror) -> None:
    """With as many copies as any new topic that names no number."""
    table, nodes = node.logs.machine.state.placement, len(node.peers.members.all)
    copies = copies_of_new(table, None, nodes)
    check_settings(node, request.settings, copies)
    origins = [*request.origins]
    source = MirrorSource(
        request.cluster_id, request.source_topic, request.log_id, origins, request.keeps_epochs
    )
    wanted = request.topic, request.partitions, request.settings, node.member.clock.wall_ms()
    command = CreateTopicCommand(uuid.uuid4().hex, *wanted, source=source)
    await create_open(node, command, copies)


def _checked(state: State, topic: Topic, request: asked.PutMirror) -> Mirror:
    """A topic that is a mirror of this very log. Raises ChangeRefused."""
    known = state.mirrors.of_topic(topic.topic_id)
    if known is None or state.mirrors.promotion_of(topic.topic_id) is not None:
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
        await widen(node, topic, request.partitions)
    news = {
        key: value for key, value in request.settings.items() if topic.settings.get(key) != value
    }
    if news:
        await _propose(node.raft, AlterTopicCommand(topic.topic_id, news, []))


async def leave_gap(node: ServedNode, request: asked.LeaveGap, identity: str) -> told.MirrorInfo:
    """Let a mirror go on behind offsets that its source has not. Raises ChangeRefused, NotLeader,
    TimeoutError.
    """
    _check_right(node, identity, request.topic)
    number = find_partition(node, request.topic, request.partition)
    logs, raft = parts_here(node, number)
    gap = MirrorGap(
        number,
        request.base_offset,
        request.next_offset,
        request.start_offset,
        None if request.checksum is UNSET else request.checksum,
        node.member.clock.wall_ms(),
        request.reason,
    )
    event = gap_to_come(logs.machine.state, gap)
    await _propose(raft, gap)
    if event is not None and raft is not node.raft:
        await _propose(node.raft, event)  # users see the events of group 0 only
    return await paced(mirror_info(node, find_topic(node, request.topic)))


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
            number = numbers[each.partition]
            parts = parts_here(node, number)[0]
            end = parts.machine.state.partitions.by_number[number].next_offset
            where = min(each.offset, end), each.leader_epoch, each.metadata, each.at_ms
            positions.setdefault(each.group, []).append((number, CommittedOffset(*where)))
    for those in request.since:
        if those.partition < len(numbers):
            number = numbers[those.partition]
            begins = [(begin.offset, begin.version) for begin in those.since]
            await _propose(parts_here(node, number)[1], FollowSource([], [(number, begins)]))
    await _propose(node.raft, FollowSource(list(positions.items()), []))
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
    over_at = asyncio.get_running_loop().time() + PROMOTE_S
    now_ms = node.member.clock.wall_ms()
    await _propose(node.raft, PromoteMirrors([each.topic_id for each in topics], now_ms, identity))
    if groups := await _until_promoted(node.raft.replica, topics, over_at):
        which = ", ".join(map(str, sorted(groups)))
        text = f"nothing more is mirrored once data groups {which} answer: the promotion continues"
        raise ChangeRefused(FaultCode.TIMEOUT, text, "samelog placement")
    return told.MirrorsPromoted(_ends(node.logs.machine.state, topics))


async def _until_promoted(
    replica: Replica, topics: Sequence[Topic], over_at: float
) -> Collection[int]:
    """Wait until all partitions have ended; return the groups that have not said so at `over_at`,
    by the clock of the event loop. `replica`: of group 0.
    """

    def left() -> set[int]:
        state = replica.machine.state
        return {group for each in topics for group in groups_ending(state, each.topic_id)}

    return await until_settled(
        left, lambda: replica.wait_applied(replica.applied_index + 1), over_at
    )


def _ends(state: State, topics: Sequence[Topic]) -> dict[str, tuple[int, ...]]:
    known = {each.name: state.mirrors.topics.get(each.topic_id) for each in topics}
    return {name: tuple(mirror.ends) for name, mirror in known.items() if mirror is not None}


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


async def _propose(raft: RaftParts, command: AnyCommand) -> None:
    outcome = await raft.proposer.propose(command)
    if isinstance(outcome, Rejection):
        raise ChangeRefused(CODES.get(outcome.code, FaultCode.OUT_OF_RANGE), outcome.message)
