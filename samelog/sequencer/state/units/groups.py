"""Commands about consumer groups, applied with what is told of them as topics.

Invariant: what is refused is told of nowhere.
"""

from __future__ import annotations

from samelog.sequencer.state.command_base import Rejection
from samelog.sequencer.state.places import Living
from samelog.sequencer.state.tables.groups import (
    DeleteGroups,
    DropOffsets,
    GroupCommand,
    SaveNativeGroup,
)
from samelog.sequencer.state.types import State
from samelog.sequencer.state.units.feeds import note_groups


def change_groups(state: State, command: GroupCommand) -> GroupCommand | Rejection:
    """Apply a command about groups."""
    keys = state.groups.keys_of(command)
    problem = state.groups.apply(command, Living(state))
    if problem is not None:
        return Rejection("PRECONDITION", problem)
    if isinstance(command, SaveNativeGroup):
        state.groups.begin_native(command.group, state.partitions.next_number)
    note_groups(state, keys, is_new=not isinstance(command, DropOffsets | DeleteGroups))
    state.feeds.moved()
    return command
