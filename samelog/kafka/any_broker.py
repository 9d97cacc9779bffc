"""What API handlers know of whoever serves Kafka clients: a node (broker.py), or a sidecar with its
local files (sidecar/).

Handlers of what both serve use nothing else, so that there is one of each.

`KafkaClient` is who is at the other end of a connection.

Invariant: offsets that are promised to exist were committed.
"""

from __future__ import annotations

import asyncio
import secrets
from abc import ABC, abstractmethod
from asyncio import Future
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol
from uuid import UUID

import msgspec

from samelog.format.transactions import Aborted
from samelog.kafka.access.acls import CLUSTER, AclOperation, AclResource
from samelog.kafka.clients.fetch_sessions import FetchSessions
from samelog.kafka.clients.quotas import Allowance, Allowances, Memory
from samelog.kafka.clients.refusals import Refusals
from samelog.kafka.clients.sasl import Authenticator, SaslExchange
from samelog.kafka.codec.error_codes import ErrorCode
from samelog.kafka.codec.errors import ApiError
from samelog.kafka.read_rounds import ReadRounds
from samelog.kafka.shared_timers import SharedTimers
from samelog.replicator.interfaces import RequestRefused, StreamListener
from samelog.runtime.clock import Clock
from samelog.runtime.counters import ListenerTally
from samelog.runtime.slices import give_way
from samelog.sequencer.ingest.checking import BatchChecker
from samelog.sequencer.state.tables.topics import Topic
from samelog.sequencer.state.types import ELEMENTS_FEW

LEADER_WAIT_S = 1.0


@dataclass(slots=True)
class Uncharged:
    """Work for a client beyond the bytes that it sent."""

    unpacked_bytes: int = 0
    """What its batches unpacked to beyond what was sent."""
    elements: int = 0
    """Of its long requests."""


@dataclass(slots=True)
class KafkaClient:
    """One connection's client."""

    identity: str
    """As rights are granted to; empty until it has authenticated."""
    listener: str
    host: str
    software: str = ""
    """What it says of itself, for the log."""
    authenticator: Authenticator | None = None
    """Of a listener that asks for names and passwords."""
    exchange: SaslExchange | None = None
    """An authentication under way."""
    rejected: str = ""
    """Why the connection is to be closed behind the next answer; empty if it is not."""
    memory: Memory[Any] | None = None
    """What all clients of the listener hold together."""
    allowances: Allowances | None = None
    """Where there are quotas."""
    allowance: Allowance | None = None
    """What its identity has used, if there is a quota for it."""
    tally: ListenerTally = field(default_factory=ListenerTally)
    """What went through the listener."""
    uncharged: Uncharged = field(default_factory=Uncharged)
    """What its quota was not charged for yet."""
    refusals: Refusals = field(default_factory=Refusals)
    """Of batches that could not be read."""
    at_end: list[Callable[[], None]] = field(default_factory=list)
    """To be called when the connection is over."""
    client_id: str = ""
    """What it calls itself in its newest request."""

    @property
    def who(self) -> tuple[str, str]:
        """Whose work it is, on however many connections: many hosts may be anonymous."""
        return self.identity, self.host


class BrokerEndpoint(NamedTuple):
    """A node as a client of one listener reaches it; `rack`: where it is, if that is known."""

    number: int
    host: str
    port: int
    rack: str | None = None


class AppendResult(msgspec.Struct, frozen=True):
    """What became of a batch. `append_ms` is -1 unless the log's own time counts."""

    error: ErrorCode
    base_offset: int = -1
    append_ms: int = -1
    message: str | None = None
    bad_records: tuple[tuple[int, str | None], ...] = ()
    """The numbers of those that made it be refused, and why."""


class ReadableLog(Protocol):
    """What is read of a partition: a merged log, or what is told as one. Of what it does,
    store.merged.reader says more.
    """

    @property
    def next_offset(self) -> int:
        """The offset of the next record."""

    @property
    def start_offset(self) -> int:
        """The offset of the first record held that is not archived."""

    @property
    def last_stable_offset(self) -> int:
        """Below it every transaction is decided. Raises LogFormatError."""

    @property
    def layout(self) -> int:
        """As long as this is the same, an offset lies where it was found before."""

    def aborted(self, first: int, stop: int) -> list[Aborted]:
        """The aborted transactions with records in [first, stop). Raises LogFormatError."""

    def end(self) -> tuple[int, int]:
        """(segment, byte) where the next byte goes."""

    def locate(self, offset: int) -> tuple[int, int]:
        """(segment, byte) of the batch that holds an offset. Raises OffsetNotHeld."""

    def view(self, base: int, byte: int, limit_bytes: int) -> memoryview:
        """Whole batches from there on; at least one if there is any. Raises LogFormatError."""

    def highest_timestamp(self) -> int | None:
        """The highest timestamp of all records; None if there are none."""

    def batches_since(self, timestamp: int) -> Iterator[bytes]:
        """The batches that may have a record whose timestamp is at least this, in order."""

    def epoch_at(self, offset: int) -> int:
        """The leader epoch of a record. Raises OffsetNotHeld."""

    def end_of_epoch(self, epoch: int) -> int:
        """The offset behind the last record of this leader epoch or an earlier one."""


