"""Writes compacted segments from those of a merged log, piece by piece, into a folder beside them.

The batches are read twice or more: first to learn which record of each key is the newest, in as
many turns as the memory asks for, then to write what stays. All of it follows from the bytes and
the order (`CompactOrder`), so that every node that has the same bytes writes the same ones, with
the same version of the compressor: others get what a majority has. Each
time they are held against the running checksum, so that damage makes nothing go.

An output begins and ends where inputs do, for the running checksum is known only there. One is
closed when it has half of `segment_bytes`: small leftovers of many segments become one.

Invariant: nothing of the log is changed. What was written is durable before it is told.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Generator, Iterator, Sequence
from typing import NamedTuple, Protocol

from samelog.format import _kernels as kernels
from samelog.format.batch import HELD_BATCH_BYTES, told_size
from samelog.format.compaction import CompactedSegment
from samelog.format.compression import compress, decompress
from samelog.format.errors import CorruptLog
from samelog.format.file_names import INDEX, LOG, TIME_INDEX, segment_name
from samelog.format.segment import GrowingSegment
from samelog.format.transactions import Aborted
from samelog.store.disk.files import File, FileSystem
from samelog.store.merged.segment_files import write_entries

PIECE_BYTES = 256 << 10
SYNC_BYTES = 8 << 20
"""What is synced at once: who syncs other files meanwhile waits for it."""
SPAN_MOST = 1 << 31
"""An index has 32 bits for an offset."""


class CompactOrder(Protocol):
    """What the cluster decided."""

    @property
    def number(self) -> int: ...
    @property
    def seed(self) -> bytes: ...
    @property
    def tombstones_below(self) -> int: ...
    @property
    def segment_bytes(self) -> int: ...


class OldSegment(NamedTuple):
    """A segment that is compacted; `begin_checksum`, `checksum`: the running ones of the log as it
    was merged, where the segment begins and behind it. `bytes_checksum`: what its own bytes give.
    """

    path: str
    base: int
    stop: int
    size: int
    begin_checksum: int
    checksum: int
    bytes_checksum: int


class _Output:
    """One segment under way."""

    def __init__(self, fs: FileSystem, folder: str, first: OldSegment) -> None:
        self._fs, self._folder, self._first = fs, folder, first
        path = os.path.join(folder, segment_name(first.base, LOG))
        self._file = fs.open(path, create=True)
        self._file.truncate(0)
        self.segment = GrowingSegment(first.base)
        self._checksum = first.begin_checksum
        self._sha256 = hashlib.sha256()
        self._synced = 0

    def add(self, data: bytes) -> None:
        if data:
            self._file.pwrite(data, self.segment.size)
            if self.segment.size - self._synced >= SYNC_BYTES:
                self._file.datasync()
                self._synced = self.segment.size
            self.segment.grow(data, self.segment.measure(data, len(data)))
            self._checksum = kernels.crc32c(data, self._checksum)
            self._sha256.update(data)

    def close(self) -> None:
        self._file.close()

    def end(self, number: int, last: OldSegment) -> CompactedSegment:
        """Make it durable, with its indexes."""
        sealed = self.segment.seal(last.checksum)
        self._file.datasync()
        for suffix, index in ((INDEX, self.segment.offsets), (TIME_INDEX, self.segment.times)):
            path = os.path.join(self._folder, segment_name(self._first.base, suffix))
            file = self._fs.open(path, create=True)
            try:
                write_entries(index, file)
                file.datasync()
            finally:
                file.close()
        begin = self._first.begin_checksum
        return CompactedSegment(sealed, number, begin, self._checksum, self._sha256.digest())


class Rewriting:
    """One compaction of one partition. Call `step` until it answers 0, outside the event loop; then
    `written` has the result.
    """

    def __init__(
        self,
        fs: FileSystem,
        folder: str,
        sources: Sequence[OldSegment],
        order: CompactOrder,
        *,
        aborted: Sequence[Aborted],
        memory_bytes: int,
    ) -> None:
        """`folder` is there, and empty."""
        self._fs, self._folder, self.sources, self._order = fs, folder, sources, order
        self._kernel = kernels.Compaction(
            memory_bytes=memory_bytes,
            records=sources[-1].stop - sources[0].base,
            seed=order.seed,
            tombstones_below=order.tombstones_below,
            aborted=[(each.producer_id, each.first_offset, each.last_offset) for each in aborted],
        )
        self.written: list[CompactedSegment] = []
        self._done = 0
        self._work = self._all()

    @property
    def progress(self) -> tuple[int, int]:
        """The bytes read, and those to be read as far as is known."""
        return self._done, (self._kernel.turns + 1) * sum(each.size for each in self.sources)

    @property
    def counts(self) -> tuple[int, int]:
        """Records that stayed, and that were dropped, so far."""
        return self._kernel.kept, self._kernel.dropped

    def step(self) -> int:
        """A piece of work: the bytes that were read; 0: all is done. Raises LogFormatError."""
        done = next(self._work, 0)
        self._done += done
        return done

    def close(self) -> None:
        """Let go of all files."""
        self._work.close()

    def _all(self) -> Generator[int, None, None]:
        while True:
            fits = yield from self._turn()
            if not fits:
                self._kernel.more_turns()
                self._done = 0
            elif not self._kernel.next_turn():
                break
        yield from self._write()

    def _turn(self) -> Generator[int, None, bool]:
        for source in self.sources:
            for data, size in self._pieces(source):
                if not self._kernel.note(data, 0, size, decompress):
                    return False
                yield size
        return True

    def _write(self) -> Iterator[int]:
        left = list(reversed(self.sources))
        while left:
            output = _Output(self._fs, self._folder, left[-1])
            try:
                yield from self._fill(output, left)
            finally:
                output.close()
        self._fs.sync_directory(self._folder)

    def _fill(self, output: _Output, left: list[OldSegment]) -> Iterator[int]:
        """One segment, of as many as it takes of those that are left, the next one last."""
        first = left[-1].base
        while True:
            source = left.pop()
            for data, size in self._pieces(source):
                output.add(self._kernel.rewrite(data, 0, size, decompress, compress))
                yield size
            if not left or self._is_full(output, left[-1].stop - first):
                break
        output.add(self._kernel.finish())
        self.written.append(output.end(self._order.number, source))

    def _is_full(self, output: _Output, span: int) -> bool:
        return span >= SPAN_MOST or output.segment.size >= self._order.segment_bytes // 2

    def _pieces(self, source: OldSegment) -> Iterator[tuple[bytes, int]]:
        """Whole batches of a segment, whose CRCs are right; they are those that were merged."""
        file, position, checksum = self._fs.open(source.path), 0, source.begin_checksum
        try:
            while position < source.size:
                data, size = _piece(file, position, source.size)
                checksum = kernels.crc32c(memoryview(data)[:size], checksum)
                yield data, size
                position += size
        finally:
            file.close()
        if checksum != source.bytes_checksum:  # offsets and leader epochs are in no CRC
            raise CorruptLog(source.path, 0, "is not what was merged")


def _piece(file: File, position: int, stop: int) -> tuple[bytes, int]:
    data = file.pread(min(PIECE_BYTES, stop - position), position)
    scan = kernels.scan(data, max_batch_bytes=HELD_BATCH_BYTES)
    if scan.end == 0 and scan.short:
        data = file.pread(min(told_size(data), stop - position), position)
        scan = kernels.scan(data, max_batch_bytes=HELD_BATCH_BYTES)
    if scan.end == 0:
        raise CorruptLog(file.path, position, scan.error or "the last batch is cut")
    return data, scan.end
