"""How far this node is with a compaction that was ordered.

Invariant: archiving (unless disks are full) and the next order wait for a compaction that makes
progress. They wait no longer than an hour for one that has stopped.
"""

from __future__ import annotations

from dataclasses import dataclass

from samelog.archiver.compaction import GIVEN_UP_AFTER_MS

PATIENCE_S = GIVEN_UP_AFTER_MS / 1000
SLOWER = 4
"""Times that another node may take as long as this one."""


@dataclass(slots=True)
class CompactionProgress:
    """Of one partition; times are of the node's own clock."""

    number: int
    """Of the compaction."""
    began_at: float
    moved_at: float
    """When something was done for it last."""
    done_bytes: int = 0
    total_bytes: int = 0
    """What is to be read, as far as is known; 0: nothing was begun."""

    def moved(self, done_bytes: int, total_bytes: int, now: float) -> None:
        """So much was read of so much."""
        self.done_bytes, self.total_bytes, self.moved_at = done_bytes, total_bytes, now

    def goes_on(self, number: int, now: float) -> bool:
        """Whether this compaction may come to its end, here or where it takes longer."""
        took_s = self.moved_at - self.began_at
        return self.number == number and now - self.moved_at < max(PATIENCE_S, SLOWER * took_s)
