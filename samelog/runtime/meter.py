"""How much came, and how fast lately. Cheap enough to be asked to count every frame.

Invariant: the total only grows; once there was a whole window, the rate is that of the last one.
"""

from __future__ import annotations

WINDOW_S = 10.0


class Meter:
    """Counts from its making on; `now` is in seconds of one clock that never goes back."""

    __slots__ = ("_before", "_began", "_rate", "total")

    def __init__(self, now: float) -> None:
        self.total = 0
        self._began = now
        self._before = 0
        """The total when the present window began."""
        self._rate: float | None = None
        """Of the last whole window."""

    def add(self, amount: int, now: float) -> None:
        """So much came now."""
        if now - self._began >= WINDOW_S:
            self._turn(now)
        self.total += amount

    def rate(self, now: float) -> float:
        """Per second, over the last window."""
        if now - self._began >= WINDOW_S:
            self._turn(now)
        if self._rate is not None:
            return self._rate
        return (self.total - self._before) / max(1.0, now - self._began)

    def _turn(self, now: float) -> None:
        self._rate = (self.total - self._before) / (now - self._began)
        self._began, self._before = now, self.total
