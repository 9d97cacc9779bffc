"""The nodes of a cluster, for code without an event loop: one is asked for all that it has.

A node that fails, or lags, is left for the next one, until a deadline. What it has not got is asked
of others, which it names; all that have a partition have the same bytes.
`RemoteLogs` are merged logs at the nodes, for the driver. Nodes may lag, but never run ahead of
what Raft has committed, and what is committed stays so.

Invariant: no call waits for longer than the timeout it was given; an end that was told once is
never taken back, and is committed.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

import msgspec

from samelog.admin.client import ask
from samelog.admin.errors import AdminError
from samelog.admin.requests import ListTopics
from samelog.config.load import load_client
from samelog.config.tables.client import ClientConfig
from samelog.config.values import ConfigError
from samelog.format import _kernels as kernels
from samelog.format.batch import HELD_BATCH_BYTES
from samelog.format.transactions import Aborted, Isolation, without_aborted
from samelog.replicator.known_nodes import KnownNodes
from samelog.replicator.pull.handles import PullRefused
from samelog.replicator.pull.range_pull import RangePull, Wanted
from samelog.runtime.errors import RuntimeFault, TlsFault
from samelog.runtime.loop import LoopThread
from samelog.runtime.network.link import NodeAddress
from samelog.runtime.network.tls import NODE_PREFIX, ReloadingContext
from samelog.spark.errors import NotHere, NotReadable, SourceError, SourceTopicDeleted
from samelog.spark.logs.homes import Homes
from samelog.spark.logs.local_logs import archived
from samelog.spark.plan.catalogue import Catalogue, OffsetBounds, TopicState, record_bytes
from samelog.spark.plan.offsets import OffsetRange, PartitionName
from samelog.subscriber.tail_reader import Chunk, chunk_of
from samelog.wire.bounds import RowsAsked
from samelog.wire.errors import FaultCode, WireError
from samelog.wire.messages import MergedStartsAt, Start

LOOK_S = 0.04
PER_PARTITION_S = 0.001
"""A look asks for every partition: those with many are asked less often."""
GONE = (FaultCode.UNKNOWN_TOPIC, FaultCode.TOPIC_GONE)


class RemoteLogs:
    """The logs of a cluster, for the driver. Implements catalogue.Logs."""

    def __init__(self, nodes: Nodes, isolation: Isolation = Isolation.READ_UNCOMMITTED) -> None:
        self._nodes = nodes
        self._isolation = isolation
        self._known: dict[str, TopicState] = {}
        self._next_look_at = float("-inf")

    def names(self) -> list[str]:
        """All topics. Raises SourceError."""
        return self._nodes.topics()

    def topic_states(self, topics: Iterable[str]) -> Catalogue:
        """These topics, as a node knows them. Raises NotReadable."""
        asked = tuple(topics)
        if time.monotonic() >= self._next_look_at or set(self._known) != set(asked):
            states = {topic: self._topic_state(topic) for topic in asked}
            self._known = {topic: state for topic, state in states.items() if state is not None}
            count = sum(len(state.partitions) for state in self._known.values())
            self._next_look_at = time.monotonic() + LOOK_S + PER_PARTITION_S * count
        return self._known

    def turn(self) -> None:
        """Use another node, and ask it at the next call."""
        self._nodes.turn()
        self._next_look_at = float("-inf")

    def _topic_state(self, topic: str) -> TopicState | None:
        """What this reader does not know yet is confirmed by the cluster: what was acknowledged
        before is in it. What grows later is heard of when the node has it.
        """
        known = self._known.get(topic)
        count = 0 if known is None else len(known.partitions)
        found = self._locate(topic, range(count))
        if not found:
            found = self._locate(topic, range(1), confirmed=True)
        if not found:
            return None
        if found[0].partitions > len(found):
            rest = range(len(found), found[0].partitions)
            found += self._locate(topic, rest, confirmed=True)
        told = {number: _bounds(place) for number, place in enumerate(found)}
        state = TopicState(found[0].topic_id, told)
        return state if known is None else _never_back(known, state)

    def _locate(
        self, topic: str, partitions: Iterable[int], *, confirmed: bool = False
    ) -> list[MergedStartsAt]:
        """Where these partitions end; empty if there is no such topic."""
        wanted = [Wanted(topic, None, n, Start.LATEST) for n in partitions]
        try:
            return self._nodes.locate(wanted, confirmed=confirmed, isolation=self._isolation)
        except PullRefused as error:
            if error.code in GONE:
                return []
            raise NotReadable(f"{topic}: {error}") from error

    def offset_at(self, name: PartitionName, timestamp_ms: int) -> int | None:
        """The first offset with this timestamp or a later one."""
        wanted = Wanted(name.topic, None, name.partition, Start.TIMESTAMP, timestamp_ms)
        try:
            [found] = self._nodes.locate([wanted], isolation=self._isolation)
        except PullRefused as error:
            raise NotReadable(f"{name}: {error}") from error
        return found.offset if found.offset < found.end_offset else None

    def close(self) -> None:
        """End the connection."""
        self._nodes.close()


def _bounds(place: MergedStartsAt) -> OffsetBounds:
    """Of a partition whose end is at `place`."""
    size = record_bytes((place.base_offset, place.byte), place.end_offset)
    return OffsetBounds(place.start_offset, place.end_offset, size)


def _never_back(known: TopicState, told: TopicState) -> TopicState:
    """What is known by now of the same topic: another node may lag behind the one before."""
    if known.topic_id != told.topic_id:
        return told
    bounds = dict(told.partitions)
    for number, before in known.partitions.items():
        now = bounds.get(number, before)
        size = now.record_bytes or before.record_bytes
        bounds[number] = OffsetBounds(max(before.start, now.start), max(before.end, now.end), size)
    return TopicState(told.topic_id, bounds)


log = logging.getLogger(__name__)

T = TypeVar("T")
BETWEEN_NODES_S = 0.05
FINAL = (FaultCode.UNKNOWN_TOPIC, FaultCode.NOT_AUTHORISED, FaultCode.TOPIC_GONE)
"""No other node would say anything else."""
Call = Callable[[RangePull], Awaitable[T]]


class Damaged(RuntimeFault):
    """A node sent what is no sound piece of a log."""


class Nodes:
    """A cluster's nodes. Not for use by several threads at a time."""

    def __init__(
        self,
        path: str,
        *,
        timeout_s: float,
        only: int | None = None,
        remedy: str = "raise fetchTimeoutMs",
    ) -> None:
        """`path`: of a client.toml; `only`: of its nodes, this one; `remedy`: what helps where
        no node answers in time. Raises NotReadable.
        """
        self._remedy = remedy
        self._path = path
        self._timeout_s = timeout_s
        try:
            self.config: ClientConfig = _client(path, only)
            self._tls = ReloadingContext(self.config.tls)
        except (ConfigError, TlsFault) as error:
            raise NotReadable(
                f"this host cannot reach the cluster: {error}; the driver and every executor need "
                "the client.toml that the option config names, and the certificate files in it"
            ) from error
        self._is_alone = only is not None
        self._homes = Homes(KnownNodes(self.config))
        self._thread = LoopThread("samelog-spark")
        self._pulls: dict[NodeAddress, RangePull] = {}

    def close(self) -> None:
        """End the connections and the thread."""
        for node in tuple(self._pulls):
            self._hang_up(node)
        self._thread.stop()

    def turn(self) -> None:
        """Leave the node that was asked for the next one."""
        self._hang_up(self._homes.usual)
        self._homes.turn()

    def _hang_up(self, node: NodeAddress) -> None:
        pull = self._pulls.pop(node, None)
        if pull is not None:
            self._thread.run(_hang_up(pull))

    def _pass_on(self, node: NodeAddress, error: Exception, deadline: float) -> None:
        """Ask other nodes, if there is still time. Raises NotReadable."""
        self._hang_up(node)
        self._homes.failed(node)
        self._rest(node, error, deadline)

    def _rest(self, node: NodeAddress, error: Exception, deadline: float) -> None:
        """Before the next node is asked. Raises NotReadable."""
        if time.monotonic() + BETWEEN_NODES_S >= deadline:
            said = str(error) or "no answer"
            raise NotReadable(
                f"no node answers within {self._timeout_s:g} s; {node.address} said: {said} (check "
                f"the nodes in {self._path}, or {self._remedy})"
            ) from error
        time.sleep(BETWEEN_NODES_S)

    def _try(self, node: NodeAddress, call: Call[T], deadline: float) -> T:
        return self._thread.run(self._within(node, call, max(0.0, deadline - time.monotonic())))

    async def _within(self, node: NodeAddress, call: Call[T], seconds: float) -> T:
        async with asyncio.timeout(seconds):
            pull = await self._connected(node)
            answer = await call(pull)
        self._homes.learn(pull.told)
        return answer

    async def _connected(self, node: NodeAddress) -> RangePull:
        known = self._pulls.get(node)
        if known is None or not known.connection.is_open:
            self._reload()
            identity = None if node.node is None else NODE_PREFIX + node.node
            known = self._pulls[node] = await RangePull.open(
                node.address,
                self._tls,
                identity=identity,
                cluster=self.config.cluster,
                rack="" if self._is_alone else self.config.rack,
            )
        return known

    def _reload(self) -> None:
        try:
            self._tls.reload_if_changed()
        except TlsFault as fault:
            log.warning("the certificate files have changed, the old ones stay: %s", fault)

    # --- topics -----------------------------------------------------------------------------------

    def topics(self) -> list[str]:
        """The names of all topics that may be read. Raises NotReadable."""
        try:
            found = ask(self.config, ListTopics())
        except AdminError as error:
            raise NotReadable(
                f"subscribePattern needs the names of all topics: {error}; or name the topics with "
                "subscribe"
            ) from error
        return [topic.name for topic in found.topics]

    # --- places -----------------------------------------------------------------------------------

    def locate(
        self,
        wanted: Sequence[Wanted],
        *,
        confirmed: bool = False,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
    ) -> list[MergedStartsAt]:
        """Where places are; asked side by side. `confirmed`: with the cluster's ends, not those of
        the nodes that are asked. What is committed ends where the oldest transaction begins.

        Raises:
            PullRefused: a node says what any other would (FINAL).
            NotReadable: none has answered in time.
        """
        deadline = time.monotonic() + self._timeout_s
        found: dict[int, MergedStartsAt] = {}
        while len(found) < len(wanted):
            rest = {number: each for number, each in enumerate(wanted) if number not in found}
            node = self._home(next(iter(rest.values())))
            asked = {number: each for number, each in rest.items() if self._home(each) == node}
            try:
                call = partial(_locate_all, tuple(asked.values()), confirmed, isolation)
                told = self._try(node, call, deadline)
            except (RuntimeFault, WireError, TimeoutError) as error:
                if isinstance(error, PullRefused) and error.code in FINAL:
                    raise
                self._pass_on(node, error, deadline)
            else:
                self._note(node, zip(asked.items(), told, strict=True), found, deadline)
        return [found[number] for number in range(len(wanted))]

    def _home(self, wanted: Wanted) -> NodeAddress:
        return self._homes.of((wanted.topic, wanted.partition))

    def _note(
        self,
        node: NodeAddress,
        answers: Iterable[tuple[tuple[int, Wanted], MergedStartsAt | PullRefused]],
        found: dict[int, MergedStartsAt],
        deadline: float,
    ) -> None:
        elsewhere: PullRefused | None = None
        for (number, place), told in answers:
            if isinstance(told, PullRefused):
                elsewhere = told
                self._homes.not_here((place.topic, place.partition), node, told.holders)
            else:
                found[number] = told
        if elsewhere is not None:
            self._rest(node, elsewhere, deadline)

    # --- ranges -----------------------------------------------------------------------------------

    def read(
        self,
        wanted: OffsetRange,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
        rows: RowsAsked | None = None,
    ) -> Generator[Chunk]:
        """The batches that hold a range; the first and the last one may hold more. A node that
        fails is left for the next one, which goes on at the same offset. All of the range has to be
        decided where what is committed is wanted. `rows`: what passes of it; a chunk stands for
        all offsets that were looked at.

        Raises:
            NotReadable: no node has sent anything for the time of the timeout.
            NotHere: the only node to ask has not got the partition.
            DataLoss: the beginning is archived, or the topic is gone.
        """
        position = wanted.start
        deadline = time.monotonic() + self._timeout_s
        while position < wanted.end:
            rest = wanted._replace(start=position)
            node = self._homes.of(rest.name)
            try:
                for chunk in self._stream(node, rest, isolation, rows):
                    position = chunk.next_offset
                    yield chunk
                    deadline = time.monotonic() + self._timeout_s
            except (RuntimeFault, WireError, TimeoutError) as error:
                self._leave(node, rest, error, deadline)

    def _leave(
        self, node: NodeAddress, rest: OffsetRange, error: Exception, deadline: float
    ) -> None:
        """Go on with another node, if there may be one."""
        if isinstance(error, PullRefused):
            _raise_if_lost(rest, error)
            if error.code is FaultCode.NOT_LEADER:
                if self._is_alone:
                    raise NotHere(str(error)) from error
                self._homes.not_here(rest.name, node, error.holders)
                self._rest(node, error, deadline)
                return
        self._pass_on(node, error, deadline)

    def _stream(
        self,
        node: NodeAddress,
        wanted: OffsetRange,
        isolation: Isolation,
        rows: RowsAsked | None,
    ) -> Iterator[Chunk]:
        """What was aborted is asked first, and of the same node: it forgets that when compaction
        takes the records. Of rows the node itself leaves it out.
        """
        name = wanted.name
        place = Wanted(name.topic, wanted.topic_id, name.partition, Start.OFFSET, wanted.start)
        deadline = time.monotonic() + self._timeout_s
        aborted: list[Aborted] = []
        if isolation is Isolation.READ_COMMITTED and rows is None:
            aborted = self._try(node, partial(_find_aborted, wanted), deadline)
        pull, handle = self._try(node, lambda pull: _open(pull, place, rows), deadline)
        try:
            position, is_first = wanted.start, True
            while position < wanted.end:
                data = self._thread.run(_next(pull, handle, self._timeout_s))
                chunk = _checked(data, wanted, position, is_first=is_first)
                position, is_first = chunk.next_offset, False
                yield _without(aborted, chunk)
        finally:
            self._thread.run(_let_go(pull, handle))


