"""What a node does all the time, whoever leads: it ticks its replica, looks at its disk, its
directory and its certificates.

Invariant: nothing here waits for a disk or a peer.
"""

from __future__ import annotations

from typing import Protocol

from samelog.runtime.clock import Clock
from samelog.runtime.counters import Histogram
from samelog.runtime.loop import InLoop

TICK_S = 0.05
CHANGES_INTERVAL_S = 0.25
SLOW_INTERVAL_S = 1.0


class Ticked(Protocol):
    """Something that is told that time passes."""

    def tick(self) -> None:
        """To be called every TICK_S."""

    def loop_delayed(self, by_s: float) -> None:
        """The event loop came so late to a tick: told before it."""

    def tick_membership(self) -> None:
        """To be called every CHANGES_INTERVAL_S."""

    def tick_slowly(self) -> None:
        """To be called every SLOW_INTERVAL_S."""


class Housekeeper(InLoop):
    """One node's clockwork."""

    def __init__(self, ticked: Ticked, clock: Clock, loop_delay: Histogram) -> None:
        self._ticked = ticked
        self._clock = clock
        self._loop_delay = loop_delay

    async def run(self) -> None:
        """Until cancelled."""
        now = self._clock.now
        next_changes, next_slow = now(), now() + SLOW_INTERVAL_S
        while True:
            due = now() + TICK_S
            await self.pause(TICK_S)
            late_s = max(0.0, now() - due)
            self._loop_delay.observe(late_s)
            self._ticked.loop_delayed(late_s)
            self._ticked.tick()
            at = now()
            if at >= next_changes:
                next_changes = at + CHANGES_INTERVAL_S
                self._ticked.tick_membership()
            if at >= next_slow:
                next_slow = at + SLOW_INTERVAL_S
                self._ticked.tick_slowly()
