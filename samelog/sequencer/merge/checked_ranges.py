"""Bytes of ranges between the check that they are those that an entry names, and their merging. So
they are read once, and their checksums are computed once: half of what a node read.

Invariant: bytes are given only for the very range that they were checked for, its digest included,
and once: who takes them changes them.
"""

from __future__ import annotations

from samelog.sequencer.state.instructions import Range

KEPT_BYTES = 8 << 20
"""As much as entries in flight name. What is merged later than so much more was checked is read and
checked again.
"""


class CheckedRanges:
    """One replica's."""

    def __init__(self, limit_bytes: int = KEPT_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._kept: dict[Range, bytearray] = {}
        """Oldest first."""
        self._bytes = 0

    def keep(self, part: Range, data: bytearray) -> None:
        """These are the bytes of a range, by its digest; nobody else changes them any more."""
        before = self._kept.pop(part, None)
        self._kept[part] = data
        self._bytes += len(data) - (0 if before is None else len(before))
        while self._bytes > self._limit_bytes:
            self.take(next(iter(self._kept)))

    def take(self, part: Range) -> bytearray | None:
        """What was kept of a range; None: nothing, or not any more."""
        data = self._kept.pop(part, None)
        if data is not None:
            self._bytes -= len(data)
        return data
