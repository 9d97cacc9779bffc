"""The tasks of one node: as long as it runs, none of them may end with an error.

Invariant: the first error of any task, or of whoever reports one, ends the node.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from samelog.runtime.loop import end_all


class Tasks:
    """Made outside the event loop, used in it."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[None]] = set()
        self._failed: asyncio.Future[None] | None = None

    def begin(self) -> None:
        """Report errors of tasks from now on."""
        self._failed = asyncio.get_running_loop().create_future()

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run it until it ends, or until `cancel`."""
        task = asyncio.create_task(work)
        task.add_done_callback(self._done)
        self._running.add(task)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self.fail(error)

    def fail(self, error: BaseException) -> None:
        """The node has met an error it was not made for."""
        if self._failed is not None and not self._failed.done():
            self._failed.set_exception(error)

    async def wait_failure(self) -> None:
        """Wait for the first error, and raise it."""
        if self._failed is not None:
            await self._failed

    async def cancel(self) -> None:
        """Cancel all tasks."""
        await end_all(self._running)