def _client(path: str, only: int | None) -> ClientConfig:
    config = load_client(path)
    if only is None:
        return config
    names = config.node_names[only : only + 1]
    return replace(config, nodes=config.nodes[only : only + 1], node_names=names)


def _without(aborted: Sequence[Aborted], chunk: Chunk) -> Chunk:
    data = without_aborted(chunk.data, chunk.size, chunk.first_offset, aborted)
    if data is chunk.data:
        return chunk
    return msgspec.structs.replace(chunk, data=data, size=len(data))


async def _locate_all(
    places: Sequence[Wanted], confirmed: bool, isolation: Isolation, pull: RangePull
) -> list[MergedStartsAt | PullRefused]:
    """Where places are, or that others have them."""
    find = pull.confirmed if confirmed else pull.locate
    if isolation is Isolation.READ_COMMITTED:
        find = partial(pull.stable, confirmed=confirmed)

    async def one(place: Wanted) -> MergedStartsAt | PullRefused:
        try:
            return await find(place)
        except PullRefused as error:
            if error.code is not FaultCode.NOT_LEADER:
                raise
            return error

    return list(await asyncio.gather(*map(one, places)))


async def _open(pull: RangePull, place: Wanted, rows: RowsAsked | None) -> tuple[RangePull, int]:
    return pull, await pull.read(place, rows)


