"""The node's end of a push connection: a publisher's bytes go to the intake, positions come back.

Whatever waits for the cluster (opening) runs in bounded tasks; bytes never wait. Which positions
are told, and when, is decided in `samelog.wire.push.acks`.

Invariant: nothing reaches the intake for a session, topic or dedup id that the peer has no right
to.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from typing import Any

from samelog.config.authorisation import Rights
from samelog.replicator.handler import ReplicatorHandler, fail, failing, unexpected
from samelog.replicator.interfaces import (
    OpenedInput,
    OpenedRun,
    RequestRefused,
    ResumePoint,
    RollByte,
    RunEnds,
    SessionIntake,
)
from samelog.replicator.push.requests import Requests
from samelog.runtime.faults import make_fault
from samelog.runtime.loop import spawn
from samelog.runtime.network.transport import Connection
from samelog.wire.bounds import RunEnd
from samelog.wire.errors import FaultCode, ProtocolFault
from samelog.wire.messages import (
    NO_BATCH,
    AnyMessage,
    Close,
    EndRun,
    Hello,
    OpenInput,
    OpenRun,
    OpenTopic,
    Refused,
    RollSealed,
    RunClosed,
    RunOpened,
    SessionReleased,
    SessionStartsAt,
    TopicGone,
    TopicOpened,
)
from samelog.wire.push.acks import Acknowledgements
from samelog.wire.push.effects import ProgressTold

MAX_HANDLES = 1 << 16
MAX_RUNS = 1 << 12


@dataclass(slots=True)
class _Input:
    """What a handle stands for. `end` is where a closed run ends."""

    number: int
    name: tuple[str, int]
    run_id: str
    run_number: int
    end: RollByte | None = None


class PushServer(ReplicatorHandler):
    """One push connection. Implements transport.Handler and interfaces.IntakeListener."""

    def __init__(
        self,
        connection: Connection,
        hello: Hello,
        intake: SessionIntake,
        rights: Rights,
        *,
        on_over: Callable[[PushServer], None] = lambda server: None,
    ) -> None:
        """Raises ProtocolFault when the peer may not push this session."""
        if hello.session is None or hello.session_id is None:
            raise ProtocolFault(FaultCode.PROTOCOL, "a push names its session and the session's id")
        self._connection = connection
        self._identity = str(connection.identity)
        self._session = hello.session
        self._session_id = hello.session_id
        self._intake = intake
        self._rights = rights
        if not rights.may_push(self._identity, self._session):
            raise self._denied(f"publish as session {self._session!r}")
        self._requests = Requests(lambda error: fail(connection, error))
        self._runs: dict[str, OpenedRun] = {}
        self._inputs: dict[int, _Input] = {}
        self._handles: dict[int, list[int]] = {}
        """The intake's number of an input -> the handles of its runs."""
        self._opening: set[int] = set()
        self._let_go: set[int] = set()
        """Handles that this side has ended; what is still under way for them is dropped."""
        self._acks = Acknowledgements()
        self._loop = asyncio.get_running_loop()
        self.since = self._loop.time()
        self._on_over = on_over
        self._ack_timer: asyncio.Handle | None = None
        intake.watch(self)

    @property
    def link(self) -> Connection:
        """The connection."""
        return self._connection

    @property
    def session(self) -> str:
        """Whose bytes come."""
        return self._session

    # --- from the connection ------------------------------------------------------------------

    def on_message(self, message: AnyMessage) -> None:
        """Anything a publisher's client sends."""
        match message:
            case OpenRun():
                self._requests.add(lambda: self._open_run(message), alone=True)
            case OpenInput():
                self._requests.add(lambda: self._open_input(message), alone=False)
            case OpenTopic():
                self._requests.add(lambda: self._open_topic(message), alone=True)
            case EndRun():
                self._requests.add(lambda: self._end_run(message), alone=True)
            case Close():
                self._requests.add(lambda: self._close(message.handle), alone=True)
            case RollSealed():
                self._seal(message)
            case SessionReleased():
                self._start_at(message)
            case _:
                raise unexpected(message)

    def on_data(self, handle: int, file: int, byte: int, data: memoryview) -> None:
        """Batches of an input; a closed run takes no more."""
        held = self._taking(handle)
        if held is None:
            return
        try:
            taking = self._intake.append(held.number, held.run_number, file, byte, data)
        except RequestRefused as refused:
            self._refused_bytes(handle, refused)
        else:
            if taking is not None:
                self._connection.pause_reading()
                spawn(self._take(handle, taking), "bytes of a publisher")

    async def _take(self, handle: int, taking: Coroutine[Any, Any, None]) -> None:
        """Go on with the connection when the intake has taken what came."""
        with failing(self._connection):
            try:
                await taking
            except RequestRefused as refused:
                if handle in self._inputs:
                    self._refused_bytes(handle, refused)
        self._connection.resume_reading()

    def on_closed(self, error: Exception | None) -> None:
        """Gone: what waits for the cluster is of no use any more."""
        self._requests.close()
        self._on_over(self)
        self._intake.unwatch(self)
        self._inputs.clear()
        self._handles.clear()
        if self._ack_timer is not None:
            self._ack_timer.cancel()

    # --- runs ---------------------------------------------------------------------------------

    async def _open_run(self, message: OpenRun) -> None:
        dedup_id = message.dedup_id
        if dedup_id is not None and not self._rights.may_use_dedup_id(self._identity, dedup_id):
            raise self._denied(f"use dedup id {dedup_id!r}")
        if len(self._runs) >= MAX_RUNS and message.run_id not in self._runs:
            text = f"more than {MAX_RUNS} runs on one connection"
            raise ProtocolFault(FaultCode.TOO_MANY, text, "reconnect")
        opened = await self._intake.open_run(
            identity=self._identity,
            session=self._session,
            session_id=self._session_id,
            run=message.run,
            run_id=message.run_id,
            dedup_id=dedup_id,
            dedup_base=message.dedup_base,
            stage=message.stage,
        )
        self._runs[message.run_id] = opened
        if opened.closed:
            self._end_inputs(message.run_id, opened.ends)
        ends = run_ends(opened.ends) if opened.closed else ()
        self._connection.send(RunOpened(message.run_id, opened.number, opened.closed, ends))

    def _end_run(self, message: EndRun) -> None:
        run = self._run(message.run_id)
        if not run.closed:
            ends = {(end.topic, end.partition): (end.roll, end.byte) for end in message.ends}
            self._intake.end_run(self._session, message.run_id, ends)

    def _run(self, run_id: str) -> OpenedRun:
        run = self._runs.get(run_id)
        if run is None:
            text = f"run {run_id} is not open on this connection"
            raise ProtocolFault(FaultCode.PROTOCOL, text, "open the run first")
        return run

    # --- inputs -------------------------------------------------------------------------------

    def _open_input(self, message: OpenInput) -> Coroutine[Any, Any, None] | None:
        handle = message.handle
        if handle in self._inputs or handle in self._opening:
            raise ProtocolFault(FaultCode.PROTOCOL, f"handle {handle} is open already")
        if len(self._inputs) + len(self._opening) + len(self._let_go) >= MAX_HANDLES:
            text = f"more than {MAX_HANDLES} handles on one connection"
            raise ProtocolFault(FaultCode.TOO_MANY, text, "reconnect")
        refusal = self._refusal(message, self._run(message.run_id))
        if refusal is not None:
            self._refuse(handle, refusal)
            return None
        self._opening.add(handle)
        return self._open_at_intake(message)

    def _refusal(self, message: OpenInput, run: OpenedRun) -> RequestRefused | None:
        topic = message.topic
        if not self._rights.may_publish(self._identity, self._session, topic):
            return self._denied(f"publish to topic {topic!r} in session {self._session!r}")
        if run.closed and (topic, message.partition) not in run.ends:
            text = f"the run is closed, and has nothing in {topic}-{message.partition}"
            return RequestRefused(FaultCode.OUT_OF_RANGE, text)
        return None

    async def _open_topic(self, message: OpenTopic) -> None:
        topic = message.topic
        try:
            if not self._rights.may_publish(self._identity, self._session, topic):
                raise self._denied(f"publish to topic {topic!r} in session {self._session!r}")
            partitions = await self._intake.open_topic(topic, message.partitions)
        except RequestRefused as refused:
            self._connection.send(TopicOpened(topic, 0, refused.message[:1000]))
        else:
            self._connection.send(TopicOpened(topic, partitions))

    async def _open_at_intake(self, message: OpenInput) -> None:
        try:
            opened = await self._intake.open_input(
                identity=self._identity,
                session=self._session,
                run_id=message.run_id,
                topic=message.topic,
                partition=message.partition,
            )
        except RequestRefused as refused:
            self._refuse(message.handle, refused)
        else:
            if self._connection.is_open:
                self._opened(message, opened)
        finally:
            self._opening.discard(message.handle)

    def _opened(self, message: OpenInput, opened: OpenedInput) -> None:
        run = self._runs[message.run_id]
        name = message.topic, message.partition
        end = run.ends.get(name, (0, 0)) if run.closed else None
        position, committed = opened.position, opened.merged
        if end is not None:
            position, committed = ResumePoint(*end, NO_BATCH, 0), end
        held = _Input(opened.input, name, message.run_id, run.number, end)
        self._inputs[message.handle] = held
        self._handles.setdefault(held.number, []).append(message.handle)
        self._let_go.discard(message.handle)
        self._connection.send(make_position(message.handle, opened, position))
        self._acks.open(message.handle)
        self._tell(message.handle, (committed, committed, (0, 0)))

    def _close(self, handle: int) -> None:
        if self._inputs.get(handle) is not None:
            self._forget(handle)

    def _forget(self, handle: int) -> None:
        held = self._inputs.pop(handle)
        self._handles[held.number].remove(handle)
        self._let_go.add(handle)
        self._acks.forget(handle)

    def _refuse(self, handle: int, refused: RequestRefused) -> None:
        """Say no to one handle; the others go on."""
        self._let_go.add(handle)
        if refused.code is FaultCode.TOPIC_GONE:
            self._connection.send(TopicGone(handle))
        else:
            self._connection.send(refusal_of(handle, refused))

    # --- bytes --------------------------------------------------------------------------------

    def _taking(self, handle: int) -> _Input | None:
        """What a handle stands for; None when nothing more is taken for it."""
        held = self._inputs.get(handle)
        if held is None and handle not in self._let_go:
            text = f"handle {handle} is not open"
            raise ProtocolFault(FaultCode.PROTOCOL, text, "open it, and wait for its position")
        return held if held is not None and held.end is None else None

    def _seal(self, message: RollSealed) -> None:
        held = self._taking(message.handle)
        if held is None:
            return
        try:
            self._intake.seal(held.number, held.run_number, message.roll, message.length)
        except RequestRefused as refused:
            self._refused_bytes(message.handle, refused)

    def _start_at(self, message: SessionReleased) -> None:
        """The sender has no older bytes. If they are needed here, this input must wait for them."""
        held = self._taking(message.handle)
        if held is None:
            return
        try:
            self._intake.start_at(held.number, held.run_number, message.roll, message.byte)
        except RequestRefused as refused:
            if refused.code not in (FaultCode.OUT_OF_RANGE, FaultCode.TOPIC_GONE):
                raise
            self._forget(message.handle)
            self._refuse(message.handle, refused)

    def _refused_bytes(self, handle: int, refused: RequestRefused) -> None:
        """What is about one input ends its handle; anything else the connection."""
        if refused.code not in (FaultCode.TOPIC_GONE, FaultCode.INVALID_BATCH, FaultCode.TOO_MANY):
            raise refused
        self._forget(handle)
        self._refuse(handle, refused)

    # --- from the intake ----------------------------------------------------------------------

    def on_progress(
        self, number: int, run: int, durable: RollByte, acknowledged: RollByte, merged: RollByte
    ) -> None:
        """Note it for the end of this turn. What a newer run reached may complete older ones."""
        for handle in self._handles.get(number, ()):
            held = self._inputs[handle]
            if held.run_number == run:
                self._tell(handle, (durable, acknowledged, merged))
            elif held.run_number < run and held.end is not None:
                is_merged = self._intake.is_released(number, held.run_number, held.end)
                self._tell(handle, (held.end, held.end, held.end if is_merged else (0, 0)))

    def on_run_closed(self, session: str, run_id: str, ends: RunEnds) -> None:
        """Pass it on, once; nothing more is taken for the run."""
        run = self._runs.get(run_id)
        if session != self._session or run is None or run.closed:
            return
        self._runs[run_id] = replace(run, closed=True, ends=ends)
        self._end_inputs(run_id, ends)
        with failing(self._connection):
            self._flush()
            self._connection.send(RunClosed(run_id, run_ends(ends)))

    def _end_inputs(self, run_id: str, ends: RunEnds) -> None:
        """The inputs of a closed run take nothing more; only their progress is told."""
        for held in self._inputs.values():
            if held.run_id == run_id:
                held.end = ends.get(held.name, (0, 0))

    def on_topic_gone(self, number: int) -> None:
        """The handles of the topic's inputs end."""
        for handle in tuple(self._handles.get(number, ())):
            self._forget(handle)
            self._refuse(handle, RequestRefused(FaultCode.TOPIC_GONE, "the topic was deleted"))

    # --- acknowledgements ---------------------------------------------------------------------

    def _tell(self, handle: int, places: ProgressTold) -> None:
        """Send a handle's positions when it is time."""
        now = self._loop.time()
        if self._acks.reached(handle, places, now) and self._acks.due_at is not None:
            if self._ack_timer is not None:
                self._ack_timer.cancel()
            wait_s = self._acks.due_at - now
            if wait_s > 0:
                self._ack_timer = self._loop.call_later(wait_s, self._flush)
            else:
                self._ack_timer = self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        """Send what there is to tell."""
        if self._ack_timer is not None:
            self._ack_timer.cancel()
            self._ack_timer = None
        for ack in self._acks.take(self._loop.time()):
            self._connection.send(ack)

    def _denied(self, what: str) -> RequestRefused:
        return RequestRefused(
            FaultCode.NOT_AUTHORISED,
            f"{self._identity} may not {what}",
            "grant it in the nodes' configuration",
        )


def run_ends(ends: RunEnds) -> tuple[RunEnd, ...]:
    """Ends as they go over the wire."""
    return tuple(RunEnd(*name, *place) for name, place in sorted(ends.items()))


def refusal_of(handle: int, refused: RequestRefused) -> Refused:
    """The message that ends one handle."""
    fault = make_fault(refused.code, refused.message, refused.remedy)
    return Refused(handle, fault.code, fault.message, fault.remedy)


def make_position(handle: int, opened: OpenedInput, position: ResumePoint) -> SessionStartsAt:
    """Where DATA starts; a batch that lies in another file says nothing about this one."""
    has_batch = 0 <= position.last_start < position.byte
    return SessionStartsAt(
        handle=handle,
        topic_id=opened.topic_id,
        partitions=opened.partitions,
        roll=position.file,
        byte=position.byte,
        last_start=position.last_start if has_batch else NO_BATCH,
        last_crc=position.last_crc if has_batch else 0,
    )
