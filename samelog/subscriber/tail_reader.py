"""Reads one partition's merged files as they grow, whoever writes them; never changes them.

A segment's name is the offset at which the one before ends, so that the next file is known without
listing the directory. A batch that is short or invalid at the end of the newest segment may still
be being written: it means "not yet". In a segment that has a successor, or below the durable mark,
it is damage.

Invariant: what is handed out are whole valid batches with dense offsets from where the reader is.
"""

from __future__ import annotations

import os
from struct import Struct

import msgspec

from samelog.format import _kernels as kernels
from samelog.format.batch import HELD_BATCH_BYTES, LENGTH_PREFIX_BYTES, told_size
from samelog.format.directory_files import PartitionFile, RowsFile
from samelog.format.errors import CorruptLog
from samelog.format.file_names import LOG, segment_bases, segment_name
from samelog.format.marks import MergedMarks
from samelog.store.disk.dirty_files import read_marks
from samelog.store.disk.disk_errors import fault_of
from samelog.store.disk.files import File, FileSystem, NoSuchFile
from samelog.store.merged.log import MergedLog
from samelog.store.merged.partition_file import check_kind, read_whose
from samelog.subscriber.errors import LogReset, OffsetNotHere

_BASE_OFFSET = Struct(">q")
_LAST_OFFSET = Struct(">q15xi")  # of a batch: baseOffset, lastOffsetDelta


class Chunk(msgspec.Struct, frozen=True):
    """Whole valid batches: `data[:size]` holds the offsets [first_offset, next_offset), or what is
    left of them. `attributes`: of all batches.
    """

    data: bytes
    size: int
    first_offset: int
    next_offset: int
    attributes: int = 0


def chunk_of(data: bytes, scan: kernels.Scan) -> Chunk | None:
    """The whole batches that were scanned at the start of `data`; None if offsets have gaps."""
    first = _BASE_OFFSET.unpack_from(data)[0]
    last_base, last_delta = _LAST_OFFSET.unpack_from(data, scan.last_start)
    next_offset = last_base + last_delta + 1
    is_dense = next_offset - first == scan.records
    return Chunk(data, scan.end, first, next_offset, scan.attributes) if is_dense else None


