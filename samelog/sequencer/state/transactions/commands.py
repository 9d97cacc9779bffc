"""The commands about transactions, and the merge instruction that begins and ends them in a log.

What a client asks for is decided where the command is applied, so that a new leader knows all that
the old one answered. Times are the leader's wall clock; new producer ids are drawn by the leader.

Invariant: applying a command needs nothing but the state; field order is the format
(docs/state-machine.md).
"""

from __future__ import annotations

from enum import IntEnum

import msgspec

from samelog.format.numbers import Unsigned32
from samelog.sequencer.state.command_base import Command
from samelog.sequencer.state.group_commands import CommittedOffset

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


class TakePart(Command, frozen=True, tag=85):
    """In a data group: these partitions of it take part in a producer's transaction, as group 0 has
    it.
    """

    producer_id: int
    epoch: int
    number: int
    partitions: list[Unsigned32]


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


class StagedPart(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A held run, and up to where (partition, roll, byte) it is to be published."""

    session: str
    run_id: str
    ends: list[tuple[Unsigned32, int, int]]


class UnitStep(IntEnum):
    """What became of a group's part of a unit."""

    PREPARED = 0
    REFUSED = 1
    DONE = 2
    GONE = 3
    """The group is, with all that it had."""


class BeginStage(Command, frozen=True, tag=81):
    """In group 0: publish a batch that was staged in several groups, in all of them or in none."""

    stage: str
    writer: str
    batch: int
    runs: list[StagedPart]
    at_ms: int


class SettleUnit(Command, frozen=True, tag=82):
    """In group 0: what became of a group's part of a unit of work; the last that is prepared
    decides it. `text`: why it is refused.
    """

    number: int
    group: Unsigned32
    step: UnitStep
    text: str = ""


SpanningCommand = BeginStage | SettleUnit


class Begin(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A producer's transaction `number` has its first record in this partition at `offset`."""

    producer_id: int
    epoch: int
    number: int
    offset: int


class End(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A producer's transaction `number` ends in this partition: a marker with this epoch."""

    producer_id: int
    epoch: int
    number: int
    is_commit: bool
