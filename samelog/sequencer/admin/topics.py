"""Answers administrators about topics: list, describe, create, alter, delete.

Invariant: what is answered with success is committed.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Iterator, Mapping
from functools import partial
from typing import Any

from msgspec import UNSET, structs

from samelog.admin.answers import (
    MisplacedKeys,
    PartitionInfo,
    TopicDescription,
    TopicInfo,
    Topics,
)
from samelog.admin.requests import (
    PARTITION_S,
    PARTITIONS_MAX,
    AlterTopic,
    CreatePartitions,
    CreateTopic,
    DeleteTopic,
    DescribeTopic,
    GetLatestPositions,
    ListTopics,
    TruncatePartition,
)
from samelog.admin.topic_answers import PartitionTruncated, TopicMade
from samelog.admin.views import LatestPosition, LatestPositions
from samelog.archiver.command import ArchiveCommand
from samelog.archiver.policy import retention_from, rules_of
from samelog.config.authorisation import ANONYMOUS
from samelog.format.nouns import counted
from samelog.format.steps import StepWork
from samelog.placement.defaults import copies_of_new, goal_of_topic, risk_of
from samelog.placement.tasks import PlacementRefused
from samelog.replicator.interfaces import RequestRefused
from samelog.sequencer.admin.deletions import groups_of, lag_text, still_deleting, until_dropped
from samelog.sequencer.admin.new_topics import PLACE_S, create, place
from samelog.sequencer.admin.openings import unopened_text, until_open
from samelog.sequencer.admin.parts import ServedNode, parts_here, parts_of, where
from samelog.sequencer.admin.placement import PlacementPlan
from samelog.sequencer.admin.tasks import convert_topic
from samelog.sequencer.cluster.changes import ChangeRefused
from samelog.sequencer.ingest.key_placement import REMEDY
from samelog.sequencer.judging import libraries
from samelog.sequencer.parts import LogParts, RaftParts
from samelog.sequencer.state.command_base import Rejection
from samelog.sequencer.state.commands import AnyCommand
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.places import place_of
from samelog.sequencer.state.tables import topics as topic_table
from samelog.sequencer.state.tables.placement import PlacePartitions
from samelog.sequencer.state.tables.topics import Topic
from samelog.sequencer.state.tables.views import View
from samelog.sequencer.state.topic_settings import problem_with
from samelog.sequencer.state.units.mirrors import why_only_source
from samelog.wire.errors import FaultCode

DROP_S = 10.0
"""So long a deletion waits for data groups."""
_CODES = {
    "UNKNOWN_TOPIC": FaultCode.UNKNOWN_TOPIC,
    "TOPIC_EXISTS": FaultCode.ALREADY_EXISTS,
    "RESERVED_TOPIC": FaultCode.INVALID_NAME,
    "LEVEL_TOO_LOW": FaultCode.NOT_READY,
    "PLACEMENT_MOVED": FaultCode.CHANGE_PENDING,
    "PINNED": FaultCode.CHANGE_PENDING,
    "TRANSACTION_OPEN": FaultCode.CHANGE_PENDING,
}
"""Whatever else is refused cannot be as it was asked for."""
MERGED_S, LOOK_S = 8.0, 0.02


def list_topics(node: ServedNode, request: ListTopics, identity: str) -> StepWork[Topics]:
    """All topics, for administrators and on loopback; for others those that they may read."""
    rights, state = node.member.rights, node.logs.machine.state
    sees_all = identity == ANONYMOUS or rights.is_admin(identity)

    def may_see(name: str) -> bool:
        return sees_all or rights.may_subscribe(identity, name)

    found = []
    for topic in tuple(state.topics.by_id.values()):
        if may_see(topic.name):
            found.append(topic_info(topic))
        yield
    for view in views_in(node):
        if may_see(view.name) and view.base_id in node.logs.machine.state.topics.by_id:
            found.append(view_info(node, view))
        yield
    deleting = still_deleting(state.placement)
    return Topics(tuple(found), tuple(each for each in deleting if may_see(each.name)))


def describe_topic(node: ServedNode, request: DescribeTopic) -> StepWork[TopicDescription]:
    """One topic. Raises ChangeRefused."""
    topic = find_topic(node, request.topic)
    partitions: list[PartitionInfo] = []
    misplaced: list[MisplacedKeys] = []
    for index, number in enumerate(tuple(topic.partition_numbers)):
        if number not in node.logs.machine.state.partitions.by_number:
            raise _no_topic(request.topic)
        partitions.append(partition_info(node, number))
        misplaced += _misplaced_keys(node, index, number)
        yield
    return TopicDescription(topic_info(topic), tuple(partitions), tuple(misplaced))


def _misplaced_keys(node: ServedNode, index: int, number: int) -> Iterator[MisplacedKeys]:
    """Yield the sessions whose keys are in another partition than Kafka's murmur2 says."""
    parts = parts_of(node, number)
    for each in () if parts is None else parts[0].intake.key_placement.misplaced_in(number):
        yield MisplacedKeys(each.session, index, each.compared, each.misplaced, REMEDY)


