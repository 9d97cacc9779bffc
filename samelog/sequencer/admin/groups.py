"""Answers administrators about consumer groups: list, describe, reset.

Any node answers, from the replicated state as it was when asked, or newer. Invariant: a group is
reset only while it has no members; what is answered is committed.
"""

from __future__ import annotations

from collections.abc import Iterator
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
from samelog.format.errors import LogFormatError
from samelog.sequencer.admin.parts import ServedNode, parts_here, parts_of
from samelog.sequencer.admin.topics import find_readable
from samelog.sequencer.cluster.changes import ChangeRefused
from samelog.sequencer.parts import LogParts
from samelog.sequencer.state.group_commands import CommitOffsets, CommittedOffset, ConsumerMember
from samelog.sequencer.state.group_state import GroupState
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.types import Rejection
from samelog.sequencer.state.views.places import base_number, place_of
from samelog.wire.errors import FaultCode

NAME_CHARACTERS = 1024


async def list_groups(node: ServedNode, request: requests.ListGroups) -> GroupRows:
    """All groups, and how far they are behind. Raises TimeoutError."""
    await node.raft.proposer.catch_up()
    known = node.logs.machine.state.groups.by_id
    return GroupRows(tuple(group_row(node, name, group) for name, group in known.items()))


async def describe_group(node: ServedNode, request: requests.DescribeGroup) -> GroupDescription:
    """One group. Raises ChangeRefused, TimeoutError."""
    await node.raft.proposer.catch_up()
    return _describe(node, request.group)


async def reset_group(node: ServedNode, request: requests.ResetGroup) -> GroupDescription:
    """Have its offsets set. Raises ChangeRefused, TimeoutError."""
    await node.raft.proposer.catch_up()
    await _reset(node, request)
    return _describe(node, request.group)


def group_lags(node: ServedNode, group: GroupState) -> Iterator[tuple[int, int]]:
    """(partition's number, records that are there and not committed), of what this node has."""
    for number, known in group.offsets.items():
        if number in node.logs.machine.state.partitions:
            begin, end = _span(node, number)
            yield number, max(0, end - max(known.offset, begin))


def group_row(node: ServedNode, name: str, group: GroupState) -> GroupRow:
    """A group, as this node knows it now."""
    return GroupRow(*_facts(name, group), sum(lag for _, lag in group_lags(node, group)))


def _facts(name: str, group: GroupState) -> tuple[str, str, str, str, int, int]:
    """The fields of a GroupInfo."""
    return (
        name,
        group.state_name,
        group.protocol_type[:NAME_CHARACTERS],
        (group.protocol or "")[:NAME_CHARACTERS],
        len(group.members) + len(group.consumers),
        group.generation,
    )


def _describe(node: ServedNode, name: str) -> GroupDescription:
    logs = node.logs
    group = logs.machine.state.groups.by_id.get(name)
    if group is None:
        text = f"there is no group {name!r}"
        raise ChangeRefused(FaultCode.UNKNOWN_GROUP, text, "samelog group list")
    members = tuple(
        GroupMemberInfo(
            each.member_id, each.instance_id, each.client_id, each.client_host, each.assignment
        )
        for each in group.members.values()
    )
    consumers = tuple(_consumer(logs.machine, each) for each in group.consumers.values())
    partitions = [_partition(node, number, known) for number, known in group.offsets.items()]
    partitions.sort(key=lambda each: (each.topic, each.partition))
    info = GroupInfo(*_facts(name, group))
    return GroupDescription(info, members + consumers, tuple(partitions))


def _consumer(machine: StateMachine, member: ConsumerMember) -> GroupMemberInfo:
    """A member by the consumer protocol, whose partitions the cluster knows itself."""
    state = machine.state
    living = (place_of(state, number) for number in member.assigned)
    names = tuple((each[0].name, each[1]) for each in living if each is not None)
    return GroupMemberInfo(
        member.member_id, member.instance_id, member.client_id, member.client_host, b"", names
    )


def _partition(node: ServedNode, number: int, known: CommittedOffset) -> GroupPartition:
    state = node.logs.machine.state
    topic, index = place_of(state, number) or (None, 0)
    begin, end = _span(node, number)
    return GroupPartition(
        "" if topic is None else topic.name,
        index,
        begin,
        end,
        max(-1, known.offset),
        max(0, end - max(known.offset, begin)),
        known.at_ms,
        known.metadata,
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
    return begin, logs.machine.state.partitions[number].next_offset


async def _reset(node: ServedNode, request: requests.ResetGroup) -> None:
    topic = find_readable(node, request.topic)
    numbers = topic.partition_numbers
    if request.partition is not UNSET:
        numbers = numbers[request.partition : request.partition + 1]
        if not numbers:
            last = topic.partitions - 1
            message = f"{request.topic!r} has no partition {request.partition}"
            raise ChangeRefused(FaultCode.OUT_OF_RANGE, message, f"they are 0 to {last}")
    now_ms = node.member.clock.wall_ms()
    offsets = [(number, _target(node, number, request, now_ms)) for number in numbers]
    command = CommitOffsets([(request.group, offsets)], only_empty=True)
    outcome = await node.raft.proposer.propose(command)
    if isinstance(outcome, Rejection):
        raise ChangeRefused(FaultCode.GROUP_IN_USE, outcome.message, "stop its consumers first")


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
    end = logs.machine.state.partitions[number].next_offset
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
