"""What the coordinator of transactions knows, by transactional id.

The rules are those of Kafka's TransactionCoordinator, before and after KIP-890, with its names of
errors: clients act by them. There, a request waits for markers and is refused meanwhile
(CONCURRENT_TRANSACTIONS); here, the coordinator lets it wait. What a client asks for is decided
where the command is applied, so that a new leader knows all that the old one answered. Times are
the leader's wall clock; new producer ids are drawn by the leader.

What is known of a log belongs to the group that has the log (`open_transactions`). The two meet in
two places: the planner asks both what a batch belongs to, and a marker that is applied tells the
coordinator that its part is done.

Invariant: a producer has one transactional id, and an id has one transaction at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from samelog.format.numbers import Unsigned32
from samelog.sequencer.state.command_base import Command
from samelog.sequencer.state.instructions import End
from samelog.sequencer.state.tables.groups import CommittedOffset
from samelog.sequencer.state.tables.open_transactions import JoinedInLog, TakePart
from samelog.sequencer.state.two_phase import Decision, TwoPhase

NO_PRODUCER = -1
TIMEOUT_MS_MAX = 15 * 60 * 1000
"""No transaction may be open for longer: Kafka's `transaction.max.timeout.ms`."""


class InitProducer(Command, frozen=True, tag=61):
    """Give a transactional id's producer its id and a new epoch, which fences all before it.

    `producer_id` and `epoch` are what the client says it has, -1 if it says nothing.
    `new_producer_id` is taken where it needs another one. `owner` is the client's identity;
    `is_granted`: it may use the id regardless of its owner.
    """

    transactional_id: str
    timeout_ms: int
    producer_id: int
    epoch: int
    new_producer_id: int
    at_ms: int
    owner: str = ""
    is_granted: bool = False


class AddToTransaction(Command, frozen=True, tag=62):
    """Partitions (by number) and consumer groups take part in the producer's transaction, which
    begins with the first of them.
    """

    transactional_id: str
    producer_id: int
    epoch: int
    partitions: list[Unsigned32]
    groups: list[str]
    at_ms: int


class CommitInTransaction(Command, frozen=True, tag=63):
    """Offsets of a group, to be committed with the transaction. `joins`: the group takes part by
    this.
    """

    transactional_id: str
    producer_id: int
    epoch: int
    group: str
    offsets: list[tuple[Unsigned32, CommittedOffset]]
    joins: bool
    at_ms: int


class EndTransaction(Command, frozen=True, tag=64):
    """Decide a transaction. `bumps`: the producer's next one has another epoch (KIP-890)."""

    transactional_id: str
    producer_id: int
    epoch: int
    is_commit: bool
    bumps: bool
    new_producer_id: int
    at_ms: int


class TimeOutTransaction(Command, frozen=True, tag=65):
    """Abort a transaction that is overdue, and fence its producer. `at_ms` is when it is overdue at
    the earliest, where an operator does not wait for that.
    """

    transactional_id: str
    number: int
    at_ms: int


class ForgetTransactionalIds(Command, frozen=True, tag=66):
    """Forget transactional ids that were not used since (id, last use)."""

    idle: list[tuple[str, int]]


class CarriedOut(Command, frozen=True, tag=86):
    """In group 0: these partitions (producer id, transaction, partition) have their markers, in the
    logs of data groups.
    """

    markers: list[tuple[int, int, Unsigned32]]


CoordinatorCommand = (
    InitProducer
    | AddToTransaction
    | CommitInTransaction
    | EndTransaction
    | TimeOutTransaction
    | CarriedOut
)
TransactionCommand = CoordinatorCommand | ForgetTransactionalIds | TakePart

IDS_MAX = 100_000
"""Transactional ids: they take memory on every node until nobody has used them for long."""
CONCURRENT = "CONCURRENT_TRANSACTIONS"
FENCED = "PRODUCER_FENCED"
INVALID = "INVALID_TXN_STATE"
NOT_OWNER = "NOT_OWNER"
UNKNOWN = "INVALID_PRODUCER_ID_MAPPING"


EPOCH_MAX = (1 << 15) - 1
LAST_EPOCH = EPOCH_MAX - 1
"""A producer that has it gets another id next: the highest one is left for fencing."""


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


