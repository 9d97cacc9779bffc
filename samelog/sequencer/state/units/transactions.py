"""What commands about transactions change, and what they answer.

The rules are those of Kafka's TransactionCoordinator, before and after KIP-890, with its names of
errors: clients act by them. There, a request waits for markers and is refused meanwhile
(CONCURRENT_TRANSACTIONS); here, the coordinator lets it wait.

Invariant: what is refused changed nothing. A decision, and the offsets that are committed by it,
are of one entry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from samelog.sequencer.state.command_base import Rejection
from samelog.sequencer.state.instructions import Merge, MergeExtras
from samelog.sequencer.state.places import Living
from samelog.sequencer.state.tables.events import RecordEvent
from samelog.sequencer.state.tables.groups import CommitOffsets, CommittedOffset
from samelog.sequencer.state.tables.open_transactions import JoinedInLog, LogTransactions, TakePart
from samelog.sequencer.state.tables.transactions import (
    EPOCH_MAX,
    NO_PRODUCER,
    AddToTransaction,
    CarriedOut,
    CommitInTransaction,
    EndTransaction,
    ForgetTransactionalIds,
    InitProducer,
    TimeOutTransaction,
    Transaction,
    TransactionCommand,
)
from samelog.sequencer.state.two_phase import Decision, TwoPhase
from samelog.sequencer.state.types import State
from samelog.sequencer.state.units.feeds import note_commits, note_transactions
from samelog.sequencer.state.units.groups import FedMachine

IDS_MAX = 100_000
"""Transactional ids: they take memory on every node until nobody has used them for long."""

CONCURRENT = "CONCURRENT_TRANSACTIONS"

FENCED = "PRODUCER_FENCED"

INVALID = "INVALID_TXN_STATE"

NOT_OWNER = "NOT_OWNER"

UNKNOWN = "INVALID_PRODUCER_ID_MAPPING"


class TransactionRefused(Exception):
    """Why a command changes nothing: a stable code and a sentence."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(code, text)
        self.code, self.text = code, text


@dataclass(frozen=True, slots=True)
class ProducerIdAndEpoch:
    """What a client is to go on with. `must_wait`: with nothing yet, a transaction is being aborted
    for it first.
    """

    producer_id: int
    epoch: int
    must_wait: bool = False


# --- producers ------------------------------------------------------------------------------------


def _init(state: State, command: InitProducer) -> ProducerIdAndEpoch:
    transactions, name = state.transactions, command.transactional_id
    known = transactions.by_id.get(name)
    if known is None:
        if len(transactions.by_id) >= IDS_MAX:
            raise TransactionRefused("TOO_MANY", f"there are {IDS_MAX} transactional ids already")
        known = transactions.by_id[name] = Transaction(command.new_producer_id)
        transactions.producers[command.new_producer_id] = name
    _check_owner(known, command)
    _check_claim(known, command)
    if known.is_deciding:
        text = f"the last transaction of {name!r} is being carried out"
        raise TransactionRefused(CONCURRENT, text)
    known.owner = known.owner or command.owner
    if known.is_open:
        _fence(state, name, known, command.at_ms)
        return ProducerIdAndEpoch(NO_PRODUCER, -1, must_wait=True)
    claimed = -1 if command.producer_id == NO_PRODUCER else command.epoch
    if known.is_exhausted and claimed in (-1, known.epoch):
        last = known.epoch if claimed != -1 else -1
        transactions.rotate(name, command.new_producer_id)
        known.last_epoch = last
    else:
        _raise_epoch(known, claimed)
    known.unit, known.timeout_ms, known.used_ms = None, command.timeout_ms, command.at_ms
    return ProducerIdAndEpoch(known.producer_id, known.epoch)


def _check_owner(known: Transaction, command: InitProducer) -> None:
    """The identity that uses an id first owns it; a grant lets others use it, too."""
    name = command.transactional_id
    if known.owner not in ("", command.owner) and not command.is_granted:
        raise TransactionRefused(NOT_OWNER, f"another identity owns transactional id {name!r}")


def _check_claim(known: Transaction, command: InitProducer) -> None:
    """Who names a producer id must have, or have had, it (KIP-360)."""
    if command.producer_id == NO_PRODUCER or known.epoch < 0:
        return
    if command.producer_id not in (known.producer_id, known.previous_producer_id):
        raise TransactionRefused(FENCED, f"{command.transactional_id!r} has another producer now")
    is_free = not (known.is_open or known.is_deciding)
    if is_free and command.epoch not in (known.epoch, known.last_epoch):
        text = f"epoch {command.epoch} of {command.transactional_id!r} is over"
        raise TransactionRefused(FENCED, text)


def _raise_epoch(known: Transaction, claimed: int) -> None:
    """The next epoch, unless the client asks for the second time."""
    if claimed != -1 and known.epoch >= 0 and claimed != known.epoch:
        return
    known.last_epoch = known.epoch if claimed != -1 else -1
    known.epoch += 1


