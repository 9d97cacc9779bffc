"""Writes a small file durably while the event loop goes on.

Invariant: two threads never write the same file, and each write is finished once it has begun.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

_Value = TypeVar("_Value")


class FileWriter:
    """Of one file. To be used in one event loop only."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()

    @property
    def is_busy(self) -> bool:
        """Whether a write is under way."""
        return self._lock.locked()

    async def run(self, work: Coroutine[Any, Any, _Value]) -> _Value:
        """Await `work` after all earlier ones, and to its end even if the caller is cancelled."""

        async def in_turn() -> _Value:
            async with self._lock:
                return await work

        return await asyncio.shield(asyncio.ensure_future(in_turn()))

    async def finish(self) -> None:
        """Wait until every write that has begun is finished."""
        async with self._lock:
            pass
