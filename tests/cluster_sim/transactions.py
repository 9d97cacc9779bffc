"""Transactional producers of a simulated world, and what must come of their transactions.

A producer is a Kafka client outside of the cluster: it asks the node that leads, gives its batches
to any node, and without an answer it starts over with a higher epoch. Two of them share each
transactional id, so that they fence each other. Nothing but the network between client and node is
made up: nodes run the coordinator and the producers' log that the Kafka listener runs.

Invariant: of every transaction all records are committed in their logs, or none; all, if its
producer was told so; none, if it never asked for it. The offsets of its group go with it.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from samelog.format import _kernels as kernels
from samelog.format.batch import Attribute
from samelog.kafka.any_broker import AppendResult
from samelog.kafka.codec.error_codes import ErrorCode
from samelog.kafka.codec.errors import ApiError
from samelog.kafka.producer_log import ProducerLog
from samelog.kafka.transactions.coordinator import TransactionCoordinator
from samelog.sequencer.admin.parts import parts_of
from samelog.sequencer.state.tables.groups import CommittedOffset
from samelog.sequencer.state.tables.transactions import (
    NO_PRODUCER,
    AddToTransaction,
    CommitInTransaction,
    EndTransaction,
    InitProducer,
    ProducerIdAndEpoch,
)
from tests.cluster_sim.canonical import make_value
from tests.cluster_sim.client import RemoteClient, Script, holds
from tests.cluster_sim.history import Name
from tests.cluster_sim.violation import Violation

if TYPE_CHECKING:
    from samelog.store.merged.log import MergedLog
    from tests.cluster_sim.actor import Actor
    from tests.cluster_sim.node import NodeActor
    from tests.cluster_sim.world import World

REST_S, RIVAL_REST_S = 0.1, 2.0
TIMEOUT_MS = 3000
BATCHES_MAX = 4
PRODUCE_S = 10.0
"""The timeout that a client gives: the node answers by then, whatever becomes of the batch."""
_FLAGS_AT, _CRC_AT = 21, 17


@dataclass(slots=True)
class Attempt:
    """One transaction as its producer knows it."""

    number: int
    """Which of the producer's it is; also the offset that it commits for its group."""
    places: list[Name]
    records: list[tuple[Name, int]] = field(default_factory=list)
    """Acknowledged: the place, and the record's number."""
    asked: bool = False
    """To commit."""
    told: bool = False
    """That it is committed."""


class TransactionalClient(RemoteClient):
    """One producer."""

    def __init__(self, world: World, number: int) -> None:
        super().__init__(world, f"x{number}", f"transactions {number}")
        self.transactional_id = f"t{number // 2}"
        self.attempts: list[Attempt] = []
        self.is_at_rest = False
        self._rest_s = RIVAL_REST_S if number % 2 else REST_S
        self._producer: ProducerIdAndEpoch | None = None
        self._sequences: dict[Name, int] = {}

    def go_on(self) -> None:
        """Begin a transaction, unless the world is at rest."""
        if not self.world.is_busy:
            self.is_at_rest = True
            self.world.later(REST_S, self.go_on)
            return
        self.is_at_rest = False
        places = [
            (f"t{topic}", partition)
            for topic in range(self.world.options.topics)
            for partition in range(self.world.options.partitions)
        ]
        placed = self.world.spanning.places
        places = placed if placed and self.world.options.forgets else places + placed
        chosen = self._chance.sample(places, self._chance.randint(1, len(places)))
        attempt = Attempt(len(self.attempts), chosen)
        self.attempts.append(attempt)
        self._run(self._transaction(attempt))

    # --- what it does -----------------------------------------------------------------------------

    def _transaction(self, attempt: Attempt) -> Script:
        """The requests, one behind the other; None where there is nobody to ask."""
        if self._producer is None:
            yield self._ask(self._init)
        yield self._ask(self._add, attempt)
        for _ in range(self._chance.randint(1, BATCHES_MAX)):
            name = self._chance.choice(attempt.places)
            yield self._ask(self._produce, attempt, name, where=partial(holds, name))
        if self._chance.random() < 0.5:
            yield self._ask(self._commit_offset, attempt)
        yield self._ask(self._end, attempt, self._chance.random() < 0.7)

    def _services(self, actor: NodeActor) -> Services:
        return _services(actor)

    def _refused(self, problem: str) -> None:
        self._begin_anew(problem)

    def _begin_anew(self, why: str) -> None:
        self.world.trace.event(self.tag, f"gives up transaction {len(self.attempts) - 1}: {why}")
        self._producer = None
        self._over()

    def _over(self) -> None:
        self._step += 1
        self._script = None
        self.world.later(self._chance.expovariate(1 / self._rest_s), self.go_on)

    # --- requests ---------------------------------------------------------------------------------

    async def _init(self, node: Services) -> None:
        command = InitProducer(
            self.transactional_id,
            TIMEOUT_MS,
            NO_PRODUCER,
            -1,
            self._chance.getrandbits(62),
            node.actor.clock.wall_ms(),
        )
        step = self._step
        found = await node.coordinator.decide(command)
        if step == self._step:
            self._producer = found
            self._sequences.clear()

    @property
    def _who(self) -> tuple[str, int, int]:
        if self._producer is None:
            raise ApiError(ErrorCode.producer_fenced, "it has started over")
        return self.transactional_id, self._producer.producer_id, self._producer.epoch

    async def _add(self, node: Services, attempt: Attempt) -> None:
        numbers = [node.number_of(name) for name in attempt.places]
        now_ms = node.actor.clock.wall_ms()
        await node.coordinator.decide(AddToTransaction(*self._who, numbers, [self.tag], now_ms))

    async def _produce(self, node: Services, attempt: Attempt, name: Name) -> None:
        who, step = self._who, self._step
        (number,) = self.world.history.next_numbers(self.tag, name, 1)
        sequence = self._sequences.get(name, 0)
        self._sequences[name] = sequence + 1
        value = make_value(self.tag, number, self.world.options.value_bytes)
        await node.append(who[0], name, transactional_batch(value, *who[1:], sequence))
        if step == self._step:
            attempt.records.append((name, number))

    async def _commit_offset(self, node: Services, attempt: Attempt) -> None:
        now_ms, number = node.actor.clock.wall_ms(), node.number_of(("t0", 0))
        offset = CommittedOffset(attempt.number, -1, "", now_ms)
        await node.coordinator.decide(
            CommitInTransaction(*self._who, self.tag, [(number, offset)], joins=False, at_ms=now_ms)
        )

    async def _end(self, node: Services, attempt: Attempt, is_commit: bool) -> None:
        attempt.asked, step = is_commit, self._step
        now_ms = node.actor.clock.wall_ms()
        new_id = self._chance.getrandbits(62)
        await node.coordinator.end(
            EndTransaction(*self._who, is_commit, bumps=False, new_producer_id=new_id, at_ms=now_ms)
        )
        if step == self._step and is_commit:
            attempt.told = True
            numbers = ((self.tag, number) for _, number in attempt.records)
            self.world.history.acknowledged.update(numbers)


