"""Writes a small file durably while the event loop goes on.

Invariant: two threads never write the same file, and each write is finished once it has begun.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

_Value = TypeVar("_Value")


class FileWriter:
    """Of one file. To be used in one event loop only."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._writes: set[asyncio.Task[Any]] = set()
        """Those that wait for their turn, too."""

    @property
    def is_busy(self) -> bool:
        """Whether a write is under way."""
        return bool(self._writes)

    async def run(self, write: Callable[[], Coroutine[Any, Any, _Value]]) -> _Value:
        """Await `write()` after all earlier ones, and to its end even if the caller is cancelled.
        If the loop ends before its turn, it is not called.
        """

        async def in_turn() -> _Value:
            async with self._lock:
                return await write()

        task = asyncio.get_running_loop().create_task(in_turn())
        self._writes.add(task)
        task.add_done_callback(self._writes.discard)
        return await asyncio.shield(task)

    async def finish(self) -> None:
        """Wait until every write is finished."""
        while self._writes:
            await asyncio.wait(self._writes)
