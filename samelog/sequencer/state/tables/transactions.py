"""What the coordinator of transactions knows, by transactional id.

What a client asks for is decided where the command is applied, so that a new leader knows all that
the old one answered. Times are the leader's wall clock; new producer ids are drawn by the leader.
What is known of a log belongs to the group that has the log (`open_transactions`). The two meet in
two places: the planner asks both what a batch belongs to, and a marker that is applied tells the
coordinator that its part is done.

Invariant: a producer has one transactional id, and an id has one transaction at a time.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

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


TransactionCommand = (
    InitProducer
    | AddToTransaction
    | CommitInTransaction
    | EndTransaction
    | TimeOutTransaction
    | ForgetTransactionalIds
    | CarriedOut
    | TakePart
)

EPOCH_MAX = (1 << 15) - 1

LAST_EPOCH = EPOCH_MAX - 1
"""A producer that has it gets another id next: the highest one is left for fencing."""


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
