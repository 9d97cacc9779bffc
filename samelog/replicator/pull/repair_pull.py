"""Pulls what one node lacks from another: a piece of a merged log, or of one run of an input.

One connection to a peer serves all requests, also at the same time, and is closed when none came
for a while. What is pulled goes to the caller's sink as it comes; nothing is kept here.

Invariant: a sink gets its log's bytes in order, without gap or overlap, from where it wanted them;
after the request has returned or raised, it is never called again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from samelog.replicator.handler import ReplicatorHandler, unexpected
from samelog.replicator.pull.acknowledger import Acknowledger
from samelog.runtime.errors import ConnectionLost, DeadlinePassed, RuntimeFault
from samelog.runtime.network.link import PeerPlace
from samelog.runtime.network.tls import NODE_PREFIX, ReloadingContext
from samelog.runtime.network.transport import Connection, connect
from samelog.wire.errors import FaultCode, ProtocolFault
from samelog.wire.messages import (
    AnyMessage,
    CaughtUp,
    Close,
    Hello,
    LogArchived,
    MergedStartsAt,
    OpenMerged,
    OpenSession,
    Refused,
    RollSealed,
    SegmentSealed,
    SessionStartsAt,
    Start,
    TopicGone,
    Welcome,
)
from samelog.wire.receiver import Receiver, ResumePoint

PROGRESS_S = 10.0
"""A request that gets nothing for so long has failed."""
IDLE_S = 30.0


class PullRefused(RuntimeFault):
    """The peer will not, or cannot, send what was asked for."""

    def __init__(self, code: FaultCode, message: str, remedy: str, earliest: int = -1) -> None:
        """`earliest`: the first offset that can be read; -1: not said."""
        super().__init__(f"{code.name}: {message}" + (f" ({remedy})" if remedy else ""))
        self.code = code
        self.earliest = earliest
        self.message = message
        self.remedy = remedy


class MergedName(NamedTuple):
    """A merged partition."""

    topic: str
    topic_id: str
    partition: int


class SessionRunName(NamedTuple):
    """One run of an input, by the cluster's number of the run."""

    session: str
    topic: str
    topic_id: str
    partition: int
    run: int


class PullSink(Protocol):
    """Takes what comes, in the event loop. What it raises ends the request, and comes out of it."""

    def on_data(self, file: int, byte: int, data: memoryview) -> None:
        """Whole batches for `byte` of `file`; `data` is valid during the call only."""

    def on_sealed(self, file: int, length: int, next_file: int) -> None:
        """`file` ends at `length`; what follows is for `next_file`."""

    def has_enough(self) -> bool:
        """Whether what came is all that is wanted; asked after each call of the others."""


@dataclass(slots=True)
class _Request:
    """One pull under way."""

    sink: PullSink
    outcome: asyncio.Future[bool]
    start: ResumePoint
    moved: bool = False
    goes_on: bool = False
    """It does not end when the peer has no more for now."""


class RepairPull:
    """Pulls from one peer."""

    def __init__(self, peer: PeerPlace, tls: ReloadingContext, *, hello: Hello) -> None:
        """`hello` introduces this node (role PULL)."""
        self._peer = peer
        self._tls = tls
        self._hello = hello
        self._connecting = asyncio.Lock()
        self._puller: _Puller | None = None

    async def merged(self, name: MergedName, start: ResumePoint, sink: PullSink) -> bool:
        """Pull a merged partition from `start` until the sink has enough, or the peer has no more.

        Returns whether the sink has enough.

        Raises:
            PullRefused: the peer says no: OUT_OF_RANGE, FORK, TOPIC_GONE, NOT_READY, ...
            RuntimeFault: no connection, or it broke, or nothing came for a while.
            Exception: what the sink raised.
        """
        return await self._pull(
            lambda handle: OpenMerged(handle, *name, Start.POSITION, 0, *start), start, sink
        )

    async def session(self, name: SessionRunName, start: ResumePoint, sink: PullSink) -> bool:
        """Pull one run of an input; all else as `merged`."""
        return await self._pull(lambda handle: OpenSession(handle, *name, *start), start, sink)

    async def follow(self, name: SessionRunName, start: ResumePoint, sink: PullSink) -> None:
        """As `session`, but go on for as long as the peer sends what is new."""
        await self._pull(
            lambda handle: OpenSession(handle, *name, *start), start, sink, goes_on=True
        )

    def close(self) -> None:
        """End the connection; requests under way fail."""
        if self._puller is not None:
            self._puller.connection.close()

    async def _pull(
        self,
        make_open: Callable[[int], OpenMerged | OpenSession],
        start: ResumePoint,
        sink: PullSink,
        *,
        goes_on: bool = False,
    ) -> bool:
        async with self._connecting:
            puller = self._puller
            if puller is None or not puller.connection.is_open:
                puller = self._puller = await self._connect()
        request = _Request(sink, asyncio.get_running_loop().create_future(), start, goes_on=goes_on)
        return await puller.pull(make_open, request)

    async def _connect(self) -> _Puller:
        pullers: list[_Puller] = []

        def open_handler(connection: Connection) -> _Puller:
            connection.send(self._hello)
            pullers.append(_Puller(connection))
            return pullers[0]

        await connect(
            self._peer.address,
            self._tls,
            open_handler,
            expected_identity=NODE_PREFIX + self._peer.name,
        )
        return pullers[0]


