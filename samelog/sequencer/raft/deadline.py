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
from samelog.runtime.loop import InLoop

SHORTEST_S = 0.002
"""Deadlines are kept no more exactly than this."""


class DeadlineTimer(InLoop):
    """Calls `tick(late_s)`, which may have it begin again."""

    def __init__(self, raft: Raft, clock: Clock, tick: Callable[[float], None]) -> None:
        self._raft = raft
        self._clock = clock
        self._tick = tick
        self._handle: asyncio.TimerHandle | None = None
        self.at = -inf
        """When it calls; minus infinity: it does not run. If the core has an earlier deadline by
        then, it is to begin again.
        """

    def begin(self) -> None:
        """Call at the core's deadline, from now on."""
        self.end()
        self.at = self._raft.next_deadline()
        if self.at < inf:
            delay = max(SHORTEST_S, self.at - self._clock.now())
            self._handle = self.loop.call_later(delay, self._call)

    def end(self) -> None:
        """Call no more."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        self.at = -inf

    def _call(self) -> None:
        self._handle, at = None, self.at
        self._tick(max(0.0, self._clock.now() - at))
