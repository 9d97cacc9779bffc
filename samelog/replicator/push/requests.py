"""Runs a connection's requests that must wait for the cluster, in bounds and in order.

A request either goes alongside others of its kind, or alone: then all before it are done when it
starts, and none after it starts before it is done. Nothing is a task of its own unless it waits.

Invariant: at most `at_once` requests run, at most `queued` wait; after `close` none runs.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any

from samelog.wire.errors import FaultCode, ProtocolFault

Work = Callable[[], "Coroutine[Any, Any, None] | None"]
"""Does the request at once (None), or returns what does it."""


class Requests:
    """The requests of one connection; what one of them raises goes to `on_error`."""

    def __init__(
        self,
        on_error: Callable[[Exception], None],
        *,
        at_once: int = 16,
        queued: int = 8192,
        deadline_s: float = 60.0,
    ) -> None:
        self._on_error = on_error
        self._at_once = at_once
        self._queued = queued
        self._deadline_s = deadline_s
        self._queue: deque[tuple[Work, bool]] = deque()
        self._tasks: dict[asyncio.Task[None], Coroutine[Any, Any, None]] = {}
        self._one_is_alone = False

    def add(self, work: Work, *, alone: bool) -> None:
        """Take a request. Raises ProtocolFault (TOO_MANY)."""
        if len(self._queue) >= self._queued:
            text = f"more than {self._queued} requests at once"
            raise ProtocolFault(FaultCode.TOO_MANY, text, "wait for answers")
        self._queue.append((work, alone))
        self._start()

    def close(self) -> None:
        """Drop what waits, cancel what runs."""
        self._queue.clear()
        for task in self._tasks:
            task.cancel()

    def _start(self) -> None:
        while self._queue and not self._one_is_alone:
            work, alone = self._queue[0]
            if self._tasks and (alone or len(self._tasks) >= self._at_once):
                return
            self._queue.popleft()
            coroutine = work()
            if coroutine is not None:
                self._one_is_alone = alone
                task = asyncio.get_running_loop().create_task(self._run(coroutine))
                self._tasks[task] = coroutine
                task.add_done_callback(self._done)

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
        error = None if task.cancelled() else task.exception()
        try:
            if isinstance(error, Exception):
                raise error
            self._start()
        except Exception as failure:  # noqa: BLE001 - the seam: its user ends the connection
            self._on_error(failure)
