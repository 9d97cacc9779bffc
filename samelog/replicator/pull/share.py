"""What a member of a group copies of one partition.

Invariant: a copy that was begun elsewhere than where it is wanted is not gone on with.
"""

from __future__ import annotations

from dataclasses import dataclass

from samelog.store.merged.log import MergedLog


@dataclass(frozen=True, slots=True)
class Share:
    """Of which log, and from which offset on; -1: from wherever it is to begin."""

    topic_id: str
    offset: int

    def is_held_by(self, log: MergedLog) -> bool:
        """Whether a copy has the offset, or comes to it next."""
        return log.start_offset <= self.offset <= log.next_offset