async def create_topic(node: ServedNode, request: CreateTopic) -> TopicMade:
    """Have it created. Raises ChangeRefused, TimeoutError."""
    check_partitions(request.partitions)
    asked = None if request.replication_factor is UNSET else request.replication_factor
    state, nodes = node.logs.machine.state, len(node.peers.members.all)
    beside = _other(node, request)
    copies = copies_of_new(state.placement, asked, nodes)
    if beside:
        copies = goal_of_topic(state.placement, state.topics.by_id[beside].partition_numbers)
    check_settings(node, request.settings, copies)
    wanted = request.topic, request.partitions, request.settings
    check_libraries(node, request.settings)
    now_ms = node.member.clock.wall_ms()
    command = topic_table.CreateTopicCommand(uuid.uuid4().hex, *wanted, now_ms, beside)
    await create_open(node, command, copies)
    return _new_topic(node, request.topic, asked)


async def create_open(
    node: ServedNode, command: topic_table.CreateTopicCommand, copies: int
) -> None:
    """Create a topic with open partitions. Raises ChangeRefused, TimeoutError."""
    longer_s = command.partitions * PARTITION_S
    over_at = asyncio.get_running_loop().time() + PLACE_S + longer_s
    await _made(create(node.raft, node.peers, command, copies, longer_s))
    await _opened(node, command.name, 0, over_at)


async def _opened(node: ServedNode, name: str, first: int, over_at: float) -> None:
    """Wait until a topic's partitions from the first new one on are open. Raises ChangeRefused."""
    topic = find_topic(node, name)
    left = await until_open(node.data_groups, topic.partition_numbers[first:], over_at)
    if left:
        text = unopened_text(name, topic.partition_numbers, left)
        raise ChangeRefused(FaultCode.TIMEOUT, text, "samelog placement")


def _other(node: ServedNode, request: CreateTopic) -> str:
    """The id of the topic whose group is to be shared, if any. Raises ChangeRefused."""
    if request.colocate_with is UNSET:
        return ""
    if request.replication_factor is not UNSET:
        text = (
            f"a topic has as many copies as topic {request.colocate_with!r}, whose group it shares"
        )
        raise ChangeRefused(FaultCode.OUT_OF_RANGE, text, "name no replication factor")
    other = find_topic(node, request.colocate_with)
    check_no_mirror(node, other)
    return other.topic_id


async def create_by_default(node: ServedNode, command: topic_table.CreateTopicCommand) -> None:
    """Create a topic because a publisher opens it. Raises RequestRefused, TimeoutError."""
    state, nodes = node.logs.machine.state, len(node.peers.members.all)
    copies = copies_of_new(state.placement, None, nodes)
    over_at = asyncio.get_running_loop().time() + PLACE_S
    try:
        await create(node.raft, node.peers, command, copies)
    except PlacementRefused as error:
        raise RequestRefused(FaultCode.NOT_READY, error.message, error.remedy) from error
    topic = node.logs.machine.state.topics.named(command.name)
    numbers = () if topic is None else topic.partition_numbers
    if left := await until_open(node.data_groups, numbers, over_at):
        text = unopened_text(command.name, numbers, left)
        raise RequestRefused(FaultCode.NOT_READY, text, "retry")


