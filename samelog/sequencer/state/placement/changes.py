"""What commands about data groups change in the replicated state.

Invariant: a command whose preconditions do not hold changes nothing, and says why as a stable code
and a sentence; the table's version grows with every change of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from samelog.placement.changes import PlaceGroups, apply_change
from samelog.placement.tasks import PlacementRefused
from samelog.placement.values import REPLICAS_MOST, NewGroup
from samelog.sequencer.state.placement.commands import (
    ChangePlacement,
    MakeGroups,
    SetReplicas,
)

if TYPE_CHECKING:
    from samelog.sequencer.state.types import State

Refused = tuple[str, str] | None


def _make_groups(state: State, command: MakeGroups) -> Refused:
    version = state.placement.version
    if command.since != version:
        return "PLACEMENT_MOVED", f"the table of placement is at version {version}"
    for wanted in command.groups:
        problem = _problem_with(state, wanted)
        if problem is not None:
            return "INVALID_GROUP", problem
    apply_change(state.placement, PlaceGroups(state.placement.next_group, tuple(command.groups)))
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


def _change(state: State, command: ChangePlacement) -> Refused:
    version = state.placement.version
    if command.since not in (-1, version):
        return "PLACEMENT_MOVED", f"the table of placement is at version {version}"
    refused: Refused = None
    for change in command.changes:
        try:
            apply_change(state.placement, change)
        except PlacementRefused as error:
            refused = refused or (error.code, error.message)
    return refused


def _set_replicas(state: State, command: SetReplicas) -> Refused:
    """Raft has accepted them already, so there is nothing to refuse."""
    state.level = max(state.level, command.level)
    state.placement.version = command.version + 1
    state.placement.own = command.replicas
    return None


PLACEMENT_CHANGES: Mapping[type, Callable[[Any, Any], Refused]] = {
    MakeGroups: _make_groups,
    ChangePlacement: _change,
    SetReplicas: _set_replicas,
}
