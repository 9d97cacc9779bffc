"""Groups of samelog's own subscribers: the same groups at the same coordinator, with members of one
kind at a time, whose heartbeats commit what they were done with.

Invariant (210): a group's members are all Kafka consumers or all samelog's own subscribers, from
its first member until it is empty; a member is heard from its own identity only.
Also (211): a member commits a partition only while it has it, or has not yet said that it gave it
up: what is committed before a partition goes to another member is never overwritten by the first.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Protocol

import msgspec

from samelog.kafka.codec.error_codes import ErrorCode
from samelog.kafka.groups.requests import GroupBeat, OffsetCommit
from samelog.sequencer.state.tables.groups import ConsumerMember, NativeMember

FIRST_MS = 1_767_225_600_000
"""The beginning of 2026."""
KAFKA, NATIVE = "Kafka consumers", "subscribers of samelog's own"
OTHERS = (
    ErrorCode.inconsistent_group_protocol,
    f"the group has members that are {KAFKA}: {NATIVE} may join once it is empty",
)
"""The answer to a subscriber that joins a group of the classic protocol."""


class MembersOfGroup(Protocol):
    """A group of the consumer protocol."""

    group_id: str
    members: dict[str, ConsumerMember]
    natives: dict[str, NativeMember]

    @property
    def is_native(self) -> bool:
        """Whether its members are samelog's own subscribers."""


def first_epoch(wall_ms: int) -> int:
    """Return a group's first epoch, in seconds. So a group that was deleted and created again
    continues above its old epochs, which members' own databases may remember (T29).
    """
    return max(0, wall_ms - FIRST_MS) // 1000


def stranger(group: MembersOfGroup, request: GroupBeat) -> tuple[ErrorCode, str] | None:
    """Why a member may not be in a group as who it is; None: it may."""
    known = group.natives.get(request.caller.member_id)
    if known is not None and known.identity != request.identity:
        return ErrorCode.group_authorization_failed, "this member is somebody else's"
    if not group.members or group.is_native == (request.identity is not None):
        return None
    has, comes = (NATIVE, KAFKA) if group.is_native else (KAFKA, NATIVE)
    text = f"group {group.group_id!r} has members that are {has}: {comes} may join once it is empty"
    return ErrorCode.inconsistent_group_protocol, text


def committable(group: MembersOfGroup, request: GroupBeat) -> Sequence[OffsetCommit]:
    """Of what a heartbeat commits, what its member may."""
    member = group.members.get(request.caller.member_id)
    if member is None or stranger(group, request) is not None:
        return ()
    if request.caller.generation not in (member.epoch, member.previous_epoch):
        return ()
    return [
        commit
        for commit in request.commits
        if _is_in(member.assigned, commit.partition) or _is_in(member.revoking, commit.partition)
    ]


def _is_in(numbers: Sequence[int], number: int | None) -> bool:
    """Whether sorted numbers have this one: a member may have many, and commit a few of them."""
    place = len(numbers) if number is None else bisect_left(numbers, number)
    return place < len(numbers) and numbers[place] == number


def note(
    group: MembersOfGroup, request: GroupBeat, before: ConsumerMember | None, wall_ms: int
) -> None:
    """Remember who a member is, and when what it has changed."""
    name = request.caller.member_id
    if request.identity is None:
        return
    after, known = group.members[name], group.natives.get(name)
    if known is None:
        known = NativeMember(request.identity, wall_ms, wall_ms)
    elif before is None or _hand(before) != _hand(after):
        known = msgspec.structs.replace(known, moved_ms=wall_ms)
    group.natives[name] = known


def _hand(member: ConsumerMember) -> tuple[list[int], list[int]]:
    return member.assigned, member.revoking
