"""Commands about transactions, applied with what is told of them as topics.

Invariant: what is refused changed nothing, and is told of nowhere. A decision, and the offsets that
are committed by it, are of one entry.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import get_args

from samelog.sequencer.state.command_base import Rejection
from samelog.sequencer.state.instructions import Merge, MergeExtras
from samelog.sequencer.state.places import Living
from samelog.sequencer.state.tables.events import RecordEvent
from samelog.sequencer.state.tables.groups import CommitOffsets, CommittedOffset
from samelog.sequencer.state.tables.open_transactions import TakePart
from samelog.sequencer.state.tables.transactions import (
    CONCURRENT,
    INVALID,
    NO_PRODUCER,
    CarriedOut,
    EndTransaction,
    ForgetTransactionalIds,
    ProducerIdAndEpoch,
    TransactionCommand,
    TransactionRefused,
)
from samelog.sequencer.state.types import State
from samelog.sequencer.state.units.feeds import note_groups, note_transactions

TRANSACTION_COMMANDS = get_args(TransactionCommand)


def change_transactions(
    state: State, command: TransactionCommand
) -> ProducerIdAndEpoch | Rejection:
    """Apply a command about transactions."""
    names = _named(state, command)
    try:
        outcome = _apply(state, command)
    except TransactionRefused as refusal:
        return Rejection(refusal.code, refusal.text)
    note_transactions(state, names, is_new=not isinstance(command, ForgetTransactionalIds))
    state.feeds.moved()
    return outcome


def _named(state: State, command: TransactionCommand) -> list[str]:
    """The transactional ids that a command is about, before it is applied."""
    if isinstance(command, CarriedOut):
        return _of_producers(state, (producer_id for producer_id, _, _ in command.markers))
    if isinstance(command, ForgetTransactionalIds):
        return [name for name, _ in command.idle]
    return [] if isinstance(command, TakePart) else [command.transactional_id]


def _of_producers(state: State, producer_ids: Iterable[int]) -> list[str]:
    known = map(state.transactions.producers.get, producer_ids)
    return [name for name in dict.fromkeys(known) if name is not None]


def _apply(state: State, command: TransactionCommand) -> ProducerIdAndEpoch:
    if isinstance(command, TakePart):
        return _take_part(state, command)
    if isinstance(command, ForgetTransactionalIds):
        return _forget(state, command)
    if isinstance(command, EndTransaction):
        return _end(state, command)
    return state.transactions.apply(command, state.partitions.by_number)


def _take_part(state: State, command: TakePart) -> ProducerIdAndEpoch:
    if any(number not in state.partitions.by_number for number in command.partitions):
        raise TransactionRefused("UNKNOWN_TOPIC", "a partition is not here")
    if any(map(state.transfers.is_on_its_way, command.partitions)):
        raise TransactionRefused(CONCURRENT, "a partition is on its way to another group")
    late = state.open_transactions.take_part(command)
    if late:
        raise TransactionRefused(INVALID, f"transaction {command.number} is over in {late}")
    return ProducerIdAndEpoch(command.producer_id, command.epoch)


def _forget(state: State, command: ForgetTransactionalIds) -> ProducerIdAndEpoch:
    for name, used_ms in command.idle:
        producer_id = state.transactions.forget_id(name, used_ms)
        if producer_id is not None:
            state.producers.seen_ms.setdefault(producer_id, used_ms)
    return ProducerIdAndEpoch(NO_PRODUCER, -1)


def _end(state: State, command: EndTransaction) -> ProducerIdAndEpoch:
    """Decide a transaction, and commit its offsets with it."""
    known = state.transactions.by_id.get(command.transactional_id)
    was_open, groups = (False, {}) if known is None else (known.is_open, known.groups)
    answer = state.transactions.apply(command, state.partitions.by_number)
    if was_open and command.is_commit:
        _commit(state, command, groups)
    return answer


def _commit(
    state: State, command: EndTransaction, groups: dict[str, dict[int, CommittedOffset]]
) -> None:
    """Nothing is committed for subscribers of samelog's own, who joined since it was taken."""
    commits: list[tuple[str, list[tuple[int, CommittedOffset]]]] = []
    name = command.transactional_id
    for group, offsets in groups.items():
        if offsets and state.groups.is_native(group):
            text = f"offsets of transaction {name!r} are left out: group {group!r} has members"
            state.events.remember(RecordEvent(command.at_ms, "offsets-left-out", text))
        elif offsets:
            commits.append((group, list(offsets.items())))
    committed = CommitOffsets(commits)
    state.groups.apply(committed, Living(state))
    note_groups(state, state.groups.keys_of(committed))


def end_in_log(state: State, command: Merge, extras: MergeExtras) -> None:
    """Apply a valid instruction that begins or ends transactions in a log."""
    names = _of_producers(state, (end.producer_id for end in extras.ends))
    state.open_transactions.merged(command, extras)
    for end in extras.ends:
        state.transactions.carried_out(end.producer_id, end.number, command.partition)
    if names:
        note_transactions(state, names)
        state.feeds.moved()
