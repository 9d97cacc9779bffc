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
        self.fuse: int | None = None
        """How many effects it has left before it dies, if that is set."""
        self.on_fuse: Callable[[], None] = lambda: None
        """Kills it."""

    def forget_done(self) -> None:
        """Forget tasks that are done. An error that no code has retrieved is reported when the last
        reference to its task goes, as by a real loop.
        """
        self.tasks = [task for task in self.tasks if not task.done()]

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
