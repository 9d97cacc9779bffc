"""Commands about consumer groups, applied with what is told of them as topics.

Invariant: what is refused is told of nowhere.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import singledispatch
from typing import Any, Protocol

from samelog.sequencer.state.command_base import Rejection
from samelog.sequencer.state.places import Living
from samelog.sequencer.state.tables.feeds import ITSELF, Key
from samelog.sequencer.state.tables.groups import (
    CommitOffsets,
    DeleteGroups,
    DropOffsets,
    GroupCommand,
    SaveConsumerGroup,
    SaveGroup,
    SaveNativeGroup,
)
from samelog.sequencer.state.types import State
from samelog.sequencer.state.units.feeds import note_groups


class FedMachine(Protocol):
    """The state machine, as far as commands about groups and transactions go."""

    @property
    def state(self) -> State:
        """What they change."""

    def feeds_moved(self) -> None:
        """There is more to tell."""


def change_groups(machine: FedMachine, command: GroupCommand) -> GroupCommand | Rejection:
    state = machine.state
    keys = list(concerned(command, state))
    problem = state.groups.apply(command, Living(state))
    if problem is not None:
        return Rejection("PRECONDITION", problem)
    if isinstance(command, SaveNativeGroup):
        state.groups.begin_native(command.group, state.partitions.next_number)
    note_groups(state, keys, is_new=not isinstance(command, DropOffsets | DeleteGroups))
    machine.feeds_moved()
    return command


@singledispatch
def concerned(command: Any, state: State) -> Iterable[Key]:
    """What a command is about."""
    raise TypeError(f"{type(command).__name__} is no command about groups")


@concerned.register(SaveGroup)
@concerned.register(SaveConsumerGroup)
def _of_save(command: SaveGroup | SaveConsumerGroup, state: State) -> Iterable[Key]:
    return ((command.group, ITSELF),)


@concerned.register(CommitOffsets)
def _of_commit(command: CommitOffsets, state: State) -> Iterable[Key]:
    return ((group, number) for group, commits in command.commits for number, _ in commits)


@concerned.register(DropOffsets)
def _of_drop(command: DropOffsets, state: State) -> Iterable[Key]:
    return ((group, number) for group, number, _ in command.drops)


@concerned.register(DeleteGroups)
def _of_delete(command: DeleteGroups, state: State) -> Iterable[Key]:
    for name in command.groups:
        group = state.groups.by_id.get(name)
        for number in () if group is None else (*group.offsets, ITSELF):
            yield name, number
