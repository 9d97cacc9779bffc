"""The coordinator of all consumer groups: requests in, commands and answers out.

It runs on the Raft leader only. What a new leader needs is in the replicated state; what it does
not need (who waits, when a session ends, ids given to members that have not joined) is lost with
the old one, and clients ask again.

Invariant: deterministic: the same requests at the same times give the same rounds; no group is
changed but through its transitions, which never leave it waiting without a deadline.
"""

from __future__ import annotations

from collections.abc import Sequence

from samelog.config.tables.kafka import GroupLimits
from samelog.format.steps import mapped
from samelog.kafka.codec.error_codes import ErrorCode
from samelog.kafka.groups import natives
from samelog.kafka.groups.classic_group import DEAD, ClassicGroup
from samelog.kafka.groups.consumer_groups import ConsumerGroup, ConsumerGroups
from samelog.kafka.groups.joining import Joining, check_member
from samelog.kafka.groups.offsets import AnyGroup, OffsetKeeper
from samelog.kafka.groups.outbox import Outbox, Requester, Round
from samelog.kafka.groups.rebalance import JOIN, MEMBER, PENDING, SYNC, Rebalance
from samelog.kafka.groups.requests import (
    Beaten,
    Caller,
    Described,
    DescribedConsumers,
    DescribedMember,
    GroupBeat,
    Join,
    Joined,
    Listed,
    OffsetCommit,
    Sync,
    SyncGroupResponse,
)
from samelog.sequencer.state.tables.groups import ConsumerGroupRecord, DeleteGroups, Phase
from samelog.sequencer.state.types import State

GROUP_ID_CHARACTERS_MAX = 1024