class Transaction(msgspec.Struct):
    """A transactional id, its producer and its newest transaction. `unit` is None before the first,
    and after the producer was initialized again.
    """

    producer_id: int
    epoch: int = -1
    last_epoch: int = -1
    """The epoch before, where the client may not have heard of this one."""
    previous_producer_id: int = NO_PRODUCER
    next_producer_id: int = NO_PRODUCER
    """What it gets when the transaction is done: it has no epoch left."""
    timeout_ms: int = 0
    number: int = 0
    unit: TwoPhase | None = None
    groups: dict[str, dict[int, CommittedOffset]] = {}
    """Consumer group -> partition -> what is committed with the transaction."""
    used_ms: int = -1
    owner: str = ""
    """The identity that used the id first."""
    numbers_from: int = 0
    """The next transaction has no lower number: a recovery leaves out those that lost entries may
    have given.
    """

    @property
    def is_open(self) -> bool:
        """Whether a transaction is under way, and not decided."""
        return self.unit is not None and self.unit.is_open

    @property
    def is_deciding(self) -> bool:
        """Whether it is decided, and not carried out everywhere."""
        return self.unit is not None and not self.unit.is_open and not self.unit.is_done

    def was_decided(self, decision: Decision) -> bool:
        """Whether this became of its newest transaction."""
        return self.unit is not None and self.unit.decision is decision

    @property
    def next_number(self) -> int:
        """The number of its next transaction."""
        return max(self.number + 1, self.numbers_from)

    @property
    def is_exhausted(self) -> bool:
        """Whether the producer has no epoch left."""
        return self.epoch >= LAST_EPOCH

    @property
    def state_name(self) -> str:
        """Kafka's name of where it stands."""
        if self.unit is None:
            return "Empty"
        if self.unit.is_open:
            return "Ongoing"
        stage = "Complete" if self.unit.is_done else "Prepare"
        return stage + ("Commit" if self.unit.decision is Decision.COMMIT else "Abort")

    def takes_part(self, partition: int) -> bool:
        """Whether records of a partition belong to the transaction that is open."""
        return self.is_open and self.unit is not None and partition in self.unit.participants


class TransactionsTable(msgspec.Struct):
    """All of it."""

    by_id: dict[str, Transaction] = {}
    producers: dict[int, str] = {}
    """Producer id -> its transactional id."""
    ongoing: dict[str, int] = {}
    """The ids whose transaction is open -> when it began."""
    deciding: list[str] = []
    """The ids whose transaction is decided and not carried out everywhere."""

    def apply(self, command: CoordinatorCommand, living: Container[int]) -> ProducerIdAndEpoch:
        """Apply a command, `living` being the partitions there are. What a transaction commits is
        up to the caller. Raises TransactionRefused.
        """
        return _CHANGES[type(command)](self, command, living)

    def forget_id(self, name: str, used_ms: int) -> int | None:
        """Forget a transactional id that was not used since; return its producer, if it is so."""
        known = self.by_id.get(name)
        if known is None or known.used_ms != used_ms or known.is_open or known.is_deciding:
            return None
        del self.by_id[name]
        self.producers.pop(known.producer_id, None)
        return known.producer_id

    def of_producer(self, producer_id: int) -> Transaction | None:
        """What a producer id belongs to."""
        transactional_id = self.producers.get(producer_id)
        return None if transactional_id is None else self.by_id[transactional_id]

    def knows(self, producer_id: int, number: int) -> bool:
        """Whether a transaction of a producer was ever begun here, as far as is remembered."""
        known = self.of_producer(producer_id)
        return known is not None and known.number >= number

    def undecided_offsets(self, group: str) -> set[int]:
        """The partitions of which an open transaction may move a group's offset."""
        found: set[int] = set()
        for transactional_id in self.ongoing:
            found.update(self.by_id[transactional_id].groups.get(group, ()))
        return found

    def carried_out(self, producer_id: int, number: int, partition: int) -> None:
        """A transaction has its marker in a partition, here or in a data group."""
        transaction = self.of_producer(producer_id)
        if transaction is None or transaction.number != number or transaction.unit is None:
            return
        if transaction.unit.carried_out(partition) and transaction.unit.is_done:
            self.finish(self.producers[producer_id])

    def taking_part(self, partition: int, producer_id: int) -> JoinedInLog | None:
        """The open transaction of a producer in which a partition takes part, if there is one."""
        known = self.of_producer(producer_id)
        if known is None or not known.takes_part(partition):
            return None
        return JoinedInLog(known.epoch, known.number)

    def markers_due(self) -> Mapping[int, list[End]]:
        """The markers that have yet to be planned, by partition."""
        due: dict[int, list[End]] = {}
        for transactional_id in self.deciding:
            known = self.by_id[transactional_id]
            if known.unit is None:
                continue
            is_commit = known.unit.decision is Decision.COMMIT
            end = End(known.producer_id, known.epoch, known.number, is_commit)
            for partition in known.unit.unfinished():
                due.setdefault(partition, []).append(end)
        return due

    # --- ends -------------------------------------------------------------------------------------

    def finish(self, transactional_id: str) -> None:
        """A transaction is carried out everywhere."""
        known = self.by_id[transactional_id]
        if transactional_id in self.deciding:
            self.deciding.remove(transactional_id)
        known.groups = {}
        if known.unit is not None:
            known.unit.participants = {}
        if known.next_producer_id != NO_PRODUCER:
            self.rotate(transactional_id, known.next_producer_id)

    def rotate(self, transactional_id: str, producer_id: int) -> None:
        """The producer goes on under another id, from epoch 0."""
        known = self.by_id[transactional_id]
        self.producers.pop(known.producer_id, None)
        known.previous_producer_id, known.producer_id = known.producer_id, producer_id
        known.epoch, known.next_producer_id = 0, NO_PRODUCER
        self.producers[producer_id] = transactional_id

    def forget_partitions(self, gone: Collection[int]) -> None:
        """Finish the parts of all transactions in a topic that is deleted or whose log restarts."""
        for transactional_id, known in self.by_id.items():
            unit = known.unit
            if unit is None or not unit.participants.keys() & gone:
                continue
            for number in gone:
                unit.leave(number)
            for offsets in known.groups.values():
                for number in gone:
                    offsets.pop(number, None)
            if unit.is_done:
                self.finish(transactional_id)


