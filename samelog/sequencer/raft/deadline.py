"""The timer of one Raft core: it calls when the core has something to do, and sleeps between.

Invariant: while it runs, no deadline of the core passes without a call; a core without a deadline
has no timer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import inf

from samelog.consensus import Raft
from samelog.runtime.clock import Clock

SHORTEST_S = 0.002
"""Deadlines are kept no more exactly than this."""


class DeadlineTimer:
    """Calls `tick(late_s)`, which may have it begin again."""

    def __init__(self, raft: Raft, clock: Clock, tick: Callable[[float], None]) -> None:
        self._raft = raft
        self._clock = clock
        self._tick = tick
        self._handle: asyncio.TimerHandle | None = None
        self._at = -inf
        """When it calls; minus infinity: it does not run."""

    def begin(self) -> None:
        """Call at the core's deadline, from now on."""
        self.end()
        self._at = self._raft.next_deadline()
        if self._at < inf:
            delay = max(SHORTEST_S, self._at - self._clock.now())
            self._handle = asyncio.get_running_loop().call_later(delay, self._call)

    def look(self) -> None:
        """The core may have an earlier deadline now."""
        if self._raft.next_deadline() < self._at:
            self.begin()

    def end(self) -> None:
        """Call no more."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        self._at = -inf

    def _call(self) -> None:
        self._handle, at = None, self._at
        self._tick(max(0.0, self._clock.now() - at))
