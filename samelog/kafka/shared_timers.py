"""Calls what has not been done in time: one timer for all that is due at about the same moment.

Nearly all of it is done long before: a timer for each would cost more than what is waited for.

Invariant: nothing is called before its time, nor later than a tick behind it, nor when cancelled.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from samelog.runtime.loop import InLoop

TICK_S = 0.05


class SharedTimer(msgspec.Struct, frozen=True, eq=False):
    """A timer that is due with `others`, until it is called or cancelled."""

    call: Callable[[], None]
    others: set[SharedTimer]

    def cancel(self) -> None:
        """Remove the timer; does nothing if it was called or cancelled."""
        self.others.discard(self)

    def pass_(self) -> None:
        """Call it, unless it was cancelled meanwhile."""
        if self in self.others:
            self.cancel()
            self.call()


class SharedTimers(InLoop):
    """Of one event loop."""

    def __init__(self) -> None:
        self._ticks: dict[int, set[SharedTimer]] = {}

    def add(self, after_ms: int, call: Callable[[], None]) -> SharedTimer:
        """Have something called when so many milliseconds are over."""
        tick = int((self.loop.time() + max(0, after_ms) / 1000) / TICK_S) + 1
        due = self._ticks.get(tick)
        if due is None:
            due = self._ticks[tick] = set()
            self.loop.call_at(tick * TICK_S, self._pass, tick)
        timer = SharedTimer(call, due)
        due.add(timer)
        return timer

    def _pass(self, tick: int) -> None:
        for each in tuple(self._ticks.pop(tick)):
            each.pass_()
