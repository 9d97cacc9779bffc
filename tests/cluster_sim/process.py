"""One process of the simulated world: what may be killed, paused, and crash between two effects.

Invariant: a dead process has no further effect on anything.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.cluster_sim.loop import Handle


class ProcessDied(BaseException):
    """The process ended in the middle of what it was doing; nothing of it may catch that."""


def _nothing() -> None:
    """What the world's own process is looked at for."""


class Process:
    """`host` is the simulated machine it runs on."""

    def __init__(self, name: str, host: str, *, seed: int = 0) -> None:
        self.name = name
        self.look: Callable[[], None] = _nothing
        """Whether all is as it must be, after a step. Raises Violation."""
        self.host = host
        self.chance = random.Random(f"{name} {seed}")
        self.is_alive = True
        self.is_paused = False
        self.backlog: deque[Handle] = deque()
        self.tasks: list[asyncio.Task[Any]] = []
        self._failed: set[asyncio.Task[Any]] = set()
        """Tasks that ended with an error that no code had retrieved at the last look."""
        self.fuse: int | None = None
        """How many effects it has left before it dies, if that is set."""
        self.on_fuse: Callable[[], None] = lambda: None
        """Kills it."""

    def lost_error(self) -> BaseException | None:
        """Return an error that ended a task and that no code has retrieved since the last call, or
        None. Such an error stops a real node. Forgets tasks that are done.
        """
        known = self._failed
        self.tasks = [task for task in self.tasks if not task.done() or task._log_traceback]  # type: ignore[attr-defined]
        self._failed = {task for task in self.tasks if task.done()}
        lost = next(iter(known & self._failed), None)
        return None if lost is None else lost.exception()

    def effect(self) -> None:
        """To be called around everything that others can see. Raises ProcessDied."""
        if not self.is_alive:
            raise ProcessDied
        if self.fuse is None:
            return
        self.fuse -= 1
        if self.fuse <= 0:
            self.fuse = None
            self.on_fuse()
            raise ProcessDied
