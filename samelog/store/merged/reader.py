"""What a merged log holds, and reading it.

Invariant: only whole batches with dense offsets are ever handed out.
"""

from __future__ import annotations

import os

from samelog.format.batch import HEADER_BYTES, read_header
from samelog.format.directory_files import PartitionFile
from samelog.format.marks import LogCheckpoint
from samelog.format.segment import Segment
from samelog.store.disk.file_cache import FileCache
from samelog.store.disk.files import FileSystem
from samelog.store.merged.segment_chain import SegmentChain
from samelog.store.merged.segment_reader import OffsetNotHeld, SegmentReader
from samelog.store.merged.truncation import LogStart


class MergedReader:
    """The segments of one merged partition."""

    def __init__(self, fs: FileSystem, path: str, whose: PartitionFile, *, read_only: bool) -> None:
        self.path = path
        self.topic = whose.topic
        self.topic_id = whose.topic_id
        self.partition = whose.partition
        self._fs = fs
        self._whose = whose
        start = LogCheckpoint(whose.start_offset, whose.start_offset, 0, whose.start_checksum)
        self._chain = SegmentChain(start)
        self._chain.log_start = whose.log_start
        self._files = FileCache(fs)
        self._reader = SegmentReader(fs, path, self._chain, self._files, read_only=read_only)
        self._last_append: tuple[int, int] | None = None
        """(segment, byte) of a batch near the end; None: not known."""

    @property
    def next_offset(self) -> int:
        """The offset of the next record."""
        return self._chain.growing.next_offset

    @property
    def start_offset(self) -> int:
        """The offset of the first record held that is not archived."""
        return self._chain.first_offset

    @property
    def log_start(self) -> LogStart:
        """What is archived. (Damage may have taken more: that is not told to anybody.)"""
        whose = self._whose
        offset = max(whose.start_offset, self._chain.log_start)
        return LogStart(offset, whose.start_offset, whose.start_checksum)

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

    def read(self, segment_base: int, byte: int, limit_bytes: int) -> bytes:
        """Whole batches from a batch boundary: at most `limit_bytes`, but at least one if any.

        Raises:
            NoSuchFile: there is no such segment here.
            CorruptLog: no batch starts there.
            DiskFault: the disk fails.
        """
        return self._reader.read(segment_base, byte, limit_bytes)

    def locate(self, offset: int) -> tuple[int, int]:
        """(segment, byte) of the batch that holds `offset`; the end for the next offset.

        Raises:
            OffsetNotHeld: it is below the start, or above the end.
        """
        return self._reader.locate(offset)

    def locate_timestamp(self, timestamp: int) -> int:
        """The offset of the first record whose timestamp (ms) is at least this; else the next."""
        found = self._reader.locate_timestamp(timestamp)
        return self.next_offset if found is None else found[0]

    def locate_record(self, timestamp: int) -> tuple[int, int] | None:
        """(offset, timestamp) of the first record whose timestamp (ms) is at least this."""
        return self._reader.locate_timestamp(timestamp)

    def youngest(self) -> tuple[int, int] | None:
        """(offset, timestamp) of the first of the records with the highest timestamp."""
        highest = max((each.max_timestamp for each in self.segments() if each.size), default=None)
        return None if highest is None else self._reader.locate_timestamp(highest)

    def first_timestamp(self, segment_base: int) -> int:
        """The timestamp (ms) of a segment's first record. Raises as `read`."""
        return read_header(self.read(segment_base, 0, HEADER_BYTES)).base_timestamp

    def epoch_at(self, offset: int) -> int:
        """The leader epoch of a record. Raises OffsetNotHeld."""
        return self._reader.epoch_at(offset)

    def end_of_epoch(self, epoch: int) -> int:
        """The offset behind the last record of this leader epoch or an earlier one."""
        return self._reader.end_of_epoch(epoch)

    def last_batch(self) -> tuple[int, int, int] | None:
        """(segment, start, CRC field) of the last batch."""
        return self._reader.last_batch(self._last_append)

    def batch_at(self, segment_base: int, byte: int) -> int | None:
        """The CRC field of the batch that starts there; None if none does. Raises NoSuchFile."""
        return self._reader.batch_at(segment_base, byte)

    def _path(self, name: str) -> str:
        return os.path.join(self.path, name)
