"""What a planner asks of the leader's own session logs.

Invariant: bytes are kept for the merger only as they were planned, whole and as one range.
"""

from __future__ import annotations

from typing import Protocol

from samelog.format import _kernels as kernels
from samelog.format.positions import SessionPosition
from samelog.sequencer.merge.checked_ranges import CheckedRanges
from samelog.sequencer.state.instructions import Range


class SessionBytes(Protocol):
    """The leader's own session logs."""

    checked: CheckedRanges
    """Keeps the bytes from which a range was planned, for the merger."""

    def sealed_length(self, number: int, place: SessionPosition) -> int | None:
        """The length of the file of `place`, if it will never grow."""

    def read(self, number: int, place: SessionPosition, stop: int) -> bytearray:
        """Bytes [place.byte, stop) of the file `place` is in; fewer where the file is shorter. The
        caller may change them.
        """


def keep_taken(
    part: Range, taken: int, read: tuple[bytearray, kernels.Scan], source: SessionBytes
) -> None:
    """What was taken whole, as one range, is merged from what was read."""
    data, scan = read
    is_whole = taken == len(data) == part.stop - part.start == part.size
    if not scan.has_producer and is_whole:
        source.checked.keep(part, data)
