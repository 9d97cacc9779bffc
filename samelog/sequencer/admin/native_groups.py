"""Answers subscribers about groups: as members, and how far somebody has come.

Invariant: whoever is not allowed a group, or a topic, gets and changes nothing of it.
"""

from __future__ import annotations

from collections.abc import Iterable

from samelog.admin.group_answers import (
    GroupBeaten,
    PositionsNoted,
    ProcessedOffset,
    ProcessedOffsets,
)
from samelog.admin.group_requests import BeatGroup, GetProcessedOffset, NotePositions
from samelog.consensus import NotLeader
from samelog.sequencer.admin.groups import lag_of
from samelog.sequencer.admin.parts import GroupDesk, ServedNode
from samelog.sequencer.admin.topics import find_topic
from samelog.sequencer.cluster.changes import ChangeRefused
from samelog.sequencer.levels import NATIVE_GROUPS
from samelog.wire.errors import FaultCode


async def beat_group(node: ServedNode, request: BeatGroup, identity: str) -> GroupBeaten:
    """Raises ChangeRefused, NotLeader."""
    _check(node, identity, request.group, request.topics)
    _check_level(node)
    return await _desk(node).beat(request, identity)


async def note_positions(node: ServedNode, request: NotePositions, identity: str) -> PositionsNoted:
    """Raises ChangeRefused, NotLeader."""
    _check(node, identity, request.group, (request.topic,))
    topic = find_topic(node, request.topic)
    if topic.log_id != request.topic_id:
        return PositionsNoted(noted=False)
    numbers = topic.partition_numbers
    given = ((int(index), offset) for index, offset in request.offsets.items())
    known = [(numbers[index], offset) for index, offset in given if index < len(numbers)]
    return PositionsNoted(noted=await _desk(node).note(request.group, known))


async def processed_offset(
    node: ServedNode, request: GetProcessedOffset, identity: str
) -> ProcessedOffsets:
    """Raises ChangeRefused, TimeoutError."""
    if not node.member.rights.is_admin(identity):
        _check(node, identity, request.group, (request.topic,))
    await node.raft.proposer.catch_up()
    topic = find_topic(node, request.topic)
    group = node.logs.machine.state.groups.by_id.get(request.group)
    if group is None:
        text = f"there is no group, and no named subscriber, {request.group!r}"
        raise ChangeRefused(FaultCode.UNKNOWN_GROUP, text, "samelog group list")
    found = []
    for index, number in enumerate(topic.partition_numbers):
        known = group.offsets.get(number)
        offset, at_ms = (-1, -1) if known is None else (known.offset, known.at_ms)
        found.append(ProcessedOffset(index, offset, lag_of(node, number, offset), at_ms))
    return ProcessedOffsets(topic.name, tuple(found))


def _check_level(node: ServedNode) -> None:
    """Only who leads knows. Raises ChangeRefused, NotLeader."""
    if not node.raft.group.is_leader:
        raise NotLeader(node.raft.group.raft.leader)
    level = node.raft.replica.level
    if level < NATIVE_GROUPS:
        text = f"groups of subscribers need feature level {NATIVE_GROUPS}, the cluster has {level}"
        is_new = level == 0
        code = FaultCode.NOT_READY if is_new else FaultCode.OUT_OF_RANGE
        raise ChangeRefused(code, text, "samelog cluster upgrade --finalize")


def _desk(node: ServedNode) -> GroupDesk:
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
        if not rights.may_subscribe(identity, topic):
            text = f"{identity} may not subscribe to {topic!r}"
            raise ChangeRefused(FaultCode.NOT_AUTHORISED, text, "grant subscribe with this topic")