async def _find_aborted(wanted: OffsetRange, pull: RangePull) -> list[Aborted]:
    name = wanted.name
    log_end = Wanted(name.topic, wanted.topic_id, name.partition, Start.LATEST)
    return await pull.aborted(log_end, wanted.start, wanted.end)


async def _next(pull: RangePull, handle: int, seconds: float) -> bytes:
    async with asyncio.timeout(seconds):
        return await pull.next(handle)


async def _let_go(pull: RangePull, handle: int) -> None:
    pull.close(handle)


async def _hang_up(pull: RangePull) -> None:
    pull.connection.close()
    await pull.connection.wait_ended()


def _checked(data: bytes, wanted: OffsetRange, position: int, *, is_first: bool) -> Chunk:
    """The piece, if it is what was asked for: whole valid batches, from `position` on."""
    scan = kernels.scan(data, max_batch_bytes=HELD_BATCH_BYTES)
    if scan.end != len(data) or not data:
        raise Damaged(f"{wanted}: a node sent a damaged batch: {scan.error or 'it is cut'}")
    chunk = chunk_of(data, scan)
    if chunk is None or not (
        chunk.first_offset == position
        or (is_first and chunk.first_offset < position < chunk.next_offset)
    ):
        raise Damaged(f"{wanted}: a node sent other offsets than {position}")
    return chunk


def _raise_if_lost(wanted: OffsetRange, error: PullRefused) -> None:
    """Raise what no other node could mend."""
    match error.code:
        case FaultCode.OUT_OF_RANGE if error.earliest > wanted.start:
            raise archived(wanted, error.earliest) from error
        case FaultCode.TOPIC_GONE:
            raise SourceTopicDeleted(
                wanted.name.topic,
                f"{wanted}: the topic with id {wanted.topic_id} is gone (start with a new "
                "checkpoint, or set failOnDataLoss to false)",
            ) from error
        case FaultCode.NOT_AUTHORISED | FaultCode.UNKNOWN_TOPIC:
            raise SourceError(f"{wanted}: {error}") from error