def _new_topic(node: ServedNode, name: str, asked: int | None) -> TopicMade:
    """With how long its records are kept, and what its number of copies means."""
    topic = find_topic(node, name)
    policy = node.care.archive.policy.policy
    rules = rules_of(policy, topic.settings)
    kept_ms = -1 if rules.time_ms is None else rules.time_ms
    made = structs.asdict(topic_info(topic))
    origin = retention_from(policy, topic.settings)
    state = node.logs.machine.state
    copies = goal_of_topic(state.placement, topic.partition_numbers)
    wanted = min(copies, state.hosts)
    warnings = [_lacking(copies, wanted)] if asked == copies > wanted else []
    warnings += filter(None, [risk_of(wanted)])
    return TopicMade(
        **made,
        retention_ms=kept_ms,
        retention_from=origin,
        copies=copies,
        warnings=tuple(warnings),
    )


def _lacking(asked: int, wanted: int) -> str:
    """What it means that there are fewer hosts than copies were asked for."""
    there = counted(wanted, "host")
    return f"{asked} copies were asked for and {there} can have one: more are made when others join"


async def _made(creation: Awaitable[Any]) -> None:
    """Raises ChangeRefused, TimeoutError."""
    try:
        outcome = await creation
    except PlacementRefused as error:
        raise ChangeRefused(FaultCode.OUT_OF_RANGE, str(error), error.remedy) from error
    if isinstance(outcome, Rejection):
        raise _refused(outcome)


async def add_partitions(node: ServedNode, request: CreatePartitions) -> TopicInfo:
    """Have it get more partitions. Raises ChangeRefused, TimeoutError."""
    check_partitions(request.partitions)
    topic = find_topic(node, request.topic)
    check_no_mirror(node, topic)
    if request.partitions < topic.partitions:
        count = counted(topic.partitions, "partition")
        message = f"topic {topic.name!r} has {count}, and keeps them"
        raise ChangeRefused(FaultCode.OUT_OF_RANGE, message)
    await widen(node, topic, request.partitions)
    return topic_info(find_topic(node, request.topic))


async def widen(node: ServedNode, topic: Topic, partitions: int) -> None:
    """Let a topic have so many partitions, all of them open. Raises ChangeRefused, TimeoutError."""
    longer_s, first = partitions * PARTITION_S, topic.partitions
    over_at = asyncio.get_running_loop().time() + PLACE_S + longer_s
    if not topic.is_placed:
        command = topic_table.AddPartitions(topic.topic_id, partitions)
        await _propose(node, command, longer_s=longer_s)
    elif topic.partitions < partitions:
        more = partial(_more, node, topic.name, partitions)
        await _made(place(node.raft, node.peers, more, longer_s))
        await _opened(node, topic.name, first, over_at)


def _more(node: ServedNode, name: str, partitions: int, plan: PlacementPlan) -> PlacePartitions:
    return plan.partitions(find_topic(node, name), partitions)


async def alter_topic(node: ServedNode, request: AlterTopic) -> TopicInfo:
    """Have its settings changed, and its copies. Raises ChangeRefused, NotLeader, TimeoutError."""
    topic, copies = find_topic(node, request.topic), request.replication_factor
    check_settings(node, request.settings, _copies(node, topic) if copies is UNSET else copies)
    check_libraries(node, request.settings, topic)
    if copies is not UNSET:
        await convert_topic(node, topic, copies)
    if request.settings or request.unset:
        given = topic.topic_id, request.settings, list(request.unset)
        await _propose(node, topic_table.AlterTopicCommand(*given))
    return topic_info(find_topic(node, request.topic))


async def delete_topic(node: ServedNode, request: DeleteTopic) -> TopicInfo:
    """Have it deleted, by group 0 and by majorities of its data groups: what it was. Raises
    ChangeRefused, TimeoutError.
    """
    topic = find_topic(node, request.topic)
    found = topic_info(topic, topic_id=topic.topic_id)
    state, longer_s = node.logs.machine.state, topic.partitions * PARTITION_S
    over_at = asyncio.get_running_loop().time() + DROP_S + longer_s
    wanted = {topic.topic_id: groups_of(state, topic)}
    outcome = await node.raft.proposer.propose(
        topic_table.DeleteTopicCommand(topic.topic_id), longer_s=longer_s
    )
    if isinstance(outcome, Rejection) and outcome.code != "UNKNOWN_TOPIC":  # gone is gone
        raise _refused(outcome)
    if left := await until_dropped(node.raft.replica, wanted, over_at):
        text = lag_text(topic.name, left[topic.topic_id])
        raise ChangeRefused(FaultCode.TIMEOUT, text, "samelog topic list; samelog placement")
    return found


