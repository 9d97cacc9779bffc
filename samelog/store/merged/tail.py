"""How a reader in another process follows a merged log that somebody else writes.

Invariant: the files are never changed. A batch that is short, invalid or not the next one may still
be being written, so it means "not yet"; whole valid batches before it count.
"""

from __future__ import annotations

from samelog.format.file_names import LOG, segment_bases
from samelog.format.marks import LogCheckpoint, MergedMarks
from samelog.store.disk.birth import Birth
from samelog.store.disk.directories import DirectoryWatch
from samelog.store.disk.file_cache import FileCache
from samelog.store.disk.files import FileSystem, NoSuchFile
from samelog.store.merged.partition_file import read_whose
from samelog.store.merged.segment_chain import SegmentChain
from samelog.store.merged.segment_files import SegmentFiles
from samelog.store.merged.segment_walk import RunningChecksum, resume_from_index, walk_into


class MergedTail:
    """Keeps `chain` up to date with the directory."""

    def __init__(
        self, fs: FileSystem, chain: SegmentChain, segments: SegmentFiles, files: FileCache
    ) -> None:
        self._fs = fs
        self._chain = chain
        self._segment_files = segments
        self._files = files
        self._watch = DirectoryWatch(fs, segments.directory)
        self._bases: list[int] = []
        self._born: Birth | None = None
        """Which file the growing segment is read from; None: it is not there."""

    def begin(self, marks: MergedMarks | None) -> None:
        """Take up what the marks vouch for, and what lies behind."""
        self._list_names()
        if marks is not None and self._bases:
            self._chain.begin_later(self._bases[0], marks.sealed)
            for sealed in marks.sealed:
                if sealed.base_offset == self._chain.growing.base_offset:
                    self._chain.add_sealed(sealed)
            self._resume(marks)
        self._follow()

    def _resume(self, marks: MergedMarks) -> None:
        growing, durable = self._chain.growing, marks.durable
        mark = next((mark for mark in marks.indexes if mark.base == durable.base), None)
        if mark is None or durable.base != growing.base_offset:
            return
        base = durable.base
        if base not in self._bases:
            return
        self._born = self._birth(base)
        file = self._segment_files.log(base)
        resume_from_index(growing, file, self._segment_files.stored(base), mark, durable.byte)
        checksum = RunningChecksum(durable.byte, durable.checksum)
        walk_into(growing, file, durable.byte, checksum)
        self._chain.checksum = checksum.value
        if growing.size != durable.byte:
            self._chain.restart_at(base)

    def refresh(self) -> bool:
        """Take up what is new; whether anything is."""
        before = self._chain.end
        if self._watch.needs_listing():
            self._list()
        self._follow()
        return self._chain.end != before

    def _list_names(self) -> None:
        bases = segment_bases(self._fs.list_directory(self._segment_files.directory))
        self._bases = [base for base in bases if base >= self._chain.start.base]

    def _take_start(self) -> None:
        """Something may have been archived since."""
        whose = read_whose(self._fs, self._segment_files.directory)
        if whose is None:
            return
        self._chain.log_start = max(self._chain.log_start, whose.log_start)
        start = whose.start_offset
        if start > self._chain.start.base:
            begin = LogCheckpoint(start, start, 0, whose.start_checksum)
            for base in self._chain.begin_at(begin):
                self._files.drop((base, LOG))
            self._segment_files.forget()

    def _list(self) -> None:
        self._take_start()
        self._list_names()
        base = self._chain.growing.base_offset
        self._files.drop((base, LOG))  # another file may have its name now
        if self._chain.growing.size > 0 and (base not in self._bases or self._is_other(base)):
            left = [lower for lower in self._bases if self._chain.start.base <= lower <= base]
            self._chain.restart_at(max(left, default=self._chain.start.base))
            self._segment_files.forget()

    def _is_other(self, base: int) -> bool:
        """Whether another file has its name: what was compacted is not the same when it comes."""
        return self._born is not None and self._birth(base) != self._born

    def _birth(self, base: int) -> Birth | None:
        try:
            return self._fs.birth(self._segment_files.path(base, LOG))
        except NoSuchFile:
            return None

    def _follow(self) -> None:
        """Take up the growing segment's batches, and its successors'."""
        while self._extend() and self._chain.growing.next_offset in self._bases:
            if self._chain.growing.size == 0:
                return
            self._chain.seal()

    def _extend(self) -> bool:
        """Take up new batches of the growing segment; whether all of them were whole and valid."""
        growing = self._chain.growing
        base = growing.base_offset
        if base not in self._bases:
            return False
        if growing.size == 0:
            self._born = self._birth(base)
        try:
            file = self._segment_files.log(base)
        except NoSuchFile:
            return False
        size = file.size()
        if size < growing.size:  # the writer cut its log; all above the cut comes again
            self._chain.restart_at(base)
            growing = self._chain.growing
        checksum = RunningChecksum(growing.size, self._chain.checksum)
        reason = walk_into(growing, file, size, checksum)
        self._chain.checksum = checksum.value
        return reason is None
