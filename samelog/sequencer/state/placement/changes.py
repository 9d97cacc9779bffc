"""What commands about data groups change in the replicated state.

Invariant: a command whose preconditions do not hold changes nothing, and says why as a stable code
and a sentence; the table's version grows with every change of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from samelog.placement.values import REPLICAS_MOST, PlacedGroup, PlacedReplica, Placement
from samelog.sequencer.state.placement.commands import MakeGroups, NewGroup, SetReplicas

if TYPE_CHECKING:
    from samelog.sequencer.state.types import State

Refused = tuple[str, str] | None


def _make_groups(state: State, command: MakeGroups) -> Refused:
    table = state.placement
    if command.since != table.version:
        return "PLACEMENT_MOVED", f"the table of placement is at version {table.version}"
    for wanted in command.groups:
        problem = _problem_with(state, wanted)
        if problem is not None:
            return "INVALID_GROUP", problem
    table.version += 1
    for wanted in command.groups:
        _make_group(table, wanted)
    return None


def _problem_with(state: State, wanted: NewGroup) -> str | None:
    if not 0 < len(wanted.members) <= REPLICAS_MOST:
        return f"a group has 1 to {REPLICAS_MOST} replicas, not {len(wanted.members)}"
    if len(set(wanted.members)) < len(wanted.members):
        return f"a member has one replica of a group, at most: {wanted.members}"
    strangers = [number for number in wanted.members if number not in state.members]
    if strangers:
        return f"no members have the numbers {strangers}"
    if wanted.preferred not in wanted.members:
        return f"member {wanted.preferred} would lead, and has no replica"
    return None


def _make_group(table: Placement, wanted: NewGroup) -> None:
    first = table.next_replica
    replicas = tuple(
        PlacedReplica(member, replica, made_at=table.version)
        for replica, member in enumerate(wanted.members, first)
    )
    table.groups[table.next_group] = PlacedGroup(
        table.next_group,
        wanted.copies,
        replicas,
        wanted.preferred,
        tuple(wanted.members),
        is_pinned=wanted.is_pinned,
    )
    table.next_group += 1
    table.next_replica += len(replicas)


def _set_replicas(state: State, command: SetReplicas) -> Refused:
    """Raft has accepted them already, so there is nothing to refuse."""
    state.level = max(state.level, command.level)
    state.placement.version = command.version + 1
    state.placement.own = command.replicas
    return None


PLACEMENT_CHANGES: Mapping[type, Callable[[Any, Any], Refused]] = {
    MakeGroups: _make_groups,
    SetReplicas: _set_replicas,
}