# --- producers ------------------------------------------------------------------------------------


def _init(
    transactions: TransactionsTable, command: InitProducer, living: Container[int]
) -> ProducerIdAndEpoch:
    name = command.transactional_id
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
        _fence(transactions, name, known, command.at_ms)
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


def _fence(transactions: TransactionsTable, name: str, known: Transaction, at_ms: int) -> None:
    """Abort the open transaction for somebody else: its producer can do nothing any more."""
    known.epoch, known.last_epoch = min(known.epoch + 1, EPOCH_MAX), -1
    _decide(transactions, name, known, Decision.ABORT, at_ms)


def _producer(transactions: TransactionsTable, command: Any) -> Transaction:
    """The transactional id that the command's producer has. Raises TransactionRefused."""
    known = transactions.by_id.get(command.transactional_id)
    if known is None or known.producer_id != command.producer_id:
        text = f"{command.transactional_id!r} does not have producer id {command.producer_id}"
        raise TransactionRefused(UNKNOWN, text)
    if known.epoch != command.epoch:
        raise TransactionRefused(FENCED, f"the epoch is {known.epoch}, not {command.epoch}")
    return known


# --- taking part ----------------------------------------------------------------------------------


def _add(
    transactions: TransactionsTable, command: AddToTransaction, living: Container[int]
) -> ProducerIdAndEpoch:
    known = _producer(transactions, command)
    if any(number not in living for number in command.partitions):
        raise TransactionRefused("UNKNOWN_TOPIC", "a partition is gone")
    unit = _begun(transactions, command.transactional_id, known, command.at_ms)
    for number in command.partitions:
        unit.join(number, is_prepared=True)  # a batch is merged before it is acknowledged
    for group in command.groups:
        known.groups.setdefault(group, {})
    return ProducerIdAndEpoch(known.producer_id, known.epoch)


def _begun(transactions: TransactionsTable, name: str, known: Transaction, at_ms: int) -> TwoPhase:
    """The open transaction, begun now if there is none. Raises TransactionRefused."""
    if known.is_deciding:
        raise TransactionRefused(CONCURRENT, "the last transaction is being carried out")
    if known.unit is None or not known.unit.is_open:
        known.number, known.last_epoch = known.next_number, -1
        known.unit = TwoPhase(known.number, at_ms, known.timeout_ms)
        transactions.ongoing[name] = at_ms
    known.used_ms = at_ms
    return known.unit


