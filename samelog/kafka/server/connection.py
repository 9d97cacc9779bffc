"""One client's connection on the event loop: drives the pipeline, calls the handlers.

Idle connections cost no task and no timer of their own; the listener looks at them now and then.

A client that needs no answers (acks=0) may close as soon as it has sent everything: what it had
sent to be written when it closed is still taken, as by Kafka's broker.

Invariant: once the connection is over, nothing else that was asked on it goes on.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial
from types import CoroutineType
from typing import Any, TypeVar, cast

from samelog.format.errors import InvariantError
from samelog.kafka.any_broker import KafkaClient
from samelog.kafka.api import KafkaApi, MaybeResponse
from samelog.kafka.apis import produce
from samelog.kafka.clients.pipeline import NumberedRequest, PipelineLimits, RequestPipeline
from samelog.kafka.clients.quotas import Memory
from samelog.kafka.codec.errors import (
    MalformedRequest,
    Unanswerable,
    UnsupportedRequest,
)
from samelog.kafka.codec.primitives import ByteBuffer
from samelog.kafka.server.dispatch import ApiDispatcher, StartedRequest
from samelog.runtime.slices import context_of

T = TypeVar("T")

HIGH_WATER_BYTES = 4 << 20
LOW_WATER_BYTES = 1 << 20
AUTHENTICATE_S = 10.0
CLIENTS_FAULTS = (MalformedRequest, UnsupportedRequest, Unanswerable)
STRANGERS_REQUESTS = 100
"""Of a client that has not authenticated; none needs more than four."""
PRODUCE_PREFIX = produce.produce.key.to_bytes(2, "big")
"""The first bytes of a Produce request."""
UNSAID_BYTES = 64 << 10
"""More that is held is said at once, less at the end of the turn."""
TURN_S = 0.0015
"""Of a turn of the event loop, for the requests of one connection: behind that others have theirs,
and in any case behind the request that takes longer.
"""


class _ConnectionPhase(Enum):
    OPEN = auto()
    ENDING = auto()
    """The client has closed, and what it had sent to be written is being taken."""
    OVER = auto()


@dataclass(slots=True)
class _Stranger:
    """A client that has not authenticated yet."""

    since: float
    requests: int = 0


class KafkaConnection(asyncio.Protocol):
    """Made by a listener only."""

    def __init__(
        self,
        dispatcher: ApiDispatcher[Any],
        limits: PipelineLimits,
        memory: Memory[KafkaConnection],
        *,
        admit: Callable[[KafkaConnection, asyncio.Transport], KafkaClient | None],
        ended: Callable[[KafkaConnection, str], None],
    ) -> None:
        """`admit` says who the client is, None to refuse it; `ended`: the connection is over, and
        why this side closed it, if it did.
        """
        self._dispatcher = dispatcher
        self._admit = admit
        self._ended = ended
        self._memory = memory
        self._loop = asyncio.get_running_loop()
        self._pipeline = RequestPipeline(limits, self._loop.time())
        self._client: KafkaClient | None = None
        self._stranger: _Stranger | None = _Stranger(self._loop.time())
        """Until it was noticed that the client has authenticated."""
        self._transport: asyncio.Transport | None = None
        self._waited: set[asyncio.Future[Any]] = set()
        self._busy_with: KafkaApi[Any] | None = None
        """A handler of it is to return before the next one begins."""
        self._phase = _ConnectionPhase.OPEN
        self._muted_until = 0.0
        """Nothing is taken from the client before: it has asked for too much. 0: it has not."""
        self._goes_on_soon = False
        self._reason = ""

    # --- what the event loop calls ----------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is there, with TLS if the listener has it."""
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(HIGH_WATER_BYTES, LOW_WATER_BYTES)
        self._client = self._admit(self, self._transport)
        if self._client is None:
            self._phase = _ConnectionPhase.OVER
            self._transport.abort()
        elif self._client.identity:
            self._known()

    def _known(self) -> None:
        """It is certain who the client is: its requests may have their full length."""
        self._stranger = None
        self._pipeline.open()

    def data_received(self, data: bytes) -> None:
        """Bytes of the client."""
        if self._phase is not _ConnectionPhase.OPEN:
            return
        try:
            self._pipeline.received(data, self._loop.time())
        except MalformedRequest as error:
            self.close(str(error))
            return
        self._go_on()

    def pause_writing(self) -> None:
        """The client does not read its answers."""
        self._pipeline.writing_paused(self._loop.time())

    def resume_writing(self) -> None:
        """The client has drained the socket's buffer."""
        self._pipeline.writing_resumed()
        self._go_on()

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is closed."""
        is_ending = self._phase is _ConnectionPhase.OPEN
        self._phase = _ConnectionPhase.ENDING if is_ending else _ConnectionPhase.OVER
        is_writing = is_ending and self._busy_with is produce.produce
        for future in tuple(self._waited):
            if not (is_writing and isinstance(future, asyncio.Task)):
                future.cancel()
        self._take_rest()

    def _take_rest(self) -> None:
        """Begin the writes that were not begun yet; when all of them have been, end."""
        while self._phase is _ConnectionPhase.ENDING:
            if self._busy_with is not None:
                return
            request = self._pipeline.next_request()
            if request is None:
                self._phase = _ConnectionPhase.OVER
            elif request.frame[: len(PRODUCE_PREFIX)] == PRODUCE_PREFIX:
                self._start(request)
        self._memory.hold(self, 0)
        for end in () if self._client is None else self._client.at_end:
            end()
        self._ended(self, self._reason)

    # --- requests ---------------------------------------------------------------------------------

    def _go_on_soon(self) -> None:
        """Go on behind what is to be called in this turn: its answers leave in one write."""
        if not self._goes_on_soon:
            self._goes_on_soon = True
            self._loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        """Start what can be started, write what can be written, read on if more is wanted."""
        self._goes_on_soon = False
        over_at = 0.0
        while self._pipeline.inbox:
            if not over_at:
                over_at = time.monotonic() + TURN_S
            elif time.monotonic() >= over_at:
                self._go_on_soon()
                break
            elif (held := self._pipeline.held_bytes) > UNSAID_BYTES:
                self._memory.hold(self, held + self._unsent_bytes())
            request = self._pipeline.next_request() if self._may_start() else None
            if request is None:
                break
            self._start(request)
            if self._stranger is not None and self._is_refused(self._stranger):
                return
        self._flush()

    def _is_refused(self, stranger: _Stranger) -> bool:
        """Whether a client that had not authenticated yet is closed after its last request."""
        client = self._client
        stranger.requests += 1
        if client is None:
            return True
        if client.identity:
            self._known()
        elif client.rejected or stranger.requests >= STRANGERS_REQUESTS:
            self.close(client.rejected or "too many requests before authentication")
            return True
        return False

    def _may_start(self) -> bool:
        """While memory is short, nothing is answered to who has not read the last answers."""
        if self._busy_with is not None or self._phase is not _ConnectionPhase.OPEN:
            return False
        if self._memory.is_short and self._unsent_bytes() > 0:
            return False
        return not self._muted_until

    def _unsent_bytes(self) -> int:
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def _answered(self, number: int, started: StartedRequest, answer: MaybeResponse) -> None:
        if self._client is None:
            return
        now = self._loop.time()
        output, pause_s = started.encode(answer, self._client, now)
        if output is None or isinstance(output, list):
            self._pipeline.answered(number, output)
        else:
            self._encode_long(number, output)
        if self._client.refusals.reason:
            self.close(self._client.refusals.reason)
        if pause_s:
            if not self._muted_until:
                self._loop.call_later(pause_s, self._unmute)
            self._muted_until = max(self._muted_until, now + pause_s)

    def _encode_long(self, number: int, encoding: Coroutine[Any, Any, list[ByteBuffer]]) -> None:
        """Write an answer in slices of the event loop."""

        def done(future: asyncio.Future[list[ByteBuffer]]) -> None:
            self._waited.discard(future)
            self._pipeline.long_answers -= 1
            if self._phase is not _ConnectionPhase.OPEN or future.cancelled():
                return
            if (error := future.exception()) is not None:
                self._failed(error)
                return
            self._pipeline.answered(number, future.result())
            self._go_on()

        self._pipeline.long_answers += 1
        task = self._in_slices(encoding)
        self._waited.add(task)
        task.add_done_callback(done)

    def _in_slices(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """A task that has the event loop by turns with those of other clients."""
        client = self._client
        context = context_of(None if client is None else client.who)
        return self._loop.create_task(work, context=context)

    def _unmute(self) -> None:
        """Go on, once it is time."""
        left = self._muted_until - self._loop.time()
        if left > 0:
            self._loop.call_later(left, self._unmute)
        else:
            self._muted_until = 0.0
            self._go_on()

    def _start(self, request: NumberedRequest) -> None:
        if self._client is None:
            return
        try:
            started = self._dispatcher.start(self._client, request.frame)
            outcome = started.outcome
            if isinstance(outcome, CoroutineType):
                self._busy_with = started.api
                self._wait(self._in_slices(outcome), request.number, started)
            elif isinstance(outcome, asyncio.Future):
                self._wait(outcome, request.number, started)
            else:
                answer: Any = outcome
                self._answered(request.number, started, answer)
        except CLIENTS_FAULTS as error:
            self.close(str(error))
        except InvariantError:
            raise
        except Exception as error:  # noqa: BLE001 - the seam: it ends the connection
            self._failed(error)

    def _wait(self, future: asyncio.Future[Any], number: int, started: StartedRequest) -> None:
        self._waited.add(future)
        future.add_done_callback(partial(self._done, number, started))

    def _done(self, number: int, started: StartedRequest, future: asyncio.Future[Any]) -> None:
        self._waited.discard(future)
        if isinstance(future, asyncio.Task):
            self._busy_with = None
        if self._phase is _ConnectionPhase.ENDING:
            self._take_rest()
        is_cancelled = future.cancelled()
        error = None if is_cancelled else future.exception()
        if self._phase is not _ConnectionPhase.OPEN:
            return
        if is_cancelled:  # by the part that was to answer, such as a replica that ends
            self.close("the node stopped working on a request")
            return
        if error is not None:
            self._failed(error)
            return
        answer = future.result()
        if isinstance(answer, asyncio.Future):
            self._wait(answer, number, started)
        else:
            self._answered(number, started, answer)
        if self._waited:
            self._go_on_soon()
        else:
            self._go_on()

    def _failed(self, error: BaseException) -> None:
        if isinstance(error, InvariantError):
            context = {"message": "an invariant is broken", "exception": error}
            self._loop.call_exception_handler(context)
        if isinstance(error, CLIENTS_FAULTS):
            self.close(str(error))
            return
        self._dispatcher.log.event(logging.ERROR, "a Kafka request failed", fault=error)
        self.close("the node could not answer a request")

    def _flush(self) -> None:
        """Write what is ready, report the memory held, and read on unless a bound forbids it."""
        transport, pipeline, memory = self._transport, self._pipeline, self._memory
        if transport is None or transport.is_closing():
            return
        if pipeline.output:
            transport.writelines(pipeline.take_output(self._loop.time()))
        memory.hold(self, pipeline.held_bytes + transport.get_write_buffer_size())
        wants = pipeline.wants_input and not memory.is_short and not self._muted_until
        if wants != transport.is_reading():
            (transport.resume_reading if wants else transport.pause_reading)()

    def paced(self) -> None:
        """Stop reading while memory is short; continue once it is not."""
        transport = self._transport
        if not self._memory.is_short:
            self._loop.call_soon(self._go_on)
        elif transport is not None and not transport.is_closing() and transport.is_reading():
            transport.pause_reading()

    # --- ending -----------------------------------------------------------------------------------

    def check_deadlines(self, now: float) -> None:
        """Close the connection if the client has let a deadline pass."""
        reason = self._pipeline.overdue(now)
        if self._stranger is not None:
            is_late = now - self._stranger.since > AUTHENTICATE_S
            reason = "not authenticated in time" if is_late else reason
        if reason is not None:
            self.close(reason)
        elif self._memory.is_short:
            self._go_on()

    def close(self, reason: str) -> None:
        """Send what is ready, and close."""
        if self._phase is not _ConnectionPhase.OPEN or self._transport is None:
            return
        self._reason = reason
        self._flush()
        self._phase = _ConnectionPhase.OVER
        self._transport.close()
        self._loop.call_later(1.0, self._transport.abort)