def _fence(state: State, name: str, known: Transaction, at_ms: int) -> None:
    """Abort the open transaction for somebody else: its producer can do nothing any more."""
    known.epoch, known.last_epoch = min(known.epoch + 1, EPOCH_MAX), -1
    _decide(state, name, known, Decision.ABORT, at_ms)


def _producer(state: State, command: Any) -> Transaction:
    """The transactional id that the command's producer has. Raises TransactionRefused."""
    known = state.transactions.by_id.get(command.transactional_id)
    if known is None or known.producer_id != command.producer_id:
        text = f"{command.transactional_id!r} does not have producer id {command.producer_id}"
        raise TransactionRefused(UNKNOWN, text)
    if known.epoch != command.epoch:
        raise TransactionRefused(FENCED, f"the epoch is {known.epoch}, not {command.epoch}")
    return known


# --- taking part ----------------------------------------------------------------------------------


def _add(state: State, command: AddToTransaction) -> ProducerIdAndEpoch:
    known = _producer(state, command)
    if any(number not in state.partitions.by_number for number in command.partitions):
        raise TransactionRefused("UNKNOWN_TOPIC", "a partition is gone")
    unit = _begun(state, command.transactional_id, known, command.at_ms)
    for number in command.partitions:
        unit.join(number, is_prepared=True)  # a batch is merged before it is acknowledged
    for group in command.groups:
        known.groups.setdefault(group, {})
    return ProducerIdAndEpoch(known.producer_id, known.epoch)


def _take_part(state: State, command: TakePart) -> ProducerIdAndEpoch:
    if any(number not in state.partitions.by_number for number in command.partitions):
        raise TransactionRefused("UNKNOWN_TOPIC", "a partition is not here")
    if any(map(state.transfers.is_on_its_way, command.partitions)):
        raise TransactionRefused(CONCURRENT, "a partition is on its way to another group")
    known, part = state.open_transactions, JoinedInLog(command.epoch, command.number)
    late = [each for each in command.partitions if known.is_over(each, command)]
    if late:
        raise TransactionRefused(INVALID, f"transaction {command.number} is over in {late}")
    for number in command.partitions:
        log = known.by_partition.setdefault(number, LogTransactions())
        log.joined[command.producer_id] = part
    return ProducerIdAndEpoch(command.producer_id, command.epoch)


def _begun(state: State, name: str, known: Transaction, at_ms: int) -> TwoPhase:
    """The open transaction, begun now if there is none. Raises TransactionRefused."""
    if known.is_deciding:
        raise TransactionRefused(CONCURRENT, "the last transaction is being carried out")
    if known.unit is None or not known.unit.is_open:
        known.number, known.last_epoch = known.next_number, -1
        known.unit = TwoPhase(known.number, at_ms, known.timeout_ms)
        state.transactions.ongoing[name] = at_ms
    known.used_ms = at_ms
    return known.unit


def _commit_offsets(state: State, command: CommitInTransaction) -> ProducerIdAndEpoch:
    known = _producer(state, command)
    if command.joins:
        _begun(state, command.transactional_id, known, command.at_ms)
    elif known.is_deciding:
        raise TransactionRefused(CONCURRENT, "the last transaction is being carried out")
    elif not known.is_open or command.group not in known.groups:
        raise TransactionRefused(INVALID, f"group {command.group!r} is no part of a transaction")
    offsets = known.groups.setdefault(command.group, {})
    offsets.update(
        (number, offset)
        for number, offset in command.offsets
        if number in state.partitions.by_number
    )
    return ProducerIdAndEpoch(known.producer_id, known.epoch)


# --- deciding -------------------------------------------------------------------------------------


def _end(state: State, command: EndTransaction) -> ProducerIdAndEpoch:
    if (again := _said_again(state, command)) is not None:
        return again
    known, wanted = _producer(state, command), _wanted(command)
    is_same = known.was_decided(wanted)
    if known.is_deciding:
        raise TransactionRefused(CONCURRENT if is_same else INVALID, "the transaction is decided")
    if command.bumps and not (known.is_open or command.is_commit):  # nothing was added to it
        known.number = known.next_number
        known.unit = TwoPhase(known.number, command.at_ms, known.timeout_ms)
    if known.is_open:
        return _decided(state, known, wanted, command)
    if command.bumps or not is_same:
        text = f"there is nothing to end: the transaction is {known.state_name}"
        raise TransactionRefused(INVALID, text)
    return ProducerIdAndEpoch(known.producer_id, known.epoch)


def _wanted(command: EndTransaction) -> Decision:
    return Decision.COMMIT if command.is_commit else Decision.ABORT


