"""The node's end of one session on a push connection: a publisher's bytes go to the intake,
positions come back, as `samelog.wire.push.receiver` decides.

Requests that wait for the cluster run in bounded tasks. While the intake is busy with a session's
bytes, later frames of this session are kept in order; other sessions continue.

Invariant: this driver decides nothing; nothing reaches the intake that the receiver has not
admitted, or after the session has failed; the kept bytes are at most those that a sender may have
under way.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Coroutine, Sequence
from functools import partial
from typing import Any, Protocol

from samelog.config.authorisation import Rights
from samelog.format.batch import HELD_BATCH_BYTES
from samelog.replicator.handler import ReplicatorHandler, fail, failing, unexpected
from samelog.replicator.interfaces import (
    HeldElsewhere,
    RequestRefused,
    RunEnds,
    SessionIntake,
)
from samelog.replicator.push.ack_sender import AckSender
from samelog.replicator.push.requests import Requests
from samelog.runtime.loop import spawn
from samelog.runtime.network.channel import Channel
from samelog.wire.errors import FaultCode, ProtocolFault
from samelog.wire.holds import DecideHolds, HeldPart, SessionHolds
from samelog.wire.messages import (
    AnyMessage,
    Close,
    EndRun,
    Hello,
    Holders,
    OpenInput,
    OpenRun,
    OpenSession,
    OpenTopic,
    RollSealed,
    SessionReleased,
)
from samelog.wire.push.effects import InputName, ProgressTold
from samelog.wire.push.receiver import PushReceiver, PushRequest
from samelog.wire.push.windows import SESSION_WINDOW_BYTES
from samelog.wire.refusals import RefusalsKept, RefusedBatch

KEPT_BYTES = SESSION_WINDOW_BYTES + HELD_BATCH_BYTES
"""What a session may have under way: of a batch in parts, the window counts the first part only."""
FRAME_BYTES = 1 << 10
"""What a kept frame counts for on the connection, beside its payload."""
FRAMES_IN_TURN = 16
"""Of those that were kept, before others have their turn."""


class SharedConnection(Protocol):
    """What a session asks of the connection that it shares."""

    acks: AckSender
    """Sends what is acknowledged of all sessions."""

    def in_turn(self, work: Callable[[], None]) -> None:
        """Call `work` later, when it is its turn: one call in each turn of the event loop."""

    def kept(self, size_bytes: int) -> None:
        """A session keeps so many bytes more."""

    def session_over(self, session: PushSession) -> None:
        """A session has ended."""

    def holds_changed(self, session: PushSession) -> None:
        """The publisher of a session holds something else now."""


class PushSession(ReplicatorHandler):
    """One session. Implements transport.Handler, for its channel, and watchers.IntakeListener."""

    def __init__(
        self,
        channel: Channel,
        opened: OpenSession,
        hello: Hello,
        intake: SessionIntake,
        rights: Rights,
        *,
        shared: SharedConnection,
    ) -> None:
        """Raises ProtocolFault when the peer may not push this session."""
        acks = shared.acks.acks
        self._receiver = PushReceiver(opened, hello, channel.identity, rights, intake, acks=acks)
        intake.check_session(opened.session, opened.session_id)
        self._connection = channel
        self._roams = hello.roams
        self._intake = intake
        self._shared = shared
        self._requests = Requests(lambda error: fail(channel, error))
        self._loop = asyncio.get_running_loop()
        self.since = self._loop.time()
        self.holds: tuple[HeldPart, ...] = ()
        """What the publisher holds because topics were deleted, as it reports."""
        self._is_held = False
        """Whether frames are kept until the work on an earlier one is done."""
        self._kept: deque[tuple[int, Callable[[], None]]] = deque()
        """What waits, and how many bytes each has."""
        self._kept_bytes = 0
        intake.watchers.watch(self, self.session)

    @property
    def link(self) -> Channel:
        """The channel."""
        return self._connection

    @property
    def session(self) -> str:
        """Whose bytes come."""
        return self._receiver.session

    def decide_holds(self, topic_ids: tuple[str, ...], *, continues: bool) -> None:
        """Tell the publisher what becomes of what it holds for these deleted topics."""
        self._connection.send(DecideHolds(continues, topic_ids))

    # --- from the connection ------------------------------------------------------------------

    def on_message(self, message: AnyMessage) -> None:
        """Anything a publisher's client sends."""
        if self._is_held:
            self._keep(0, partial(self.on_message, message))
            return
        match message:
            case EndRun(ends=ends):
                work = partial(self._begin, message)
                self._requests.add(work, alone=True, inputs=1 + len(ends))
            case OpenRun() | OpenTopic() | Close():
                self._requests.add(partial(self._begin, message), alone=True)
            case OpenInput():
                self._requests.add(partial(self._begin, message), alone=False)
            case RollSealed():
                self._seal_in_turn(message)
            case SessionReleased():
                self._start_at(message)
            case RefusalsKept():
                self._note_kept(message)
            case SessionHolds(parts):
                self._set_holds(parts)
            case _:
                raise unexpected(message)

    def _set_holds(self, parts: tuple[HeldPart, ...]) -> None:
        if parts != self.holds:
            self.holds = parts
            self._shared.holds_changed(self)

    def _keep(self, size: int, work: Callable[[], None]) -> None:
        """Run `work` after the frames before it. Raises ProtocolFault."""
        if self._kept_bytes + size > KEPT_BYTES:
            text = f"session {self.session!r} has more under way than its window"
            raise ProtocolFault(FaultCode.TOO_MANY, text, "wait for acknowledgements")
        self._kept.append((size, work))
        self._kept_bytes += size
        self._shared.kept(size + FRAME_BYTES)

    def _take_kept(self) -> Callable[[], None]:
        size, work = self._kept.popleft()
        self._kept_bytes -= size
        self._shared.kept(-size - FRAME_BYTES)
        return work

    def _go_on(self) -> None:
        """Do what was kept, as far as nothing has to wait again, a little in each turn."""
        self._is_held = False
        with failing(self._connection):
            for _ in range(FRAMES_IN_TURN):
                if not self._kept or self._is_held or not self._connection.is_open:
                    break
                self._take_kept()()
        if self._kept and not self._is_held and self._connection.is_open:
            self._is_held = True
            self._loop.call_soon(self._go_on)

    def on_closed(self, error: Exception | None) -> None:
        """Gone: what waits for the cluster is of no use any more."""
        self._requests.close()
        self._shared.kept(-self._kept_bytes - FRAME_BYTES * len(self._kept))
        self._kept.clear()
        self._kept_bytes = 0
        self._set_holds(())
        self._shared.session_over(self)
        self._intake.watchers.unwatch(self)
        self._receiver.closed()

    def _send(self) -> None:
        """Send what the receiver wants to be sent."""
        messages, self._receiver.messages = self._receiver.messages, []
        for message in messages:
            self._connection.send(message)
        if self._receiver.left:
            left, self._receiver.left = self._receiver.left, set()
            self._intake.watchers.unwatch_inputs(self, left)

    # --- requests -----------------------------------------------------------------------------

    def _begin(self, request: PushRequest) -> Coroutine[Any, Any, None] | None:
        """It is a request's turn."""
        if not self._receiver.admit(request):
            self._send()
            return None
        match request:
            case OpenRun():
                return self._open_run(request)
            case OpenInput():
                return self._open_input(request)
            case OpenTopic():
                return self._open_topic(request)
            case EndRun(run_id):
                ends = self._receiver.ends.pop(run_id)
                self._intake.end_run(self._receiver.session, run_id, ends)
        return None

    async def _open_run(self, request: OpenRun) -> None:
        receiver = self._receiver
        opened = await self._intake.open_run(
            identity=receiver.identity,
            session=receiver.session,
            session_id=receiver.opened.session_id,
            run=request.run,
            run_id=request.run_id,
            dedup_id=request.dedup_id,
            dedup_base=request.dedup_base,
            stage=request.stage,
        )
        receiver.run_opened(request, opened)
        self._send()

    async def _open_input(self, request: OpenInput) -> None:
        receiver = self._receiver
        try:
            if receiver.is_over(request):
                await self._intake.check_topic(request.topic_id)
                receiver.refused(request, receiver.nothing_of(request))
                self._send()
                return
            opened = await self._intake.open_input(
                identity=receiver.identity,
                session=receiver.session,
                run_id=request.run_id,
                topic=request.topic,
                partition=request.partition,
                topic_id=request.topic_id,
                listener=self,
            )
        except RequestRefused as refused:
            if self._roams and isinstance(refused, HeldElsewhere):
                self._connection.send(Holders(refused.holders))
            receiver.refused(request, refused)
        else:
            receiver.input_opened(request, opened, self._loop.time())
            self._shared.acks.schedule()
        self._send()

    async def _open_topic(self, request: OpenTopic) -> None:
        try:
            opened = await self._intake.open_topic(request.topic, request.partitions)
        except RequestRefused as refused:
            self._receiver.refused(request, refused)
        else:
            partitions, is_checked = opened
            self._receiver.topic_opened(request, partitions, is_checked=is_checked)
        self._send()

    # --- bytes --------------------------------------------------------------------------------

    def on_data(self, handle: int, file: int, byte: int, data: memoryview) -> None:
        """Batches of an input; a closed run takes no more."""
        if self._is_held:
            kept = memoryview(bytes(data))
            self._keep(len(kept), partial(self.on_data, handle, file, byte, kept))
            return
        held = self._receiver.taking(handle)
        if held is None:
            return
        try:
            taking = self._intake.append(held.number, held.run_number, file, byte, data)
        except RequestRefused as refused:
            self._receiver.bytes_refused(handle, refused)
            self._send()
        else:
            if taking is not None:
                self._is_held = True
                task = spawn(self._take(handle, taking), "bytes of a publisher")
                task.add_done_callback(lambda _: taking.close())  # cancelled before its first step

    async def _take(self, handle: int, taking: Coroutine[Any, Any, None]) -> None:
        """Continue with the session when the intake has taken the bytes."""
        with failing(self._connection):
            try:
                await taking
            except RequestRefused as refused:
                self._receiver.bytes_refused(handle, refused)
                self._send()
        self._go_on()

    def _seal_in_turn(self, message: RollSealed) -> None:
        """One in a turn of the loop: a session that ends seals a file of each partition."""
        self._is_held = True
        self._shared.in_turn(partial(self._end_turn, message))

    def _end_turn(self, message: RollSealed) -> None:
        if self._connection.is_open:
            with failing(self._connection):
                self._seal(message)
            self._go_on()

    def _seal(self, message: RollSealed) -> None:
        held = self._receiver.taking(message.handle)
        if held is not None:
            try:
                self._intake.seal(held.number, held.run_number, message.roll, message.length)
            except RequestRefused as refused:
                self._receiver.bytes_refused(message.handle, refused)
                self._send()

    def _start_at(self, message: SessionReleased) -> None:
        """The sender has no older bytes. If they are needed here, this input must wait for them."""
        held = self._receiver.taking(message.handle)
        if held is not None:
            try:
                self._intake.start_at(held.number, held.run_number, message.roll, message.byte)
            except RequestRefused as refused:
                self._receiver.start_refused(message.handle, refused)
                self._send()

    def _note_kept(self, message: RefusalsKept) -> None:
        held, place = self._receiver.kept(message.handle), (message.roll, message.start)
        if held is not None:
            self._intake.refusals_kept(held.number, held.run_number, *place)

    # --- from the intake ----------------------------------------------------------------------

    def on_refused(self, number: int, batches: Sequence[RefusedBatch]) -> None:
        """Tell it before anything that acknowledges it."""
        self._receiver.records_refused(number, batches)
        self._send()

    def on_progress(self, number: int, run: int, places: ProgressTold, leader: int | None) -> None:
        """Have it told when it is time: later, if the leader reaches the publisher itself."""
        sender, now = self._shared.acks, self._loop.time()
        can_wait = leader in sender.reached
        if self._receiver.progressed(number, run, places, now, can_wait=can_wait):
            sender.schedule()

    def on_run_closed(
        self, session: str, run_id: str, ends: RunEnds, parts: frozenset[InputName]
    ) -> None:
        """Pass it on, behind what was acknowledged before."""
        with failing(self._connection):
            self._shared.acks.send_channel(self._connection.number)
            self._receiver.run_closed(session, run_id, ends, parts)
            self._send()

    def on_session_retired(self, session_ids: Collection[str], why: ProtocolFault) -> None:
        """End the session if its directory is fenced."""
        if self._receiver.opened.session_id in session_ids:
            fail(self._connection, why)

    def on_part_closed(self, session: str, run_id: str, ends: RunEnds) -> None:
        """What is still under way of it is merged already."""
        self._receiver.part_closed(session, run_id, ends)

    def on_topic_gone(self, number: int) -> None:
        """The handles of the topic's inputs end."""
        self._receiver.topic_gone(number)
        self._send()

    def on_input_moved(self, number: int) -> None:
        """End the handles of the input; the sender reopens it at its new holder."""
        self._receiver.input_moved(number)
        self._send()
