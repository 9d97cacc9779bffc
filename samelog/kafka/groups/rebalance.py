"""How a classic group comes from one generation to the next.

A rebalance waits until all members have joined again, or their rebalance timeout is over; then the
group has a new generation, its leader is asked for the assignments, and with them the group is
stable. All of Kafka's rules about who is waited for and who is dropped are here.

Invariant: a generation, and then its assignments, are proposed before anybody is told of them; a
phase that waits for members always has a deadline.
"""

from __future__ import annotations

from samelog.config.tables.kafka import GroupLimits
from samelog.kafka.codec.error_codes import ErrorCode
from samelog.kafka.groups.classic_group import ClassicGroup, GroupMember
from samelog.kafka.groups.outbox import Outbox, Requester
from samelog.kafka.groups.requests import Joined, SyncGroupResponse
from samelog.sequencer.state.tables.groups import Phase

NEW_MEMBER_TIMEOUT_S = 300.0
"""How long a member that waits for its first generation is kept; Kafka's NewMemberJoinTimeoutMs."""
JOIN, SYNC = "join", "sync"
"""Names of a group's own deadlines; those of members begin with MEMBER or PENDING."""
MEMBER, PENDING = "member ", "pending "


class Rebalance:
    """The transitions of classic groups."""

    def __init__(self, outbox: Outbox, limits: GroupLimits) -> None:
        self._outbox = outbox
        self._limits = limits

    # --- members ----------------------------------------------------------------------------------

    def keep_alive(self, group: ClassicGroup, member: GroupMember) -> None:
        """Restart the session timeout of a member that was heard of."""
        session_s = member.record.session_timeout_ms / 1000
        waits_as_new = member.is_new and member.joining is not None
        timeout_s = NEW_MEMBER_TIMEOUT_S if waits_as_new else session_s
        name = MEMBER + member.record.member_id
        self._outbox.timers.set(group.group_id, name, self._outbox.now + timeout_s)

    def add(self, group: ClassicGroup, member: GroupMember) -> None:
        """Take in a member that waits to join."""
        if group.phase is Phase.PREPARING and group.generation == 0:
            group.has_newcomer = True
        member.is_new = True
        self._outbox.timers.cancel(group.group_id, PENDING + member.record.member_id)
        group.add(member)
        self.keep_alive(group, member)

    def drop(self, group: ClassicGroup, member_id: str, error: ErrorCode) -> None:
        """Remove a member, and answer it if it waits."""
        member = group.remove(member_id)
        self._outbox.timers.cancel(group.group_id, MEMBER + member_id)
        self.release(member, error)

    def release(self, member: GroupMember, error: ErrorCode) -> None:
        """Answer everything the member waits for with an error."""
        self._outbox.answer(member.joining, Joined(error, member.record.member_id))
        self._outbox.answer(member.syncing, SyncGroupResponse(error))
        member.joining = member.syncing = None

    def left(self, group: ClassicGroup) -> None:
        """Members left, or were lost: the others divide what they had."""
        self.prepare(group)
        if group.phase is Phase.PREPARING:
            self.save(group)  # so that a new leader does not wait for them again
        self.maybe_complete(group)

    def save(self, group: ClassicGroup) -> None:
        """Propose what is not in the replicated state yet."""
        self._outbox.propose(group.difference())

    # --- first half: everybody joins --------------------------------------------------------------

    def prepare(self, group: ClassicGroup) -> None:
        """Have all members join again. Does nothing if they are being waited for already."""
        if group.phase is Phase.PREPARING:
            return
        if group.phase is Phase.COMPLETING:
            self._interrupt(group)
        timers, now = self._outbox.timers, self._outbox.now
        timers.cancel(group.group_id, SYNC)
        was_empty = group.phase is Phase.EMPTY
        self._enter(group, Phase.PREPARING)
        wait_s = group.rebalance_timeout_s
        group.delay_left_s = None
        if was_empty:
            delay_s = self._limits.initial_rebalance_delay_ms / 1000
            if delay_s > 0:
                group.delay_left_s = max(0.0, wait_s - delay_s)
                wait_s = delay_s
        timers.set(group.group_id, JOIN, now + wait_s)
        self.maybe_complete(group)

    def _interrupt(self, group: ClassicGroup) -> None:
        for member in group.members.values():
            self._outbox.answer(member.syncing, SyncGroupResponse(ErrorCode.rebalance_in_progress))
            member.syncing = None

    def _enter(self, group: ClassicGroup, phase: Phase) -> None:
        group.phase, group.since_ms = phase, self._outbox.wall_ms

    def maybe_complete(self, group: ClassicGroup) -> None:
        """Complete the rebalance if every member has joined."""
        waits = group.delay_left_s is not None and group.members
        if group.phase is Phase.PREPARING and not waits and group.all_have_joined:
            self.complete(group)

    def join_timeout(self, group: ClassicGroup) -> None:
        """The time to join is over, or the first delay is."""
        if group.has_newcomer and group.delay_left_s:
            group.has_newcomer = False
            delay_s = min(self._limits.initial_rebalance_delay_ms / 1000, group.delay_left_s)
            group.delay_left_s -= delay_s
            self._outbox.timers.set(group.group_id, JOIN, self._outbox.now + delay_s)
        elif group.phase is Phase.PREPARING:
            self.complete(group)

    def complete(self, group: ClassicGroup) -> None:
        """Begin the next generation with those who have joined."""
        for name, member in list(group.members.items()):
            if member.joining is None and member.record.instance_id is None:
                self.drop(group, name, ErrorCode.unknown_member_id)
        group.delay_left_s, group.has_newcomer = None, False
        if group.members and not group.elect_leader():
            wait_s = group.rebalance_timeout_s  # only absent static members: theirs is their own
            self._outbox.timers.set(group.group_id, JOIN, self._outbox.now + wait_s)
            return
        self._outbox.timers.cancel(group.group_id, JOIN)
        group.generation += 1
        group.assign(())
        if group.members:
            self._ask_for_assignments(group)
        else:
            group.protocol = group.leader = None
            self._enter(group, Phase.EMPTY)
            self.save(group)

    def _ask_for_assignments(self, group: ClassicGroup) -> None:
        group.protocol = group.voted_protocol()
        self._enter(group, Phase.COMPLETING)
        self.save(group)
        timers, wait_s = self._outbox.timers, group.rebalance_timeout_s
        timers.set(group.group_id, SYNC, self._outbox.now + wait_s)
        joined = {n: m for n, m in group.members.items() if m.joining is not None}
        group.unsynced = set(joined)
        for member in joined.values():
            waiter, member.joining, member.is_new = member.joining, None, False
            self.tell_generation(group, member, waiter)

    def tell_generation(
        self, group: ClassicGroup, member: GroupMember, waiter: Requester | None
    ) -> None:
        """Answer a JoinGroup with the generation that the group is in."""
        name = member.record.member_id
        leads = group.leader == name
        self.keep_alive(group, member)
        self._outbox.answer(
            waiter,
            Joined(
                ErrorCode.none,
                name,
                group.generation,
                group.protocol_type,
                group.protocol,
                group.leader or "",
                group.metadata_of_all() if leads and group.phase is Phase.COMPLETING else (),
            ),
        )

    # --- second half: the leader assigns ----------------------------------------------------------

    def synced(self, group: ClassicGroup, member: GroupMember, waiter: Requester) -> None:
        """Answer a SyncGroup of a stable group."""
        group.unsynced.discard(member.record.member_id)
        self.keep_alive(group, member)
        assignment = member.record.assignment
        self._outbox.answer(
            waiter,
            SyncGroupResponse(ErrorCode.none, group.protocol_type, group.protocol, assignment),
        )

    def assigned(self, group: ClassicGroup, assignments: list[tuple[str, bytes]]) -> None:
        """The leader has assigned: the generation is stable."""
        group.assign(assignments)
        self._enter(group, Phase.STABLE)
        self.save(group)
        for member in group.members.values():
            if member.syncing is not None:
                waiter, member.syncing = member.syncing, None
                self.synced(group, member, waiter)

    def sync_timeout(self, group: ClassicGroup) -> bool:
        """Members that did not come for their assignment in time are lost: whether any were."""
        lost = list(group.unsynced) if group.phase in (Phase.COMPLETING, Phase.STABLE) else []
        for name in lost:
            self.drop(group, name, ErrorCode.unknown_member_id)
        return bool(lost)

    # --- time -------------------------------------------------------------------------------------

    def session_over(self, group: ClassicGroup, member_id: str) -> bool:
        """Nothing was heard of a member for its session timeout: whether it is lost."""
        member = group.members.get(member_id)
        if member is None:
            return False
        if (member.joining is not None and not member.is_new) or member.syncing is not None:
            self.keep_alive(group, member)  # it waits for us, not we for it
            return False
        self.drop(group, member_id, ErrorCode.unknown_member_id)
        return True

    def pending_over(self, group: ClassicGroup, member_id: str) -> None:
        """A member that was given an id has not come back with it."""
        group.pending.discard(member_id)
        self.maybe_complete(group)

    def take_over(self, group: ClassicGroup) -> None:
        """A group of an earlier leader: its members have a whole session timeout to find us, and
        keep generation and assignments.
        """
        for member in group.members.values():
            self.keep_alive(group, member)
        wait_s = self._outbox.now + group.rebalance_timeout_s
        if group.phase is Phase.PREPARING:
            self._outbox.timers.set(group.group_id, JOIN, wait_s)
        elif group.phase is Phase.COMPLETING:
            group.unsynced = {
                name
                for name, member in group.members.items()
                if member.record.instance_id is None or name == group.leader
            }
            self._outbox.timers.set(group.group_id, SYNC, wait_s)
