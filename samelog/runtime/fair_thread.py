"""One thread for work of clients that is too long for a turn of the event loop.

Clients have it by turns, whatever each of them asks for. Who has had work refused waits before its
next, a second or `PAUSES` times as long as that work took: on however many connections it comes,
work for nothing gets a tenth of the thread at most, and seldom has the interpreter change hands.

Invariant: one piece of work is under way at a time; each is done once, or its caller is cancelled.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")

PAUSES = 9
PAUSE_S = 1.0
"""At least."""


class FairThread:
    """Of one event loop. The thread starts with the first piece of work."""

    def __init__(self, name: str) -> None:
        self._executor = ThreadPoolExecutor(1, name)
        self._waiting: OrderedDict[Hashable, deque[asyncio.Future[None]]] = OrderedDict()
        """Who waits for the thread, who had it longest ago first."""
        self.paused: dict[Hashable, float] = {}
        """Clients that had work refused lately -> loop time from which they are served again."""
        self._is_busy = False
        self._timer: asyncio.TimerHandle | None = None

    def is_paused(self, who: Hashable) -> bool:
        """Whether somebody has had work refused lately."""
        at = self.paused.get(who)
        return at is not None and at > asyncio.get_running_loop().time()

    async def run(self, who: Hashable, work: Callable[[], T], is_refused: Callable[[T], bool]) -> T:
        """What `work` returns; nothing of the event loop's may be touched in it."""
        await self._wait(who)
        loop = asyncio.get_running_loop()
        try:
            result, spent_s = await loop.run_in_executor(self._executor, _timed, work)
            if is_refused(result):
                self.paused[who] = loop.time() + max(PAUSE_S, PAUSES * spent_s)
            return result
        finally:
            self._is_busy = False
            self._next()

    async def _wait(self, who: Hashable) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(who, deque()).append(turn)
        self._next()
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # it was this one's turn already
                self._is_busy = False
                self._next()
            raise

    def _next(self) -> None:
        """Give the thread to the next one that may have it."""
        if self._is_busy:
            return
        now = asyncio.get_running_loop().time()
        self.paused = {who: at for who, at in self.paused.items() if at > now}
        for who in tuple(self._waiting):
            if who not in self.paused and self._give(who):
                return
        if self._waiting:
            self._look_again(min(self.paused[who] for who in self._waiting))

    def _give(self, who: Hashable) -> bool:
        """False if nobody waits any more."""
        queue = self._waiting.pop(who)
        while queue and queue[0].done():
            queue.popleft()
        if not queue:
            return False
        self._is_busy = True
        queue.popleft().set_result(None)
        if queue:
            self._waiting[who] = queue
        return True

    def _look_again(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_at(at, self._next)


def _timed(work: Callable[[], T]) -> tuple[T, float]:
    """What `work` returns, and the seconds of processor time that it took."""
    begun = time.thread_time()
    return work(), time.thread_time() - begun
