"""Finds and reads record batches in the segments of a merged log.

Invariant: only whole batches that the chain counts are ever handed out; memory is bounded by the
size of one piece, one batch, and the indexes of a few segments.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from contextlib import suppress
from struct import Struct

from samelog.format import _kernels as kernels
from samelog.format.batch import HELD_BATCH_BYTES
from samelog.format.compression import decompress
from samelog.format.errors import CorruptLog, LogFormatError
from samelog.format.file_names import INDEX, LOG, TIME_INDEX, segment_name
from samelog.format.index import OffsetIndex, TimeIndex
from samelog.format.segment import GrowingSegment, SealedSegment
from samelog.store.disk.batch_walk import batch_heads, valid_extent
from samelog.store.disk.file_cache import FileCache
from samelog.store.disk.files import DiskFull, File, FileSystem, NoSuchFile
from samelog.store.merged.segment_chain import SegmentChain
from samelog.store.merged.segment_walk import RunningChecksum, walk_into

KEPT_INDEXES = 4
INDEX_LIMIT_BYTES = 64 << 20
_EPOCH = Struct(">12xi")  # of a batch: partitionLeaderEpoch
_LENGTH = Struct(">8xi")  # of a batch: batchLength, which does not count its first 12 bytes

Indexes = tuple[OffsetIndex, TimeIndex]


class OffsetNotHeld(LogFormatError):
    """An offset is not in this log: archived, or not written yet. Offsets [start, end) are."""

    def __init__(self, path: str, offset: int, start: int, end: int) -> None:
        super().__init__(path, offset, start, end)
        self.path, self.offset, self.start, self.end = path, offset, start, end

    def __str__(self) -> str:
        return f"{self.path}: offset {self.offset} is not in [{self.start}, {self.end})"


def append_entries(index: OffsetIndex | TimeIndex, file: File) -> None:
    """Write the entries that are not in `file` yet. Raises DiskFault."""
    position, entries = index.unwritten()
    if entries:
        file.pwrite(entries, position)
        index.written()


def write_entries(index: OffsetIndex | TimeIndex, file: File) -> None:
    """Make `file` hold exactly the entries of an index. Raises DiskFault."""
    entries = index.encode()
    if entries:
        file.pwrite(entries, 0)
    file.truncate(len(entries))
    index.written()


class SegmentReader:
    """Reads the segments of `chain` in one directory."""

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

    def file(self, base: int) -> File:
        """A segment's log file. Raises NoSuchFile."""
        return self._files.get((base, LOG), self.path(base, LOG))

    def path(self, base: int, suffix: str) -> str:
        """Where one of a segment's files is."""
        return os.path.join(self.directory, segment_name(base, suffix))

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

    def unlink_indexes(self, base: int) -> None:
        """Remove a segment's index files."""
        for suffix in (INDEX, TIME_INDEX):
            if self._fs.exists(self.path(base, suffix)):
                self._fs.unlink(self.path(base, suffix))

    # --- by position ---------------------------------------------------------------------------

    def read(self, base: int, byte: int, limit_bytes: int) -> bytes:
        """Whole batches from a position: at most `limit_bytes`, but at least one if any."""
        size = self._chain.size_of(base)
        if byte >= size:
            return b""
        file = self.file(base)
        data = file.pread(min(limit_bytes, size - byte), byte)
        scan = kernels.scan(data, verify_crc=False, max_batch_bytes=HELD_BATCH_BYTES)
        if scan.end == len(data) and data:
            return data
        if scan.end > 0:
            return data[: scan.end]
        return self._read_one(file, byte, size)

    def _read_one(self, file: File, byte: int, size: int) -> bytes:
        header = file.pread(_LENGTH.size, byte)
        length = _LENGTH.unpack(header)[0] + _LENGTH.size if len(header) == _LENGTH.size else -1
        if not 0 < length <= min(size - byte, HELD_BATCH_BYTES):
            raise CorruptLog(file.path, byte, "no record batch starts here")
        return file.pread(length, byte)

    def batch_at(self, base: int, byte: int) -> int | None:
        """The CRC field of the batch that starts at a position; None if none does."""
        size = self._chain.size_of(base)
        if not 0 <= byte < size:
            return None
        try:
            return next(batch_heads(self.file(base), byte, size)).crc
        except CorruptLog:
            return None

    def last_batch(self, known: tuple[int, int] | None) -> tuple[int, int, int] | None:
        """(segment, start, CRC field) of the last batch; `known` is a boundary before it."""
        for base in reversed(self._chain.bases):
            size = self._chain.size_of(base)
            if size == 0:
                continue
            start = self.indexes(base)[0].last[1]
            if known is not None and known[0] == base:
                start = max(start, known[1])
            found = valid_extent(self.file(base), start, size, verify_crc=False)
            return base, found.last_start, found.last_crc
        return None

    # --- by offset and time --------------------------------------------------------------------

    def locate(self, offset: int) -> tuple[int, int]:
        """(segment, byte) of the batch that holds `offset`; the end for the next offset."""
        end = self._chain.end
        if offset == end.offset:
            return end.base, end.byte
        first = self._chain.first_offset
        if not first <= offset < end.offset:
            raise OffsetNotHeld(self.directory, offset, first, end.offset)
        base = self._chain.base_of(offset)
        position = self.indexes(base)[0].lookup(offset)[1]
        for head in batch_heads(self.file(base), position, self._chain.size_of(base)):
            if head.last_offset >= offset:
                return base, head.start
        raise CorruptLog(self.path(base, LOG), position, f"offset {offset} is not behind here")

    def locate_timestamp(self, timestamp: int) -> tuple[int, int] | None:
        """(offset, timestamp) of the first record that is at least as young; None if none is."""
        for segment in self._chain.segments():
            if segment.size and segment.max_timestamp >= timestamp:
                found = self._locate_in(segment.base_offset, timestamp)
                if found is not None:
                    return found
        return None

    def _locate_in(self, base: int, timestamp: int) -> tuple[int, int] | None:
        offsets, times = self.indexes(base)
        position = offsets.lookup(times.lookup(timestamp)[1])[1]
        first = self._chain.first_offset
        for head in batch_heads(self.file(base), position, self._chain.size_of(base)):
            if head.max_timestamp >= timestamp and head.last_offset >= first:
                batch = self.read(base, head.start, 1)
                for record in kernels.decode_records(batch, 0, len(batch), "", 0, decompress):
                    if record.timestamp >= timestamp and record.offset >= first:
                        return record.offset, record.timestamp
        return None

    # --- leader epochs ---------------------------------------------------------------------------

    def epoch_at(self, offset: int) -> int:
        """The leader epoch of the batch that holds an offset. Raises OffsetNotHeld."""
        base, byte = self.locate(offset)
        return int(_EPOCH.unpack(self.file(base).pread(_EPOCH.size, byte))[0])

    def end_of_epoch(self, epoch: int) -> int:
        """The offset of the first record of a later epoch; the next offset if there is none.
        Epochs never fall along a log.
        """
        low, high = self._chain.first_offset, self._chain.growing.next_offset
        while low < high:
            middle = (low + high) // 2
            if self.epoch_at(middle) > epoch:
                high = middle
            else:
                low = middle + 1
        return low

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
        reason = walk_into(walked, self.file(base), segment.size, RunningChecksum(0, 0))
        if reason is not None:
            raise CorruptLog(self.path(base, LOG), walked.size, reason)
        walked.seal(0)
        if not self._read_only:
            with suppress(DiskFull):  # they stay in memory
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
