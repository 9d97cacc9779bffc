"""Answers administrators about consumer groups: list, describe, reset; and subscribers: as members,
and how far somebody has come.

Any node answers, from the replicated state as it was when asked, or newer; members speak to who
leads. Invariant: a group is reset only while it has no members; what is answered is committed;
whoever is not allowed a group, or a topic, gets and changes nothing of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter
from typing import assert_never

from msgspec import UNSET

from samelog.admin import requests
from samelog.admin.answers import (
    GroupDescription,
    GroupInfo,
    GroupMemberInfo,
    GroupPartition,
    GroupRow,
    GroupRows,
)
from samelog.admin.group_answers import (
    GroupBeaten,
    PositionsNoted,
    ProcessedOffset,
    ProcessedOffsets,
)
from samelog.admin.group_requests import BeatGroup, GetProcessedOffset, NotePositions
from samelog.consensus import NotLeader
from samelog.format.consumer_protocol import CONSUMER, assigned_partitions
from samelog.format.errors import LogFormatError
from samelog.format.steps import StepWork
from samelog.placement.values import METADATA
from samelog.runtime.slices import give_way, paced
from samelog.sequencer.admin.parts import (
    KeptElsewhere,
    MembersDesk,
    ServedNode,
    parts_here,
    parts_of,
    where,
)
from samelog.sequencer.admin.topics import find_readable
from samelog.sequencer.cluster.changes import ChangeRefused
from samelog.sequencer.parts import LogParts
from samelog.sequencer.state.command_base import Rejection
from samelog.sequencer.state.places import Living, base_number, named_topic, place_of
from samelog.sequencer.state.tables.groups import (
    ClassicMember,
    CommitOffsets,
    CommittedOffset,
    ConsumerGroupRecord,
    ConsumerMember,
)
from samelog.sequencer.state.tables.topics import Topic
from samelog.sequencer.state.types import State
from samelog.wire.errors import FaultCode

NAME_CHARACTERS = 1024
NOTED_AT_ONCE = 200
"""Positions of one entry, which is made and applied in a turn of the loop each."""
NEVER_COMMITTED = CommittedOffset(-1, -1, "", -1)


async def list_groups(node: ServedNode, request: requests.ListGroups) -> GroupRows:
    """All groups, and how far they are behind. Raises TimeoutError."""
    await node.raft.proposer.catch_up()
    return GroupRows(tuple(await paced(_group_rows(node))))


def _group_rows(node: ServedNode) -> StepWork[list[GroupRow]]:
    known, found = node.logs.machine.state.groups.by_id, []
    for name, group in tuple(known.items()):
        found.append((yield from group_row(node, name, group)))
        yield
    return found


async def describe_group(node: ServedNode, request: requests.DescribeGroup) -> GroupDescription:
    """One group. Raises ChangeRefused, NotLeader, TimeoutError."""
    await node.raft.proposer.catch_up()
    if request.by_coordinator and not node.raft.group.is_leader:
        raise NotLeader(node.raft.group.raft.leader)
    return await paced(_describe(node, request.group))


async def reset_group(node: ServedNode, request: requests.ResetGroup) -> GroupDescription:
    """Have its offsets set. Raises KeptElsewhere, ChangeRefused, TimeoutError."""
    await node.raft.proposer.catch_up()
    await _reset(node, request)
    return await paced(_describe(node, request.group))


def group_lags(node: ServedNode, group: ConsumerGroupRecord) -> StepWork[dict[int, int]]:
    """Return the lag in each partition of a group, of topics and views, that this node has.

    The lag of a partition without a committed offset is that of its first record: only the group's
    clients know their `auto.offset.reset`.
    """
    state, lags = node.logs.machine.state, dict[int, int]()
    for number, known in (yield from positions(state, group)).items():
        if number in Living(state):
            lag = lag_of(node, base_number(state, number), -1 if known is None else known.offset)
            if lag is not None:
                lags[number] = lag
        yield
    return lags


def positions(
    state: State, group: ConsumerGroupRecord
) -> StepWork[dict[int, CommittedOffset | None]]:
    """The committed offset of each partition that the group committed in, or has assigned to its
    members (None: it committed none there).
    """
    found: dict[int, CommittedOffset | None] = {}
    for consumer in tuple(group.consumers.values()):
        found |= dict.fromkeys(consumer.assigned)
        yield
    for member in tuple(group.members.values()):
        for topic, indexes in _assigned(state, group, member):
            found |= dict.fromkeys(map(topic.partition_numbers.__getitem__, indexes))
            yield
    return found | group.offsets


def _assigned(
    state: State, group: ConsumerGroupRecord, member: ClassicMember
) -> Iterator[tuple[Topic, Sequence[int]]]:
    """The existing partitions that a member of a classic group has, by topic."""
    if group.protocol_type != CONSUMER:
        return
    for name, indexes in assigned_partitions(member.assignment):
        topic = named_topic(state, name)
        if topic is not None:
            yield topic, [each for each in dict.fromkeys(indexes) if 0 <= each < topic.partitions]


def lag_of(node: ServedNode, number: int, offset: int) -> int | None:
    """How many records a partition has from an offset on; None: other nodes have it."""
    if parts_of(node, number) is None:
        return None
    begin, end = _span(node, number)
    return max(0, end - max(offset, begin))


def group_row(node: ServedNode, name: str, group: ConsumerGroupRecord) -> StepWork[GroupRow]:
    """A group, as this node knows it now."""
    lags = yield from group_lags(node, group)
    elsewhere = yield from _elsewhere(node, group)
    return GroupRow(*_facts(name, group), sum(lags.values()), elsewhere)


def _elsewhere(node: ServedNode, group: ConsumerGroupRecord) -> StepWork[int]:
    """Count the partitions of a group that this node does not have."""
    state, count = node.logs.machine.state, 0
    if state.placement.groups:
        for number in (yield from positions(state, group)):
            count += number in Living(state) and bool(_where(node, number))
            yield
    return count


def _where(node: ServedNode, number: int) -> str:
    """The nodes that have a partition, if this one does not."""
    base = base_number(node.logs.machine.state, number)
    placed = node.logs.machine.state.placement.group_of(base)
    return where(node, base) if placed and parts_of(node, base) is None else ""


def _facts(name: str, group: ConsumerGroupRecord) -> tuple[str, str, str, str, int, int]:
    """The fields of a GroupInfo."""
    return (
        name,
        group.state_name,
        "native" if group.natives else group.protocol_type[:NAME_CHARACTERS],
        (group.protocol or "")[:NAME_CHARACTERS],
        len(group.members) + len(group.consumers),
        group.generation,
    )


def _describe(node: ServedNode, name: str) -> StepWork[GroupDescription]:
    state = node.logs.machine.state
    group = state.groups.by_id.get(name)
    if group is None:
        text = f"there is no group {name!r}"
        raise ChangeRefused(FaultCode.UNKNOWN_GROUP, text, "samelog group list")
    members = []
    for each in tuple(group.members.values()):
        member = yield from _classic(state, group, each)
        members.append(member)
    for consumer in tuple(group.consumers.values()):
        member = yield from _consumer(node, name, group, consumer)
        members.append(member)
    partitions = []
    for number, committed in (yield from positions(state, group)).items():
        partitions.append(_partition(node, number, committed))
        yield
    partitions.sort(key=attrgetter("topic", "partition"))
    info = GroupInfo(*_facts(name, group))
    return GroupDescription(info, tuple(members), tuple(partitions))


def _classic(
    state: State, group: ConsumerGroupRecord, member: ClassicMember
) -> StepWork[GroupMemberInfo]:
    places: list[tuple[str, int]] = []
    for topic, indexes in _assigned(state, group, member):
        places += [(topic.name, index) for index in indexes]
        yield
    return GroupMemberInfo(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host,
        member.assignment,
        tuple(places),
    )


def _consumer(
    node: ServedNode, group: str, known: ConsumerGroupRecord, member: ConsumerMember
) -> StepWork[GroupMemberInfo]:
    """A member by the consumer protocol, whose partitions the cluster knows itself."""
    state, name = node.logs.machine.state, member.member_id
    native = known.natives.get(name)
    desk = node.group_desk
    heard_ms, polled_ms = (-1, -1) if desk is None else desk.times(group, name)
    names = []
    for number in tuple(member.assigned):
        place = place_of(state, number)
        if place is not None:
            names.append((place[0].name, place[1]))
        yield
    return GroupMemberInfo(
        name,
        member.instance_id,
        member.client_id,
        member.client_host,
        b"",
        tuple(names),
        identity="" if native is None else native.identity,
        joined_ms=-1 if native is None else native.joined_ms,
        moved_ms=-1 if native is None else native.moved_ms,
        heard_ms=heard_ms,
        polled_ms=polled_ms,
    )


def _partition(node: ServedNode, number: int, known: CommittedOffset | None) -> GroupPartition:
    state = node.logs.machine.state
    known = NEVER_COMMITTED if known is None else known
    topic, index = place_of(state, number) or (None, 0)
    begin, end = (0, 0) if topic is None else _span(node, number)
    return GroupPartition(
        "" if topic is None else topic.name,
        index,
        begin,
        end,
        max(-1, known.offset),
        max(0, end - max(known.offset, begin)),
        known.at_ms,
        known.metadata,
        "" if topic is None else _where(node, number),
    )


def _span(node: ServedNode, number: int) -> tuple[int, int]:
    """The offsets of a partition that are there: the first, and the one behind the last. (0, 0):
    other nodes have it.
    """
    number = base_number(node.logs.machine.state, number)
    parts = parts_of(node, number)
    if parts is None:
        return 0, 0
    logs = parts[0]
    merged = logs.merging.partitions.get(number)
    begin = 0 if merged is None else merged.log.start_offset
    return begin, logs.machine.state.partitions.by_number[number].next_offset


async def _reset(node: ServedNode, request: requests.ResetGroup) -> None:
    topic = find_readable(node, request.topic)
    numbers = topic.partition_numbers
    if request.partition is not UNSET:
        numbers = numbers[request.partition : request.partition + 1]
        if not numbers:
            last = topic.partitions - 1
            message = f"{request.topic!r} has no partition {request.partition}"
            raise ChangeRefused(FaultCode.OUT_OF_RANGE, message, f"they are 0 to {last}")
    else:
        _check_together(node, request.topic, numbers)
    now_ms = node.member.clock.wall_ms()
    await _catch_up(node, numbers)
    offsets = [(number, _target(node, number, request, now_ms)) for number in numbers]
    command = CommitOffsets([(request.group, offsets)], only_empty=True)
    outcome = await node.raft.proposer.propose(command)
    if isinstance(outcome, Rejection):
        raise ChangeRefused(FaultCode.GROUP_IN_USE, outcome.message, "stop its consumers first")


def _check_together(node: ServedNode, topic: str, numbers: Sequence[int]) -> None:
    """Raises KeptElsewhere if another node has all of these partitions, ChangeRefused if none has:
    what is asked for is done at once, or not at all.
    """
    table = node.logs.machine.state.placement
    bases = [base_number(node.logs.machine.state, number) for number in numbers]
    lacking = [index for index, base in enumerate(bases) if parts_of(node, base) is None]
    groups = {table.group_of(base) for base in bases} - {METADATA}
    if not lacking or len(groups) == 1:
        return
    holders = [set(table.groups[each].members) for each in groups]
    shared = holders[0].intersection(*holders) - {node.peers.number}
    there = filter(node.peers.presence.is_there, shared)
    if (holder := next(there, None)) is not None:
        raise KeptElsewhere(holder)
    text = f"no node has all of {topic!r}; partition {lacking[0]} is on "
    text += _where(node, numbers[lacking[0]])
    raise ChangeRefused(FaultCode.OUT_OF_RANGE, text, "reset one partition after the other")


async def _catch_up(node: ServedNode, numbers: Iterable[int]) -> None:
    """Have what is committed in the data groups of partitions. Raises KeptElsewhere, ChangeRefused,
    TimeoutError.
    """
    state = node.logs.machine.state
    for number in numbers:
        if state.placement.group_of(base := base_number(state, number)):
            await parts_here(node, base)[1].proposer.catch_up()


def _target(
    node: ServedNode, number: int, request: requests.ResetGroup, now_ms: int
) -> CommittedOffset:
    base = base_number(node.logs.machine.state, number)
    parts, logs = parts_here(node, base), node.logs
    begin, end = _span(node, number)
    asked = 0 if request.offset is UNSET else request.offset
    match request.to:
        case "earliest":
            offset = begin
        case "latest":
            offset = end
        case "time":
            offset = _at_time(parts[0], base, asked)
        case "shift":
            offset = max(begin, min(end, _committed(logs, number, request.group) + asked))
        case "offset":
            offset = asked
        case _:
            assert_never(request.to)
    if not begin <= offset <= end:
        name = f"partition {_index(logs, number)}"
        message = f"{name} has the offsets {begin} to {end}, not {offset}"
        raise ChangeRefused(FaultCode.OUT_OF_RANGE, message)
    return CommittedOffset(offset, -1, "", now_ms)


def _index(logs: LogParts, number: int) -> int:
    place = place_of(logs.machine.state, number)
    return -1 if place is None else place[1]


def _at_time(logs: LogParts, number: int, timestamp_ms: int) -> int:
    """The offset of the first record of that time or a later one; the end if there is none."""
    end = logs.machine.state.partitions.by_number[number].next_offset
    merged = logs.merging.look(number)
    if merged.fault is not None or merged.log.next_offset < end:
        message = f"this node does not have all of partition {_index(logs, number)} yet"
        raise ChangeRefused(FaultCode.NOT_READY, message, "ask again")
    try:
        found = merged.log.locate_record(timestamp_ms)
    except LogFormatError as error:
        raise ChangeRefused(FaultCode.NOT_READY, str(error), "ask another node") from error
    return end if found is None else found[0]


def _committed(logs: LogParts, number: int, name: str) -> int:
    group = logs.machine.state.groups.by_id.get(name)
    known = None if group is None else group.offsets.get(number)
    if known is None or known.offset < 0:
        message = f"group {name!r} has committed nothing in partition {_index(logs, number)}"
        raise ChangeRefused(FaultCode.OUT_OF_RANGE, message, "set it to an offset")
    return known.offset


# --- members, and how far somebody has come -------------------------------------------------------


async def beat_group(node: ServedNode, request: BeatGroup, identity: str) -> GroupBeaten:
    """Raises ChangeRefused, NotLeader."""
    _check(node, identity, request.group, ())
    for topic in request.topics:
        await give_way()
        _check_topic(node, identity, topic)
    if not node.raft.group.is_leader:
        raise NotLeader(node.raft.group.raft.leader)
    return await _desk(node).beat(request, identity)


async def note_positions(node: ServedNode, request: NotePositions, identity: str) -> PositionsNoted:
    """Raises ChangeRefused, NotLeader."""
    _check(node, identity, request.group, (request.topic,))
    topic = find_readable(node, request.topic)
    if topic.log_id != request.topic_id:
        return PositionsNoted(noted=False)
    numbers, given = topic.partition_numbers, tuple(request.offsets.items())
    for start in range(0, len(given) or 1, NOTED_AT_ONCE):
        await give_way()
        some = given[start : start + NOTED_AT_ONCE]
        known = [(numbers[int(n)], offset) for n, offset in some if int(n) < len(numbers)]
        if not await _desk(node).note(request.group, known):
            return PositionsNoted(noted=False)
    return PositionsNoted(noted=True)


async def processed_offset(
    node: ServedNode, request: GetProcessedOffset, identity: str
) -> ProcessedOffsets:
    """Raises ChangeRefused, TimeoutError."""
    if not node.member.rights.is_admin(identity):
        _check(node, identity, request.group, (request.topic,))
    await node.raft.proposer.catch_up()
    topic = find_readable(node, request.topic)
    group = node.logs.machine.state.groups.by_id.get(request.group)
    if group is None:
        text = f"there is no group, and no named subscriber, {request.group!r}"
        raise ChangeRefused(FaultCode.UNKNOWN_GROUP, text, "samelog group list")
    return ProcessedOffsets(topic.name, tuple(await paced(_processed(node, topic, group))))


def _processed(
    node: ServedNode, topic: Topic, group: ConsumerGroupRecord
) -> StepWork[list[ProcessedOffset]]:
    found, state = [], node.logs.machine.state
    for index, number in enumerate(tuple(topic.partition_numbers)):
        known = group.offsets.get(number)
        offset, at_ms = (-1, -1) if known is None else (known.offset, known.at_ms)
        lag = lag_of(node, number, offset) if number in Living(state) else None
        found.append(ProcessedOffset(index, offset, lag, at_ms))
        yield
    return found


def _desk(node: ServedNode) -> MembersDesk:
    if node.group_desk is None:
        raise ChangeRefused(FaultCode.NOT_READY, "this node coordinates no groups", "ask another")
    return node.group_desk


def _check(node: ServedNode, identity: str, group: str, topics: Iterable[str]) -> None:
    """Raises ChangeRefused."""
    rights = node.member.rights
    if not rights.may_use_group(identity, group):
        text = f"{identity} may not use group {group!r}"
        raise ChangeRefused(FaultCode.NOT_AUTHORISED, text, "grant subscribe with this group")
    for topic in topics:
        _check_topic(node, identity, topic)


def _check_topic(node: ServedNode, identity: str, topic: str) -> None:
    """Raises ChangeRefused."""
    if not node.member.rights.may_subscribe(identity, topic):
        text = f"{identity} may not subscribe to {topic!r}"
        raise ChangeRefused(FaultCode.NOT_AUTHORISED, text, "grant subscribe with this topic")
