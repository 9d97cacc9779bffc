"""Time as a thing that is passed in, so that everything above it can be run with any time.

Invariant: intervals and deadlines use `now()`, which never goes backwards; `wall_ms()` is only
ever shown or stored.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Where the rest of the package gets the time."""

    def now(self) -> float:
        """Monotonic seconds from an arbitrary start."""

    def wall_ms(self) -> int:
        """Milliseconds since the epoch, as the host believes."""

    @property
    def is_agreed(self) -> bool:
        """Whether `wall_ms` is agreed on, so that data may expire by it."""


class SystemClock:
    """The host's clocks. `now` is the one of the event loop, and no call of ours around it."""

    now = staticmethod(time.monotonic)
    is_agreed = True

    def wall_ms(self) -> int:
        """Milliseconds since the epoch."""
        return time.time_ns() // 1_000_000


class ManualClock:
    """A clock that stands still until it is moved: the simulated twin of SystemClock."""

    is_agreed = True

    def __init__(self, *, now: float = 0.0, wall_ms: int = 0) -> None:
        self._now = now
        self._wall_ms = wall_ms

    def now(self) -> float:
        """Seconds moved so far, from the start given."""
        return self._now

    def wall_ms(self) -> int:
        """Milliseconds since the epoch; moves with `now`."""
        return self._wall_ms

    def advance(self, seconds: float) -> None:
        """Move the time forward. Raises ValueError if it would go backwards."""
        if seconds < 0:
            raise ValueError(f"time cannot go back by {-seconds} s")
        self._now += seconds
        self._wall_ms += round(seconds * 1000)
