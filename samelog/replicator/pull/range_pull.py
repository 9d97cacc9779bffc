"""Reads pieces of merged logs from a node: what a reader without a copy of its own does.

One connection serves all handles. A piece is kept until its reader takes it, and only then told to
the node, whose window so bounds what waits here.

Invariant: a handle gives whole batches, without gap or overlap, from the one that holds the wanted
offset on; after a fault it gives the fault, and nothing else.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from samelog.config.values import Address
from samelog.replicator.handler import ReplicatorHandler, unexpected
from samelog.replicator.pull.acknowledger import Acknowledger
from samelog.replicator.pull.repair_pull import PullRefused
from samelog.runtime.errors import ConnectionLost
from samelog.runtime.network.tls import ReloadingContext
from samelog.runtime.network.transport import Connection, connect
from samelog.wire.errors import FaultCode
from samelog.wire.messages import (
    AnyMessage,
    CaughtUp,
    Close,
    ConnectionRole,
    Hello,
    LogArchived,
    MergedStartsAt,
    OpenMerged,
    Refused,
    SegmentSealed,
    Start,
    TopicGone,
    Welcome,
)
from samelog.wire.receiver import Receiver


class Wanted(NamedTuple):
    """A place in a merged partition; `topic_id` None: whichever topic has the name now."""

    topic: str
    topic_id: str | None
    partition: int
    start: Start
    value: int = 0


@dataclass(slots=True)
class _ReadHandle:
    """One open handle. `pieces`: what came and was not taken yet."""

    position: asyncio.Future[MergedStartsAt]
    reads: bool
    pieces: deque[bytes] = field(default_factory=deque)
    news: asyncio.Event = field(default_factory=asyncio.Event)
    fault: Exception | None = None


class RangePull(ReplicatorHandler):
    """One connection to one node; made by `open`. Implements transport.Handler."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._receiver = Receiver()
        self._acknowledger = Acknowledger(connection)
        self._handles: dict[int, _ReadHandle] = {}
        self._next_handle = 0

    @classmethod
    async def open(
        cls, address: Address, tls: ReloadingContext, *, identity: str | None, cluster: str
    ) -> RangePull:
        """Connect to a node. Raises ConnectFault."""
        made: list[RangePull] = []

        def open_handler(connection: Connection) -> RangePull:
            connection.send(Hello(role=ConnectionRole.PULL, cluster=cluster))
            made.append(cls(connection))
            return made[0]

        await connect(address, tls, open_handler, expected_identity=identity)
        return made[0]

    async def locate(self, wanted: Wanted) -> MergedStartsAt:
        """Where a place is, and the bounds of the partition. Raises PullRefused, RuntimeFault."""
        handle, position = await self._open(wanted, reads=False)
        self.close(handle)
        return position

    async def read(self, wanted: Wanted) -> int:
        """A handle that reads from a place on. Raises PullRefused, RuntimeFault."""
        return (await self._open(wanted, reads=True))[0]

    async def _open(self, wanted: Wanted, *, reads: bool) -> tuple[int, MergedStartsAt]:
        number, self._next_handle = self._next_handle, self._next_handle + 1
        handle = _ReadHandle(asyncio.get_running_loop().create_future(), reads)
        self._handles[number] = handle
        self.connection.send(OpenMerged(number, *wanted))
        try:
            return number, await handle.position
        except BaseException:
            self.close(number)
            raise

    async def next(self, number: int) -> bytes:
        """The next whole batches of a handle, when they come. Raises PullRefused, RuntimeFault."""
        handle = self._handles[number]
        while not handle.pieces:
            if handle.fault is not None:
                raise handle.fault
            handle.news.clear()
            await handle.news.wait()
        data = handle.pieces.popleft()
        self._acknowledger.took(number, len(data))
        return data

    def close(self, number: int) -> None:
        """Let go of a handle."""
        if self._handles.pop(number, None) is not None:
            self._receiver.forget(number)
            if self.connection.is_open:
                self.connection.send(Close(number))

    # --- from the connection ----------------------------------------------------------------------

    def on_message(self, message: AnyMessage) -> None:
        """Anything a pull server sends."""
        match message:
            case MergedStartsAt():
                self._opened(message)
            case SegmentSealed():
                if self._receiver.expects(message.handle):
                    files = message.base_offset, message.length, message.next_offset
                    self._receiver.sealed(message.handle, *files)
            case LogArchived():
                self._archived(message)
            case TopicGone():
                self._refused(message.handle, _gone())
            case Refused():
                self._refused(message.handle, _refusal(message))
            case Welcome() | CaughtUp():
                return
            case _:
                raise unexpected(message)

    def on_data(self, handle: int, file: int, byte: int, data: memoryview) -> None:
        """A piece."""
        known = self._handles.get(handle)
        if known is None or not self._receiver.expects(handle):
            return
        self._receiver.receive(handle, file, byte, len(data))
        if known.reads:
            known.pieces.append(bytes(data))
            known.news.set()

    def on_closed(self, error: Exception | None) -> None:
        """All handles fail."""
        self._acknowledger.close()
        for handle in self._handles.values():
            _fail(handle, error or ConnectionLost("this side closed the connection"))

    def _opened(self, message: MergedStartsAt) -> None:
        handle = self._handles.get(message.handle)
        if handle is not None and not handle.position.done():
            self._receiver.expect(message.handle, message.base_offset, message.byte)
            handle.position.set_result(message)

    def _archived(self, message: LogArchived) -> None:
        """What was archived is sent no more; what came before that can still be taken."""
        if not self._receiver.expects(message.handle):
            return
        if self._receiver.position(message.handle) < (message.base_offset, 0):
            text = f"archived below offset {message.offset}"
            refusal = PullRefused(FaultCode.OUT_OF_RANGE, text, "", message.offset)
            self._refused(message.handle, refusal)

    def _refused(self, number: int, refusal: PullRefused) -> None:
        self._receiver.forget(number)
        handle = self._handles.get(number)
        if handle is not None:
            _fail(handle, refusal)


def _fail(handle: _ReadHandle, error: Exception) -> None:
    handle.fault = error
    handle.news.set()
    if not handle.position.done():
        handle.position.set_exception(error)
        handle.position.exception()  # seen: whoever asked may have stopped waiting


def _gone() -> PullRefused:
    return PullRefused(FaultCode.TOPIC_GONE, "the topic was deleted", "")


def _refusal(message: Refused) -> PullRefused:
    return PullRefused(message.code, message.message, message.remedy, message.earliest)
