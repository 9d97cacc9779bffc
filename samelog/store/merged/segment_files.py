"""The files of a merged log's segments: where they are, those that are open, and their indexes.

Invariant: an index in memory is the one that the log gives: files that are not whole are rebuilt
from the log. Memory is bounded by the indexes of a few segments.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress

from samelog.format.errors import CorruptLog
from samelog.format.file_names import INDEX, LOG, TIME_INDEX, TXN_INDEX, segment_name
from samelog.format.index import OffsetIndex, TimeIndex
from samelog.format.segment import GrowingSegment, SealedSegment
from samelog.store.disk.disk_errors import NoSpace
from samelog.store.disk.file_cache import FileCache
from samelog.store.disk.files import File, FileSystem, NoSuchFile
from samelog.store.disk.quarantine import set_aside
from samelog.store.merged.segment_chain import SegmentChain
from samelog.store.merged.segment_walk import RunningChecksum, walk_into

KEPT_INDEXES = 4
INDEX_LIMIT_BYTES = 64 << 20

Indexes = tuple[OffsetIndex, TimeIndex]


def append_entries(index: OffsetIndex | TimeIndex, file: File) -> None:
    """Write the entries that are not in `file` yet. Raises DiskFault."""
    position, entries = index.unwritten()
    file.pwrite(entries, position)
    index.written()


def write_entries(index: OffsetIndex | TimeIndex, file: File) -> None:
    """Make `file` hold exactly the entries of an index. Raises DiskFault."""
    entries = index.encode()
    if entries:
        file.pwrite(entries, 0)
    file.truncate(len(entries))
    index.written()


class SegmentFiles:
    """The files of the segments of `chain` in one directory."""

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        chain: SegmentChain,
        files: FileCache,
        *,
        read_only: bool,
    ) -> None:
        self._fs = fs
        self.directory = directory
        self._chain = chain
        self._files = files
        self._read_only = read_only
        self._indexes: OrderedDict[int, Indexes] = OrderedDict()

    def path(self, base: int, suffix: str) -> str:
        """Where one of a segment's files is."""
        return os.path.join(self.directory, segment_name(base, suffix))

    def log(self, base: int) -> File:
        """A segment's log file. Raises NoSuchFile."""
        key = (base, LOG)
        return self._files.find(key) or self._files.open(key, self.path(base, LOG))

    def cut(self, base: int, byte: int) -> None:
        """Cut a segment, and remove those behind it. Raises DiskFault."""
        for later in reversed([later for later in self._chain.bases if later > base]):
            if self._fs.exists(self.path(later, LOG)):
                self._fs.unlink(self.path(later, LOG))
            self.unlink_indexes(later)
        file = self._fs.open(self.path(base, LOG), writable=True)
        try:
            file.truncate(byte)
        finally:
            file.close()
        self.forget()

    def forget(self) -> None:
        """The log was cut: drop the indexes in memory."""
        self._indexes.clear()

    def remove(self, bases: Sequence[int], *, keep: bool) -> list[str]:
        """Remove segments, durably, in this order; with `keep` set them aside: as which files.
        Raises DiskFault.
        """
        aside: list[str | None] = []
        for base in bases:
            if keep:
                aside.append(set_aside(self._fs, self.path(base, LOG)))
            elif self._fs.exists(self.path(base, LOG)):
                self._fs.unlink(self.path(base, LOG))
            self.unlink_indexes(base)
        self._fs.sync_directory(self.directory)
        return [name for name in aside if name is not None]

    def unlink_indexes(self, base: int) -> None:
        """Remove a segment's index files."""
        for suffix in (INDEX, TIME_INDEX, TXN_INDEX):
            if self._fs.exists(self.path(base, suffix)):
                self._fs.unlink(self.path(base, suffix))

    # --- indexes -------------------------------------------------------------------------------

    def indexes(self, base: int) -> Indexes:
        """The indexes of a segment: read when first needed, rebuilt when they are not whole."""
        growing = self._chain.growing
        if base == growing.base_offset:
            return growing.offsets, growing.times
        found = self._indexes.get(base)
        if found is None:
            segment = self._chain.sealed[base]
            found = self._indexes[base] = self._load(segment) or self._rebuild(segment)
            if len(self._indexes) > KEPT_INDEXES:
                self._indexes.popitem(last=False)
        self._indexes.move_to_end(base)
        return found

    def stored(self, base: int) -> tuple[bytes, bytes]:
        """What the index files hold; nothing where they are not there."""
        return self._stored(base, INDEX), self._stored(base, TIME_INDEX)

    def _stored(self, base: int, suffix: str) -> bytes:
        try:
            return self._fs.read_file(self.path(base, suffix), INDEX_LIMIT_BYTES)
        except NoSuchFile:
            return b""

    def _load(self, segment: SealedSegment) -> Indexes | None:
        base = segment.base_offset
        stored = self.stored(base)
        offsets, times = OffsetIndex(base, stored[0]), TimeIndex(base, stored[1])
        is_right = (
            len(offsets) == segment.index_entries
            and offsets.checksum == segment.index_checksum
            and len(times) == segment.time_entries
            and times.checksum == segment.time_checksum
        )
        return (offsets, times) if is_right else None

    def _rebuild(self, segment: SealedSegment) -> Indexes:
        base = segment.base_offset
        walked = GrowingSegment(base)
        reason = walk_into(walked, self.log(base), segment.size, RunningChecksum(0, 0))
        if reason is not None:
            raise CorruptLog(self.path(base, LOG), walked.size, reason)
        walked.seal(0)
        if not self._read_only:
            with suppress(NoSpace):  # they stay in memory
                self.store_indexes(base, walked.offsets, walked.times)
        return walked.offsets, walked.times

    def store_indexes(self, base: int, offsets: OffsetIndex, times: TimeIndex) -> None:
        """Write the whole index files of a segment. Raises DiskFault."""
        for suffix, index in ((INDEX, offsets), (TIME_INDEX, times)):
            file = self._fs.open(self.path(base, suffix), create=True)
            try:
                write_entries(index, file)
            finally:
                file.close()
