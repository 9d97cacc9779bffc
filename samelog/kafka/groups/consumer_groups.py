"""Groups of the consumer protocol (KIP-848): epochs, targets, and what each member has.

A change of members, subscriptions or topics raises the group's epoch and gives a new target. Each
member goes there at its own pace: it first gives up what is not its own any more, and gets what
others have given up as soon as they have.

A heartbeat is joining, staying, moving to another assignment and leaving, all in one.

Invariant: no partition is with two members, counting those that a member was asked to give up and
has not confirmed.
Also: an assignment is proposed before its member is told of it; a member that does not give
up what it was asked to within its rebalance timeout is fenced.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import msgspec

from samelog.config.tables.kafka import GroupLimits
from samelog.kafka.codec.error_codes import ErrorCode
from samelog.kafka.groups import natives
from samelog.kafka.groups.assignors import ASSIGNORS, DEFAULT
from samelog.kafka.groups.outbox import Outbox, Requester
from samelog.kafka.groups.patterns import topics_version
from samelog.kafka.groups.requests import Beaten, Caller, GroupBeat
from samelog.sequencer.state.tables.access import SESSION_MS
from samelog.sequencer.state.tables.groups import (
    ConsumerGroupRecord,
    ConsumerMember,
    NativeMember,
    Phase,
    SaveConsumerGroup,
    SaveNativeGroup,
)
from samelog.sequencer.state.types import State

ValueT = TypeVar("ValueT")
LEFT_FOR_A_WHILE = -2
"""The epoch of a static member that will come back."""


GroupSaved = tuple[dict[str, ConsumerMember], dict[str, list[int]], dict[str, NativeMember]]


@dataclass(slots=True)
class ConsumerGroup:
    """A group of the consumer protocol, as its coordinator sees it."""

    group_id: str
    epoch: int = 0
    since_ms: int = 0
    members: dict[str, ConsumerMember] = field(default_factory=dict)
    targets: dict[str, list[int]] = field(default_factory=dict)
    was_used: bool = False
    natives: dict[str, NativeMember] = field(default_factory=dict)
    heard: dict[str, tuple[int, int]] = field(default_factory=dict)
    """When members were heard of last, and polled, since this coordinator is one."""
    topics_seen: tuple[int, int] | None = None
    """The version of topics whose partitions the targets have."""
    saved: GroupSaved = ({}, {}, {})

    @classmethod
    def restored(cls, group_id: str, state: ConsumerGroupRecord) -> ConsumerGroup:
        """A group as the replicated state remembers it."""
        group = cls(group_id, state.generation, state.since_ms)
        group.members, group.targets = dict(state.consumers), dict(state.targets)
        group.natives = dict(state.natives)
        group.note_saved()
        return group

    # --- questions --------------------------------------------------------------------------------

    @property
    def protocol_type(self) -> str:
        """Always "consumer"."""
        return "consumer"

    @property
    def is_native(self) -> bool:
        """Whether its members are samelog's own subscribers."""
        return bool(self.natives)

    @property
    def phase(self) -> Phase:
        """Whether there are members."""
        return Phase.STABLE if self.members else Phase.EMPTY

    @property
    def is_waiting(self) -> bool:
        """False: in this protocol no client waits to become a member."""
        return False

    @property
    def state_name(self) -> str:
        """Kafka's name of where the group stands."""
        if not self.members:
            return "Empty"
        return "Stable" if all(map(self.is_settled, self.members.values())) else "Reconciling"

    def subscriptions(self) -> set[str]:
        """All topics that members subscribe to."""
        return {topic for member in self.members.values() for topic in member.subscribed}

    def is_settled(self, member: ConsumerMember) -> bool:
        """Whether a member has what it is to have."""
        has = sorted(member.assigned) == self.targets.get(member.member_id, [])
        return has and not member.revoking and member.epoch in (self.epoch, LEFT_FOR_A_WHILE)

    @property
    def assignor(self) -> str:
        """The assignor that most members ask for."""
        votes: dict[str, int] = {}
        for member in self.members.values():
            if member.assignor is not None:
                votes[member.assignor] = votes.get(member.assignor, 0) + 1
        return max(sorted(votes), key=lambda name: votes[name], default=DEFAULT)

    def holder_of(self, instance_id: str) -> ConsumerMember | None:
        """The static member with an instance id."""
        return next((m for m in self.members.values() if m.instance_id == instance_id), None)

    # --- changes ----------------------------------------------------------------------------------

    def match(self, members: Sequence[ConsumerMember], topics: list[str]) -> None:
        """Their expressions mean these topics now."""
        for member in members:
            self._set(member, matched=topics)

    def retarget(self, topics: Mapping[str, Sequence[int]]) -> None:
        """Begin a new epoch, with these partitions of the subscribed topics."""
        self.epoch += 1
        subscriptions = {name: member.subscribed for name, member in self.members.items()}
        self.targets = ASSIGNORS[self.assignor](subscriptions, topics, self.targets)

    def reconcile(self, member_id: str) -> None:
        """Take a member as far towards its target as the others allow."""
        member = self.members[member_id]
        if member.revoking or (self.is_settled(member) and member.epoch == self.epoch):
            return
        target = set(self.targets.get(member_id, ()))
        kept = [number for number in member.assigned if number in target]
        surplus = [number for number in member.assigned if number not in target]
        if surplus:
            self._set(member, assigned=kept, revoking=surplus)
            return
        assigned = sorted(target - self._held_by_others(member_id))
        previous = member.previous_epoch if member.epoch == self.epoch else member.epoch
        self._set(member, assigned=assigned, epoch=self.epoch, previous_epoch=previous)

    def _held_by_others(self, member_id: str) -> set[int]:
        """The partitions that other members have, or have not given up yet."""
        return {
            number
            for name, other in self.members.items()
            if name != member_id
            for number in (*other.assigned, *other.revoking)
        }

    def confirm(self, member_id: str, owned: Iterable[int]) -> bool:
        """A member says what it owns: whether it has given up what it was asked to."""
        member = self.members[member_id]
        if not member.revoking or not set(member.revoking).isdisjoint(owned):
            return False
        self._set(member, revoking=[])
        return True

    def _set(self, member: ConsumerMember, **changes: object) -> None:
        changed = msgspec.structs.replace(member, **changes)
        if changed != member:
            self.members[member.member_id] = changed

    def note_saved(self) -> None:
        """The replicated state is equal to this, or will be."""
        self.saved = (dict(self.members), dict(self.targets), dict(self.natives))

    def difference(self) -> SaveConsumerGroup | None:
        """What makes the replicated state equal to this, and is taken to be proposed."""
        members, targets, natives = self.saved
        changed = [member for _, member in _news(self.members, members)]
        gone = [name for name in members if name not in self.members]
        moved = _news(self.targets, targets)
        noted = _news(self.natives, natives)
        self.note_saved()
        if not (changed or gone or moved or noted):
            return None
        said = self.group_id, self.epoch, changed, gone, moved, self.since_ms
        return SaveNativeGroup(*said, noted) if noted else SaveConsumerGroup(*said)


