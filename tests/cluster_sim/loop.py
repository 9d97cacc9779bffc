"""An event loop whose time is simulated: when nothing is left to do, it is the next timer's time.

Everything that runs belongs to a process of the simulated world; what a handle, task or timer
starts belongs to the same one. So a process can be killed between any two steps: its handles just
never run again, like those of a process that is gone.

Invariant: the order of steps depends on nothing but the calls made; nothing real is waited for.
"""

from __future__ import annotations

import asyncio
import contextvars
from asyncio.futures import _set_result_unless_cancelled  # type: ignore[attr-defined]
from collections import deque
from collections.abc import Callable, Coroutine
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any

from samelog.runtime.loop import is_abandoned
from tests.cluster_sim.process import Process, ProcessDied
from tests.executor import execute

if TYPE_CHECKING:
    from tests.cluster_sim.network import Network

STEP_S = 20e-6
"""What looking at a clock twice within one step is apart."""
EXECUTOR_S = 0.0005


class Handle(asyncio.TimerHandle):
    """A callback, and whose it is."""

    __slots__ = ("process",)

    def __init__(  # never the parent's: that one costs as much as running the callback
        self,
        when: float,
        callback: Callable[..., object],
        args: tuple[object, ...],
        context: contextvars.Context,
        process: Process,
    ) -> None:
        self._when = when
        self._callback = callback
        self._args = args
        self._context = context
        self._cancelled = False
        self.process = process

    def cancel(self) -> None:
        """Never run it."""
        self._cancelled = True
        self._callback = _nothing
        self._args = ()

    def cancelled(self) -> bool:
        return self._cancelled

    def when(self) -> float:
        return self._when


def _nothing() -> None:
    """What a cancelled handle holds."""


class SimLoop(asyncio.AbstractEventLoop):
    """The loop of one world."""

    def __init__(self, on_error: Callable[[Process, dict[str, Any]], None]) -> None:
        self.current = self.outside = Process("world", "world")
        self.steps = 0
        self.network: Network
        self._now = 0.0
        self._looks = 0
        self._ready: deque[Handle] = deque()
        self._timers: list[tuple[float, int, Handle]] = []
        self._sequence = 0
        self._on_error = on_error
        self._over = False
        self._owners: dict[int, Process] = {}
        """Processes of tasks, by the tasks' ids, of which later tasks may have the same."""

    # --- running ----------------------------------------------------------------------------------

    def run_until(self, end: float, after_step: Callable[[Process], bool]) -> bool:
        """Run steps until `after_step` says so (True) or it is `end` (False).

        A step that only wakes a sleeper is not looked at: what that one does is the next step.
        """
        asyncio._set_running_loop(self)
        ready = self._ready
        try:
            while ready or self._ring(end):
                handle = ready.popleft()
                process = handle.process
                if handle._cancelled or not process.is_alive:
                    continue
                if process.is_paused:
                    process.backlog.append(handle)
                    continue
                self.current = process
                callback = handle._callback
                self.steps += 1
                self._looks = 0
                try:
                    handle._context.run(callback, *handle._args)
                except ProcessDied:
                    pass
                except Exception as error:  # noqa: BLE001 - the seam: as asyncio's own loop does it
                    self._on_error(process, {"message": f"{callback!r} failed", "exception": error})
                if callback is not _set_result_unless_cancelled and after_step(process):
                    return True
            self._now = max(self._now, end)
            return False
        finally:
            asyncio._set_running_loop(None)
            self.current = self.outside

    def _ring(self, end: float) -> bool:
        """Make the next timer's handle ready; time moves to it. False: there is none before
        `end`.
        """
        timers = self._timers
        if not timers or timers[0][0] > end:
            return False
        when, _, handle = heappop(timers)
        self._now = max(self._now, when)
        self._ready.append(handle)
        return True

    def resume(self, process: Process) -> None:
        """Let a paused process go on: everything that it missed is due now."""
        process.is_paused = False
        self._ready.extend(process.backlog)
        process.backlog.clear()

    def close_world(self, tasks: list[asyncio.Task[Any]]) -> None:
        """Let go of everything: no coroutine may wake up when it is collected."""
        self._over = True
        for task in tasks:
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            coroutine = task.get_coro()
            try:
                if coroutine is not None:
                    coroutine.close()
            except (Exception, ProcessDied):  # noqa: BLE001 - it may end as it likes
                continue
        self._ready.clear()
        self._timers.clear()

    # --- what asyncio asks of a loop --------------------------------------------------------------

    def time(self) -> float:
        """Simulated seconds."""
        return self._now

    def looked(self) -> float:
        """The time as a clock shows it: it moves a little with every look within a step."""
        self._looks += 1
        return self._now + self._looks * STEP_S

    def call_soon(  # type: ignore[override]
        self,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        context = contextvars.copy_context() if context is None else context
        handle = Handle(self._now, callback, args, context, self.current)
        self._ready.append(handle)
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        context = contextvars.copy_context() if context is None else context
        handle = Handle(when, callback, args, context, self.current)
        self._sequence += 1
        heappush(self._timers, (when, self._sequence, handle))
        return handle

    def call_later(  # type: ignore[override]
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        when = self._now + self._looks * STEP_S  # as late as the caller saw that it is
        return self.call_at(when + delay if delay > 0 else when, callback, *args, context=context)

    def call_in(
        self, process: Process, delay: float, callback: Callable[..., object], *args: Any
    ) -> Handle:
        """Have another process do something: what the network and the world do."""
        when = self._now + delay
        handle = Handle(when, callback, args, contextvars.copy_context(), process)
        self._sequence += 1
        heappush(self._timers, (when, self._sequence, handle))
        return handle

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(  # type: ignore[override]
        self,
        coro: Coroutine[Any, Any, Any],
        *,
        name: str | None = None,
        context: contextvars.Context | None = None,
    ) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.Task(coro, loop=self, name=name, context=context)
        self.current.tasks.append(task)
        self._owners[id(task)] = self.current
        return task

    def run_in_executor(  # type: ignore[override]
        self, executor: object, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """Do it a moment later, in one go: what a thread does may end before or after others."""
        future = self.create_future()
        delay = EXECUTOR_S * self.current.chance.uniform(0.1, 4)
        self.call_later(delay, execute, future, func, args)
        return future

    async def create_connection(self, factory: Any, host: str, port: int) -> Any:  # type: ignore[override]
        return await self.network.connect(self.current, factory, (host, port))

    async def create_server(  # type: ignore[override]
        self, factory: Any, host: str, port: int, *, backlog: int
    ) -> Any:
        return self.network.listen(self.current, factory, (host, port))

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """As the handler of a node: the outcome of an abandoned wait is no error."""
        if self._over or is_abandoned(context):
            return
        failed = context.get("future")  # a task, whose error no code has retrieved
        self._on_error(self.current if failed is None else self._owners[id(failed)], context)

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return self._over
