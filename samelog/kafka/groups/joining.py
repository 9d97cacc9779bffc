"""Who may join a classic group, and what joining means for the others.

Invariant: two members never have one instance id: the newer one takes over, the older one is
fenced.
"""

from __future__ import annotations

import msgspec

from samelog.config.tables.kafka import GroupLimits
from samelog.kafka.codec.error_codes import ErrorCode
from samelog.kafka.groups.classic_group import ClassicGroup, GroupMember, size_of
from samelog.kafka.groups.outbox import Outbox, Requester
from samelog.kafka.groups.rebalance import PENDING, Rebalance
from samelog.kafka.groups.requests import Caller, Join, Joined
from samelog.sequencer.state.tables.groups import ClassicMember, Phase


def check_member(group: ClassicGroup, caller: Caller) -> ErrorCode:
    """Whether a request comes from a member of the group."""
    if caller.instance_id is not None:
        owner = group.static.get(caller.instance_id)
        if owner is None:
            return ErrorCode.unknown_member_id
        return ErrorCode.none if owner == caller.member_id else ErrorCode.fenced_instance_id
    known = caller.member_id in group.members
    return ErrorCode.none if known else ErrorCode.unknown_member_id


class Joining:
    """JoinGroup of classic groups."""

    def __init__(self, outbox: Outbox, limits: GroupLimits, rebalance: Rebalance) -> None:
        self._outbox = outbox
        self._limits = limits
        self._rebalance = rebalance

    def problem(self, request: Join) -> ErrorCode:
        """What is wrong with a request, independently of the group's state."""
        shortest, longest = self._limits.min_session_timeout_ms, self._limits.max_session_timeout_ms
        if not shortest <= request.session_timeout_ms <= longest:
            return ErrorCode.invalid_session_timeout
        return ErrorCode.none

    def join(self, group: ClassicGroup, request: Join, waiter: Requester) -> None:
        """Answer at once, or when the next generation begins."""
        error = self._admit(group, request)
        if error is not ErrorCode.none:
            self._refuse(request, waiter, error)
        elif not request.caller.member_id:
            self._newcomer(group, request, waiter)
        elif request.caller.member_id in group.pending and request.caller.instance_id is None:
            self._add(group, request, request.caller.member_id, waiter)
        else:
            self._again(group, request, waiter)
        self._rebalance.maybe_complete(group)

    def _refuse(self, request: Join, waiter: Requester, error: ErrorCode) -> None:
        self._outbox.answer(waiter, Joined(error, request.caller.member_id))

    def _admit(self, group: ClassicGroup, request: Join) -> ErrorCode:
        if not self._has_room(group, request):
            return ErrorCode.group_max_size_reached
        if not group.understands(request.protocol_type, request.protocols):
            return ErrorCode.inconsistent_group_protocol
        return ErrorCode.none

    def _has_room(self, group: ClassicGroup, request: Join) -> bool:
        caller = request.caller
        owner = group.static.get(caller.instance_id) if caller.instance_id is not None else None
        name = owner or caller.member_id
        size = size_of(_record(request, request.fresh_id))
        if size + group.size_without(name) > self._limits.group_bytes:
            return False
        if name not in group.members:
            return len(group.members) < self._limits.max_size
        if group.phase is not Phase.PREPARING or group.members[name].joining is not None:
            return True
        waiting = sum(member.joining is not None for member in group.members.values())
        return waiting < self._limits.max_size

    # --- new members ------------------------------------------------------------------------------

    def _newcomer(self, group: ClassicGroup, request: Join, waiter: Requester) -> None:
        instance_id = request.caller.instance_id
        if instance_id is not None:
            owner = group.static.get(instance_id)
            if owner is None:
                self._add(group, request, request.fresh_id, waiter)
            else:
                self._replace(group, request, owner, waiter)
        elif request.needs_known_id:
            group.pending.add(request.fresh_id)
            timeout_s = request.session_timeout_ms / 1000
            name = PENDING + request.fresh_id
            self._outbox.timers.set(group.group_id, name, self._outbox.now + timeout_s)
            self._outbox.answer(waiter, Joined(ErrorCode.member_id_required, request.fresh_id))
        else:
            self._add(group, request, request.fresh_id, waiter)

    def _add(self, group: ClassicGroup, request: Join, member_id: str, waiter: Requester) -> None:
        if not group.members:
            group.protocol_type = request.protocol_type
        self._rebalance.add(group, GroupMember(_record(request, member_id), joining=waiter))
        self._rebalance.prepare(group)

    # --- members that are known -------------------------------------------------------------------

    def _again(self, group: ClassicGroup, request: Join, waiter: Requester) -> None:
        error = check_member(group, request.caller)
        if error is not ErrorCode.none:
            self._refuse(request, waiter, error)
            return
        member = group.members[request.caller.member_id]
        changed = list(request.protocols) != member.record.protocols
        leads = group.leader == request.caller.member_id
        if group.phase is Phase.PREPARING or changed or (leads and group.phase is Phase.STABLE):
            self._update(group, member, request, waiter)
            self._rebalance.prepare(group)
        else:
            self._rebalance.tell_generation(group, member, waiter)

    def _update(
        self, group: ClassicGroup, member: GroupMember, request: Join, waiter: Requester
    ) -> None:
        """What it says of itself now holds. A request of it that still waits was given up."""
        assignment = member.record.assignment
        record = _record(request, member.record.member_id)
        member.record = msgspec.structs.replace(record, assignment=assignment)
        self._outbox.answer(
            member.joining, Joined(ErrorCode.rebalance_in_progress, record.member_id)
        )
        member.joining = waiter
        self._rebalance.keep_alive(group, member)

    # --- static members ---------------------------------------------------------------------------

    def _replace(self, group: ClassicGroup, request: Join, old: str, waiter: Requester) -> None:
        """A static member came back under a new id: it inherits its assignment, and there is no
        rebalance if the generation is stable and its protocol stays.
        """
        old_leader, record = group.leader, group.members[old].record
        self._rebalance.drop(group, old, ErrorCode.fenced_instance_id)
        member = GroupMember(_record(request, request.fresh_id))
        member.record = msgspec.structs.replace(member.record, assignment=record.assignment)
        group.add(member)
        if old_leader == old:
            group.leader = request.fresh_id
        self._rebalance.keep_alive(group, member)
        if group.phase is Phase.STABLE and group.voted_protocol() == group.protocol:
            self._rebalance.save(group)
            self._tell_replaced(group, request, old_leader, waiter)
        else:
            member.joining = waiter
            self._rebalance.prepare(group)

    def _tell_replaced(
        self, group: ClassicGroup, request: Join, old_leader: str | None, waiter: Requester
    ) -> None:
        """Spare a leader that came back another assignment. If its protocol version cannot say so,
        the answer does not name it as leader.
        """
        leads = group.leader == request.fresh_id
        skips = request.may_skip_assignment
        self._outbox.answer(
            waiter,
            Joined(
                ErrorCode.none,
                request.fresh_id,
                group.generation,
                group.protocol_type,
                group.protocol,
                (group.leader if skips else old_leader) or "",
                group.metadata_of_all() if leads and skips else (),
                leads and skips,
            ),
        )


def _record(request: Join, member_id: str) -> ClassicMember:
    return ClassicMember(
        member_id,
        request.caller.instance_id,
        request.client_id,
        request.client_host,
        request.session_timeout_ms,
        request.rebalance_timeout_ms,
        list(request.protocols),
    )
