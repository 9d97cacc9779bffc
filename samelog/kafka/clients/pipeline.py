"""One connection's requests and answers: bytes in, requests out; answers in, bytes out.

Answers leave in the order of their requests, whatever order they are made in: a parked Fetch holds
up those behind it, as with Kafka's broker. How many requests may wait is bounded, in number and in
bytes; beyond that nothing more is wanted from the client.

Invariant: no answer overtakes an older one; a request is handed out once, in order.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import msgspec

from samelog.kafka.codec.framing import FrameReader
from samelog.kafka.codec.primitives import ByteBuffer

LENGTH_BYTES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineLimits:
    """What one client may make a node hold, and how long it may take."""

    request_bytes: int = 16 << 20
    strangers_request_bytes: int = 512 << 10
    """Of a request before the client has authenticated; Kafka's sasl.server.max.receive.size."""
    requests: int = 64
    """Handed out, and not answered yet."""
    waiting_bytes: int = 16 << 20
    """Of requests that are not answered yet: beyond this nothing more is read."""
    frame_s: float = 30.0
    """From the first byte of a request to its last."""
    idle_s: float = 600.0
    """Kafka's connections.max.idle.ms."""
    stalled_s: float = 60.0
    """How long answers may wait for a client that does not read them."""


class NumberedRequest(msgspec.Struct, frozen=True):
    """A request, under the number that its answer is given back with."""

    number: int
    frame: memoryview


class _Slot(msgspec.Struct):
    """A request that was taken in: its answer, once there is one. No buffers: none is sent."""

    size: int
    buffers: list[ByteBuffer] | None = None
    answer_bytes: int = 0
    is_done: bool = False


class RequestPipeline:
    """Times are seconds of one clock that never goes backwards."""

    def __init__(self, limits: PipelineLimits, now: float) -> None:
        self._limits = limits
        self._frames = FrameReader(min(limits.strangers_request_bytes, limits.request_bytes))
        self.inbox: deque[NumberedRequest] = deque()
        """Requests that are not handed out yet."""
        self._slots: deque[_Slot] = deque()
        self._first = 0
        """The number of the first slot."""
        self._next = 0
        self._waiting_bytes = 0
        self._answer_bytes = 0
        """Of answers that are not taken for writing yet."""
        self.long_answers = 0
        """Answers that are being made for some turns of the event loop."""
        self.output: list[ByteBuffer] = []
        """What is to be written; `take_output` takes it."""
        self._output_bytes = 0
        self._active_at = now
        self._begun_at: float | None = None
        self._stalled_at: float | None = None

    def open(self) -> None:
        """It is known who the client is: from now on requests may have their full length."""
        self._frames.limit_bytes = self._limits.request_bytes

    # --- requests ---------------------------------------------------------------------------------

    def received(self, data: bytes, now: float) -> None:
        """Take bytes of the client. Raises MalformedRequest: the connection is to be closed."""
        held = len(self._frames.partial)
        for frame in self._frames.feed(data):
            size = len(frame)
            self.inbox.append(NumberedRequest(self._next, frame))
            self._slots.append(_Slot(size))
            self._next += 1
            self._waiting_bytes += size
            held = 0
        self._active_at = now
        if not self._frames.partial:
            self._begun_at = None
        elif not held or self._begun_at is None:
            self._begun_at = now

    def next_request(self) -> NumberedRequest | None:
        """The next request to be answered; None if there is none, or too many are under way."""
        under_way = len(self._slots) - len(self.inbox)
        if not self.inbox or under_way >= self._limits.requests or self._stalled_at is not None:
            return None
        if self.long_answers:
            return None
        return self.inbox.popleft()

    @property
    def wants_input(self) -> bool:
        """Whether more is to be read from the client now."""
        return (
            len(self._slots) <= self._limits.requests
            and self._waiting_bytes <= self._limits.waiting_bytes
        )

    @property
    def held_bytes(self) -> int:
        """Bytes of requests that are not answered yet, whole or begun, and of answers not taken."""
        return len(self._frames.partial) + self._waiting_bytes + self._answer_bytes

    # --- answers ----------------------------------------------------------------------------------

    def answered(self, number: int, buffers: list[ByteBuffer] | None) -> None:
        """The answer to a request, without its length; None: the client expects none."""
        slot = self._slots[number - self._first]
        slot.buffers, slot.is_done = buffers, True
        if buffers is not None:
            slot.answer_bytes = sum(map(len, buffers))
            self._answer_bytes += LENGTH_BYTES + slot.answer_bytes
        while self._slots and self._slots[0].is_done:
            done = self._slots.popleft()
            self._first += 1
            self._waiting_bytes -= done.size
            if done.buffers is not None:
                self.output.append(done.answer_bytes.to_bytes(LENGTH_BYTES, "big"))
                self.output += done.buffers
                self._output_bytes += LENGTH_BYTES + done.answer_bytes

    def take_output(self, now: float) -> list[ByteBuffer]:
        """The bytes that are to be written now."""
        output, self.output = self.output, []
        self._answer_bytes -= self._output_bytes
        self._output_bytes = 0
        self._active_at = now
        return output

    def writing_paused(self, now: float) -> None:
        """The client does not read what was written: the socket's buffer is full."""
        self._stalled_at = now

    def writing_resumed(self) -> None:
        """The client has drained the socket's buffer."""
        self._stalled_at = None

    # --- time -------------------------------------------------------------------------------------

    def overdue(self, now: float) -> str | None:
        """Why the connection is to be closed; None if it is not."""
        limits = self._limits
        if self._begun_at is not None and now - self._begun_at > limits.frame_s:
            return f"a request was begun and not ended in {limits.frame_s:g} s"
        if self._stalled_at is not None and now - self._stalled_at > limits.stalled_s:
            return f"answers were not read for {limits.stalled_s:g} s"
        if not self._slots and now - self._active_at > limits.idle_s:
            return f"nothing was asked for {limits.idle_s:g} s"
        return None
