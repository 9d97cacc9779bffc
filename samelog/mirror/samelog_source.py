"""A samelog cluster as a source: batches by the pull protocol, all else by its HTTP interface.

One connection to one node serves all partitions; when it ends, the next node is asked, and every
partition begins where its mirror is.

Invariant: a node gives out what it has merged, so what a majority has committed, and nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from samelog.admin.client import ask, topic_schemas
from samelog.admin.errors import AdminError
from samelog.admin.mirror_answers import SourceState
from samelog.admin.mirror_requests import GetSource
from samelog.config.authorisation import NODE_PREFIX
from samelog.config.tables.client import ClientConfig
from samelog.format import _kernels as kernels
from samelog.mirror.errors import MirrorStopped, SourceUnreadable
from samelog.mirror.source import READ_BYTES, BatchBefore, Where
from samelog.replicator.known_nodes import nodes_of
from samelog.replicator.pull.handles import PullRefused
from samelog.replicator.pull.range_pull import RangePull, Wanted
from samelog.runtime.errors import RuntimeFault
from samelog.runtime.network.tls import ReloadingContext
from samelog.wire.errors import FaultCode, WireError
from samelog.wire.messages import Start

LASTING = (FaultCode.NOT_AUTHORISED, FaultCode.UNKNOWN_TOPIC, FaultCode.TOPIC_GONE)
"""Refusals that another node does not mend."""


class SamelogSource:
    """Implements source.SourceCluster."""

    keeps_epochs = True

    def __init__(self, config: ClientConfig) -> None:
        """Raises TlsFault."""
        self._config = config
        self._tls = ReloadingContext(config.tls)
        self._pull: RangePull | None = None
        self._opening = asyncio.Lock()
        self._node = 0

    async def state(self, patterns: Sequence[str], groups: Sequence[str]) -> SourceState:
        try:
            return await asyncio.to_thread(ask, self._config, GetSource())
        except AdminError as error:
            raise SourceUnreadable(str(error)) from error

    async def schemas(self, topic: str) -> Sequence[str]:
        try:
            page = await asyncio.to_thread(topic_schemas, self._config, topic)
        except AdminError as error:
            raise SourceUnreadable(str(error)) from error
        return [version.schema for version in page.versions]

    async def read(self, where: Where, offset: int) -> PulledBatches:
        pull = await self._connected()
        with _faults(self, where):
            number = await pull.read(_wanted(where, Start.OFFSET, offset))
        return PulledBatches(self, pull, number, where)

    async def batch_before(self, where: Where, offset: int) -> BatchBefore | None:
        pull = await self._connected()
        with _faults(self, where):
            place = await pull.confirmed(_wanted(where, Start.LATEST))
            if not place.start_offset < offset <= place.end_offset:
                return None
            number = await pull.read(_wanted(where, Start.OFFSET, offset - 1))
            try:
                data = await pull.next(number)
            finally:
                pull.close(number)
        header = kernels.batch_headers(data, 0, len(data))[0]
        base = int.from_bytes(data[:8], "big")
        return BatchBefore(base + header[2], header[9])

    async def offset_at(self, where: Where, timestamp_ms: int) -> int:
        pull = await self._connected()
        with _faults(self, where):
            return (await pull.locate(_wanted(where, Start.TIMESTAMP, timestamp_ms))).offset

    async def close(self) -> None:
        self.hang_up()

    # --- connections ------------------------------------------------------------------------------

    async def _connected(self) -> RangePull:
        async with self._opening:
            if self._pull is None:
                nodes = list(nodes_of(self._config))
                address, name = nodes[self._node % len(nodes)]
                identity = None if name is None else NODE_PREFIX + name
                self._tls.reload_if_changed()
                try:
                    self._pull = await RangePull.open(
                        address, self._tls, identity=identity, cluster=self._config.cluster
                    )
                except (RuntimeFault, WireError, OSError) as error:
                    self._node += 1
                    raise SourceUnreadable(str(error)) from error
            return self._pull

    def hang_up(self) -> None:
        """Leave the node for the next one."""
        pull, self._pull = self._pull, None
        if pull is not None:
            pull.connection.close()
            self._node += 1


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
