"""When a world is busy: publishers write and things fail, then most of it rests, and so on.

Real clusters are quiet most of the time. What goes wrong behind a rest, or across one, is another
thing than what goes wrong under load: what is cut off stays so until others have long gone on,
idle connections time out, snapshots, rounds and elections happen with nothing to do.

Invariant: whether it is busy depends on the time alone.
"""

from __future__ import annotations

from typing import NamedTuple


class Rhythm(NamedTuple):
    """Busy and resting by turns; times in simulated seconds."""

    busy_s: float
    rest_s: float

    def is_busy(self, now: float) -> bool:
        """Whether publishers write, and faults strike as often as they can."""
        return now % (self.busy_s + self.rest_s) < self.busy_s

    def lasting(self, busy_s: float) -> float:
        """How long it takes to be busy for so long, the last rest included."""
        return busy_s / self.busy_s * (self.busy_s + self.rest_s)
