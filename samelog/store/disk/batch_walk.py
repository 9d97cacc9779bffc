"""Walks over the record batches of a file, piece by piece, so that memory stays bounded.

Invariant: a walk ends at a batch boundary, before the first batch that is not whole and valid.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from samelog.format import _kernels as kernels
from samelog.format.batch import HELD_BATCH_BYTES
from samelog.store.disk.files import File

PIECE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Piece:
    """Whole valid batches: `data[:size]` is at `position` of the file; the last starts at
    `last_start`.
    """

    position: int
    data: bytes
    size: int
    last_start: int
    last_crc: int


@dataclass(frozen=True, slots=True)
class Extent:
    """How far the whole valid batches reach, and why no further; the last one, -1 and 0 if none."""

    end: int
    last_start: int
    last_crc: int
    reason: str | None


class BatchWalk:
    """An iteration over the pieces of `file` between two positions; `reason` says why it ended
    early.
    """

    def __init__(
        self,
        file: File,
        start: int,
        stop: int,
        *,
        verify_crc: bool = True,
        piece_bytes: int = PIECE_BYTES,
    ) -> None:
        self._file = file
        self._piece_bytes = piece_bytes
        self._verify_crc = verify_crc
        self._stop = stop
        self.end = start
        self.reason: str | None = None

    def __iter__(self) -> Iterator[Piece]:
        size = self._piece_bytes
        while self.end < self._stop:
            data = self._file.pread(min(size, self._stop - self.end), self.end)
            scan = kernels.scan(data, verify_crc=self._verify_crc, max_batch_bytes=HELD_BATCH_BYTES)
            if scan.end > 0:
                position, self.end = self.end, self.end + scan.end
                yield Piece(position, data, scan.end, position + scan.last_start, scan.last_crc)
                size = self._piece_bytes
            elif scan.short and len(data) == size < HELD_BATCH_BYTES:
                size = HELD_BATCH_BYTES
                continue
            if scan.error is not None or scan.end == 0:
                self.reason = scan.error or "the last batch is cut"
                return


def extent(file: File, start: int, stop: int, *, verify_crc: bool = True) -> Extent:
    """How far whole valid batches reach from `start`, at most to `stop`. Raises DiskFault."""
    walk = BatchWalk(file, start, stop, verify_crc=verify_crc)
    last_start, last_crc = -1, 0
    for piece in walk:
        last_start, last_crc = piece.last_start, piece.last_crc
    return Extent(walk.end, last_start, last_crc, walk.reason)
