"""Opens the segments of a merged log after whatever happened.

Above the durable mark everything is disposable: it is cut before the first batch that is not whole,
valid and next in offset, and merged again. Below the mark a missing or wrong byte is damage: the
segment and its successors are set aside, whole, and the log goes on behind the intact part; the
rest comes again from a peer. When the marks are lost, everything is checked, and nothing that is
cut off is deleted.

Invariant: a recovered log is a prefix of what was merged.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from samelog.format.compaction import CompactedSegment
from samelog.format.errors import CorruptLog
from samelog.format.file_names import LOG
from samelog.format.marks import IndexMark, LogCheckpoint, MergedMarks
from samelog.format.segment import SealedSegment
from samelog.store.disk.files import File, FileSystem
from samelog.store.disk.quarantine import keep_copy, restore_prefix, set_aside
from samelog.store.merged.segment_chain import SegmentChain
from samelog.store.merged.segment_files import SegmentFiles
from samelog.store.merged.segment_walk import RunningChecksum, resume_from_index, walk_into


@dataclass(slots=True)
class MergedRecovery:
    """Recovers one directory, segment by segment, into `chain`."""

    fs: FileSystem
    chain: SegmentChain
    segments: SegmentFiles
    marks: MergedMarks | None
    damaged: list[CorruptLog]
    compacted: Mapping[int, CompactedSegment] = field(default_factory=dict)
    durable: LogCheckpoint = field(init=False)
    unsynced: list[int] = field(default_factory=list)
    """Segments that reach above the mark."""

    def __post_init__(self) -> None:
        start = self.chain.start  # marks may be older than the archiving of what they vouch for
        is_known = self.marks is not None and self.marks.durable.offset >= start.offset
        self.durable = self.marks.durable if self.marks is not None and is_known else start

    def recover(self, bases: list[int]) -> None:
        """Take up the segments on disk; those below the start are archived. Raises DiskFault."""
        bases = [base for base in bases if base >= self.chain.start.base]
        if bases and self.marks is not None:
            self._begin(bases[0], self.marks)
        known = self._marked_segments()
        for number, base in enumerate(bases):
            if base != self.chain.growing.base_offset:
                self._end_here(bases[number:], "is missing")
                return
            sealed, later = known.get(base), bases[number + 1 :]
            if sealed is not None and self.fs.size(self.segments.path(base, LOG)) == sealed.size:
                self.chain.add_sealed(sealed, self.compacted.get(base))
            elif not self._take_up(base, later, is_sealed=sealed is not None):
                return
        self._end_here([], "is missing")

    def _marked_segments(self) -> dict[int, SealedSegment]:
        """By base offset, the segments that are wholly durable: as the marks say, which may be
        older than a compaction, and as is known of compacted ones.
        """
        marked = () if self.marks is None else self.marks.sealed
        known = {segment.base_offset: segment for segment in marked}
        return known | {base: each.sealed for base, each in self.compacted.items()}

    def _begin(self, first: int, marks: MergedMarks) -> None:
        """The oldest segments may be missing; the log then begins later."""
        path = self.segments.path(self.chain.start.base, LOG)
        if self.chain.begin_later(first, marks.sealed):
            self.damaged.append(CorruptLog(path, 0, f"no segment is left below offset {first}"))

    def _end_here(self, later: list[int], reason: str) -> None:
        """The log ends at the empty growing segment, which is not on disk, before `later`."""
        base = self.chain.growing.base_offset
        if self.durable.offset > base:
            self._damage(base, later, reason)
        else:
            self._drop(later, set_them_aside=self.marks is None)

    # --- one segment ---------------------------------------------------------------------------

    def _take_up(self, base: int, later: list[int], *, is_sealed: bool) -> bool:
        """Check a segment's bytes, from shortly below the mark on; whether the next one follows."""
        file = self.fs.open(self.segments.path(base, LOG), writable=True)
        try:
            size = file.size()
            reason = self._walk(file, size)
            growing = self.chain.growing
            follows = reason is None and bool(later) and later[0] == growing.next_offset
            if is_sealed or self._ends_below_mark(follows=follows):
                self._damage(base, later, reason or f"{size} bytes, more were durable")
                return False
            if growing.next_offset > self.durable.offset:
                self.unsynced.append(base)
            if follows:
                self._seal()
                return True
            self._cut(file, reason)
        finally:
            file.close()
        self._drop(later, set_them_aside=self.marks is None)
        return False

    def _ends_below_mark(self, *, follows: bool) -> bool:
        """Whether the growing segment lacks bytes that were durable; `follows`: the next segment
        begins where it ends.
        """
        growing, durable = self.chain.growing, self.durable
        if durable.base == growing.base_offset:
            return growing.size < durable.byte
        return durable.base > growing.base_offset and not follows

    def _walk(self, file: File, size: int) -> str | None:
        """Take up a segment's batches; why not all of them, if so."""
        growing = self.chain.growing
        base = growing.base_offset
        checksum = RunningChecksum(0, self.chain.checksum)
        if self.marks is not None and self.durable.base == base:
            mark = _index_mark(self.marks, base)
            resume_from_index(growing, file, self.segments.stored(base), mark, self.durable.byte)
            checksum = RunningChecksum(self.durable.byte, self.durable.checksum)
        reason = walk_into(growing, file, size, checksum)
        self.chain.checksum = checksum.value
        return reason

    def _seal(self) -> None:
        growing = self.chain.growing
        self.chain.seal()
        self.segments.store_indexes(growing.base_offset, growing.offsets, growing.times)

    def _cut(self, file: File, reason: str | None) -> None:
        end = self.chain.growing.size
        if self.marks is None and (copy := keep_copy(self.fs, file, end)) is not None:
            self.damaged.append(CorruptLog(file.path, end, f"{reason}; what was cut is in {copy}"))
        file.truncate(end)

    # --- damage --------------------------------------------------------------------------------

    def _damage(self, base: int, later: list[int], reason: str) -> None:
        """Set a segment and its successors aside; go on behind its intact part, which is kept."""
        path = self.segments.path(base, LOG)
        aside = set_aside(self.fs, path)
        self._drop(later, set_them_aside=True)
        if base in self.compacted:  # its bytes do not go on where they end
            self.fs.open(path, writable=True, create=True).close()
        else:
            restore_prefix(self.fs, aside, path, 0)
        self.chain.restart_at(base)
        file = self.fs.open(path, writable=True)
        try:
            checksum = RunningChecksum(0, self.chain.checksum)
            walk_into(self.chain.growing, file, file.size(), checksum)
            self.chain.checksum = checksum.value
            file.truncate(self.chain.growing.size)
            file.datasync()
        finally:
            file.close()
        self.fs.sync_directory(self.segments.directory)
        self.durable = self.chain.end
        self.damaged.append(
            CorruptLog(path, self.durable.byte, f"{reason}; the file is now {aside}")
        )

    def _drop(self, bases: list[int], *, set_them_aside: bool) -> None:
        """Take segments out of the log; they follow what is damaged or missing."""
        for base in bases:
            path = self.segments.path(base, LOG)
            if set_them_aside:
                aside = set_aside(self.fs, path)
                reason = f"follows what is damaged or missing; it is now {aside}"
                self.damaged.append(CorruptLog(path, 0, reason))
            else:
                self.fs.unlink(path)
            self.segments.unlink_indexes(base)


def _index_mark(marks: MergedMarks, base: int) -> IndexMark:
    """What the marks vouch for of a segment's indexes; nothing if they do not know it."""
    nothing = IndexMark(base, 0, 0, 0, 0)
    return next((mark for mark in marks.indexes if mark.base == base), nothing)