def _said_again(state: State, command: EndTransaction) -> ProducerIdAndEpoch | None:
    """The answer to a client that has the epoch before the present one: it did not get the first
    answer, or its transaction has timed out.
    """
    known = state.transactions.by_id.get(command.transactional_id)
    if known is None:
        return None
    is_next = (known.producer_id, known.epoch) == (command.producer_id, command.epoch + 1)
    is_rotated = (known.previous_producer_id, known.epoch) == (command.producer_id, 0)
    is_before = known.last_epoch == command.epoch and (is_next or is_rotated)
    if known.unit is None or known.is_open or not is_before:
        return None
    if not known.was_decided(_wanted(command)):
        raise TransactionRefused(INVALID, "the transaction was decided otherwise")
    if known.is_deciding:
        raise TransactionRefused(CONCURRENT, "the transaction is being carried out")
    return ProducerIdAndEpoch(known.producer_id, known.epoch)


def _decided(
    state: State, known: Transaction, wanted: Decision, command: EndTransaction
) -> ProducerIdAndEpoch:
    """What the client goes on with: with KIP-890 another epoch, or another id."""
    if command.bumps:
        if known.is_exhausted:
            known.next_producer_id = command.new_producer_id
        known.last_epoch, known.epoch = known.epoch, known.epoch + 1
    answer = ProducerIdAndEpoch(known.producer_id, known.epoch)
    if known.next_producer_id != NO_PRODUCER:
        answer = ProducerIdAndEpoch(known.next_producer_id, 0)
    _decide(state, command.transactional_id, known, wanted, command.at_ms)
    return answer


def _offsets_of(
    state: State, name: str, known: Transaction, at_ms: int
) -> Iterator[tuple[str, list[tuple[int, CommittedOffset]]]]:
    """By group, what a transaction commits; nothing for subscribers of samelog's own, who joined
    since it was taken.
    """
    for group, offsets in known.groups.items():
        if not state.groups.is_native(group):
            yield group, list(offsets.items())
        elif offsets:
            text = f"offsets of transaction {name!r} are left out: group {group!r} has members"
            state.events.remember(RecordEvent(at_ms, "offsets-left-out", text))


def _decide(state: State, name: str, known: Transaction, wanted: Decision, at_ms: int) -> None:
    unit = known.unit
    if unit is None or not unit.decide(wanted):
        raise TransactionRefused(INVALID, "the transaction cannot be decided")
    known.used_ms = at_ms
    if wanted is Decision.COMMIT:
        commits = list(_offsets_of(state, name, known, at_ms))
        command = CommitOffsets([each for each in commits if each[1]])
        state.groups.apply(command, Living(state))
        note_commits(state, command)
    known.groups = {}
    state.transactions.ongoing.pop(name, None)
    state.transactions.deciding.append(name)
    if unit.is_done:
        state.transactions.finish(name)


def _carried_out(state: State, command: CarriedOut) -> ProducerIdAndEpoch:
    for producer_id, number, partition in command.markers:
        state.transactions.carried_out(producer_id, number, partition)
    return ProducerIdAndEpoch(NO_PRODUCER, -1)


def _time_out(state: State, command: TimeOutTransaction) -> ProducerIdAndEpoch:
    known = state.transactions.by_id.get(command.transactional_id)
    unit = None if known is None else known.unit
    if known is None or unit is None or unit.number != command.number:
        raise TransactionRefused(INVALID, "that transaction is over")
    if not unit.is_overdue(command.at_ms):
        raise TransactionRefused(INVALID, "the transaction is not overdue")
    before = known.epoch
    _fence(state, command.transactional_id, known, command.at_ms)
    if not known.is_exhausted:
        known.last_epoch = before  # its producer may abort, and ask for the next epoch
    return ProducerIdAndEpoch(known.producer_id, known.epoch)


def _forget(state: State, command: ForgetTransactionalIds) -> ProducerIdAndEpoch:
    for name, used_ms in command.idle:
        known = state.transactions.by_id.get(name)
        if known is None or known.used_ms != used_ms or known.is_open or known.is_deciding:
            continue
        del state.transactions.by_id[name]
        state.transactions.producers.pop(known.producer_id, None)
        state.producers.seen_ms.setdefault(known.producer_id, used_ms)
    return ProducerIdAndEpoch(NO_PRODUCER, -1)


_CHANGES: Mapping[type, Callable[[Any, Any], ProducerIdAndEpoch]] = {
    InitProducer: _init,
    AddToTransaction: _add,
    CommitInTransaction: _commit_offsets,
    EndTransaction: _end,
    TimeOutTransaction: _time_out,
    ForgetTransactionalIds: _forget,
    CarriedOut: _carried_out,
    TakePart: _take_part,
}

TRANSACTION_COMMANDS = tuple(_CHANGES)


# --- transactions ---------------------------------------------------------------------------------


def change_transactions(
    machine: FedMachine, command: TransactionCommand
) -> ProducerIdAndEpoch | Rejection:
    state = machine.state
    names = _named(state, command)
    try:
        outcome = _CHANGES[type(command)](state, command)
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
