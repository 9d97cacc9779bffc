"""When a client has sent too much that nobody can read.

Invariant: it takes `REFUSALS` within `WITHIN_S`, and no client has to keep count.
"""

from __future__ import annotations

from collections import deque

REFUSALS = 8
WITHIN_S = 10.0


class Refusals:
    """Of one connection."""

    def __init__(self) -> None:
        self._times: deque[float] = deque(maxlen=REFUSALS)
        self.reason = ""
        """Why the connection is to be closed; empty if it is not."""

    def add(self, now: float) -> None:
        """Something was refused."""
        self._times.append(now)
        if len(self._times) == REFUSALS and now - self._times[0] <= WITHIN_S:
            self.reason = f"{REFUSALS} batches within {WITHIN_S:g} s that cannot be read"