def _news(now: Mapping[str, ValueT], before: Mapping[str, ValueT]) -> list[tuple[str, ValueT]]:
    """What is new, or is not as it was."""
    return [
        (name, value)
        for name, value in now.items()
        if (known := before.get(name)) is not value and known != value
    ]


CONSUMER, REVOKING = "consumer ", "revoking "
"""Names of members' deadlines."""
JOIN, LEAVE = 0, -1


class _HeartbeatRejected(Exception):
    def __init__(self, error: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.error = error
        self.message = message


class ConsumerGroups:
    """All groups of the consumer protocol."""

    def __init__(self, outbox: Outbox, limits: GroupLimits, state: State) -> None:
        self.groups: dict[str, ConsumerGroup] = {}
        self._outbox = outbox
        self._limits = limits
        self._state = state

    def take_over(self, group: ConsumerGroup) -> None:
        """A group of an earlier leader: members have a whole session timeout to find us."""
        self.groups[group.group_id] = group
        for member in group.members.values():
            self._keep_alive(group, member)
            if member.revoking:
                self._limit_revoking(group, member)

    # --- the request ------------------------------------------------------------------------------

    def beat(
        self,
        group: ConsumerGroup,
        request: GroupBeat,
        waiter: Requester,
        not_committed: tuple[int, ...] = (),
    ) -> None:
        """Answer a heartbeat."""
        group.was_used = True
        try:
            refused = natives.stranger(group, request)
            if refused is not None:
                raise _HeartbeatRejected(*refused)
            if request.leaves or request.caller.generation in (LEAVE, LEFT_FOR_A_WHILE):
                answer = self._leave(group, request.caller)
            else:
                answer = self._stay(group, request)
        except _HeartbeatRejected as refused:
            name, epoch = request.caller.member_id, request.caller.generation
            answer = Beaten(refused.error, name, epoch, None, refused.message)
        self._save(group)
        self._outbox.answer(waiter, replace(answer, not_committed=not_committed))

    def _stay(self, group: ConsumerGroup, request: GroupBeat) -> Beaten:
        caller = request.caller
        if request.assignor is not None and request.assignor not in ASSIGNORS:
            known = ", ".join(sorted(ASSIGNORS))
            raise _HeartbeatRejected(ErrorCode.unsupported_assignor, f"known are {known}")
        before = group.members.get(caller.member_id)
        matched = _matched(before, request)
        alike = _alike(group, before, request, matched)
        if request.topics is not None or before is None or before.matched != matched:
            self._check_size(group, request, matched, alike)
        joins = caller.generation == JOIN
        member = self._joined(group, request) if joins else self._checked(group, request)
        updated = _updated(member, request, matched)
        group.members[caller.member_id] = updated
        group.match(alike, matched)
        if before is None or _wishes(before) != _wishes(updated) or self._topics_moved(group):
            self._retarget(group)
        self._keep_alive(group, updated)
        self._move(group, request)
        after = group.members[caller.member_id]
        natives.note(group, request, before, self._outbox.wall_ms)
        group.heard[caller.member_id] = self._outbox.wall_ms, request.polled_ms
        changed = before is None or before.assigned != after.assigned
        stale = caller.generation != after.epoch or request.owned is not None
        told = tuple(after.assigned) if joins or changed or stale else None
        return Beaten(ErrorCode.none, after.member_id, after.epoch, told)

    def _move(self, group: ConsumerGroup, request: GroupBeat) -> None:
        name = request.caller.member_id
        if request.caller.generation == JOIN:
            group.confirm(name, ())
        elif request.owned is not None:
            group.confirm(name, request.owned)
        group.reconcile(name)
        member = group.members[name]
        if not member.revoking:
            self._outbox.timers.cancel(group.group_id, REVOKING + name)
        elif not self._outbox.timers.runs(group.group_id, REVOKING + name):
            self._limit_revoking(group, member)

    # --- who may ----------------------------------------------------------------------------------

    def _joined(self, group: ConsumerGroup, request: GroupBeat) -> ConsumerMember:
        """A member that joins, or joins again because it lost its answer."""
        caller = request.caller
        known = group.members.get(caller.member_id)
        if known is not None:
            return known
        subscribes = request.topics is not None or bool(request.pattern)
        if not subscribes or request.rebalance_timeout_ms < 0:
            message = "who joins says what it subscribes to, and its rebalance timeout"
            raise _HeartbeatRejected(ErrorCode.invalid_request, message)
        holder = None if caller.instance_id is None else group.holder_of(caller.instance_id)
        if holder is None:
            if len(group.members) >= self._limits.max_size:
                raise _HeartbeatRejected(ErrorCode.group_max_size_reached, "the group is full")
            return ConsumerMember(caller.member_id, caller.instance_id, "", "", 0, [])
        if holder.epoch != LEFT_FOR_A_WHILE:
            raise _HeartbeatRejected(
                ErrorCode.unreleased_instance_id, "another member has this instance id"
            )
        self._forget(group, holder.member_id)
        group.targets[caller.member_id] = group.targets.pop(holder.member_id, [])
        return msgspec.structs.replace(holder, member_id=caller.member_id, epoch=0)

    def _check_size(
        self,
        group: ConsumerGroup,
        request: GroupBeat,
        matched: Sequence[str],
        alike: Sequence[ConsumerMember],
    ) -> None:
        others = [m for n, m in group.members.items() if n != request.caller.member_id]
        topics = [*(request.topics or ()), *matched]
        for each in others:
            topics += [*each.topics, *(matched if each in alike else each.matched)]
        if sum(map(len, topics)) > self._limits.group_bytes:
            raise _HeartbeatRejected(ErrorCode.group_max_size_reached, "too many subscriptions")

    def _checked(self, group: ConsumerGroup, request: GroupBeat) -> ConsumerMember:
        caller = request.caller
        member = self._known(group, caller)
        if caller.generation == member.epoch:
            return member
        is_late = caller.generation == member.previous_epoch
        if is_late and set(member.assigned).issuperset(request.owned or ()):
            return member  # it has not got our last answer
        raise _HeartbeatRejected(ErrorCode.fenced_member_epoch, f"its epoch is {member.epoch}")

    def _known(self, group: ConsumerGroup, caller: Caller) -> ConsumerMember:
        if caller.instance_id is not None:
            holder = group.holder_of(caller.instance_id)
            if holder is not None and holder.member_id != caller.member_id:
                raise _HeartbeatRejected(
                    ErrorCode.fenced_instance_id, "another member has taken over"
                )
        member = group.members.get(caller.member_id)
        if member is None:
            raise _HeartbeatRejected(ErrorCode.unknown_member_id, "the group has no such member")
        return member

    def check_commit(self, group: ConsumerGroup, caller: Caller) -> ErrorCode:
        """Whether a member may commit, or see what is committed, by Kafka's requests."""
        member = group.members.get(caller.member_id)
        if member is None or group.is_native:
            return ErrorCode.unknown_member_id
        fits = caller.generation == member.epoch
        return ErrorCode.none if fits else ErrorCode.stale_member_epoch

    # --- leaving ----------------------------------------------------------------------------------

    def _leave(self, group: ConsumerGroup, caller: Caller) -> Beaten:
        member = self._known(group, caller)
        if caller.generation == LEFT_FOR_A_WHILE and member.instance_id is not None:
            away = msgspec.structs.replace(member, epoch=LEFT_FOR_A_WHILE, revoking=[])
            group.members[member.member_id] = away
        else:
            self._forget(group, member.member_id)
            self._retarget(group)
        return Beaten(ErrorCode.none, caller.member_id, caller.generation, None)

    def lost(self, group: ConsumerGroup, member_id: str) -> None:
        """A member was silent for too long, or does not give up what it should."""
        if member_id in group.members:
            self._forget(group, member_id)
            self._retarget(group)
            self._save(group)

    def _forget(self, group: ConsumerGroup, member_id: str) -> None:
        del group.members[member_id]
        group.natives.pop(member_id, None)
        group.heard.pop(member_id, None)
        for name in (CONSUMER, REVOKING):
            self._outbox.timers.cancel(group.group_id, name + member_id)

    # --- targets ----------------------------------------------------------------------------------

    def _topics(self, group: ConsumerGroup) -> dict[str, Sequence[int]]:
        """The partitions of the topics that are subscribed to, as they are now."""
        names, topics, known = (
            group.subscriptions(),
            self._state.topics.by_id,
            self._state.topics.by_name,
        )
        found: dict[str, Sequence[int]] = {
            name: topics[known[name]].partition_numbers for name in sorted(names & known.keys())
        }
        for view in map(self._state.views.named, sorted(names - known.keys())):
            if view is not None:
                found[view.name] = view.partition_numbers
        return found

    def _topics_moved(self, group: ConsumerGroup) -> bool:
        """Whether the topics have other partitions than the targets; looked for once each time that
        topics change.
        """
        version = topics_version(self._state)
        if group.topics_seen == version:
            return False
        group.topics_seen = version
        there = {number for numbers in self._topics(group).values() for number in numbers}
        return there != {number for hand in group.targets.values() for number in hand}

    def _retarget(self, group: ConsumerGroup) -> None:
        group.retarget(self._topics(group))
        group.since_ms = self._outbox.wall_ms

    def _save(self, group: ConsumerGroup) -> None:
        command = group.difference()
        if command is not None:
            self._outbox.propose(command)

    # --- time -------------------------------------------------------------------------------------

    def _keep_alive(self, group: ConsumerGroup, member: ConsumerMember) -> None:
        by_default = self._limits.consumer_session_timeout_ms
        timeout_ms = self._state.access.group_ms(group.group_id, SESSION_MS, by_default)
        timeout_s = timeout_ms / 1000
        name = CONSUMER + member.member_id
        self._outbox.timers.set(group.group_id, name, self._outbox.now + timeout_s)

    def _limit_revoking(self, group: ConsumerGroup, member: ConsumerMember) -> None:
        timeout_s = member.rebalance_timeout_ms / 1000
        name = REVOKING + member.member_id
        self._outbox.timers.set(group.group_id, name, self._outbox.now + timeout_s)


def _wishes(member: ConsumerMember) -> tuple[set[str], str | None]:
    return member.subscribed, member.assignor


def _matched(before: ConsumerMember | None, request: GroupBeat) -> list[str]:
    """The topics that the member's expression means now; those that it meant before if another
    request has changed it meanwhile.
    """
    known = "" if before is None else before.pattern
    pattern = known if request.pattern is None else request.pattern
    found = request.find(pattern) if pattern else ()
    if found is None:
        return [] if before is None else before.matched
    return list(found)


def _alike(
    group: ConsumerGroup, before: ConsumerMember | None, request: GroupBeat, matched: list[str]
) -> list[ConsumerMember]:
    """The others whose expression means something else now, as this member's does: they are told
    apart by nothing but when they ask, so topics that come or go are for all of them at once.
    """
    if before is None or before.matched == matched or request.pattern not in (None, before.pattern):
        return []
    said = before.pattern, before.matched
    others = (m for name, m in group.members.items() if name != before.member_id)
    return [m for m in others if before.pattern and (m.pattern, m.matched) == said]


def _updated(member: ConsumerMember, request: GroupBeat, matched: list[str]) -> ConsumerMember:
    """What a request says of its member now holds; what it leaves out stays."""
    timeout_ms = request.rebalance_timeout_ms
    return msgspec.structs.replace(
        member,
        client_id=request.client_id,
        client_host=request.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms if timeout_ms < 0 else timeout_ms,
        topics=member.topics if request.topics is None else sorted(set(request.topics)),
        assignor=request.assignor or member.assignor,
        pattern=member.pattern if request.pattern is None else request.pattern,
        matched=matched,
    )