class TailReader:
    """One partition directory, read from an offset on. Not thread-safe."""

    def __init__(self, fs: FileSystem, path: str, whose: PartitionFile) -> None:
        self.path = path
        self.topic = whose.topic
        self.topic_id = whose.topic_id
        self.partition = whose.partition
        self.next_offset = whose.start_offset
        """Of the next record to read."""
        self._fs = fs
        self._whose = whose
        self.log_path = ""
        """The file that is read now, or will be."""
        self.growing_path = ""
        """The file in which what is waited for comes."""
        self._base = 0
        self._byte = 0
        self._least_offset = 0
        """The next batch begins here or later, and at `next_offset` at the latest."""
        self._file: File | None = None
        self._descriptor = -1
        self._go_to(whose.start_offset, 0)

    @classmethod
    def open(cls, fs: FileSystem, path: str, rows: RowsFile | None = None) -> TailReader | None:
        """A reader at the start of the log, or of what passed a filter; None if nothing is there
        yet.

        Raises:
            UnsupportedFormat: the directory is of another version of the format, or has something
                else.
            CorruptLog: partition.json is unreadable.
        """
        whose = read_whose(fs, path)
        if whose is None:
            return None
        check_kind(path, whose, rows)
        return cls(fs, path, whose)

    @property
    def is_deleted(self) -> bool:
        """Whether the directory said, when last read, that the cluster deleted the topic."""
        return self._whose.is_deleted

    # --- positions -----------------------------------------------------------------------------

    def bounds(self) -> tuple[int, int]:
        """(first offset held, next offset) now. Raises DiskFault, CorruptLog."""
        log = self._open_log()
        try:
            return max(self._earliest(), log.start_offset), log.next_offset
        finally:
            log.close()

    def stable_end(self) -> int:
        """Up to there it can be read now. Raises as `bounds`."""
        return self.bounds()[1]

    def end_within(self, stop: int) -> int:
        """Where reading ends that is to end at `stop`."""
        return stop

    def locate_timestamp(self, timestamp_ms: int) -> int | None:
        """The first offset with this timestamp or a later one; None if there is none yet."""
        log = self._open_log()
        try:
            found = log.locate_timestamp(timestamp_ms)
            return found if found < log.next_offset else None
        except CorruptLog:
            earliest = self._earliest()
            if earliest > log.start_offset:  # it was looked for in a segment that is archived
                return earliest
            raise
        finally:
            log.close()

    def seek(self, offset: int) -> None:
        """Go on from `offset`. Raises OffsetNotHere."""
        log = self._open_log()
        try:
            earliest = max(self._earliest(), log.start_offset)
            if not earliest <= offset <= log.next_offset:
                raise OffsetNotHere(self.topic, self.partition, offset, earliest, log.next_offset)
            base, byte = log.locate(offset)
        finally:
            log.close()
        self._close_file()
        self._go_to(base, byte)
        self.next_offset = offset

    def _go_to(self, base: int, byte: int) -> None:
        """Read the segment that begins with offset `base` next, from `byte` on."""
        self._base, self._byte, self._least_offset = base, byte, base
        self.log_path = self.growing_path = os.path.join(self.path, segment_name(base, LOG))

    def seek_earliest(self) -> int:
        """Go on from the first offset that is not archived, and return it. Raises DiskFault."""
        self._close_file()
        self._go_to(self._earliest(), 0)
        self.next_offset = max(self._base, self._whose.log_start)
        return self.next_offset

    def _earliest(self) -> int:
        """The first offset whose segment is not archived."""
        self._read_start()
        held = segment_bases(self._fs.list_directory(self.path))
        bases = [base for base in held if base >= self._whose.start_offset]
        while len(bases) > 1 and self._size(bases[0]) == 0:
            del bases[0]
        return bases[0] if bases else self._whose.start_offset

    def _read_start(self) -> None:
        """Raises LogReset when the directory is that of another log by now."""
        whose = read_whose(self._fs, self.path)
        if whose is not None:
            if whose.topic_id != self.topic_id:
                raise LogReset(self.topic, self.partition)
            self._whose = whose

    def _size(self, base: int) -> int:
        return self._fs.size(os.path.join(self.path, segment_name(base, LOG)))

    def has_more(self) -> bool:
        """Whether `read` would find bytes, whole or not. May be called from any thread."""
        path = os.path.join(self.path, segment_name(self.next_offset, LOG))
        try:
            return self._fs.size(self.log_path) > self._byte or (
                self._byte > 0 and self._fs.exists(path)
            )
        except NoSuchFile:
            return False

    def _open_log(self) -> MergedLog:
        self._read_start()
        return MergedLog.open(
            self._fs,
            self.path,
            topic=self.topic,
            topic_id=self.topic_id,
            partition=self.partition,
            read_only=True,
            rows=self._whose if isinstance(self._whose, RowsFile) else None,
        )

    # --- reading -------------------------------------------------------------------------------

    def read(self, limit_bytes: int) -> Chunk | None:
        """The next batches: about `limit_bytes`, at least one batch; None: nothing (yet).

        The first of them may hold offsets before `next_offset`, after a seek.

        Raises:
            OffsetNotHere: they were archived meanwhile.
            LogReset: the log was restarted.
            CorruptLog: they are damaged.
            DiskFault: the disk fails.
        """
        if self._file is None and not self._open_file():
            return None
        data = self._pread(limit_bytes)
        chunk = self._next_chunk(data, limit_bytes) if data else None
        if chunk is None and self._go_to_next_segment():
            chunk = self._next_chunk(self._pread(limit_bytes), limit_bytes)
        return chunk

    def _open_file(self) -> bool:
        try:
            self._file = self._fs.open(self.log_path)
        except NoSuchFile:
            return False
        self._descriptor = self._file.fileno()
        self._read_start()  # after it: a file of the same name may be another log's
        return True

    def _go_to_next_segment(self) -> bool:
        if self.next_offset <= self._base or self._byte == 0:
            return False
        if not self._fs.exists(f"{self.path}/{segment_name(self.next_offset, LOG)}"):
            return False
        self._close_file()
        self._go_to(self.next_offset, 0)
        return self._open_file()

    def _next_chunk(self, data: bytes, limit_bytes: int) -> Chunk | None:
        """The whole batches of what was read at the reader's place. Raises as `read`."""
        scan = kernels.scan(data, max_batch_bytes=HELD_BATCH_BYTES)
        if scan.end == 0 and scan.short and len(data) == limit_bytes < (size := told_size(data)):
            return self._next_chunk(self._pread(size), size)
        if scan.end == 0:
            return None
        chunk = chunk_of(data, scan)
        if chunk is None or not self._least_offset <= chunk.first_offset <= self.next_offset:
            raise CorruptLog(self.log_path, self._byte, f"offset {self.next_offset} is not here")
        self._byte += scan.end
        self.next_offset = self._least_offset = chunk.next_offset
        return chunk

    def put_back(self, chunk: Chunk, size: int, offset: int) -> None:
        """Read again what is behind the first `size` bytes of what was read last, from where the
        batch of `offset` begins.
        """
        self._byte -= chunk.size - size
        self.next_offset = self._least_offset = offset

    def _pread(self, size: int) -> bytes:
        """What there is of `size` bytes.

        The file's size is asked for first: it is cheaper than memory for bytes that are not there.
        """
        try:
            held = os.fstat(self._descriptor).st_size - self._byte
            return os.pread(self._descriptor, min(size, held), self._byte) if held > 0 else b""
        except OSError as error:
            raise fault_of(self.log_path, "read", error) from error

    # --- when nothing comes --------------------------------------------------------------------

    def recheck_segment(self) -> None:
        """To be called now and then while nothing comes: was the file replaced, or is it damaged?

        Raises:
            CorruptLog: bytes that must be whole by now are not.
            OffsetNotHere: the segment was archived.
            LogReset: the log was restarted.
        """
        self._read_start()
        if self._file is None:
            self._find_later_start()
            return
        data = self._pread(1)
        is_replaced = self._is_replaced()
        if is_replaced and self._comes_again():
            return
        if is_replaced or (not data and self._has_successor()):
            self._close_file()
            self.seek(self.next_offset)
        elif data and self._must_be_whole():
            self._check_batch()

    def _comes_again(self) -> bool:
        """Whether what was read is still to come: it was compacted, and is being copied again."""
        first, end = self.bounds()
        return first <= self._base and end < self.next_offset

    def _check_batch(self) -> None:
        data = self._pread(told_size(self._pread(LENGTH_PREFIX_BYTES)))
        scan = kernels.scan(data, max_batch_bytes=HELD_BATCH_BYTES, max_batches=1)
        if scan.end == 0:
            raise CorruptLog(self.log_path, self._byte, scan.error or "the last batch is cut")

    def _find_later_start(self) -> None:
        """A copy that was empty may turn out to begin later than it said."""
        bases = segment_bases(self._fs.list_directory(self.path))
        if self._byte == 0 and bases and bases[0] > self.next_offset:
            self.seek_earliest()

    def _is_replaced(self) -> bool:
        if self._file is None:
            return False
        try:
            now = os.stat(self.log_path)
        except FileNotFoundError:
            return False
        return now.st_ino != os.fstat(self._descriptor).st_ino

    def _must_be_whole(self) -> bool:
        """Whether the batch at the reader's place has a successor, or is below the durable mark."""
        if self._has_successor():
            return True
        marks = read_marks(self._fs, self.path, MergedMarks)
        return marks is not None and (marks.durable.base, marks.durable.byte) > (
            self._base,
            self._byte,
        )

    def _has_successor(self) -> bool:
        bases = segment_bases(self._fs.list_directory(self.path))
        return bool(bases) and bases[-1] > self._base

    def _close_file(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def close(self) -> None:
        """Close the file."""
        self._close_file()