def _commit_offsets(
    transactions: TransactionsTable, command: CommitInTransaction, living: Container[int]
) -> ProducerIdAndEpoch:
    known = _producer(transactions, command)
    if command.joins:
        _begun(transactions, command.transactional_id, known, command.at_ms)
    elif known.is_deciding:
        raise TransactionRefused(CONCURRENT, "the last transaction is being carried out")
    elif not known.is_open or command.group not in known.groups:
        raise TransactionRefused(INVALID, f"group {command.group!r} is no part of a transaction")
    offsets = known.groups.setdefault(command.group, {})
    offsets.update((number, offset) for number, offset in command.offsets if number in living)
    return ProducerIdAndEpoch(known.producer_id, known.epoch)


# --- deciding -------------------------------------------------------------------------------------


def _end(
    transactions: TransactionsTable, command: EndTransaction, living: Container[int]
) -> ProducerIdAndEpoch:
    if (again := _said_again(transactions, command)) is not None:
        return again
    known, wanted = _producer(transactions, command), _wanted(command)
    is_same = known.was_decided(wanted)
    if known.is_deciding:
        raise TransactionRefused(CONCURRENT if is_same else INVALID, "the transaction is decided")
    if command.bumps and not (known.is_open or command.is_commit):  # nothing was added to it
        known.number = known.next_number
        known.unit = TwoPhase(known.number, command.at_ms, known.timeout_ms)
    if known.is_open:
        return _decided(transactions, known, wanted, command)
    if command.bumps or not is_same:
        text = f"there is nothing to end: the transaction is {known.state_name}"
        raise TransactionRefused(INVALID, text)
    return ProducerIdAndEpoch(known.producer_id, known.epoch)


def _wanted(command: EndTransaction) -> Decision:
    return Decision.COMMIT if command.is_commit else Decision.ABORT


def _said_again(
    transactions: TransactionsTable, command: EndTransaction
) -> ProducerIdAndEpoch | None:
    """The answer to a client that has the epoch before the present one: it did not get the first
    answer, or its transaction has timed out.
    """
    known = transactions.by_id.get(command.transactional_id)
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
    transactions: TransactionsTable, known: Transaction, wanted: Decision, command: EndTransaction
) -> ProducerIdAndEpoch:
    """What the client goes on with: with KIP-890 another epoch, or another id."""
    if command.bumps:
        if known.is_exhausted:
            known.next_producer_id = command.new_producer_id
        known.last_epoch, known.epoch = known.epoch, known.epoch + 1
    answer = ProducerIdAndEpoch(known.producer_id, known.epoch)
    if known.next_producer_id != NO_PRODUCER:
        answer = ProducerIdAndEpoch(known.next_producer_id, 0)
    _decide(transactions, command.transactional_id, known, wanted, command.at_ms)
    return answer


def _decide(
    transactions: TransactionsTable, name: str, known: Transaction, wanted: Decision, at_ms: int
) -> None:
    unit = known.unit
    if unit is None or not unit.decide(wanted):
        raise TransactionRefused(INVALID, "the transaction cannot be decided")
    known.used_ms, known.groups = at_ms, {}
    transactions.ongoing.pop(name, None)
    transactions.deciding.append(name)
    if unit.is_done:
        transactions.finish(name)


def _carried_out(
    transactions: TransactionsTable, command: CarriedOut, living: Container[int]
) -> ProducerIdAndEpoch:
    for producer_id, number, partition in command.markers:
        transactions.carried_out(producer_id, number, partition)
    return ProducerIdAndEpoch(NO_PRODUCER, -1)


def _time_out(
    transactions: TransactionsTable, command: TimeOutTransaction, living: Container[int]
) -> ProducerIdAndEpoch:
    known = transactions.by_id.get(command.transactional_id)
    unit = None if known is None else known.unit
    if known is None or unit is None or unit.number != command.number:
        raise TransactionRefused(INVALID, "that transaction is over")
    if not unit.is_overdue(command.at_ms):
        raise TransactionRefused(INVALID, "the transaction is not overdue")
    before = known.epoch
    _fence(transactions, command.transactional_id, known, command.at_ms)
    if not known.is_exhausted:
        known.last_epoch = before  # its producer may abort, and ask for the next epoch
    return ProducerIdAndEpoch(known.producer_id, known.epoch)


_CHANGES: Mapping[type, Callable[[TransactionsTable, Any, Container[int]], ProducerIdAndEpoch]] = {
    InitProducer: _init,
    AddToTransaction: _add,
    CommitInTransaction: _commit_offsets,
    EndTransaction: _end,
    TimeOutTransaction: _time_out,
    CarriedOut: _carried_out,
}
