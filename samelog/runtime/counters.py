"""What is counted all the time, and read when somebody asks for metrics.

Invariant: totals only grow, and every value of a histogram is in exactly one bucket. Counting is
cheap enough for every frame and every sync.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass

WINDOW_S = 10.0
DELAY_SAMPLE_S = 0.05
FAST_S = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5)
"""For disks and event loops."""
LATENCY_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
"""For what goes from host to host."""


class Histogram:
    """Counts of values up to each bound, and above the last."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        """One more."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    @property
    def count(self) -> int:
        """How many there were."""
        return sum(self.counts)


class Meter:
    """How much came, and how fast lately: once there was a whole window, the rate is that of the
    last one. `now` is in seconds of one clock that never goes back.
    """

    __slots__ = ("_before", "_began", "_rate", "total")

    def __init__(self, now: float) -> None:
        self.total = 0
        self._began = now
        self._before = 0
        """The total when the present window began."""
        self._rate: float | None = None
        """Of the last whole window."""

    def add(self, amount: int, now: float) -> None:
        """Count an amount at this moment."""
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
        """The window has all that came in its first WINDOW_S: one that is twice as long has seen
        nothing lately.
        """
        length_s = now - self._began
        self._rate = 0.0 if length_s >= 2 * WINDOW_S else (self.total - self._before) / length_s
        self._began, self._before = now, self.total


@dataclass(slots=True)
class ListenerTally:
    """What went through one listener: connections now, and those refused; requests, their bytes,
    and the bytes of records that were answered. `held`: bytes held for clients now.
    """

    connections: int = 0
    refused: int = 0
    requests: int = 0
    in_bytes: int = 0
    out_bytes: int = 0
    held: Callable[[], int] = lambda: 0


async def watch_delay(delays: Histogram) -> None:
    """Count by how much a timer of the running event loop is late, until cancelled."""
    loop = asyncio.get_running_loop()
    while True:
        due = loop.time() + DELAY_SAMPLE_S
        await asyncio.sleep(DELAY_SAMPLE_S)
        delays.observe(max(0.0, loop.time() - due))
