"""Commands about members, their listeners and feature levels.

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
    state.members.name_cluster(command.cluster_id)
    state.members.by_number = {member.number: member for member in command.members}
    state.members.version += 1
    state.members.next_number = max(
        [state.members.next_number, *(number + 1 for number in state.members.by_number)]
    )
    state.members.started = {
        n: life for n, life in state.members.started.items() if n in state.members.by_number
    }
    state.members.listeners = {
        n: there for n, there in state.members.listeners.items() if n in state.members.by_number
    }
    state.placement.keep(state.members.by_number)
    names = {member.name for member in command.members}
    state.members.maintenance = {
        n: until for n, until in state.members.maintenance.items() if n in names
    }
    return None


def _let_in(state: State, command: LetIn) -> WhyNot:
    state.let_in(command.number, command.incarnation)
    return None


def _record_event(state: State, command: RecordEvent) -> WhyNot:
    state.events.remember(command)
    return None


def _set_maintenance(state: State, command: SetMaintenanceCommand) -> WhyNot:
    if command.node not in {member.name for member in state.members.by_number.values()}:
        return "UNKNOWN_NODE", f"no node is called {command.node!r}"
    if command.until_ms:
        state.members.maintenance[command.node] = command.until_ms
    else:
        state.members.maintenance.pop(command.node, None)
    return None


def _raise_level(state: State, command: RaiseLevel) -> WhyNot:
    """Learners count too: they apply what voters do."""
    if state.members.level != command.since or command.level <= command.since:
        return "LEVEL_MOVED", f"the feature level is {state.members.level}"
    older = [
        member.name
        for member in state.members.by_number.values()
        if member.number not in state.members.started
        or state.members.started[member.number].level < command.level
    ]
    if older or not state.members.by_number:
        return "LEVEL_UNSUPPORTED", f"not known to support level {command.level}: {older}"
    state.members.level = command.level
    if command.since:
        text = f"the cluster's feature level was raised from {command.since} to {command.level}"
        state.events.remember(RecordEvent(command.at_ms, "level-raised", text))
    return None


def _set_listeners(state: State, command: SetListeners) -> WhyNot:
    if state.members.by_number and command.node not in state.members.by_number:
        return "UNKNOWN_NODE", f"no node has the number {command.node}"
    state.members.listeners[command.node] = command.listeners
    return None


MEMBER_CHANGES: Mapping[type, Callable[[Any, Any], WhyNot]] = {
    SetMembers: _set_members,
    LetIn: _let_in,
    RecordEvent: _record_event,
    SetMaintenanceCommand: _set_maintenance,
    RaiseLevel: _raise_level,
    SetListeners: _set_listeners,
}
