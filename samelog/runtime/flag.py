"""A flag that tasks wait for, as asyncio's Event, which keeps a kilobyte of memory while nobody
waits: a node has some of them for each group.

Invariant: whoever waits goes on once the flag is set, though it may be cleared before its turn.
"""

from __future__ import annotations

import asyncio


class Flag:
    """Used in one event loop."""

    __slots__ = ("_is_set", "_waiters")

    def __init__(self, *, is_set: bool = False) -> None:
        self._is_set = is_set
        self._waiters: list[asyncio.Future[None]] | None = None

    def is_set(self) -> bool:
        """Whether nobody has to wait."""
        return self._is_set

    def set(self) -> None:
        """Let all go on who wait, and who will."""
        self._is_set = True
        for waiter in self._waiters or ():
            if not waiter.done():
                waiter.set_result(None)

    def clear(self) -> None:
        """Who comes from now on waits."""
        self._is_set = False

    async def wait(self) -> None:
        """Return once it is set."""
        if self._is_set:
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters = [*(self._waiters or ()), waiter]
        try:
            await waiter
        finally:
            left = [each for each in self._waiters if each is not waiter]
            self._waiters = left or None
