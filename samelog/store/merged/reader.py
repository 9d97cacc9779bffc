"""What a merged log holds, and finding and reading record batches in it.

Invariant: only whole batches are ever handed out, and every offset is in one; memory is bounded by
one read, one batch, and the indexes of a few segments.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct

from samelog.format import _kernels as kernels
from samelog.format.batch import HEADER_BYTES, HELD_BATCH_BYTES, read_header
from samelog.format.compression import decompress
from samelog.format.directory_files import PartitionFile
from samelog.format.errors import CorruptLog, LogFormatError
from samelog.format.marks import LogCheckpoint
from samelog.format.segment import Segment
from samelog.format.transactions import Aborted
from samelog.store.disk.batch_walk import batch_heads, batch_of, valid_extent
from samelog.store.disk.detached import DetachedRead
from samelog.store.disk.file_cache import FileCache
from samelog.store.disk.files import File, FileSystem
from samelog.store.disk.tail_memory import LogTail
from samelog.store.merged.segment_chain import SegmentChain
from samelog.store.merged.segment_files import SegmentFiles
from samelog.store.merged.transaction_index import TransactionIndex
from samelog.store.merged.truncation import LogStart

_EPOCH = Struct(">12xi")  # of a batch: partitionLeaderEpoch
_LENGTH = Struct(">8xi")  # of a batch: batchLength, which does not count its first 12 bytes


class OffsetNotHeld(LogFormatError):
    """An offset is not in this log: archived, or not written yet. Offsets [start, end) are."""

    def __init__(self, path: str, offset: int, start: int, end: int) -> None:
        super().__init__(path, offset, start, end)
        self.path, self.offset, self.start, self.end = path, offset, start, end

    def __str__(self) -> str:
        return f"{self.path}: offset {self.offset} is not in [{self.start}, {self.end})"


class MergedReader:
    """The segments of one merged partition."""

    def __init__(self, fs: FileSystem, path: str, whose: PartitionFile, *, read_only: bool) -> None:
        self.path = path
        self.topic = whose.topic
        self.topic_id = whose.topic_id
        self.owner = whose.owner
        """As `TopicDirs` has it."""
        self.partition = whose.partition
        self._fs = fs
        self._whose = whose
        start = LogCheckpoint(whose.start_offset, whose.start_offset, 0, whose.start_checksum)
        self._chain = SegmentChain(start)
        self._chain.log_start = whose.log_start
        self._files = FileCache(fs)
        self._segment_files = SegmentFiles(fs, path, self._chain, self._files, read_only=read_only)
        store = None if read_only else self._store_aborted
        self._transactions = TransactionIndex(fs, self._chain, self._segment_files, store)
        self._log_start = LogStart(whose.start_offset, whose.start_offset, whose.start_checksum)
        self._last_epoch = -1, -1
        """What `epoch_at` was asked last, and its answer: clients ask for the same ones again."""
        self.recent: LogTail | None = None
        """Its newest bytes in memory, if any are kept."""
        self._last_append: tuple[int, int] | None = None
        """(segment, byte) of a batch near the end; None: not known."""

    @property
    def is_deleted(self) -> bool:
        """Whether the directory records that the topic was deleted in the cluster."""
        return self._whose.is_deleted

    @property
    def next_offset(self) -> int:
        """The offset of the next record."""
        return self._chain.growing.next_offset

    @property
    def last_stable_offset(self) -> int:
        """Below it every transaction is decided; not below the start. Raises LogFormatError."""
        return max(self._transactions.catch_up().last_stable_offset, self.start_offset)

    def aborted(self, first: int, stop: int, most: int | None = None) -> list[Aborted]:
        """The first `most` aborted transactions with records in [first, stop). Raises
        LogFormatError.
        """
        return self._transactions.aborted(first, stop, most)

    def _store_aborted(self, base: int, position: int, data: bytes) -> None:
        """Write some of a segment's `.txnindex`."""
        raise NotImplementedError

    @property
    def start_offset(self) -> int:
        """The offset of the first record held that is not archived."""
        return self._chain.first_offset

    @property
    def log_start(self) -> LogStart:
        """What is archived. (Damage may have taken more: that is not told to anybody.)"""
        whose, known = self._whose, self._log_start
        offset = max(whose.start_offset, self._chain.log_start)
        if known != (offset, whose.start_offset, whose.start_checksum):
            known = LogStart(offset, whose.start_offset, whose.start_checksum)
            self._log_start = known
        return known

    def segment_of(self, offset: int) -> tuple[int, int]:
        """The segment that holds an offset, or would, and the running checksum where it begins.

        Raises:
            OffsetNotHeld: it is below the start, or above the end.
        """
        if not self.start_offset <= offset <= self.next_offset:
            raise OffsetNotHeld(self.path, offset, self.start_offset, self.next_offset)
        base = self._chain.base_of(offset)
        return base, self._chain.checksums(base)[0]

    @property
    def checksum(self) -> int:
        """CRC-32C of all merged bytes since offset 0."""
        return self._chain.checksum

    def end(self) -> tuple[int, int]:
        """(segment, byte) where the next byte goes."""
        return self._chain.growing.base_offset, self._chain.growing.size

    def segment(self, base: int) -> Segment | None:
        """The segment that begins at this offset; None if there is none."""
        return self._chain.segment(base)

    def segments(self) -> list[Segment]:
        """All segments, in order; the last one grows."""
        return self._chain.segments()

    def checksums(self, segment_base: int) -> tuple[int, int | None]:
        """The running checksums where a segment begins, and where it ends (None: it grows)."""
        return self._chain.checksums(segment_base)

    def file_checksums(self, segment_base: int) -> tuple[int, int | None]:
        """The same as the bytes of the segment's file give them, if it was compacted."""
        return self._chain.file_checksums(segment_base)

    @property
    def layout(self) -> int:
        """As long as this is the same, an offset lies where it was found before."""
        return self._chain.layout

    def compacted_around(self, base: int) -> int | None:
        """Where the compacted segment begins that stands for one that began there, if any."""
        found = self._chain.base_of(base) if base >= self._chain.start.base else -1
        return found if found in self._chain.compacted else None

    # --- by position ---------------------------------------------------------------------------

    def read(self, base: int, byte: int, limit_bytes: int) -> bytes:
        """Whole batches from a batch boundary of a segment: at most `limit_bytes`, but at least one
        if there is any.

        Raises:
            NoSuchFile: there is no such segment here.
            CorruptLog: no batch starts there.
            DiskFault: the disk fails.
        """
        found = self.view(base, byte, limit_bytes)
        data = found.obj
        return data if isinstance(data, bytes) and len(data) == len(found) else bytes(found)

    def view(self, base: int, byte: int, limit_bytes: int) -> memoryview:
        """As `read`, but what was read of one batch more than fits is left out without a copy."""
        size = self._chain.size_of(base)
        if byte >= size:
            return memoryview(b"")
        file = self._segment_files.log(base)
        wanted, data = min(limit_bytes, size - byte), None
        if self.recent is not None:
            data = self.recent.read(self._chain.layout, base, byte, wanted)
        if data is None:
            data = file.pread(wanted, byte)
        scan = kernels.scan(data, verify_crc=False, max_batch_bytes=HELD_BATCH_BYTES)
        return memoryview(data)[: scan.end] if scan.end else self._read_one(file, byte, size)

    def detached(self, base: int, byte: int, limit_bytes: int) -> DetachedRead:
        """As `read`, by whoever calls it, in any thread, even when the log is closed. Raises as
        `read`.
        """
        size = self._chain.size_of(base)
        return DetachedRead(self._segment_files.log(base), byte, size, limit_bytes)

    def read_part(self, base: int, byte: int, size_bytes: int) -> bytes:
        """Bytes of a batch that was read before. Raises as `read`."""
        return self._segment_files.log(base).pread(size_bytes, byte)

    def _read_one(self, file: File, byte: int, size: int) -> memoryview:
        header = file.pread(_LENGTH.size, byte)
        length = _LENGTH.unpack(header)[0] + _LENGTH.size if len(header) == _LENGTH.size else -1
        if not 0 < length <= min(size - byte, HELD_BATCH_BYTES):
            raise CorruptLog(file.path, byte, "no record batch starts here")
        return memoryview(file.pread(length, byte))

    def batch_at(self, base: int, byte: int) -> int | None:
        """The CRC field of the batch that starts at a byte of a segment; None if none does. Raises
        NoSuchFile.
        """
        size = self._chain.size_of(base)
        if not 0 <= byte < size:
            return None
        try:
            return next(batch_heads(self._segment_files.log(base), byte, size)).crc
        except CorruptLog:
            return None

    def last_batch(self) -> tuple[int, int, int] | None:
        """(segment, start, CRC field) of the last batch."""
        known = self._last_append
        for base in reversed(self._chain.bases):
            size = self._chain.size_of(base)
            if size == 0:
                continue
            start = self._segment_files.indexes(base)[0].last[1]
            if known is not None and known[0] == base:
                start = max(start, known[1])
            found = valid_extent(self._segment_files.log(base), start, size, verify_crc=False)
            return base, found.last_start, found.last_crc
        return None

    # --- by offset and time --------------------------------------------------------------------

    def locate(self, offset: int) -> tuple[int, int]:
        """(segment, byte) of the batch that holds `offset`; the end for the next offset.

        Raises:
            OffsetNotHeld: it is below the start, or above the end.
        """
        end = self._chain.growing.next_offset
        if offset == end:
            return self.end()
        first = self._chain.first_offset
        if not first <= offset < end:
            raise OffsetNotHeld(self.path, offset, first, end)
        base = self._chain.base_of(offset)
        position = self._segment_files.indexes(base)[0].lookup(offset)[1]
        file, size = self._segment_files.log(base), self._chain.size_of(base)
        start = batch_of(file, position, size, offset)
        if start is None:
            raise CorruptLog(file.path, position, f"offset {offset} is not behind here")
        return base, start

    def locate_timestamp(self, timestamp: int) -> int:
        """The offset of the first record whose timestamp (ms) is at least this; else the next."""
        found = self.locate_record(timestamp)
        return self.next_offset if found is None else found[0]

    def locate_record(self, timestamp: int) -> tuple[int, int] | None:
        """(offset, timestamp) of the first record whose timestamp (ms) is at least this."""
        for batch in self.batches_since(timestamp):
            found = record_since(batch, timestamp, self.start_offset)
            if found is not None:
                return found
        return None

    def batches_since(self, timestamp: int) -> Iterator[bytes]:
        """The batches that may have a record whose timestamp (ms) is at least this, in order."""
        for segment in self._chain.segments():
            if segment.size and segment.max_timestamp >= timestamp:
                yield from self._batches_in(segment.base_offset, timestamp)

    def _batches_in(self, base: int, timestamp: int) -> Iterator[bytes]:
        offsets, times = self._segment_files.indexes(base)
        position = offsets.lookup(times.lookup(timestamp)[1])[1]
        first = self._chain.first_offset
        for head in batch_heads(self._segment_files.log(base), position, self._chain.size_of(base)):
            if head.max_timestamp >= timestamp and head.last_offset >= first:
                yield self.read(base, head.start, 1)

    def highest_timestamp(self) -> int | None:
        """The highest timestamp of all records; None if there are none."""
        return max((each.max_timestamp for each in self.segments() if each.size), default=None)

    def first_timestamp(self, segment_base: int) -> int:
        """The timestamp (ms) of a segment's first record. Raises as `read`."""
        return read_header(self.read(segment_base, 0, HEADER_BYTES)).base_timestamp

    # --- leader epochs ---------------------------------------------------------------------------

    def epoch_at(self, offset: int) -> int:
        """The leader epoch of a record. Raises OffsetNotHeld."""
        if offset != self._last_epoch[0] or not self.start_offset <= offset < self.next_offset:
            base, byte = self.locate(offset)
            found = _EPOCH.unpack(self._segment_files.log(base).pread(_EPOCH.size, byte))[0]
            self._last_epoch = offset, int(found)
        return self._last_epoch[1]

    def end_of_epoch(self, epoch: int) -> int:
        """The offset behind the last record of this leader epoch or an earlier one. Along a log,
        epochs never fall.
        """
        low, high = self._chain.first_offset, self._chain.growing.next_offset
        while low < high:
            middle = (low + high) // 2
            if self.epoch_at(middle) > epoch:
                high = middle
            else:
                low = middle + 1
        return low


def record_since(batch: bytes, timestamp: int, first: int) -> tuple[int, int] | None:
    """(offset, timestamp) of a batch's first record, from offset `first` on, that is not older. For
    threads too: it takes long where much is to be unpacked.
    """
    return kernels.find_time(batch, timestamp, first, decompress)