class _Puller(ReplicatorHandler):
    """One connection. Implements transport.Handler."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._receiver = Receiver()
        self._acknowledger = Acknowledger(connection)
        self._requests: dict[int, _Request] = {}
        self._next_handle = 0
        self._idle: asyncio.TimerHandle | None = None

    async def pull(
        self, make_open: Callable[[int], OpenMerged | OpenSession], request: _Request
    ) -> bool:
        """Run one request."""
        handle, self._next_handle = self._next_handle, self._next_handle + 1
        self._requests[handle] = request
        self._keep()
        self.connection.send(make_open(handle))
        try:
            return await self._outcome(request)
        finally:
            self._drop(handle)

    async def _outcome(self, request: _Request) -> bool:
        while True:
            done, _ = await asyncio.wait({request.outcome}, timeout=PROGRESS_S)
            if done:
                return request.outcome.result()
            if not request.moved and not request.goes_on:
                raise DeadlinePassed(f"nothing came for {PROGRESS_S:g} s")
            request.moved = False

    def _keep(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
        self._idle = None

    def _drop(self, handle: int) -> None:
        del self._requests[handle]
        if self._receiver.expects(handle):
            self._receiver.forget(handle)
            self.connection.send(Close(handle))
        if not self._requests:
            self._keep()
            loop = asyncio.get_running_loop()
            self._idle = loop.call_later(IDLE_S, self.connection.close)

    # --- from the connection ------------------------------------------------------------------

    def on_message(self, message: AnyMessage) -> None:
        """Anything a pull server sends."""
        match message:
            case Welcome():
                return
            case MergedStartsAt() | SessionStartsAt():
                self._begin(message)
            case RollSealed(handle, roll, length):
                self._sealed(handle, roll, length, roll + 1)
            case SegmentSealed(handle, base_offset, length, next_offset):
                self._sealed(handle, base_offset, length, next_offset)
            case CaughtUp():
                self._take(message.handle, self._caught_up)
            case LogArchived():
                self._archived(message)
            case TopicGone():
                gone = PullRefused(FaultCode.TOPIC_GONE, "the topic was deleted", "let it go")
                self._end(message.handle, gone)
            case Refused():
                refused = PullRefused(
                    message.code, message.message, message.remedy, message.earliest
                )
                self._end(message.handle, refused)
            case _:
                raise unexpected(message)

    def on_data(self, handle: int, file: int, byte: int, data: memoryview) -> None:
        """A piece."""
        if not self._receiver.expects(handle):
            return
        self._receiver.receive(handle, file, byte, len(data))
        self._take(handle, lambda request: request.sink.on_data(file, byte, data))
        self._acknowledger.took(handle, len(data))

    def on_closed(self, error: Exception | None) -> None:
        """The requests under way fail."""
        self._acknowledger.close()
        self._keep()
        for request in self._requests.values():
            _fail(request, error or ConnectionLost("this side closed the connection"))

    def _begin(self, message: MergedStartsAt | SessionStartsAt) -> None:
        request = self._requests.get(message.handle)
        if request is None or request.outcome.done():
            self.connection.send(Close(message.handle))  # given up while the peer opened it
            return
        file = message.base_offset if isinstance(message, MergedStartsAt) else message.roll
        place = file, message.byte
        if place != request.start[:2]:
            text = f"asked for {request.start[:2]}, got {place}"
            raise ProtocolFault(FaultCode.PROTOCOL, text)
        request.moved = True
        self._receiver.expect(message.handle, *place)

    def _archived(self, message: LogArchived) -> None:
        """The peer has archived some of it: this node will learn of that from Raft."""
        request = self._requests.get(message.handle)
        if request is None:
            return
        is_open = self._receiver.expects(message.handle)
        place = self._receiver.position(message.handle) if is_open else request.start[:2]
        if place < (message.base_offset, 0):
            text = f"archived below offset {message.offset}"
            _fail(request, PullRefused(FaultCode.OUT_OF_RANGE, text, "", message.offset))

    def _sealed(self, handle: int, file: int, length: int, next_file: int) -> None:
        if self._receiver.expects(handle):
            self._receiver.sealed(handle, file, length, next_file)
            self._take(handle, lambda request: request.sink.on_sealed(file, length, next_file))

    def _take(self, handle: int, give: Callable[[_Request], None]) -> None:
        """Give something to the request's sink; what that raises is the request's."""
        request = self._requests.get(handle)
        if request is None or request.outcome.done():
            return
        request.moved = True
        try:
            give(request)
            has_enough = request.sink.has_enough()
        except Exception as error:  # noqa: BLE001 - the seam: it comes out of the request
            _fail(request, error)
            return
        if has_enough and not request.outcome.done():
            request.outcome.set_result(True)

    def _caught_up(self, request: _Request) -> None:
        """The peer has no more for now."""
        if not request.goes_on:
            request.outcome.set_result(request.sink.has_enough())

    def _end(self, handle: int, refused: PullRefused) -> None:
        self._receiver.forget(handle)
        request = self._requests.get(handle)
        if request is not None:
            _fail(request, refused)


def _fail(request: _Request, error: Exception) -> None:
    if not request.outcome.done():
        request.outcome.set_exception(error)