def transactional_batch(value: bytes, producer_id: int, epoch: int, sequence: int) -> memoryview:
    """One record of a transaction, as clients send it."""
    data = kernels.build_batches(
        [value],
        timestamps=1,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        batch_bytes=1 << 14,
        max_record_bytes=1 << 20,
    )
    batch = bytearray(data)
    batch[_FLAGS_AT + 1] |= Attribute.TRANSACTIONAL
    batch[_CRC_AT:_FLAGS_AT] = kernels.crc32c(memoryview(batch)[_FLAGS_AT:]).to_bytes(4, "big")
    return memoryview(bytes(batch))


# --- nodes ----------------------------------------------------------------------------------------


class Services(msgspec.Struct):
    """What a node's Kafka listener has for producers."""

    actor: Any
    coordinator: TransactionCoordinator
    batches: dict[int, ProducerLog]
    """By group."""
    undecided: list[asyncio.Future[AppendResult]]
    """The fates of batches that were taken, as far as they may not be known."""

    def number_of(self, name: Name) -> int:
        """A partition's number. Raises ApiError."""
        topic = self.actor.node.logs.machine.state.topics.named(name[0])
        if topic is None:
            raise ApiError(ErrorCode.unknown_topic_or_partition, f"there is no {name[0]} yet")
        return int(topic.partition_numbers[name[1]])

    def batches_of(self, partition: int) -> ProducerLog:
        """Where what is for a partition goes. Raises ApiError."""
        node = self.actor.node
        group = node.cluster.placement.group_of(partition)
        parts = parts_of(node, partition)
        if parts is None:
            raise ApiError(ErrorCode.not_leader_or_follower, "it is elsewhere")
        known = self.batches.get(group)
        if known is None or known._intake is not parts[0].intake:
            known = self.batches[group] = ProducerLog(self.actor.name, node.peers.number, parts[0])
            known.start()
        return known

    @property
    def still_undecided(self) -> list[asyncio.Future[AppendResult]]:
        """The fates that the node owes."""
        return [each for each in self.undecided if not each.done()]

    async def append(self, transactional_id: str, name: Name, data: memoryview) -> None:
        """Have a batch merged. Raises ApiError."""
        number = self.number_of(name)
        topic = self.actor.node.logs.machine.state.topics.named(name[0])
        batches = self.batches_of(number)
        if topic.is_placed:
            await self.actor.node.raft.proposer.catch_up()
            await self.coordinator.take_part(transactional_id, number)
        await batches.open(topic, name[1])
        outcome = batches.append(topic, name[1], data, 1)
        if outcome is None:
            raise ApiError(ErrorCode.not_leader_or_follower, "it was closed meanwhile")
        self.undecided = [*self.still_undecided, outcome]
        await asyncio.wait([outcome], timeout=PRODUCE_S)
        if not outcome.done():
            raise ApiError(ErrorCode.request_timed_out, "its fate is not known yet")
        result = outcome.result()
        if result.error is not ErrorCode.none:
            raise ApiError(result.error, result.message or "")


