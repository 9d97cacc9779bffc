"""Whether a disk is so fast that handing a sync to a thread costs more than waiting for it.

A sync of a few hundred bytes takes some 0.1 ms on a disk with a protected write cache, and some
10 ms on a spinning one. Waking a thread, and being woken by it, takes 0.1 to 0.2 ms of two
processors, many hundred times a second. So a disk that has lately been fast is waited for, and one
that was not is left to threads until it has been fast for long.

A disk that stops for seconds stops its node once: the others elect another leader meanwhile, which
is what they should do, because a leader whose disk stands still can plan nothing.

Invariant: after one slow sync none is waited for until `REGAINED_AFTER` fast ones in a row.
"""

from __future__ import annotations

FAST_S = 0.0005
SLOW_S = 0.003
GAINED_AFTER = 16
REGAINED_AFTER = 512


class DiskPace:
    """Whether syncs of one disk are fast, by what was measured."""

    __slots__ = ("_wanted", "is_fast")

    def __init__(self) -> None:
        self._wanted = GAINED_AFTER
        self.is_fast = False
        """Whether to wait for the next sync."""

    def took(self, seconds: float) -> None:
        """A sync is done."""
        if seconds > SLOW_S:
            self._wanted = REGAINED_AFTER
        elif self._wanted and seconds <= FAST_S:
            self._wanted -= 1
        elif self._wanted:
            self._wanted = max(self._wanted, GAINED_AFTER)
        self.is_fast = self._wanted == 0
