"""Walks over the record batches of a file: over all their bytes, a bounded number at a time, or
from header to header without reading the records.

Invariant: a walk ends at a batch boundary, before the first batch that is not whole and valid (or,
by headers, that is not whole).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from samelog.format import _kernels as kernels
from samelog.format.batch import HEADER_BYTES, HELD_BATCH_BYTES, BatchHead, read_head, told_size
from samelog.format.errors import CorruptLog
from samelog.store.disk.files import File

CHUNK_BYTES = 1 << 20
HEADER_WINDOW_BYTES = 8 << 10
"""Read at once when hopping from header to header: a few small batches, or little more than the
header of a large one.
"""


class ReadFile(Protocol):
    """A file, or a part of one, that can be read."""

    @property
    def path(self) -> str:
        """Where it was opened."""

    def size(self) -> int:
        """Bytes in it."""

    def pread(self, size: int, position: int) -> bytes:
        """Up to `size` bytes; fewer only at the end."""


@dataclass(frozen=True, slots=True)
class BatchChunk:
    """Whole valid batches: `data[:size]` is at `position` of the file; the last starts at
    `last_start`.
    """

    position: int
    data: bytes
    size: int
    last_start: int
    last_crc: int


@dataclass(frozen=True, slots=True)
class ValidExtent:
    """How far the whole valid batches reach, and why no further; the last one, -1 and 0 if none."""

    end: int
    last_start: int
    last_crc: int
    reason: str | None


class BatchWalk:
    """An iteration over the batches of `file` between two positions; `reason` says why it ended
    early.
    """

    def __init__(
        self,
        file: ReadFile,
        start: int,
        stop: int,
        *,
        verify_crc: bool = True,
        chunk_bytes: int = CHUNK_BYTES,
    ) -> None:
        self._file = file
        self._chunk_bytes = chunk_bytes
        self._verify_crc = verify_crc
        self._stop = stop
        self.end = start
        self.reason: str | None = None

    def __iter__(self) -> Iterator[BatchChunk]:
        size = self._chunk_bytes
        while self.end < self._stop:
            data = self._file.pread(min(size, self._stop - self.end), self.end)
            scan = kernels.scan(data, verify_crc=self._verify_crc, max_batch_bytes=HELD_BATCH_BYTES)
            if scan.end > 0:
                position, self.end = self.end, self.end + scan.end
                yield BatchChunk(
                    position, data, scan.end, position + scan.last_start, scan.last_crc
                )
                size = self._chunk_bytes
            elif scan.short and len(data) == size < told_size(data):
                size = told_size(data)
                continue
            if scan.error is not None or scan.end == 0:
                self.reason = scan.error or "the last batch is cut"
                return


def valid_extent(file: ReadFile, start: int, stop: int, *, verify_crc: bool = True) -> ValidExtent:
    """How far whole valid batches reach from `start`, at most to `stop`. Raises DiskFault."""
    walk = BatchWalk(file, start, stop, verify_crc=verify_crc)
    last_start, last_crc = -1, 0
    for chunk in walk:
        last_start, last_crc = chunk.last_start, chunk.last_crc
    return ValidExtent(walk.end, last_start, last_crc, walk.reason)


def batch_heads(file: File, position: int, stop: int) -> Iterator[BatchHead]:
    """The heads of the batches between two positions, without reading their records. Raises
    CorruptLog where no whole batch starts, DiskFault.
    """
    window, begin = b"", position
    while position < stop:
        if position - begin + HEADER_BYTES > len(window):
            window, begin = (
                file.pread(min(HEADER_WINDOW_BYTES, stop - position), position),
                position,
            )
        head = read_head(window, position - begin, position)
        if head is None or position + head.size > stop:
            raise CorruptLog(file.path, position, "no whole record batch starts here")
        yield head
        position += head.size


def batch_of(file: File, position: int, stop: int, offset: int) -> int | None:
    """Where the first batch between two positions begins whose last offset is at least `offset`;
    None: there is none. Raises as `batch_heads`.
    """
    window = file.pread(min(HEADER_WINDOW_BYTES, stop - position), position)
    found = kernels.find_batch(window, offset)
    if found >= 0:
        return position + found
    heads = batch_heads(file, position, stop)
    return next((head.start for head in heads if head.last_offset >= offset), None)
