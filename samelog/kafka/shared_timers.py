"""Calls what has not been done in time: one timer for all that is due at about the same moment.

Nearly all of it is done long before: a timer for each would cost more than what is waited for.

Invariant: nothing is called before its time, nor later than a tick behind it, nor when cancelled.
"""

from __future__ import annotations

from collections.abc import Callable

from samelog.runtime.loop import InLoop

TICK_S = 0.05


class SharedTimer:
    """One of them, until it is cancelled."""

    __slots__ = ("_call", "_others")

    def __init__(self, call: Callable[[], None], others: set[SharedTimer]) -> None:
        self._call = call
        self._others = others
        others.add(self)

    def cancel(self) -> None:
        """Forget it; does nothing if it was called or cancelled."""
        self._others.discard(self)

    def pass_(self) -> None:
        """Call it, unless it was cancelled meanwhile."""
        if self in self._others:
            self.cancel()
            self._call()


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
        return SharedTimer(call, due)

    def _pass(self, tick: int) -> None:
        for each in tuple(self._ticks.pop(tick)):
            each.pass_()
