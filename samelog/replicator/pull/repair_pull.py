"""One member's bulk connection to another: pulls what it lacks, a piece of a merged log or of one
run of an input, and pushes what is too long for the control connection.

The connection serves all requests, also at the same time, and is closed when none came for a while.
What is pulled goes to the caller's sink as it comes; nothing is kept here.

Invariant: a sink gets its log's bytes in order, without gap or overlap, from where it wanted them;
after the request has returned or raised, it is never called again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from samelog.replicator.interfaces import FilePosition
from samelog.replicator.pull.acknowledger import Acknowledger, Budget
from samelog.replicator.pull.handles import Handles, MakeOpen, StartsAt
from samelog.runtime.errors import DeadlinePassed, RuntimeFault
from samelog.runtime.loop import spawn
from samelog.runtime.network.link import PeerPlace
from samelog.runtime.network.tls import NODE_PREFIX, ReloadingContext
from samelog.runtime.network.transport import Connection, connect
from samelog.wire.errors import FaultCode, ProtocolFault
from samelog.wire.member_queues import GroupQueues
from samelog.wire.messages import (
    AnyMessage,
    Hello,
    MergedStartsAt,
    OpenMerged,
    OpenSessionLog,
    Start,
    Welcome,
)
from samelog.wire.receiver import ResumePoint
from samelog.wire.transaction_messages import AbortedFound

PROGRESS_S = 10.0
"""A request that gets nothing for so long has failed."""
IDLE_S = 30.0


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
    """One pull under way. Implements handles.PullReader."""

    sink: PullSink
    outcome: asyncio.Future[bool]
    start: ResumePoint
    goes_on: bool
    """It does not end when the peer has no more for now."""
    moved: bool = False

    @property
    def place(self) -> FilePosition:
        return self.start[:2]

    def on_opened(self, opened: StartsAt) -> None:
        file = opened.base_offset if isinstance(opened, MergedStartsAt) else opened.roll
        if (file, opened.byte) != self.place:
            text = f"asked for {self.place}, got {(file, opened.byte)}"
            raise ProtocolFault(FaultCode.PROTOCOL, text)
        self.moved = True

    def on_data(self, file: int, byte: int, data: memoryview) -> int:
        self._take(lambda: self.sink.on_data(file, byte, data))
        return len(data)

    def on_sealed(self, file: int, length: int, next_file: int) -> None:
        self._take(lambda: self.sink.on_sealed(file, length, next_file))

    def on_caught_up(self) -> None:
        if self.goes_on or self.outcome.done():
            return
        try:
            has_enough = self.sink.has_enough()
        except Exception as error:  # noqa: BLE001 - the seam: it comes out of the request
            self.on_fault(error)
            return
        self.outcome.set_result(has_enough)

    def on_end(self, end_offset: int) -> None:
        """Never asked for: a node knows from Raft where its logs end."""

    def on_aborted(self, found: AbortedFound) -> None:
        """Never asked for: a node finds out by itself."""

    def on_fault(self, error: Exception) -> None:
        if not self.outcome.done():
            self.outcome.set_exception(error)

    def _take(self, give: Callable[[], None]) -> None:
        """Give the sink something; what that raises is the request's."""
        if self.outcome.done():
            return
        self.moved = True
        try:
            give()
            has_enough = self.sink.has_enough()
        except Exception as error:  # noqa: BLE001 - the seam: it comes out of the request
            self.on_fault(error)
            return
        if has_enough:
            self.outcome.set_result(True)

    async def wait(self) -> bool:
        """Whether the sink has enough. Raises what ended the request."""
        while True:
            done, _ = await asyncio.wait({self.outcome}, timeout=PROGRESS_S)
            if done:
                return self.outcome.result()
            if not self.moved and not self.goes_on:
                raise DeadlinePassed(f"nothing came for {PROGRESS_S:g} s")
            self.moved = False

    def abandon(self) -> None:
        """Retrieve the outcome. A request that is cancelled in the turn in which its peer refuses
        it has an error that no one else retrieves, and asyncio reports such errors as unhandled.
        """
        if not self.outcome.cancel() and not self.outcome.cancelled():
            self.outcome.exception()


class _BulkHandles(Handles):
    """The handles of a connection on which frames are pushed, too. Implements transport.Handler."""

    def __init__(
        self,
        connection: Connection,
        check: Callable[[Welcome], None],
        on_writable: Callable[[], None],
    ) -> None:
        super().__init__(connection, Acknowledger(connection))
        self._check = check
        self._on_writable = on_writable

    def on_message(self, message: AnyMessage) -> None:
        """As Handles, but look who answers."""
        if isinstance(message, Welcome):
            self._check(message)
        else:
            super().on_message(message)

    def on_writable(self) -> None:
        """Push what waits."""
        self._on_writable()