async def truncate_partition(
    node: ServedNode, request: TruncatePartition, identity: str
) -> PartitionTruncated:
    """Have all that is in it archived. Raises ChangeRefused, TimeoutError."""
    await node.raft.proposer.catch_up()
    number = find_partition(node, request.topic, request.partition)
    logs, raft = parts_here(node, number)
    await raft.proposer.catch_up()
    state = logs.machine.state.partitions.by_number[number]
    end = state.next_offset
    if end > state.log_start:
        await _until_merged(raft, number, end)
        kept, now_ms = (state.start_segment, state.start_checksum), node.member.clock.wall_ms()
        command = ArchiveCommand(number, end, *kept, now_ms, f"truncated by {identity}")
        outcome = await raft.proposer.propose(command)
        if isinstance(outcome, Rejection):
            raise ChangeRefused(FaultCode.CHANGE_PENDING, outcome.message, "ask again")
    return PartitionTruncated(request.topic, request.partition, end)


async def _until_merged(raft: RaftParts, number: int, end: int) -> None:
    """Nothing is archived that a majority has not merged durably. Raises TimeoutError."""
    async with asyncio.timeout(MERGED_S):
        while raft.coordinator.cursors.get(number, 0) < end:  # noqa: ASYNC110
            await asyncio.sleep(LOOK_S)


def latest_positions(node: ServedNode, request: GetLatestPositions) -> StepWork[LatestPositions]:
    """The ends of merged logs. Raises ChangeRefused."""
    if request.topic is UNSET:
        numbers = list(node.logs.machine.state.partitions.by_number)
    else:
        numbers = list(find_topic(node, request.topic).partition_numbers)
    found = []
    for number in numbers:
        if number in node.logs.machine.state.partitions.by_number and (
            parts := parts_of(node, number)
        ):
            found.append(_latest(node, number, *parts))
        yield
    return LatestPositions(tuple(found))


def _latest(node: ServedNode, number: int, logs: LogParts, raft: RaftParts) -> LatestPosition:
    log = logs.merging.look(number).log
    return LatestPosition(
        *partition_name(node.logs.machine, number),
        log.next_offset,
        log.durable_offset,
        raft.coordinator.cursors.get(number, 0),
        logs.machine.state.partitions.by_number[number].next_offset,
        *log.end(),
    )


# --- what others use too --------------------------------------------------------------------------


def views_in(node: ServedNode) -> list[View]:
    """All views."""
    return list(node.logs.machine.state.views.by_id.values())


def view_info(node: ServedNode, view: View) -> TopicInfo:
    """A view, as topics are told."""
    state = node.logs.machine.state
    info, base = topic_info(state.topic_of_view(view)), state.topics.by_id[view.base_id].name
    return structs.replace(info, base=base, query=view.query(base))


def find_readable(node: ServedNode, name: str) -> Topic:
    """A topic by its name, or a view as one. Raises ChangeRefused."""
    view = node.logs.machine.state.views.named(name)
    return find_topic(node, name) if view is None else node.logs.machine.state.topic_of_view(view)


def topic_info(topic: Topic, *, topic_id: str = "") -> TopicInfo:
    """A topic; its id is that of its log, which a hard reset changes, unless another is given."""
    return TopicInfo(topic.name, topic_id or topic.log_id, topic.partitions, topic.settings)


def find_topic(node: ServedNode, name: str) -> Topic:
    """A topic by its name. Raises ChangeRefused."""
    topic = node.logs.machine.state.topics.named(name)
    if topic is None:
        raise _no_topic(name)
    return topic


def _no_topic(name: str) -> ChangeRefused:
    return ChangeRefused(
        FaultCode.UNKNOWN_TOPIC, f"there is no topic {name!r}", "samelog topic list"
    )


