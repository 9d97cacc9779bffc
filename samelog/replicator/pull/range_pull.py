"""Reads pieces of merged logs from a node: what a reader without a copy of its own does.

One connection serves all handles. A piece is kept until its reader takes it, and only then told to
the node, whose window so bounds what waits here.

Invariant: a handle gives whole batches, without gap or overlap, from the one that holds the wanted
offset on; after a fault it gives the fault, and nothing else.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from samelog.config.values import Address
from samelog.format.transactions import Aborted
from samelog.replicator.pull.acknowledger import Acknowledger
from samelog.replicator.pull.handles import Handles, StartsAt
from samelog.runtime.network.tls import ReloadingContext
from samelog.runtime.network.transport import Connection, connect
from samelog.wire.bounds import Holder, RowsAsked
from samelog.wire.messages import (
    ConnectionRole,
    Hello,
    MergedStartsAt,
    OpenMerged,
    OpenRows,
    Start,
)
from samelog.wire.transaction_messages import ABORTED_TOLD, AbortedFound

LAGS_S = 0.01
"""Before a node that lags is asked again."""


class Wanted(NamedTuple):
    """A place in a merged partition; `topic_id` None: whichever topic has the name now."""

    topic: str
    topic_id: str | None
    partition: int
    start: Start
    value: int = 0


@dataclass(slots=True)
class _Pieces:
    """What came for one handle and was not taken yet. Implements handles.PullReader."""

    position: asyncio.Future[StartsAt]
    end: asyncio.Future[int]
    """Where the cluster confirms that the log ends, once it is asked."""
    reads: bool
    aborted: asyncio.Future[AbortedFound] | None = None
    waiting: deque[bytes] = field(default_factory=deque)
    news: asyncio.Event = field(default_factory=asyncio.Event)
    fault: Exception | None = None

    @property
    def place(self) -> None:
        return None

    def on_opened(self, opened: StartsAt) -> None:
        if not self.position.done():
            self.position.set_result(opened)

    def on_data(self, file: int, byte: int, data: memoryview) -> int:
        if self.reads:
            self.waiting.append(bytes(data))
            self.news.set()
        return 0

    def on_sealed(self, file: int, length: int, next_file: int) -> None:
        """Pieces are of whole batches: which segment they are from does not matter."""

    def on_caught_up(self) -> None:
        """There may be more later."""

    def on_end(self, end_offset: int) -> None:
        if not self.end.done():
            self.end.set_result(end_offset)

    def on_aborted(self, found: AbortedFound) -> None:
        if self.aborted is not None and not self.aborted.done():
            self.aborted.set_result(found)

    def on_fault(self, error: Exception) -> None:
        self.fault = error
        self.news.set()
        for asked in (self.position, self.end, self.aborted):
            if asked is not None and not asked.done():
                asked.set_exception(error)
                asked.exception()  # seen: whoever asked may have stopped waiting

    async def next(self) -> bytes:
        """The next piece. Raises the fault behind the last one."""
        while not self.waiting:
            if self.fault is not None:
                raise self.fault
            self.news.clear()
            await self.news.wait()
        return self.waiting.popleft()


class RangePull:
    """One connection to one node; made by `open`."""

    def __init__(self, handles: Handles) -> None:
        self._handles = handles
        self._pieces: dict[int, _Pieces] = {}

    @property
    def connection(self) -> Connection:
        """The connection."""
        return self._handles.connection

    @property
    def told(self) -> Sequence[Holder]:
        """Nodes that this one told of last, and where they are."""
        return self._handles.told

    @classmethod
    async def open(
        cls,
        address: Address,
        tls: ReloadingContext,
        *,
        identity: str | None,
        cluster: str,
        rack: str = "",
    ) -> RangePull:
        """Connect to a node, which tells a client with a `rack` where all are. Raises
        ConnectFault.
        """
        made: list[Handles] = []

        def open_handler(connection: Connection) -> Handles:
            role = ConnectionRole.PULL
            connection.send(Hello(role=role, cluster=cluster, parts=True, roams=True, rack=rack))
            made.append(Handles(connection, Acknowledger(connection)))
            return made[0]

        await connect(address, tls, open_handler, expected_identity=identity)
        return cls(made[0])

    async def locate(self, wanted: Wanted) -> MergedStartsAt:
        """Where a place is, and the bounds of the partition. Raises PullRefused, RuntimeFault."""
        handle, position = await self._open(wanted, reads=False)
        self.close(handle)
        return position

    async def confirmed(self, wanted: Wanted) -> MergedStartsAt:
        """As `locate`, but the end is the cluster's: the node may lag behind it."""
        handle, position = await self._open(wanted, reads=False)
        try:
            self._handles.confirm_end(handle)
            end = await self._pieces[handle].end
        finally:
            self.close(handle)
        return msgspec.structs.replace(position, end_offset=max(end, position.end_offset))

    async def stable(self, wanted: Wanted, *, confirmed: bool = False) -> MergedStartsAt:
        """As `locate` or `confirmed`, but the end is where what is decided ends, when the node has
        all up to that other end.
        """
        find = self.confirmed if confirmed else self.locate
        position = await find(wanted)
        place = wanted._replace(topic_id=position.topic_id, start=Start.LATEST, value=0)
        handle, _ = await self._open(place, reads=False)
        try:
            found = await self._ask(handle, 0, 0)
            while found.end_offset < position.end_offset:
                await asyncio.sleep(LAGS_S)
                found = await self._ask(handle, 0, 0)
        finally:
            self.close(handle)
        return msgspec.structs.replace(position, end_offset=found.stable_offset)

    async def aborted(self, wanted: Wanted, first: int, stop: int) -> list[Aborted]:
        """What was aborted of the records [first, stop), once the node knows that all of them are
        decided. `wanted`: the log, at its end. Raises PullRefused, RuntimeFault.
        """
        handle, _ = await self._open(wanted, reads=False)
        told: list[Aborted] = []
        behind = -1
        try:
            while True:
                found = await self._ask(handle, first, stop, behind)
                if found.stable_offset < stop:
                    await asyncio.sleep(LAGS_S)
                    continue
                told += [Aborted(*each, 0) for each in found.found]
                if len(found.found) < ABORTED_TOLD:
                    return told
                behind = told[-1].last_offset
        finally:
            self.close(handle)

    async def _ask(self, handle: int, first: int, stop: int, behind: int = -1) -> AbortedFound:
        pieces = self._pieces[handle]
        if pieces.fault is not None:
            raise pieces.fault
        pieces.aborted = asyncio.get_running_loop().create_future()
        self._handles.find_aborted(handle, first, stop, behind)
        return await pieces.aborted

    async def read(self, wanted: Wanted, rows: RowsAsked | None = None) -> int:
        """A handle that reads from a place on: all, or what passes. Raises PullRefused,
        RuntimeFault.
        """
        return (await self._open(wanted, reads=True, rows=rows))[0]

    async def _open(
        self, wanted: Wanted, *, reads: bool, rows: RowsAsked | None = None
    ) -> tuple[int, MergedStartsAt]:
        loop = asyncio.get_running_loop()
        pieces = _Pieces(loop.create_future(), loop.create_future(), reads)
        number = self._handles.open(
            pieces,
            lambda handle: (
                OpenMerged(handle, *wanted)
                if rows is None
                else OpenRows(handle, *wanted, rows=rows)
            ),
        )
        self._pieces[number] = pieces
        try:
            return number, await pieces.position  # type: ignore[return-value]
        except BaseException:
            self.close(number)
            raise

    async def next(self, number: int) -> bytes:
        """The next whole batches of a handle, when they come. Raises PullRefused, RuntimeFault."""
        data = await self._pieces[number].next()
        self._handles.taken(number, len(data))
        return data

    def is_waiting(self, number: int) -> bool:
        """Whether batches of a handle are here already."""
        return bool(self._pieces[number].waiting)

    def close(self, number: int) -> None:
        """Let go of a handle."""
        if self._pieces.pop(number, None) is not None:
            self._handles.close(number)
