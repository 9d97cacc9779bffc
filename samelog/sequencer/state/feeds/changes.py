"""Commands about groups and transactions, applied with what is told of them as topics.

Invariant: what is refused is told of nowhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import singledispatch
from typing import TYPE_CHECKING, Any, Protocol

from samelog.sequencer.state.commands import Merge, MergeExtras
from samelog.sequencer.state.feeds.feed import ITSELF, Key
from samelog.sequencer.state.feeds.noting import note_groups, note_transactions
from samelog.sequencer.state.group_commands import (
    CommitOffsets,
    DeleteGroups,
    DropOffsets,
    GroupCommand,
    SaveConsumerGroup,
    SaveGroup,
    SaveNativeGroup,
)
from samelog.sequencer.state.group_state import GROUP_COMMANDS
from samelog.sequencer.state.placement.commands import LowerOffsets
from samelog.sequencer.state.placement.lowering import lower_offsets
from samelog.sequencer.state.transactions.changes import (
    TRANSACTION_COMMANDS,
    ProducerIdAndEpoch,
    TransactionRefused,
    change_transactions,
)
from samelog.sequencer.state.transactions.commands import (
    CarriedOut,
    ForgetTransactionalIds,
    TransactionCommand,
)
from samelog.sequencer.state.types import Rejection
from samelog.sequencer.state.views.places import Living

if TYPE_CHECKING:
    from samelog.sequencer.state.types import State


class FedMachine(Protocol):
    """The state machine, as far as commands about groups and transactions go."""

    @property
    def state(self) -> State:
        """What they change."""

    def feeds_moved(self) -> None:
        """There is more to tell."""


# --- groups ---------------------------------------------------------------------------------------


def _groups(machine: FedMachine, command: GroupCommand) -> GroupCommand | Rejection:
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


# --- transactions ---------------------------------------------------------------------------------


def _transactions(
    machine: FedMachine, command: TransactionCommand
) -> ProducerIdAndEpoch | Rejection:
    state = machine.state
    names = _named(state, command)
    try:
        outcome = change_transactions(state, command)
    except TransactionRefused as refusal:
        return Rejection(refusal.code, refusal.text)
    note_transactions(state, names, is_new=not isinstance(command, ForgetTransactionalIds))
    machine.feeds_moved()
    return outcome


def _named(state: State, command: TransactionCommand) -> list[str]:
    """The transactional ids that a command is about, before it is applied."""
    if isinstance(command, CarriedOut):
        return _of_producers(state, (producer_id for producer_id, _, _ in command.markers))
    if isinstance(command, ForgetTransactionalIds):
        return [name for name, _ in command.idle]
    name = getattr(command, "transactional_id", None)
    return [] if name is None else [name]


def _of_producers(state: State, producer_ids: Iterable[int]) -> list[str]:
    known = map(state.transactions.producers.get, producer_ids)
    return [name for name in dict.fromkeys(known) if name is not None]


def merged(machine: FedMachine, command: Merge, extras: MergeExtras) -> None:
    """An instruction with which nothing is wrong begins transactions in a log, or ends some."""
    state = machine.state
    names = _of_producers(state, (end.producer_id for end in extras.ends))
    state.open_transactions.merged(command, extras)
    for end in extras.ends:
        state.transactions.carried_out(end.producer_id, end.number, command.partition)
    if names:
        note_transactions(machine.state, names)
        machine.feeds_moved()


GROUP_AND_TRANSACTION_CHANGES: Mapping[type, Callable[[Any, Any], Any]] = {
    **dict.fromkeys(GROUP_COMMANDS, _groups),
    LowerOffsets: lower_offsets,
    **dict.fromkeys(TRANSACTION_COMMANDS, _transactions),
}
