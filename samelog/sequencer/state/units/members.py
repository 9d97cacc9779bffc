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
    state.name_cluster(command.cluster_id)
    state.members = {member.number: member for member in command.members}
    state.members_version += 1
    state.next_member = max([state.next_member, *(number + 1 for number in state.members)])
    state.started = {n: life for n, life in state.started.items() if n in state.members}
    state.listeners = {n: there for n, there in state.listeners.items() if n in state.members}
    state.placement.keep(state.members)
    names = {member.name for member in command.members}
    state.maintenance = {n: until for n, until in state.maintenance.items() if n in names}
    return None


def _let_in(state: State, command: LetIn) -> WhyNot:
    state.let_in(command.number, command.incarnation)
    return None


def _record_event(state: State, command: RecordEvent) -> WhyNot:
    state.remember(command)
    return None


def _set_maintenance(state: State, command: SetMaintenanceCommand) -> WhyNot:
    if command.node not in {member.name for member in state.members.values()}:
        return "UNKNOWN_NODE", f"no node is called {command.node!r}"
    if command.until_ms:
        state.maintenance[command.node] = command.until_ms
    else:
        state.maintenance.pop(command.node, None)
    return None


def _raise_level(state: State, command: RaiseLevel) -> WhyNot:
    """Learners count too: they apply what voters do."""
    if state.level != command.since or command.level <= command.since:
        return "LEVEL_MOVED", f"the feature level is {state.level}"
    older = [
        member.name
        for member in state.members.values()
        if member.number not in state.started or state.started[member.number].level < command.level
    ]
    if older or not state.members:
        return "LEVEL_UNSUPPORTED", f"not known to support level {command.level}: {older}"
    state.level = command.level
    if command.since:
        text = f"the cluster's feature level was raised from {command.since} to {command.level}"
        state.remember(RecordEvent(command.at_ms, "level-raised", text))
    return None


def _set_listeners(state: State, command: SetListeners) -> WhyNot:
    if state.members and command.node not in state.members:
        return "UNKNOWN_NODE", f"no node has the number {command.node}"
    state.listeners[command.node] = command.listeners
    return None


MEMBER_CHANGES: Mapping[type, Callable[[Any, Any], WhyNot]] = {
    SetMembers: _set_members,
    LetIn: _let_in,
    RecordEvent: _record_event,
    SetMaintenanceCommand: _set_maintenance,
    RaiseLevel: _raise_level,
    SetListeners: _set_listeners,
}