def _of_this_life(actor: NodeActor) -> Services | None:
    """What was made for the present life of a node, if anything was."""
    node, known = actor.node, actor.services
    if node is None or known is None or known.coordinator._machine is not node.logs.machine:
        return None
    return known


def _services(actor: NodeActor) -> Services:
    """Made once for each life of a node."""
    node = actor.node
    if node is None:
        raise ApiError(ErrorCode.not_coordinator, "it is down")
    known = _of_this_life(actor)
    if known is None:
        groups = node.data_groups
        coordinator = TransactionCoordinator(node.raft, node.logs.machine, actor.clock, groups)
        known = actor.services = Services(actor, coordinator, {}, [])
    return known


# --- what must come of it -------------------------------------------------------------------------


class Transactions:
    """All producers of one world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.clients = [TransactionalClient(world, n) for n in range(world.options.producers)]

    def plan(self) -> None:
        """Have them begin."""
        for client in self.clients:
            self._world.later(REST_S, client.go_on)

    def waits_for(self) -> str:
        """What is not decided yet; empty: nothing."""
        for client in self.clients:
            if not client.is_at_rest:
                return f"{client.tag} is in a transaction"
            if waits := client.waits_for:
                return waits
        for actor in self._world.nodes:
            if actor.node is not None and actor.is_up:
                known = actor.node.logs.machine.state.transactions
                if known.ongoing or known.deciding:
                    return f"{actor.host} has {[*known.ongoing, *known.deciding]} open"
                services = _of_this_life(actor)
                if services is not None and services.still_undecided:
                    return f"{actor.host} owes the fates of batches"
        return ""

    def check_end(self) -> None:
        """Everything is quiet. Raises Violation."""
        if not self.clients:
            return
        logs = [*self._world.checker.lineage.logs.values(), *self._world.spanning.logs]
        committed = {one for log in logs for one in log.committed}
        for log in logs:
            if log.open:
                raise Violation("transactions end", f"{log.topic}-{log.partition}: {log.open}")
        for client in self.clients:
            newest = -1
            for attempt in client.attempts:
                if self._fate(client, attempt, committed):
                    newest = attempt.number
            self._check_offset(client, newest)
        for actor in self._world.actors.values():
            for held in _logs_of(actor):
                self._check_log(actor, held)

    def _check_log(self, actor: Actor, log: MergedLog) -> None:
        """What a node or a copy tells readers is what follows from the bytes."""
        known = self._world.checker.lineage.logs.get((log.topic_id, log.partition))
        if known is None or log.next_offset != known.next_offset:
            return
        first, stop = log.start_offset, log.next_offset
        wanted = known.behind(first, known.aborted)
        told = [(a.producer_id, a.first_offset, a.last_offset) for a in log.aborted(first, stop)]
        found = known.behind(first, told)
        if (found, log.last_stable_offset) != (wanted, stop):
            text = f"{actor.host} {log.path}: {told} up to {log.last_stable_offset}, not {wanted}"
            raise Violation("readers are told what is aborted", text)

    @staticmethod
    def _fate(
        client: TransactionalClient, attempt: Attempt, committed: set[tuple[str, int]]
    ) -> bool:
        """Whether it is committed. Raises Violation unless that is so of all of it or of none."""
        found = [(client.tag, number) in committed for _, number in attempt.records]
        who = f"{client.tag} {attempt}"
        if any(found) and not all(found):
            raise Violation("all or nothing", f"{who}: {found}")
        is_committed = bool(found) and all(found)
        if is_committed and not attempt.asked:
            raise Violation("what is aborted is not seen", who)
        if attempt.told and not is_committed:
            raise Violation("what is committed is seen", who)
        return is_committed

    def _check_offset(self, client: TransactionalClient, newest: int) -> None:
        """No group is further than its producer's newest transaction that is committed."""
        for actor in self._world.nodes:
            if actor.node is None or not actor.is_up:
                continue
            group = actor.node.logs.machine.state.groups.by_id.get(client.tag)
            for known in () if group is None else group.offsets.values():
                if known.offset > newest:
                    text = f"{actor.host}: {client.tag} is at {known.offset}, not {newest}"
                    raise Violation("offsets go with their transaction", text)


def _logs_of(actor: Actor) -> list[MergedLog]:
    if not actor.is_up:
        return []
    node, client = getattr(actor, "node", None), getattr(actor, "client", None)
    if node is not None:
        partitions = node.logs.merging.partitions.values()
        return [each.log for each in partitions if each.fault is None]
    copies = getattr(client, "copies", {})
    return [copy.log for copy in copies.values()]
