"""Answers administrators about consumer groups: list, describe, reset.

Any node answers, from the replicated state as it was when asked, or newer. Invariant: a group is
reset only while it has no members; what is answered is committed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from samelog.format.errors import LogFormatError
from samelog.sequencer.cluster.changes import ChangeRefused
from samelog.sequencer.state.group_commands import CommitOffsets, ConsumerMember, Offset
from samelog.sequencer.state.group_state import Group
from samelog.sequencer.state.types import Rejection
from samelog.wire import admin_groups as wire
from samelog.wire.errors import FaultCode

if TYPE_CHECKING:
    from samelog.sequencer.node import Node


async def serve_groups(node: Node, request: wire.GroupRequest) -> wire.GroupResponse:
    """Do what is asked. Raises ChangeRefused or TimeoutError."""
    await node.proposer.catch_up()
    match request:
        case wire.ListGroups():
            groups = node.replica.machine.state.groups.by_id
            return wire.Groups(tuple(_info(name, group) for name, group in groups.items()))
        case wire.DescribeGroup():
            return _describe(node, request.group)
        case wire.ResetGroup():
            await _reset(node, request)
            return _describe(node, request.group)


def _info(name: str, group: Group) -> wire.GroupInfo:
    return wire.GroupInfo(
        name,
        group.state_name,
        group.protocol_type[:1024],
        (group.protocol or "")[:1024],
        len(group.members) + len(group.consumers),
        group.generation,
    )


def _describe(node: Node, name: str) -> wire.GroupDescription:
    group = node.replica.machine.state.groups.by_id.get(name)
    if group is None:
        raise ChangeRefused(
            FaultCode.UNKNOWN_GROUP, f"there is no group {name!r}", "samelog group list"
        )
    members = tuple(
        wire.MemberInfo(
            each.member_id, each.instance_id, each.client_id, each.client_host, each.assignment
        )
        for each in group.members.values()
    )
    consumers = tuple(_consumer(node, each) for each in group.consumers.values())
    partitions = sorted(_partition(node, number, known) for number, known in group.offsets.items())
    return wire.GroupDescription(_info(name, group), members + consumers, tuple(partitions))


def _consumer(node: Node, member: ConsumerMember) -> wire.MemberInfo:
    """A member by the consumer protocol, whose partitions the cluster knows itself."""
    state = node.replica.machine.state
    living = (state.partitions[n] for n in member.assigned if n in state.partitions)
    places = tuple((state.topics[each.topic_id].name, each.index) for each in living)
    return wire.MemberInfo(
        member.member_id, member.instance_id, member.client_id, member.client_host, b"", places
    )


def _partition(node: Node, number: int, known: Offset) -> wire.GroupPartition:
    state = node.replica.machine.state
    partition = state.partitions[number]
    begin, end = _span(node, number)
    return wire.GroupPartition(
        state.topics[partition.topic_id].name,
        partition.index,
        begin,
        end,
        max(-1, known.offset),
        max(0, end - max(known.offset, begin)),
        known.at_ms,
        known.metadata,
    )


def _span(node: Node, number: int) -> tuple[int, int]:
    """The offsets of a partition that are there: the first, and the one behind the last."""
    merged = node.merging.partitions.get(number)
    begin = 0 if merged is None else merged.log.start_offset
    return begin, node.replica.machine.state.partitions[number].next_offset


async def _reset(node: Node, request: wire.ResetGroup) -> None:
    topic = node.replica.machine.topic_named(request.topic)
    if topic is None:
        message = f"there is no topic {request.topic!r}"
        raise ChangeRefused(FaultCode.UNKNOWN_TOPIC, message, "samelog topic list")
    numbers = topic.partition_numbers
    if request.partition is not None:
        numbers = numbers[request.partition : request.partition + 1]
        if not numbers:
            last = topic.partitions - 1
            message = f"{request.topic!r} has no partition {request.partition}"
            raise ChangeRefused(FaultCode.OUT_OF_RANGE, message, f"they are 0 to {last}")
    now_ms = node.clock.wall_ms()
    offsets = [(number, _target(node, number, request, now_ms)) for number in numbers]
    command = CommitOffsets([(request.group, offsets)], only_empty=True)
    outcome = await node.proposer.propose(command)
    if isinstance(outcome, Rejection):
        raise ChangeRefused(FaultCode.GROUP_IN_USE, outcome.message, "stop its consumers first")


def _target(node: Node, number: int, request: wire.ResetGroup, now_ms: int) -> Offset:
    begin, end = _span(node, number)
    match request.to:
        case wire.ResetTo.EARLIEST:
            offset = begin
        case wire.ResetTo.LATEST:
            offset = end
        case wire.ResetTo.TIME:
            offset = _at_time(node, number, request.offset)
        case wire.ResetTo.SHIFT:
            offset = max(begin, min(end, _committed(node, number, request) + request.offset))
        case _:
            offset = request.offset
    if not begin <= offset <= end:
        message = f"partition {_index(node, number)} has the offsets {begin} to {end}, not {offset}"
        raise ChangeRefused(FaultCode.OUT_OF_RANGE, message)
    return Offset(offset, -1, "", now_ms)


def _index(node: Node, number: int) -> int:
    return node.replica.machine.state.partitions[number].index


def _at_time(node: Node, number: int, timestamp_ms: int) -> int:
    """The offset of the first record of that time or a later one; the end if there is none."""
    end = node.replica.machine.state.partitions[number].next_offset
    merged = node.merging.partitions.get(number)
    if merged is None or merged.fault is not None or merged.log.next_offset < end:
        message = f"this node does not have all of partition {_index(node, number)} yet"
        raise ChangeRefused(FaultCode.NOT_READY, message, "ask again")
    try:
        found = merged.log.locate_record(timestamp_ms)
    except LogFormatError as error:
        raise ChangeRefused(FaultCode.NOT_READY, str(error), "ask another node") from error
    return end if found is None else found[0]


def _committed(node: Node, number: int, request: wire.ResetGroup) -> int:
    group = node.replica.machine.state.groups.by_id.get(request.group)
    known = None if group is None else group.offsets.get(number)
    if known is None or known.offset < 0:
        message = (
            f"group {request.group!r} has committed nothing in partition {_index(node, number)}"
        )
        raise ChangeRefused(FaultCode.OUT_OF_RANGE, message, "set it to an offset")
    return known.offset
