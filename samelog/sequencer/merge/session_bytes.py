"""What a planner asks of the leader's own session logs.

Invariant: bytes are kept for the merger only as they were planned, whole and as one range.
"""

from __future__ import annotations

from typing import Protocol

from samelog.format.positions import SessionPosition
from samelog.sequencer.merge.checked_ranges import CheckedRanges


class SessionBytes(Protocol):
    """The leader's own session logs."""

    checked: CheckedRanges
    """Keeps the bytes from which a range was planned, for the merger."""

    def sealed_length(self, number: int, place: SessionPosition) -> int | None:
        """The length of the file of `place`, if it will never grow."""

    def read(self, number: int, place: SessionPosition, stop: int) -> bytes:
        """Bytes [place.byte, stop) of the file `place` is in; fewer where the file is shorter."""
