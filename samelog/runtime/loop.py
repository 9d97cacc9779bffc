"""Event loops: uvloop, of a process or in a thread; what happens to errors that nobody waits for.

A broken invariant ends the process at once: its memory cannot be trusted any more, its files can,
so it starts again from them. Everything else that nobody waits for is logged with its traceback: a
defect to be mended.

Invariant: no InvariantError is survived, wherever in the loop it came up.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import logging
import os
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping
from functools import cached_property
from typing import Any, TypeVar

import uvloop

from samelog.format.errors import InvariantError

log = logging.getLogger(__name__)

EXIT_SOFTWARE = 70
"""sysexits(3): an internal error."""

KEPT_BLOCK_BYTES = 16 << 20
KEPT_TOTAL_BYTES = 64 << 20
_M_TRIM_THRESHOLD = -1  # mallopt(3)
_M_MMAP_THRESHOLD = -3

YOUNG_OBJECTS = 10_000
"""So many new containers before the collector looks at them: a node makes hundreds per request,
nearly all freed by their counts alone.
"""

T = TypeVar("T")


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run `main` on a uvloop event loop until it returns."""
    keep_freed_memory()
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(_guarded(main))


def new_event_loop() -> asyncio.AbstractEventLoop:
    """An event loop that ends the process on a broken invariant; also for loops in threads."""
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    loop.set_exception_handler(handle_exception)
    return loop


def keep_freed_memory() -> None:
    """Have the C library keep freed blocks of up to some MiB for the next use.

    By default glibc returns them to the kernel at once and gets them back zeroed, page by page:
    for data that passes through in pieces of 64 KiB and more, that was a quarter of the CPU time of
    sending. Does nothing where there is no mallopt.
    """
    library = ctypes.CDLL(None)
    if hasattr(library, "mallopt"):
        library.mallopt(_M_MMAP_THRESHOLD, KEPT_BLOCK_BYTES)
        library.mallopt(_M_TRIM_THRESHOLD, KEPT_TOTAL_BYTES)


def spawn(coroutine: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
    """Start a task in the background. If it fails, its error is reported at once."""
    task = asyncio.get_running_loop().create_task(coroutine, name=name)
    task.add_done_callback(_report_failure)
    return task


async def end_all(tasks: Iterable[asyncio.Task[None]]) -> None:
    """Cancel tasks, and wait until they have ended."""
    ending = list(tasks)
    for task in ending:
        task.cancel()
    await asyncio.gather(*ending, return_exceptions=True)


def handle_exception(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """The loop's exception handler."""
    error = context.get("exception")
    message = context.get("message", "unhandled error in the event loop")
    if isinstance(error, InvariantError):
        crash(error)
    if is_abandoned(context):
        log.info("a wait was cancelled in the turn in which it failed: %s", error)
        return
    log.error("%s", message, exc_info=error)


def is_abandoned(context: Mapping[str, Any]) -> bool:
    """Return whether an unhandled error is the outcome of a future whose waiter was cancelled. No
    code stopped halfway then; an error that ended a task is another matter.
    """
    future = context.get("future")
    return isinstance(future, asyncio.Future) and not isinstance(future, asyncio.Task)


def crash(error: InvariantError, leave: Callable[[int], object] = os._exit) -> None:
    """Say why, then end the process without running anything else of it."""
    log.critical("a broken invariant ends this process: %s", error, exc_info=error)
    for handler in logging.getLogger().handlers:
        handler.flush()
    leave(EXIT_SOFTWARE)


async def _guarded(main: Coroutine[Any, Any, T]) -> T:
    """A broken invariant must not unwind through cleanup code that writes files."""
    try:
        return await main
    except InvariantError as error:
        crash(error)
        raise


def _report_failure(task: asyncio.Task[None]) -> None:
    if task.cancelled():
        return
    error = task.exception()
    if error is not None:
        context = {"message": f"task {task.get_name()} failed", "exception": error, "task": task}
        task.get_loop().call_exception_handler(context)


def settle_heap() -> None:
    """Have the garbage collector never look again at what is there now.

    Once a process has started, that is modules and schemas, which stay. Going through them takes
    tens of milliseconds, in which nobody is served; it was a sixth of the CPU time of a node that
    Kafka clients produce through.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS)


def _wake(sleeper: asyncio.Future[None]) -> None:
    if not sleeper.done():
        sleeper.set_result(None)


class InLoop:
    """Runs in one event loop, which it looks up once: Python 3.11 makes a system call for each
    `asyncio.get_running_loop`.
    """

    @cached_property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop that runs when this is asked first."""
        return asyncio.get_running_loop()

    async def pause(self, delay_s: float) -> None:
        """Sleep as `asyncio.sleep` does, which looks the loop up each time."""
        woken = self.loop.create_future()
        timer = self.loop.call_later(delay_s, _wake, woken)
        try:
            await woken
        finally:
            timer.cancel()


class LoopThread:
    """A running event loop in a thread, for libraries inside programs that have none. Coroutines
    run in its thread only; `run` and `stop` are for other threads; after `stop` nothing runs.
    """

    def __init__(self, name: str) -> None:
        self._loop = new_event_loop()
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the loop, and wait for what it returns or raises."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def soon(self, call: Callable[[], None]) -> None:
        """Have the loop call this soon, without waiting for it."""
        self._loop.call_soon_threadsafe(call)

    def stop(self) -> None:
        """Cancel what still runs, end the loop and wait for its thread."""
        self.run(_cancel_others())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class LoopThreads:
    """At most `most` LoopThreads for all of a process that use this: each is begun by its first
    user and stopped after its last. Any thread may call; a forked child begins with none.
    """

    def __init__(self, name: str, most: int = 4) -> None:
        self._name = name
        self._most = most
        self._forget()
        os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        self._lock = threading.Lock()
        self._users: dict[LoopThread, int] = {}

    def take(self) -> LoopThread:
        """The thread that the fewest use, or a new one; `give_back` it."""
        with self._lock:
            if len(self._users) < self._most:
                chosen = LoopThread(self._name)
            else:
                chosen = min(self._users, key=self._users.__getitem__)
            self._users[chosen] = self._users.get(chosen, 0) + 1
            return chosen

    def give_back(self, thread: LoopThread) -> None:
        """Use it no more; nothing of the user runs in it."""
        with self._lock:
            self._users[thread] -= 1
            is_unused = not self._users[thread]
            if is_unused:
                del self._users[thread]
        if is_unused:
            thread.stop()


async def _cancel_others() -> None:
    await end_all(task for task in asyncio.all_tasks() if task is not asyncio.current_task())
