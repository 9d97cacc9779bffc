"""How long changes are gathered before they are acted on: as long as the load asks for.

Each round of a cluster costs its nodes the same processor time, however many records it has. So
changes that keep following each other are gathered longer than those that come alone.

Pure: the time comes in, the time to wait goes out.

Invariant: a change waits at most for the linger in force, and not at all after a pause of that
length or while something waits for it.
"""

from __future__ import annotations

GROWTH = 1.75
"""Under a steady load the linger grows up to so many times the shortest one."""
STEPS = 8
"""A step for each time, so that one change after a pause, or one pause, decides nothing."""


class Linger:
    """Decides when gathered changes are acted on. Times are in seconds of one clock."""

    def __init__(self, shortest_s: float) -> None:
        """`shortest_s`: the linger while the load is not steady; 0: gather nothing."""
        self.shortest_s = shortest_s
        self._linger_s = shortest_s
        self._sent_at = float("-inf")

    @property
    def linger_s(self) -> float:
        """The linger in force."""
        return self._linger_s

    def limit(self, shortest_s: float) -> None:
        """Replace the shortest linger."""
        self.shortest_s = self._linger_s = shortest_s

    def wait_s(self, now: float) -> float:
        """Return how long the oldest waiting change, which came now, waits for more; 0: not, it is
        acted on at once.
        """
        step_s = self.shortest_s * (GROWTH - 1) / STEPS
        if now - self._sent_at >= self._linger_s:
            self._linger_s = max(self.shortest_s, self._linger_s - step_s)
            self._sent_at = now
            return 0.0
        self._linger_s = min(self.shortest_s * GROWTH, self._linger_s + step_s)
        return self._linger_s

    def sent(self, now: float) -> None:
        """Everything that has waited is acted on now."""
        self._sent_at = now