class RepairPull:
    """The bulk connection to one peer."""

    def __init__(
        self,
        peer: PeerPlace,
        tls: ReloadingContext,
        *,
        hello: Callable[[], Hello],
        check: Callable[[Welcome], None] = lambda welcome: None,
    ) -> None:
        """`hello` introduces this node; it raises RuntimeFault while there is nobody to talk to.
        `check` raises ProtocolFault if it is not the wanted one who answers.
        """
        self._peer = peer
        self._tls = tls
        self._hello = hello
        self._check = check
        self._connecting = asyncio.Lock()
        self._handles: Handles | None = None
        self._idle: asyncio.TimerHandle | None = None
        self._queues = GroupQueues()
        self._opening: asyncio.Task[None] | None = None

    async def merged(
        self,
        name: MergedName,
        start: ResumePoint,
        sink: PullSink,
        *,
        budget: Budget | None = None,
        number: int = 0,
    ) -> bool:
        """Pull a merged partition from `start` until the sink has enough, or the peer has no more;
        no faster than `budget` allows. `number`: of the compaction that made the segment there.

        Returns whether the sink has enough.

        Raises:
            PullRefused: the peer says no: OUT_OF_RANGE, FORK, TOPIC_GONE, NOT_READY, ...
            RuntimeFault: no connection, or it broke, or nothing came for a while.
            Exception: what the sink raised.
        """
        return await self._pull(
            lambda handle: OpenMerged(handle, *name, Start.POSITION, number + 1, *start),
            start,
            sink,
            budget=budget,
        )

    async def session(self, name: SessionRunName, start: ResumePoint, sink: PullSink) -> bool:
        """Pull one run of an input; all else as `merged`."""
        return await self._pull(lambda handle: OpenSessionLog(handle, *name, *start), start, sink)

    async def follow(self, name: SessionRunName, start: ResumePoint, sink: PullSink) -> None:
        """As `session`, but go on for as long as the peer sends what is new."""
        await self._pull(
            lambda handle: OpenSessionLog(handle, *name, *start), start, sink, goes_on=True
        )

    def close(self) -> None:
        """End the connection; requests under way fail, and what waits to be pushed is dropped."""
        self._keep()
        self._queues.clear()
        if self._opening is not None:
            self._opening.cancel()
        if self._handles is not None:
            self._handles.connection.close()

    async def _pull(
        self,
        make_open: MakeOpen,
        start: ResumePoint,
        sink: PullSink,
        *,
        goes_on: bool = False,
        budget: Budget | None = None,
    ) -> bool:
        handles = await self._open()
        outcome: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        request = _Request(sink, outcome, start, goes_on)
        self._keep()
        handle = handles.open(request, make_open, budget)
        try:
            return await request.wait()
        finally:
            request.abandon()
            handles.close(handle)
            if handles.is_idle:
                self._let_go_later(handles.connection)

    def push(self, group: int, frame: bytes) -> bool:
        """Send a whole frame, as soon as the connection can take it; False: it is dropped, because
        too much of that group waits.
        """
        if not self._queues.put(group, frame):
            return False
        if self._handles is not None and self._handles.connection.is_open:
            self._send_waiting()
        elif self._opening is None or self._opening.done():
            self._opening = spawn(self._open_to_push(), "bulk: connect")
        return True

    async def _open_to_push(self) -> None:
        try:
            await self._open()
        except (RuntimeFault, ProtocolFault):  # who pushed tries again
            self._queues.clear()
        else:
            self._send_waiting()

    def _send_waiting(self) -> None:
        handles, queues = self._handles, self._queues
        if handles is None:
            return
        while queues and handles.connection.writable:
            handles.connection.send_bytes(queues.take())
        self._keep()
        if handles.is_idle:
            self._let_go_later(handles.connection)

    async def _open(self) -> Handles:
        async with self._connecting:
            handles = self._handles
            if handles is None or not handles.connection.is_open:
                handles = self._handles = await self._connect()
            return handles

    async def _connect(self) -> Handles:
        hello = self._hello()
        made: list[Handles] = []

        def open_handler(connection: Connection) -> Handles:
            connection.send(hello)
            made.append(_BulkHandles(connection, self._check, self._send_waiting))
            return made[0]

        await connect(
            self._peer.address,
            self._tls,
            open_handler,
            expected_identity=NODE_PREFIX + self._peer.name,
        )
        return made[0]

    def _keep(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
        self._idle = None

    def _let_go_later(self, connection: Connection) -> None:
        self._keep()
        self._idle = asyncio.get_running_loop().call_later(IDLE_S, connection.close)
