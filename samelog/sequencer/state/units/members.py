"""Commands about members that touch other tables too.

Invariant: a command whose preconditions do not hold changes nothing, and says why as a stable code
and a sentence.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from samelog.sequencer.state.command_base import WhyNot
from samelog.sequencer.state.tables.events import RecordEvent
from samelog.sequencer.state.tables.members import (
    LetIn,
    RaiseLevel,
    SetListeners,
    SetMaintenanceCommand,
    SetMembers,
)
from samelog.sequencer.state.types import State


def _set_members(state: State, command: SetMembers) -> WhyNot:
    """Raft has accepted them already, so there is nothing to refuse."""
    state.members.set_members(command)
    state.placement.keep(state.members.by_number)
    return None


def _let_in(state: State, command: LetIn) -> WhyNot:
    state.members.let_in(command)
    if not state.placement.own:
        state.placement.let_in(command.number)
    return None


def _raise_level(state: State, command: RaiseLevel) -> WhyNot:
    problem = state.members.raise_level(command)
    if problem is None and command.since:
        text = f"the cluster's feature level was raised from {command.since} to {command.level}"
        state.events.remember(RecordEvent(command.at_ms, "level-raised", text))
    return problem


MEMBER_CHANGES: Mapping[type, Callable[[State, Any], WhyNot]] = {
    SetMembers: _set_members,
    LetIn: _let_in,
    RaiseLevel: _raise_level,
    SetMaintenanceCommand: lambda state, command: state.members.set_maintenance(command),
    SetListeners: lambda state, command: state.members.set_listeners(command),
}
