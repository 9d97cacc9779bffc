"""What the marks file of a merged partition holds, and the checkpoints that it is made from.

Invariant: a checkpoint describes a state that the log really had; the marked one was synced.
"""

from __future__ import annotations

from collections import deque

import msgspec

from samelog.store.disk.marks import Marks
from samelog.store.merged.segment import SealedSegment


class Checkpoint(msgspec.Struct, frozen=True, array_like=True):
    """The end of a log at some moment."""

    offset: int
    base: int
    byte: int
    checksum: int
    """CRC-32C of all merged bytes up to here."""


class IndexMark(msgspec.Struct, frozen=True, array_like=True):
    """The first entries of a segment's index files, as they were."""

    base: int
    index_entries: int
    index_checksum: int
    time_entries: int
    time_checksum: int


class MergedMarks(Marks, frozen=True, kw_only=True):
    """The marks file of a merged partition."""

    durable: Checkpoint
    sealed: list[SealedSegment]
    """Wholly durable segments, in order."""
    indexes: list[IndexMark]
    """Of the segments from the durable position on."""


class Checkpoints:
    """Ends of the log that a sync under way will make durable."""

    __slots__ = ("_pending", "durable")

    def __init__(self, durable: Checkpoint) -> None:
        self.durable = durable
        self._pending: deque[Checkpoint] = deque()

    def note(self, end: Checkpoint) -> None:
        """A sync of everything up to here begins."""
        if not self._pending or self._pending[-1].offset < end.offset:
            self._pending.append(end)

    def mark(self, offset: int) -> bool:
        """Everything below `offset` is durable; whether a checkpoint was reached by it."""
        reached = False
        while self._pending and self._pending[0].offset <= offset:
            found = self._pending.popleft()
            if found.offset > self.durable.offset:
                self.durable, reached = found, True
        return reached
