"""Runs a connection's requests that must wait for the cluster, in bounds and in order.

A request either goes alongside others of its kind, or alone: then all before it are done when it
starts, and none after it starts before it is done. Nothing is a task of its own unless it waits.

Invariant: at most `at_once` requests run, and those that wait name at most `queued` inputs; a turn
of the event loop starts a bounded number of them; after `close` none runs.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

from samelog.wire.errors import FaultCode, ProtocolFault
from samelog.wire.push.receiver import MAX_HANDLES

Work = Callable[[], "Coroutine[Any, Any, None] | None"]
"""Does the request at once (None), or returns what does it."""


STARTED_IN_TURN = 64
"""Requests that start in a turn of the event loop; those that name many inputs count for more."""
INPUTS_OF_ONE = 16
"""Named inputs that count as one more request."""


class _Queued(NamedTuple):
    """A request that waits, and how many inputs it names."""

    work: Work
    alone: bool
    inputs: int


class Requests:
    """The requests of one session; what one of them raises goes to `on_error`."""

    def __init__(
        self,
        on_error: Callable[[Exception], None],
        *,
        at_once: int = 16,
        queued: int = 2 * MAX_HANDLES,
        deadline_s: float = 60.0,
    ) -> None:
        self._on_error = on_error
        self._at_once = at_once
        self._queued = queued
        self._deadline_s = deadline_s
        self._queue: deque[_Queued] = deque()
        self._inputs = 0
        self._tasks: dict[asyncio.Task[None], Coroutine[Any, Any, None]] = {}
        self._one_is_alone = False
        self._next_turn: asyncio.Handle | None = None

    def add(self, work: Work, *, alone: bool, inputs: int = 1) -> None:
        """Take a request. Raises ProtocolFault (TOO_MANY)."""
        if self._inputs + inputs > self._queued:
            text = f"requests about more than {self._queued} inputs at once"
            raise ProtocolFault(FaultCode.TOO_MANY, text, "wait for answers")
        self._queue.append(_Queued(work, alone, inputs))
        self._inputs += inputs
        if self._next_turn is None:
            self._start()

    def close(self) -> None:
        """Drop what waits, cancel what runs."""
        self._queue.clear()
        self._inputs = 0
        for task in self._tasks:
            task.cancel()

    def _start(self) -> None:
        loop = asyncio.get_running_loop()
        left = STARTED_IN_TURN
        while left > 0:
            if not self._queue or self._one_is_alone:
                return
            work, alone, inputs = self._queue[0]
            if self._tasks and (alone or len(self._tasks) >= self._at_once):
                return
            self._queue.popleft()
            self._inputs -= inputs
            left -= 1 + inputs // INPUTS_OF_ONE
            coroutine = work()
            if coroutine is not None:
                self._one_is_alone = alone
                task = loop.create_task(self._run(coroutine))
                self._tasks[task] = coroutine
                task.add_done_callback(self._done)
        if self._next_turn is None:
            self._next_turn = loop.call_soon(self._start_more)

    def _start_more(self) -> None:
        self._next_turn = None
        self._go_on(None)

    async def _run(self, coroutine: Coroutine[Any, Any, None]) -> None:
        try:
            async with asyncio.timeout(self._deadline_s):
                await coroutine
        except TimeoutError as error:
            text = f"no answer from the cluster in {self._deadline_s:g} s"
            raise ProtocolFault(FaultCode.TIMEOUT, text, "retry") from error

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task).close()  # cancelled before its first step, it would complain
        self._one_is_alone = False
        self._go_on(None if task.cancelled() else task.exception())

    def _go_on(self, error: BaseException | None) -> None:
        try:
            if isinstance(error, Exception):
                raise error
            self._start()
        except Exception as failure:  # noqa: BLE001 - the seam: its user ends the connection
            self._on_error(failure)