class GroupCoordinator:
    """All groups of the cluster, from one election of this node to the next."""

    def __init__(self, limits: GroupLimits, state: State, now: float, wall_ms: int) -> None:
        """`state`: what is replicated, with everything committed before this election applied."""
        self._limits = limits
        self._state = state
        self._outbox = Outbox()
        self._outbox.at(now, wall_ms)
        self._rebalance = Rebalance(self._outbox, limits)
        self._joining = Joining(self._outbox, limits, self._rebalance)
        self._offsets = OffsetKeeper(self._outbox, limits, state)
        self._groups: dict[str, ClassicGroup] = {}
        self._consumers = ConsumerGroups(self._outbox, limits, state)
        for group_id, remembered in state.groups.by_id.items():
            if remembered.consumers:
                self._consumers.take_over(ConsumerGroup.restored(group_id, remembered))
                continue
            group = ClassicGroup.restored(group_id, remembered)
            self._groups[group_id] = group
            self._rebalance.take_over(group)
        self._ending: dict[str, ConsumerGroupRecord | None] = {}
        """Groups whose deletion is proposed, and what is remembered of each until it is applied."""
        self._next_expiry = now + self._check_s

    @property
    def _check_s(self) -> float:
        return self._limits.offsets_retention_check_interval_ms / 1000

    def drain(self) -> Round:
        """The commands to propose, and the answers to send once they are committed."""
        return self._outbox.drain()

    def next_deadline(self) -> float:
        """When `tick` is to be called at the latest."""
        return min(self._next_expiry, self._outbox.timers.next() or self._next_expiry)

    # --- time -------------------------------------------------------------------------------------

    def tick(self, now: float, wall_ms: int, *, may_expire: bool = True) -> None:
        """Handle deadlines that have passed. `may_expire`: whether `wall_ms` can be relied on."""
        self._outbox.at(now, wall_ms)
        short: dict[str, ClassicGroup] = {}
        while (due := self._outbox.timers.due(now)) is not None:
            group = self._groups.get(due[0])
            consumers = self._consumers.groups.get(due[0])
            if consumers is not None:
                self._consumers.lost(consumers, due[1].partition(" ")[2])
            if group is not None and self._loses_members(group, due[1]):
                short[due[0]] = group
        for group in short.values():  # once, however many were lost
            self._rebalance.left(group)
        if now >= self._next_expiry and may_expire:
            self._next_expiry = now + self._check_s
            self._expire()

    def _loses_members(self, group: ClassicGroup, name: str) -> bool:
        """A deadline of a group has passed."""
        if name == SYNC:
            return self._rebalance.sync_timeout(group)
        if name.startswith(MEMBER):
            return self._rebalance.session_over(group, name.removeprefix(MEMBER))
        if name == JOIN:
            self._rebalance.join_timeout(group)
        else:
            self._rebalance.pending_over(group, name.removeprefix(PENDING))
        return False

    def _expire(self) -> None:
        self._ending.clear()
        self._find_all()
        unused = self._offsets.expire({**self._groups, **self._consumers.groups})
        self._end(unused)
        if unused:
            self._outbox.propose(DeleteGroups(unused, unused_only=True))

    # --- groups -----------------------------------------------------------------------------------

    def _find(self, group_id: str) -> ClassicGroup | None:
        """A group, if it exists; an administrator's command may have made it."""
        group, known = self._groups.get(group_id), self._state.groups.by_id.get(group_id)
        is_new = (
            known is not None
            and known is not self._ending.get(group_id)
            and group_id not in self._consumers.groups
        )
        return self._begin(group_id) if group is None and is_new else group

    def _find_all(self) -> None:
        classic, consumers = self._groups, self._consumers.groups
        known = self._state.groups.by_id
        for group_id in [each for each in known if each not in classic and each not in consumers]:
            self._find(group_id)

    def _find_any(self, group_id: str) -> AnyGroup | None:
        """A group of either protocol."""
        return self._consumers.groups.get(group_id) or self._find(group_id)

    def _begin(self, group_id: str) -> ClassicGroup:
        """A group that is not known here, or was one of the other protocol; it may be about to end
        in the replicated state.
        """
        remembered = self._state.groups.by_id.get(group_id, ConsumerGroupRecord())
        group = self._groups[group_id] = ClassicGroup.restored(group_id, remembered)
        before = self._consumers.groups.pop(group_id, None)
        if before is not None:
            group.generation = before.epoch
        self._ending.pop(group_id, None)
        return group

    def _end(self, group_ids: Sequence[str]) -> None:
        for group_id in group_ids:
            self._groups.pop(group_id, None)
            self._consumers.groups.pop(group_id, None)
            self._ending[group_id] = self._state.groups.by_id.get(group_id)

    # --- membership -------------------------------------------------------------------------------

    def join(self, request: Join, waiter: Requester) -> None:
        """JoinGroup."""
        caller = request.caller
        error = _check_id(caller.group) or self._joining.problem(request)
        if not error and self._has_consumers(caller.group):
            error = ErrorCode.inconsistent_group_protocol
        group = self._find(caller.group)
        if not error and group is None:
            if caller.member_id:
                error = ErrorCode.unknown_member_id
            else:
                group = self._begin(caller.group)
        if error or group is None:
            self._outbox.answer(waiter, Joined(error, caller.member_id))
        else:
            self._joining.join(group, request, waiter)

    def _has_consumers(self, group_id: str) -> bool:
        consumers = self._consumers.groups.get(group_id)
        return consumers is not None and bool(consumers.members)

    def beat(self, request: GroupBeat, waiter: Requester) -> None:
        """ConsumerGroupHeartbeat."""
        caller = request.caller
        error = _check_id(caller.group)
        group = None if error else self._for_consumers(request)
        if group is None:
            is_native = request.identity is not None and caller.generation == 0
            unknown = natives.OTHERS if is_native else (ErrorCode.unknown_member_id, None)
            error, text = (error, None) if error else unknown
            epoch = caller.generation
            self._outbox.answer(waiter, Beaten(error, caller.member_id, epoch, None, text))
        else:
            left = self._commit_with_beat(group, request)
            self._consumers.beat(group, request, waiter, left)

    def commit_ahead(self, request: GroupBeat, waiter: Requester) -> None:
        """Commit some of the positions of a heartbeat that has too many for one turn of the loop;
        answer with the partitions that are not committed.
        """
        group = self._consumers.groups.get(request.caller.group)
        asked = tuple(each.partition for each in request.commits if each.partition is not None)
        left = asked if group is None else self._commit_with_beat(group, request)
        self._outbox.answer(waiter, left)

    def _commit_with_beat(self, group: ConsumerGroup, request: GroupBeat) -> tuple[int, ...]:
        """Have committed what a heartbeat commits; the partitions of which it may not be."""
        taken = natives.committable(group, request)
        errors = self._offsets.commit(group, taken)
        done = {each.partition for each, error in zip(taken, errors, strict=True) if not error}
        asked = (each.partition for each in request.commits)
        return tuple(number for number in asked if number is not None and number not in done)

    def _for_consumers(self, request: GroupBeat) -> ConsumerGroup | None:
        """The group, which becomes one of the consumer protocol if it has no members."""
        caller = request.caller
        known = self._consumers.groups.get(caller.group)
        classic = self._find(caller.group) if known is None else None
        is_free = classic is None or not (classic.members or classic.pending)
        if known is not None or not is_free or caller.generation != 0:
            return self._count_on(known, request)
        epoch = 0 if request.identity is None else natives.first_epoch(self._outbox.wall_ms)
        group = ConsumerGroup(
            caller.group, epoch if classic is None else max(epoch, classic.generation)
        )
        self._groups.pop(caller.group, None)
        self._ending.pop(caller.group, None)
        self._consumers.groups[caller.group] = group
        return group

    def _count_on(self, known: ConsumerGroup | None, request: GroupBeat) -> ConsumerGroup | None:
        """An empty group of Kafka's that subscribers join counts its epochs as theirs do."""
        is_native = request.identity is not None and request.caller.generation == 0
        if known is not None and is_native and not known.members:
            known.epoch = max(known.epoch, natives.first_epoch(self._outbox.wall_ms))
        return known

    def sync(self, request: Sync, waiter: Requester) -> None:
        """SyncGroup."""
        group = self._find(request.caller.group)
        error = self._check_sync(group, request)
        if group is None or error:
            self._outbox.answer(waiter, SyncGroupResponse(error))
            return
        member = group.members[request.caller.member_id]
        if group.phase is Phase.STABLE:
            self._rebalance.synced(group, member, waiter)
            return
        self._outbox.answer(member.syncing, SyncGroupResponse(ErrorCode.rebalance_in_progress))
        member.syncing = waiter
        group.unsynced.discard(request.caller.member_id)
        if group.leader == request.caller.member_id:
            self._rebalance.assigned(group, list(request.assignments))

    def _check_sync(self, group: ClassicGroup | None, request: Sync) -> ErrorCode:
        error = self._check_generation(group, request.caller)
        if group is None or error:
            return error
        for said, actual in (
            (request.protocol_type, group.protocol_type),
            (request.protocol, group.protocol),
        ):
            if said is not None and said != actual:
                return ErrorCode.inconsistent_group_protocol
        if group.phase is Phase.PREPARING:
            return ErrorCode.rebalance_in_progress
        if sum(len(data) for _, data in request.assignments) > self._limits.group_bytes:
            return ErrorCode.unknown_server_error
        return ErrorCode.none

    def _check_generation(self, group: ClassicGroup | None, caller: Caller) -> ErrorCode:
        if group is None:
            return ErrorCode.unknown_member_id
        error = check_member(group, caller)
        if not error and caller.generation != group.generation:
            return ErrorCode.illegal_generation
        return error

    def heartbeat(self, caller: Caller, waiter: Requester) -> None:
        """Heartbeat."""
        group = self._find(caller.group)
        error = self._check_generation(group, caller)
        if group is not None and not error:
            self._rebalance.keep_alive(group, group.members[caller.member_id])
            if group.phase is Phase.PREPARING:
                error = ErrorCode.rebalance_in_progress
        self._outbox.answer(waiter, error)

    def leave(self, callers: Sequence[Caller], waiter: Requester) -> None:
        """LeaveGroup: members of one group, each by its id or by its instance id alone."""
        group = self._find(callers[0].group) if callers else None
        if group is None:
            self._outbox.answer(waiter, tuple(ErrorCode.unknown_member_id for _ in callers))
            return
        before = len(group.members)
        errors = tuple(self._leave(group, caller) for caller in callers)
        if len(group.members) < before:
            self._rebalance.left(group)
        self._rebalance.maybe_complete(group)
        self._outbox.answer(waiter, errors)

    def _leave(self, group: ClassicGroup, caller: Caller) -> ErrorCode:
        if caller.member_id in group.pending:
            group.pending.discard(caller.member_id)
            return ErrorCode.none
        member_id = caller.member_id
        if not member_id and caller.instance_id is not None:
            member_id = group.static.get(caller.instance_id, "")
        whole = Caller(caller.group, member_id, caller.instance_id)
        error = check_member(group, whole)
        if not error:
            self._rebalance.drop(group, member_id, ErrorCode.unknown_member_id)
        return error

    # --- offsets ----------------------------------------------------------------------------------

    def commit(self, caller: Caller, commits: Sequence[OffsetCommit], waiter: Requester) -> None:
        """OffsetCommit."""
        error = self._check_commit(caller)
        if error:
            self._outbox.answer(waiter, tuple(error for _ in commits))
            return
        group = self._find_any(caller.group) or self._begin(caller.group)
        self._outbox.answer(waiter, self._offsets.commit(group, commits))

    def note(self, group_id: str, commits: Sequence[OffsetCommit], waiter: Requester) -> None:
        """Positions that somebody else keeps, and shows here: what a group's own members committed
        is never overwritten by them (211).
        """
        group = self._find_any(group_id)
        if group is None or not (group.protocol_type or group.is_waiting):
            self.commit(Caller(group_id), commits, waiter)
        else:
            refused = ErrorCode.inconsistent_group_protocol
            self._outbox.answer(waiter, tuple(refused for _ in commits))

    def _check_commit(self, caller: Caller) -> ErrorCode:
        """Who may commit: members of the present generation; if there are none, anybody who claims
        no generation.
        """
        if self._has_consumers(caller.group):
            return self._consumers.check_commit(self._consumers.groups[caller.group], caller)
        group, anonymous = self._find(caller.group), caller.generation < 0
        if group is None or (anonymous and not group.members):
            error = _check_id(caller.group)
            return error or (ErrorCode.none if anonymous else ErrorCode.illegal_generation)
        error = self._check_generation(group, caller)
        if not error:
            self._rebalance.keep_alive(group, group.members[caller.member_id])
            if group.phase is Phase.COMPLETING:
                return ErrorCode.rebalance_in_progress
        return error

    def may_commit_in_transaction(self, caller: Caller, waiter: Requester) -> None:
        """TxnOffsetCommit: whether what a transaction commits for a group is its own. A producer
        that knows nothing of the group's members names none (before KIP-447); such a one speaks for
        no subscriber of samelog's own.
        """
        error = _check_id(caller.group)
        group = self._consumers.groups.get(caller.group)
        is_native = group is not None and group.is_native
        if not error and (is_native or caller.generation >= 0 or caller.member_id):
            error = self._check_commit(caller)
        self._outbox.answer(waiter, (error,))

    def may_fetch(self, caller: Caller) -> ErrorCode:
        """Whether somebody who says that it is a member of a group may see its offsets."""
        if caller.generation < 0 or not self._has_consumers(caller.group):
            return ErrorCode.none
        return self._consumers.check_commit(self._consumers.groups[caller.group], caller)

    def delete_offsets(self, group_id: str, partitions: Sequence[int], waiter: Requester) -> None:
        """OffsetDelete: partitions that living members subscribe to are kept."""
        group = self._find_any(group_id)
        if group is None:
            self._outbox.answer(waiter, tuple(ErrorCode.group_id_not_found for _ in partitions))
        else:
            self._outbox.answer(waiter, self._offsets.delete(group, partitions))

    # --- looking and deleting ---------------------------------------------------------------------

    def describe(self, group_ids: Sequence[str], waiter: Requester) -> None:
        """DescribeGroups, one group a step."""
        self._outbox.answer(waiter, mapped(self._described, group_ids))

    def _described(self, group_id: str) -> Described:
        group = self._find(group_id)
        if group is None:
            return Described(group_id, group_state=DEAD)
        stable = group.phase is Phase.STABLE
        members = tuple(
            DescribedMember(
                name,
                member.record.instance_id,
                member.record.client_id,
                member.record.client_host,
                member.metadata(group.protocol) if stable else b"",
                member.record.assignment if stable else b"",
            )
            for name, member in group.members.items()
        )
        protocol = (group.protocol or "") if stable else ""
        state, kind = group.state_name, group.protocol_type
        return Described(group_id, ErrorCode.none, state, kind, protocol, members)

    def describe_consumers(self, group_ids: Sequence[str], waiter: Requester) -> None:
        """ConsumerGroupDescribe, one group a step."""
        groups = self._consumers.groups
        look = mapped(lambda name: _consumers(name, groups.get(name)), group_ids)
        self._outbox.answer(waiter, look)

    def list_groups(self, waiter: Requester) -> None:
        """ListGroups, of all states and kinds, one group a step."""
        names = {**self._state.groups.by_id, **self._groups, **self._consumers.groups}
        self._outbox.answer(waiter, mapped(self._listed, names))

    def _listed(self, group_id: str) -> Listed | None:
        """A group that has not ended."""
        group = self._find_any(group_id)
        if group is None:
            return None
        kind = "classic" if isinstance(group, ClassicGroup) else "consumer"
        return Listed(group_id, group.protocol_type, group.state_name, kind)

    def pattern(self, group_id: str, member_id: str) -> str:
        """The expression by which a member subscribes; empty: it has none, or is not there."""
        group = self._consumers.groups.get(group_id)
        member = None if group is None else group.members.get(member_id)
        return "" if member is None else member.pattern

    def times(self, group_id: str, member_id: str) -> tuple[int, int]:
        """When a member by the consumer protocol was heard of last, and polled; -1: not known."""
        group = self._consumers.groups.get(group_id)
        return (-1, -1) if group is None else group.heard.get(member_id, (-1, -1))

    def delete(self, group_ids: Sequence[str], waiter: Requester) -> None:
        """DeleteGroups: those that have no members."""
        errors, gone = [], []
        for group_id in group_ids:
            group = self._find_any(group_id)
            if group is None:
                errors.append(ErrorCode.group_id_not_found)
            elif group.phase is not Phase.EMPTY:
                errors.append(ErrorCode.non_empty_group)
            else:
                errors.append(ErrorCode.none)
                gone.append(group_id)
                self._end([group_id])
        if gone:
            self._outbox.propose(DeleteGroups(gone))
        self._outbox.answer(waiter, tuple(errors))


def _consumers(group_id: str, group: ConsumerGroup | None) -> DescribedConsumers:
    if group is None:
        return DescribedConsumers(ErrorCode.group_id_not_found, group_id)
    members = tuple(
        (member, tuple(group.targets.get(name, ()))) for name, member in group.members.items()
    )
    return DescribedConsumers(
        ErrorCode.none, group_id, group.state_name, group.epoch, group.assignor, members
    )


def _check_id(group_id: str) -> ErrorCode:
    fits = 0 < len(group_id) <= GROUP_ID_CHARACTERS_MAX
    return ErrorCode.none if fits else ErrorCode.invalid_group_id
