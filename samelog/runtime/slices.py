"""Runs long work of clients in slices, so that no turn of an event loop takes long.

A slice lasts about a millisecond. After it the loop serves everything else for as long again, and
then the next client has a slice: all long work together gets half of the loop at most, however many
requests and connections it comes from. Work that never ends gets a fifth of it: a client that sends
long requests without a pause leaves the processor to others.

`paced` runs long work that consists of steps; a coroutine calls `give_way` between its own;
`in_slice` makes a call.

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
_Queues = OrderedDict[Hashable, deque["asyncio.Future[None]"]]
"""By client; the client that had a slice longest ago comes first."""

SLICE_S = 0.001
PAUSE_S = 0.001
LONG_PAUSE_S = 0.004
CONTINUOUS_S = 0.25
"""Once there has been long work for that time, without a pause, its own pauses are long ones."""

_client: ContextVar[Hashable] = ContextVar("client", default=None)


class Slices:
    """The slices of one event loop."""

    def __init__(self) -> None:
        self.now: Callable[[], float] = time.monotonic
        """A clock that moves within a turn, which the event loop's own does not."""
        self._over_at = 0.0
        self._since = 0.0
        """Since when there has been long work without a pause."""
        self._pausing: asyncio.TimerHandle | None = None
        self._waiting: tuple[_Queues, _Queues] = OrderedDict(), OrderedDict()
        """Of ordinary clients, and of preferred ones, who have every second slice at most."""
        self._was_preferred = False
        """Whether a preferred client had the last slice."""

    @property
    def is_over(self) -> bool:
        """Whether the present slice is over, or none has begun."""
        return self.now() >= self._over_at

    def may_work(self) -> bool:
        """Return whether the present slice is not over; begin one if no client has to wait."""
        if self._pausing is None:
            self._since = self.now()
            self._begin()
            return True
        return not self.is_over

    def wait(self, client: Hashable, *, preferred: bool = False) -> asyncio.Future[None]:
        """Return a future that is done when the client's slice begins."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[preferred].setdefault(client, deque()).append(turn)
        return turn

    async def next(self) -> None:
        """Wait for the next slice of this task's client."""
        if self._pausing is None:
            self.may_work()
        else:
            await self.wait(_client.get())

    def _begin(self) -> None:
        now = self.now()
        self._over_at = now + SLICE_S
        pause_s = PAUSE_S if now < self._since + CONTINUOUS_S else LONG_PAUSE_S
        self._pausing = asyncio.get_running_loop().call_later(SLICE_S + pause_s, self._grant)

    def _grant(self) -> None:
        """Give the next slice to the client whose turn it is."""
        self._pausing = None
        turn = self._next_turn()
        if turn is not None:
            self._begin()
            turn.set_result(None)

    def pass_on(self) -> None:
        """Give the rest of the present slice to the next client."""
        turn = None if self.is_over else self._next_turn()
        if turn is not None:
            turn.set_result(None)

    def _next_turn(self) -> asyncio.Future[None] | None:
        for preferred in (not self._was_preferred, self._was_preferred):
            turn = _next_of(self._waiting[preferred])
            if turn is not None:
                self._was_preferred = preferred
                return turn
        return None


def _next_of(queues: _Queues) -> asyncio.Future[None] | None:
    """Take the turn of the client that had one longest ago."""
    while queues:
        client, queue = queues.popitem(last=False)
        while queue and queue[0].done():  # its task was cancelled
            queue.popleft()
        if queue:
            turn = queue.popleft()
            if queue:
                queues[client] = queue
            return turn
    return None


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


def in_slice(client: Hashable, work: Callable[[], None], *, preferred: bool = False) -> None:
    """Call `work` in a slice of this client, at once if it need not wait."""
    shared = slices()

    def begin(_: asyncio.Future[None]) -> None:
        work()
        shared.pass_on()

    if shared.may_work():
        work()
    else:
        shared.wait(client, preferred=preferred).add_done_callback(begin)


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