class WatchedLog(Protocol):
    """A partition's merged log on this process, with listeners for its growth."""

    @property
    def log(self) -> ReadableLog:
        """The partition's merged log."""

    @property
    def fault(self) -> RequestRefused | None:
        """Why the log cannot be read any more; None if it can."""

    def add_listener(self, listener: StreamListener) -> None:
        """Tell `listener` when the log grew, or `fault` is set."""

    def remove_listener(self, listener: StreamListener) -> None:
        """Stop telling `listener`."""


class BatchLog(Protocol):
    """Appends the batches of Kafka clients."""

    checker: BatchChecker
    """What every batch has to pass before it is appended."""

    async def open(self, topic: Topic, index: int) -> None:
        """Make a partition ready for `append`. Raises ApiError."""

    def append(
        self, topic: Topic, index: int, data: memoryview, records: int
    ) -> Future[AppendResult] | None:
        """Take one sound batch: what will become of it; None if the partition is not open. `data`
        must not change. Raises ApiError.
        """


class TransactionGate(Protocol):
    """Says which batches belong to an open transaction. `producer`: (producer id, epoch)."""

    def problem_with(
        self, transactional_id: str, producer: tuple[int, int], partition: int
    ) -> ApiError | None:
        """Why a batch belongs to none, as far as is known here."""

    async def join(self, transactional_id: str, producer: tuple[int, int], partition: int) -> None:
        """Let a partition, by its number, take part. Raises ApiError."""

    async def take_part(self, transactional_id: str, partition: int) -> None:
        """Have the group that has a partition know that it takes part. Raises ApiError."""


