"""How long changes are gathered before they are acted on: as long as the load asks for.

Pure: the time comes in, the time to wait goes out.

Invariant: a change waits at most for the linger in force, and not at all after a pause of that
length or while something waits for it.
"""

from __future__ import annotations

LONGEST_S = 0.008
"""The linger grows up to this by itself."""
SLOW_S = 0.005
"""A round trip above this makes the linger grow: gathering more then costs less than it delays."""
STEP_S = 0.0005
"""A step for each round trip, so that half of the round trips decide, not the longest ones."""


class Linger:
    """Decides when gathered changes are acted on. Times are in seconds of one clock."""

    def __init__(self, shortest_s: float) -> None:
        """`shortest_s`: the linger while round trips are short; 0: gather nothing."""
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
        """Return how long the oldest waiting change, which came now, waits for more; 0: not."""
        return self._linger_s if now - self._sent_at < self._linger_s else 0.0

    def sent(self, now: float) -> None:
        """Everything that waited is acted on now."""
        self._sent_at = now

    def round_trip(self, took_s: float) -> None:
        """Take in how long a change took from being acted on to its acknowledgement."""
        longest_s = max(LONGEST_S, self.shortest_s) if self.shortest_s else 0.0
        step_s = STEP_S if took_s > SLOW_S else -STEP_S
        self._linger_s = min(longest_s, max(self.shortest_s, self._linger_s + step_s))
