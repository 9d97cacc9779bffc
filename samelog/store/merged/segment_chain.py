"""The segments of a merged log in order, and its running checksum: the state that all parts share.

Invariant: each segment starts at the offset where the one before ends; only the last one grows.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from samelog.format.compaction import CompactedSegment
from samelog.format.errors import NotContiguous
from samelog.format.marks import IndexMark, LogCheckpoint
from samelog.format.segment import GrowingSegment, SealedSegment, Segment
from samelog.format.transactions import OpenTransactions
from samelog.store.disk.files import NoSuchFile


class PendingCheckpoints:
    """Ends of the log that a sync under way will make durable.

    A checkpoint describes a state that the log really had; the durable one was synced.
    """

    __slots__ = ("_pending", "durable")

    def __init__(self, durable: LogCheckpoint) -> None:
        self.durable = durable
        self._pending: list[LogCheckpoint] = []

    def note(self, end: LogCheckpoint) -> None:
        """A sync of everything up to here begins."""
        if not self._pending or self._pending[-1].offset < end.offset:
            self._pending.append(end)

    def mark(self, offset: int) -> bool:
        """Everything below `offset` is durable; whether a checkpoint was reached by it."""
        reached = False
        while self._pending and self._pending[0].offset <= offset:
            found = self._pending.pop(0)
            if found.offset > self.durable.offset:
                self.durable, reached = found, True
        return reached


class SegmentChain:
    """Sealed segments by base offset, and the growing one."""

    def __init__(self, start: LogCheckpoint) -> None:
        self.start = start
        """Where the log begins here: offset = base, byte 0."""
        self.sealed: dict[int, SealedSegment] = {}
        self.growing = GrowingSegment(start.base)
        self.checksum = start.checksum
        """CRC-32C of all merged bytes since offset 0."""
        self.transactions = OpenTransactions(start.offset)
        """What is open where they were looked at last."""
        self.log_start = 0
        """Records below this offset are archived; it may lie inside a segment, or ahead."""
        self._bases: list[int] = []
        self.compacted: dict[int, CompactedSegment] = {}
        """By base offset; only sealed segments."""
        self.layout = 0
        """Grows whenever an offset may lie at another place than before."""

    def begin_later(self, first: int, known: Sequence[SealedSegment]) -> bool:
        """Let an empty chain begin at `first`, if the checksum there is known; whether it does."""
        before = next((segment for segment in known if segment.next_offset == first), None)
        if first <= self.start.base or before is None:
            return False
        self.start = LogCheckpoint(first, first, 0, before.checksum)
        self.restart_at(first)
        return True

    def begin_at(self, start: LogCheckpoint) -> list[int]:
        """Let the log begin at a later segment, which may be ahead of it; the bases of those that
        are no part of it any more.
        """
        gone = [base for base in self.bases if base < start.base]
        for base in gone:
            self.sealed.pop(base, None)
            self.compacted.pop(base, None)
        self._bases = list(self.sealed)
        self.start = start
        if self.growing.base_offset < start.base:
            self.restart_at(start.base)
        return gone

    @property
    def first_offset(self) -> int:
        """The first offset that may be read: the end, if all that is held is archived."""
        return min(max(self.start.offset, self.log_start), self.growing.next_offset)

    def add_sealed(self, segment: SealedSegment, compacted: CompactedSegment | None = None) -> None:
        """The next segment is a sealed one; the one behind it is empty so far."""
        if compacted is not None:
            self.compacted[compacted.base] = compacted
        self.sealed[segment.base_offset] = segment
        self._bases.append(segment.base_offset)
        self.checksum = segment.checksum
        self.growing = GrowingSegment(segment.next_offset)

    def seal(self) -> SealedSegment:
        """Seal the growing segment, and begin an empty one."""
        segment = self.growing.seal(self.checksum)
        self.add_sealed(segment)
        return segment

    def replace(self, new: Sequence[CompactedSegment]) -> list[int]:
        """Compacted segments take the place of sealed ones; the bases of those that were there."""
        self.layout += 1
        first, stop = new[0].base, new[-1].stop
        gone = [base for base in self._bases if first <= base < stop]
        kept = [each for base, each in self.sealed.items() if not first <= base < stop]
        kept += [each.sealed for each in new]
        self.sealed = {
            each.base_offset: each for each in sorted(kept, key=lambda each: each.base_offset)
        }
        self._bases = list(self.sealed)
        self.compacted = {b: c for b, c in self.compacted.items() if not first <= b < stop}
        self.compacted.update((each.base, each) for each in new)
        return gone

    def number_of(self, base: int) -> int:
        """Of the compaction that made a segment; 0: it is as it was merged."""
        known = self.compacted.get(base)
        return 0 if known is None else known.number

    def restart_at(self, base: int) -> None:
        """Forget the segment `base` and all behind it; an empty one takes its place."""
        self.layout += 1
        for later in [later for later in self._bases if later >= base]:
            del self.sealed[later]
            self.compacted.pop(later, None)
        self._bases = list(self.sealed)
        last = self.sealed[self._bases[-1]] if self._bases else None
        self.checksum = self.start.checksum if last is None else last.checksum
        self.growing = GrowingSegment(base)

    @property
    def end(self) -> LogCheckpoint:
        """Where the log ends."""
        growing, known = self.growing, self.transactions
        opened: tuple[tuple[int, int], ...] | None = ()
        if known.offset != growing.next_offset:
            opened = None
        elif known.open:
            opened = tuple(known.open.items())
        return LogCheckpoint(
            growing.next_offset, growing.base_offset, growing.size, self.checksum, opened
        )

    @property
    def bases(self) -> list[int]:
        """The base offsets of all segments."""
        return [*self._bases, self.growing.base_offset]

    def bases_from(self, base: int) -> list[int]:
        """Those from a segment on, the newest first. Raises NotContiguous: none begins there."""
        found = [later for later in reversed(self.bases) if later >= base]
        if found[-1:] != [base]:
            raise NotContiguous(f"no segment begins at {base}")
        return found

    def base_of(self, offset: int) -> int:
        """The base of the segment that holds `offset`, or would."""
        if offset >= self.growing.base_offset:
            return self.growing.base_offset
        return self._bases[bisect_right(self._bases, offset) - 1]

    def size_of(self, base: int) -> int:
        """The bytes of a segment. Raises NoSuchFile."""
        if base == self.growing.base_offset:
            return self.growing.size
        sealed = self.sealed.get(base)
        if sealed is None:
            raise NoSuchFile(f"there is no segment {base} here")
        return sealed.size

    def checksums(self, base: int) -> tuple[int, int | None]:
        """The running checksums where a segment begins, and where it ends (None: it grows)."""
        at = bisect_left(self._bases, base)
        sealed = self.sealed.get(base)
        begin = self.sealed[self._bases[at - 1]].checksum if at else self.start.checksum
        return begin, None if sealed is None else sealed.checksum

    def file_checksums(self, base: int) -> tuple[int, int | None]:
        """The same as the segment's own bytes give them."""
        begin, end = self.checksums(base)
        known = self.compacted.get(base)
        return begin, end if known is None else known.bytes_checksum

    def segment(self, base: int) -> Segment | None:
        """One segment; None if there is none."""
        is_sealed = base != self.growing.base_offset
        found = self.sealed.get(base) if is_sealed else self.growing
        if found is None:
            return None
        return Segment(
            base,
            found.size,
            sealed=is_sealed,
            next_offset=found.next_offset,
            max_timestamp=found.max_timestamp,
        )

    def segments(self) -> list[Segment]:
        """All segments, in order."""
        found = (self.segment(base) for base in self.bases)
        return [segment for segment in found if segment is not None]

    def index_mark(self, base: int) -> IndexMark:
        """What the index files of a segment hold now."""
        sealed = self.sealed.get(base)
        if sealed is not None:
            return IndexMark(
                base,
                sealed.index_entries,
                sealed.index_checksum,
                sealed.time_entries,
                sealed.time_checksum,
            )
        offsets, times = self.growing.offsets, self.growing.times
        return IndexMark(base, len(offsets), offsets.checksum, len(times), times.checksum)