def find_partition(node: ServedNode, topic: str, index: int) -> int:
    """The number of a topic's partition. Raises ChangeRefused."""
    found = find_topic(node, topic)
    if index >= found.partitions:
        count = counted(found.partitions, "partition")
        text = f"topic {topic!r} has {count}, no partition {index}"
        raise ChangeRefused(FaultCode.OUT_OF_RANGE, text)
    return found.partition_numbers[index]


def partition_name(machine: StateMachine, number: int) -> tuple[str, int]:
    """(topic, partition) of a number; ("", -1): it is gone."""
    place = place_of(machine.state, number)
    return ("", -1) if place is None else (place[0].name, place[1])


def partition_info(node: ServedNode, number: int) -> PartitionInfo:
    """A partition's cursors and files on this node; none, if other nodes have it."""
    parts = parts_of(node, number)
    logs, raft = parts or (node.logs, node.raft)
    partition = logs.machine.state.partitions.by_number[number]
    merged = logs.merging.look(number)
    segments = merged.log.segments()
    return PartitionInfo(
        topic=merged.topic,
        partition=partition.index,
        start_offset=merged.log.start_offset,
        end_offset=merged.log.next_offset,
        durable_offset=merged.log.durable_offset,
        segments=len(segments),
        size_bytes=sum(segment.size for segment in segments),
        checksum=merged.log.checksum,
        committed_offset=partition.next_offset,
        merged_offset=raft.coordinator.cursors.get(number, 0),
        halted="" if merged.fault is None else merged.fault.message,
        wanted_offset=logs.repair.merged.wanted(number),
        elsewhere="" if parts is not None else where(node, number),
    )


def check_no_mirror(node: ServedNode, topic: Topic) -> None:
    """Raise ChangeRefused for what only a mirror's source decides."""
    reason = why_only_source(node.logs.machine.state, topic)
    if reason is not None:
        raise ChangeRefused(FaultCode.OUT_OF_RANGE, reason, "samelog mirror promote")


# --- changing -------------------------------------------------------------------------------------


def check_partitions(count: int) -> None:
    """Raise ChangeRefused for too many."""
    if count > PARTITIONS_MAX:
        message = f"{count} partitions; allowed are 1 to {PARTITIONS_MAX}"
        raise ChangeRefused(FaultCode.OUT_OF_RANGE, message)


def check_settings(node: ServedNode, settings: dict[str, str], copies: int = 0) -> None:
    """Raise ChangeRefused for the first topic setting that is unknown or out of bounds. `copies` is
    of a topic in data groups; 0: it is on every node.
    """
    majority = (copies or len(node.raft.group.raft.voters)) // 2 + 1
    for key, value in settings.items():
        problem = problem_with(key, value, majority)
        if problem is not None:
            raise ChangeRefused(FaultCode.OUT_OF_RANGE, problem)


def check_libraries(
    node: ServedNode, settings: Mapping[str, str], topic: Topic | None = None
) -> None:
    """Raises ChangeRefused if a member could not check records that nodes are to check."""
    state = node.logs.machine.state
    why = libraries.why_not_from_now_on(node.peers.presence, state, settings, topic)
    if why:
        raise ChangeRefused(FaultCode.OUT_OF_RANGE, why, libraries.REMEDY)


def _copies(node: ServedNode, topic: Topic) -> int:
    """On how many nodes each partition of a topic in data groups is; 0: it is in none."""
    table = node.logs.machine.state.placement
    groups = {table.group_of(number) for number in topic.partition_numbers if topic.is_placed}
    found = [len(table.groups[each].in_order) for each in groups if each in table.groups]
    return min(found, default=0)


async def _propose(node: ServedNode, command: AnyCommand, *, longer_s: float = 0.0) -> None:
    outcome = await node.raft.proposer.propose(command, longer_s=longer_s)
    if isinstance(outcome, Rejection):
        raise _refused(outcome)


def _refused(rejection: Rejection) -> ChangeRefused:
    code = _CODES.get(rejection.code, FaultCode.OUT_OF_RANGE)
    return ChangeRefused(code, rejection.message)
