"""Runs long work of clients in slices, so that no turn of an event loop takes long.

A slice lasts about a millisecond. After it the loop serves everything else for as long again, and
then the next client has a slice: all long work together gets half of the loop at most, however many
requests and connections it comes from. Work that never ends gets a fifth of it: a client that sends
long requests without a pause leaves the processor to others.

`paced` runs long work that consists of steps; a coroutine calls `give_way` between its own.

Invariant: between two turns of the loop long work runs for one slice and one step at most; clients
that wait for a slice get it in turn.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Coroutine, Hashable
from contextvars import Context, ContextVar, copy_context
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from samelog.format.steps import StepWork

T = TypeVar("T")

SLICE_S = 0.001
PAUSE_S = 0.001
LONG_PAUSE_S = 0.004
CONTINUOUS_S = 0.25
"""Once there has been long work for that time, without a pause, its own pauses are long ones."""

_client: ContextVar[Hashable] = ContextVar("client", default=None)


class Slices:
    """The slices of one event loop."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self.now = now
        """A clock that moves within a turn, which the event loop's own does not."""
        self._over_at = 0.0
        self._since = 0.0
        """Since when there has been long work without a pause."""
        self._pausing: asyncio.TimerHandle | None = None
        self._waiting: OrderedDict[Hashable, deque[asyncio.Future[None]]] = OrderedDict()
        """By client; the client that had a slice longest ago comes first."""

    @property
    def is_over(self) -> bool:
        """Whether the present slice is over, or none has begun."""
        return self.now() >= self._over_at

    async def next(self) -> None:
        """Wait for the next slice of this task's client."""
        if self._pausing is None:
            self._since = self.now()
            self._begin()
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(_client.get(), deque()).append(turn)
        await turn

    def _begin(self) -> None:
        now = self.now()
        self._over_at = now + SLICE_S
        pause_s = PAUSE_S if now < self._since + CONTINUOUS_S else LONG_PAUSE_S
        self._pausing = asyncio.get_running_loop().call_later(SLICE_S + pause_s, self._grant)

    def _grant(self) -> None:
        """Give the next slice to the client whose turn it is."""
        self._pausing = None
        while self._waiting:
            client, queue = self._waiting.popitem(last=False)
            while queue and queue[0].done():  # its task was cancelled
                queue.popleft()
            if queue:
                turn = queue.popleft()
                if queue:
                    self._waiting[client] = queue
                self._begin()
                turn.set_result(None)
                return


_slices: WeakKeyDictionary[asyncio.AbstractEventLoop, Slices] = WeakKeyDictionary()


def slices() -> Slices:
    """Of the running event loop."""
    loop = asyncio.get_running_loop()
    found = _slices.get(loop)
    if found is None:
        found = _slices[loop] = Slices()
    return found


def context_of(client: Hashable) -> Context:
    """A context for a task that works for this client."""
    context = copy_context()
    context.run(_client.set, client)
    return context


def work_for(client: Hashable) -> None:
    """Have the present task work for this client from now on."""
    _client.set(client)


async def paced(steps: StepWork[T]) -> T:
    """Run long work in slices."""
    shared = slices()
    while True:
        if shared.is_over:
            await shared.next()
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result


async def give_way() -> None:
    """Wait for the next slice if the present one is over."""
    shared = slices()
    if shared.is_over:
        await shared.next()


def in_background(work: Coroutine[Any, Any, T]) -> asyncio.Future[T]:
    """Return a future for the result of background work; cancelling it cancels the work."""
    loop = asyncio.get_running_loop()
    task, result = loop.create_task(work), loop.create_future()

    def done(_: asyncio.Task[T]) -> None:
        if result.done():
            return
        if task.cancelled():
            result.cancel()
        elif (error := task.exception()) is not None:
            result.set_exception(error)
        else:
            result.set_result(task.result())

    task.add_done_callback(done)
    result.add_done_callback(lambda _: task.cancel())
    return result