class AnyBroker(ABC):
    """What the Kafka APIs see of a node or a sidecar."""

    batches: BatchLog
    transactions: TransactionGate | None = None
    """None: there are none here."""

    def __init__(self, number: int, cluster: str, clock: Clock) -> None:
        self.number = number
        self.cluster = cluster
        self.clock = clock
        self.sent: Callable[[memoryview], None] = lambda records: None
        """Called with batches that are sent to a client."""
        self.read_rounds = ReadRounds(self.catch_up)
        self.timers = SharedTimers()
        self.fetch_sessions = FetchSessions(lambda: 1 + secrets.randbelow((1 << 31) - 1))

    # --- the cluster ------------------------------------------------------------------------------

    @property
    @abstractmethod
    def leader(self) -> int | None:
        """The node that leads every partition; None if none is known."""

    @property
    def leads(self) -> bool:
        """Whether this node leads, and has executed all that was committed before."""
        return False

    @property
    @abstractmethod
    def epoch(self) -> int:
        """The leader epoch of every partition; -1: none is known."""

    @abstractmethod
    def nodes(self) -> Sequence[int]:
        """The numbers of all members, in order."""

    @abstractmethod
    def endpoints(self, listener: str) -> Sequence[BrokerEndpoint]:
        """The nodes that have this listener, but for those that are gone for a while."""

    @property
    def is_syncing(self) -> bool:
        """Whether logs may lack for long what others can serve."""
        return False

    @abstractmethod
    def is_there(self, number: int) -> bool:
        """Whether this process knows a node to be up."""

    def controller(self, listener: str) -> int:
        """A living node that changes topics for clients: any does."""
        numbers = [endpoint.number for endpoint in self.endpoints(listener)]
        is_known = self.leader is not None and self.is_there(self.leader)
        return self.leader if is_known and self.leader in numbers else self.number

    def nearest(self, client: KafkaClient, rack: str, topic: Topic, index: int) -> int:
        """The node that a client in a rack had better read a partition from (KIP-392); -1: this
        one.
        """
        return -1

    @abstractmethod
    async def catch_up(self) -> None:
        """Wait until what was committed before this call is known here. Raises ApiError."""

    async def confirm_leader(self) -> bool:
        """Wait a moment until a leader answers; whether one has, and so what was committed before
        is known here. Clients ask who leads when they have just lost a leader that may still be
        taken for one here; told of a dead one, or of none, they ask again only after a second, and
        an election is shorter.
        """
        with suppress(ApiError, TimeoutError):
            async with asyncio.timeout(LEADER_WAIT_S):
                await self.catch_up()
                return True
        return False

    async def look_for(self, topics: Iterable[str | UUID | None]) -> None:
        """Catch up if one of these is not known here, as far as that can be done: it might only be
        new.
        """
        for name in topics:
            await give_way()
            if name and self.topic(name) is None:
                with suppress(ApiError):
                    await self.catch_up()
                return

    async def catch_up_with(self, asked: Iterable[tuple[str | UUID, int]]) -> None:
        """As `catch_up`, and what was committed of these partitions too. Raises ApiError."""
        await self.catch_up()

    async def confirm_ends(self, asked: Iterable[tuple[str | UUID, int]]) -> None:
        """Wait until `committed` is certain to tell which offsets there are of these partitions.
        Raises ApiError.
        """
        await self.catch_up_with(asked)

    @property
    def elements_max(self) -> int:
        """How many elements a request may have that names what exists."""
        return ELEMENTS_FEW

    # --- partitions: in one group, or each in one of its own --------------------------------------

    def leader_of(self, topic: Topic, index: int) -> int | None:
        """The node that leads a partition; None if none is known."""
        return self.leader

    def epoch_of(self, topic: Topic, index: int) -> int:
        """The leader epoch of a partition; -1: none is known."""
        return self.epoch

    def nodes_of(self, topic: Topic, index: int) -> Sequence[int]:
        """The nodes that have a partition."""
        return self.nodes()

    def behind(self, topic: Topic, index: int) -> Collection[int]:
        """Those of them that have not all of it yet, and do not vote."""
        return ()

    def batches_of(self, topic: Topic, index: int) -> BatchLog:
        """Where the batches of a partition go. Raises ApiError."""
        return self.batches

    # --- topics -----------------------------------------------------------------------------------

    @abstractmethod
    def topics(self) -> Iterable[Topic]:
        """All topics that are known."""

    @abstractmethod
    def topic(self, key: str | UUID) -> Topic | None:
        """A topic by its name or its id."""

    def listed(self) -> Iterable[Topic]:
        """All topics, with those that can only be looked at and read."""
        return self.topics()

    def shown(self, key: str | UUID) -> Topic | None:
        """One of them by its name or its id."""
        return self.topic(key)

    @abstractmethod
    def partition(self, topic: Topic, index: int) -> WatchedLog | None:
        """The log of a partition; None if the topic has no such partition."""

    @abstractmethod
    def committed(self, topic: Topic, index: int) -> int:
        """The offset behind everything that is known to be committed, whether it is here or not."""

    def stable(self, topic: Topic, index: int) -> int:
        """The offset below which every transaction is decided. Raises LogFormatError."""
        there = self.partition(topic, index)
        return 0 if there is None else there.log.last_stable_offset

    def log_start(self, topic: Topic, index: int) -> int:
        """The offset below which a partition is archived, if more is known than its log says."""
        return 0

    @abstractmethod
    def max_message_bytes(self, topic: Topic | None) -> int:
        """How long a record batch of the topic may be, with its header."""

    @property
    @abstractmethod
    def auto_creates(self) -> bool:
        """Whether asking for a topic makes it."""

    @abstractmethod
    async def create_by_default(self, name: str) -> None:
        """Make a topic, known here afterwards, because somebody asked for it. Raises ApiError."""

    # --- rights -----------------------------------------------------------------------------------

    @abstractmethod
    def may_read(self, client: KafkaClient, topic: str) -> bool:
        """Whether a client may fetch from a topic."""

    @abstractmethod
    def may_write(self, client: KafkaClient, topic: str) -> bool:
        """Whether it may produce to it."""

    def may_use_transactions(self, client: KafkaClient, transactional_id: str) -> bool:
        """Whether it may be the producer of this transactional id."""
        return False

    def is_granted_transactions(self, client: KafkaClient, transactional_id: str) -> bool:
        """Whether the client may be the producer of this id regardless of its owner."""
        return False

    @abstractmethod
    def may_administer(self, client: KafkaClient) -> bool:
        """Whether it may change everything, by the grants of the configuration file."""

    def may(
        self,
        client: KafkaClient,
        operation: AclOperation,
        kind: AclResource = AclResource.CLUSTER,
        name: str = CLUSTER,
    ) -> bool:
        """Whether it may do something with a topic, a group or the cluster."""
        reads, writes = (
            self.granted_topic(client, name) if kind is AclResource.TOPIC else (False, False)
        )
        match operation:
            case AclOperation.READ:
                return reads
            case AclOperation.WRITE:
                return writes
            case AclOperation.DESCRIBE if reads or writes:
                return True
        return self.may_administer(client)

    def granted_topic(self, client: KafkaClient, topic: str) -> tuple[bool, bool]:
        """Whether the configuration file lets it read a topic, and write to it."""
        return self.may_read(client, topic), self.may_write(client, topic)

    def may_describe(self, client: KafkaClient, topic: str) -> bool:
        """Whether it may know that a topic is there."""
        return self.may(client, AclOperation.DESCRIBE, AclResource.TOPIC, topic)

    def may_create(self, client: KafkaClient, topic: str) -> bool:
        """Whether it may make a topic of this name."""
        create = AclOperation.CREATE
        return self.may(client, create) or self.may(client, create, AclResource.TOPIC, topic)
