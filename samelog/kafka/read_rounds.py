"""Confirms what is committed, once for all who ask within one turn of the event loop.

Asking the cluster takes messages to a majority and back: that is done for many as for one, and who
waits for it costs neither a task nor a timer.

Invariant: whoever is told was there before the round began that it is told of.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from samelog.kafka.codec.errors import ApiError
from samelog.runtime.loop import spawn

TURN_S = 0.001
Told: TypeAlias = Callable[[ApiError | None], None]
"""Called with why it cannot be told what is committed, None if it is known."""


class ReadRounds:
    """Of one broker."""

    def __init__(self, catch_up: Callable[[], Awaitable[None]]) -> None:
        """`catch_up` waits until what was committed before is known here, or raises ApiError."""
        self._catch_up = catch_up
        self._waiting: list[Told] = []
        self._is_running = False

    def join(self, told: Told) -> None:
        """Have `told` called behind a round that begins later than now."""
        self._waiting.append(told)
        if not self._is_running:
            self._is_running = True
            spawn(self._run(), "read rounds")

    async def _run(self) -> None:
        try:
            while self._waiting:
                waiting, self._waiting = self._waiting, []
                await self._tell(waiting, await self._round())
        finally:
            self._is_running = False

    async def _round(self) -> ApiError | None:
        try:
            await self._catch_up()
        except ApiError as error:
            return error
        return None

    async def _tell(self, waiting: list[Told], error: ApiError | None) -> None:
        """Others have their turn of the event loop after every millisecond."""
        over_at = time.monotonic() + TURN_S
        for told in waiting:
            told(error)
            if time.monotonic() >= over_at:
                await asyncio.sleep(0)
                over_at = time.monotonic() + TURN_S
