"""A samelog cluster as a source: batches by the pull protocol, all else by its HTTP interface.

One connection to one node serves all partitions of group 0; those of data groups are read from
nodes that have a replica of them. When a connection ends, the next node is asked, and every
partition begins where its mirror is.

Invariant: a node gives out what it has merged, so what a majority has committed, and nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TypeAlias

from msgspec.structs import replace

from samelog.admin.client import AskedNode, all_nodes, ask, ask_each, topic_schemas
from samelog.admin.errors import AdminError
from samelog.admin.mirror_answers import SourcePartition, SourceState, SourceTopic
from samelog.admin.mirror_requests import GetSource
from samelog.config.authorisation import NODE_PREFIX
from samelog.config.tables.client import ClientConfig
from samelog.config.values import Address
from samelog.mirror.errors import MirrorStopped, SourceUnreadable
from samelog.mirror.source import READ_BYTES, BatchBefore, Where, first_of
from samelog.replicator.known_nodes import nodes_of
from samelog.replicator.pull.handles import PullRefused
from samelog.replicator.pull.range_pull import RangePull, Wanted
from samelog.runtime.errors import RuntimeFault
from samelog.runtime.network.tls import ReloadingContext
from samelog.wire.errors import FaultCode, WireError
from samelog.wire.messages import Start

NodeSays: TypeAlias = tuple[AskedNode, SourceState]
"""What one node says."""
SaidOfPartitions: TypeAlias = dict[tuple[str, int], list[tuple[SourcePartition, AskedNode]]]
PartitionHolders: TypeAlias = dict[tuple[str, int], list[AskedNode]]
LASTING = (FaultCode.NOT_AUTHORISED, FaultCode.UNKNOWN_TOPIC, FaultCode.TOPIC_GONE)
"""Refusals that another node does not mend."""


class SamelogSource:
    """Implements source.SourceCluster."""

    keeps_epochs = True

    def __init__(self, config: ClientConfig) -> None:
        """Raises TlsFault."""
        self._config = config
        self._tls = ReloadingContext(config.tls)
        self._pulls: dict[Address, RangePull] = {}
        self._opening = asyncio.Lock()
        self._node = 0
        self._holders: PartitionHolders = {}
        """Of partitions in data groups, as they were looked at last."""

    async def state(self, patterns: Sequence[str], groups: Sequence[str]) -> SourceState:
        try:
            found = await asyncio.to_thread(ask, self._config, GetSource())
            if not found.placed:
                return found
            nodes = await asyncio.to_thread(all_nodes, self._config)
            answers = await asyncio.to_thread(ask_each, self._config, GetSource(), nodes)
        except AdminError as error:
            raise SourceUnreadable(str(error)) from error
        each = zip(nodes, answers, strict=True)
        told = [(node, said) for node, said in each if isinstance(said, SourceState)]
        whole, self._holders = with_placed(found, told)
        return whole

    async def schemas(self, topic: str) -> Sequence[str]:
        try:
            page = await asyncio.to_thread(topic_schemas, self._config, topic)
        except AdminError as error:
            raise SourceUnreadable(str(error)) from error
        return [version.schema for version in page.versions]

    async def read(self, where: Where, offset: int) -> PulledBatches:
        pull = await self._connected(where)
        with _faults(self, where):
            number = await pull.read(_wanted(where, Start.OFFSET, offset))
        return PulledBatches(self, pull, number, where)

    async def batch_before(self, where: Where, offset: int) -> BatchBefore | None:
        pull = await self._connected(where)
        with _faults(self, where):
            place = await pull.confirmed(_wanted(where, Start.LATEST))
            if not place.start_offset < offset <= place.end_offset:
                return None
            number = await pull.read(_wanted(where, Start.OFFSET, offset - 1))
            try:
                data = await pull.next(number)
            finally:
                pull.close(number)
        return first_of(data)

    async def offset_at(self, where: Where, timestamp_ms: int) -> int:
        pull = await self._connected(where)
        with _faults(self, where):
            return (await pull.locate(_wanted(where, Start.TIMESTAMP, timestamp_ms))).offset

    async def close(self) -> None:
        self.hang_up()

    # --- connections ------------------------------------------------------------------------------

    async def _connected(self, where: Where) -> RangePull:
        async with self._opening:
            holders = self._holders.get((where.topic, where.partition))
            nodes = holders or list(nodes_of(self._config))
            address, name = nodes[self._node % len(nodes)]
            if address not in self._pulls:
                self._pulls[address] = await self._open(address, name)
            return self._pulls[address]

    async def _open(self, address: Address, name: str | None) -> RangePull:
        identity = None if name is None else NODE_PREFIX + name
        self._tls.reload_if_changed()
        try:
            return await RangePull.open(
                address, self._tls, identity=identity, cluster=self._config.cluster
            )
        except (RuntimeFault, WireError, OSError) as error:
            self._node += 1
            raise SourceUnreadable(str(error)) from error

    def hang_up(self) -> None:
        """Leave the nodes for the next ones."""
        pulls, self._pulls = self._pulls, {}
        for pull in pulls.values():
            pull.connection.close()
        self._node += bool(pulls)


def with_placed(
    found: SourceState, told: Sequence[NodeSays]
) -> tuple[SourceState, PartitionHolders]:
    """What the cluster says, with its topics in data groups as the nodes that have replicas of them
    say; and who has which partition, the most advanced first. A topic of which a partition is on no
    node that answers stays among the `placed`.
    """
    said = _by_partition(told)
    topics = {topic.topic: topic for _, state in told for topic in state.here}.values()
    whole = [each for topic in topics if (each := _whole(found, topic, said)) is not None]
    names = {topic.topic for topic in whole}
    missing = {name: found.placed[name] for name in found.placed.keys() - names}
    holders = {place: [node for _, node in known] for place, known in said.items()}
    return replace(found, topics=(*found.topics, *whole), placed=missing), holders


def _whole(found: SourceState, topic: SourceTopic, said: SaidOfPartitions) -> SourceTopic | None:
    """A topic with all of its partitions, if somebody has each."""
    places = [(topic.topic, index) for index in range(found.placed.get(topic.topic, 0))]
    if not places or not said.keys() >= set(places):
        return None
    return replace(topic, partitions=tuple(said[each][0][0] for each in places))


def _by_partition(told: Sequence[NodeSays]) -> SaidOfPartitions:
    """What nodes say of each partition that they have; who is furthest comes first."""
    said: SaidOfPartitions = {}
    for node, state in told:
        for topic in state.here:
            for each in topic.partitions:
                said.setdefault((topic.topic, each.partition), []).append((each, node))
    for known in said.values():
        known.sort(key=lambda one: -one[0].next_offset)
    return said


@contextmanager
def _faults(source: SamelogSource, where: Where) -> Iterator[None]:
    """Raises what a node says as the sidecar's errors."""
    try:
        yield
    except PullRefused as error:
        text = f"{where.topic}-{where.partition}: {error}"
        if error.code in LASTING:
            raise MirrorStopped(text) from error
        source.hang_up()
        raise SourceUnreadable(text) from error
    except (RuntimeFault, WireError, OSError) as error:
        source.hang_up()
        raise SourceUnreadable(str(error)) from error


class PulledBatches:
    """Implements source.BatchReader."""

    def __init__(self, source: SamelogSource, pull: RangePull, number: int, where: Where) -> None:
        self._source = source
        self._pull = pull
        self._number = number
        self._where = where

    async def next(self) -> bytes:
        with _faults(self._source, self._where):
            pieces = [await self._pull.next(self._number)]
            size = len(pieces[0])
            while size < READ_BYTES and self._pull.is_waiting(self._number):
                pieces.append(await self._pull.next(self._number))
                size += len(pieces[-1])
        return b"".join(pieces)

    async def close(self) -> None:
        self._pull.close(self._number)


def _wanted(where: Where, start: Start, value: int = 0) -> Wanted:
    return Wanted(where.topic, where.log_id, where.partition, start, value)
