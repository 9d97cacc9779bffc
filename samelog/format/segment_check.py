"""Checks the bytes of one segment, wherever they come from, piece by piece.

Every batch whole with the right CRC, offsets dense from the base offset. What is found wrong ends
the check of the segment: behind it nothing is known of where batches begin.

Invariant: a check without a fault has seen only whole valid batches with dense offsets.
"""

from __future__ import annotations

from typing import NamedTuple

from samelog.format import _kernels as kernels
from samelog.format.batch import HELD_BATCH_BYTES
from samelog.format.errors import CorruptBatch
from samelog.format.segment import GrowingSegment
from samelog.format.void_batch import stands_for_lost


class SegmentFault(NamedTuple):
    """What is wrong at or behind an offset; `place`: in which file, and where in it."""

    offset: int
    place: str
    wanted: str
    found: str

    def __str__(self) -> str:
        return f"{self.place}: {self.found}"


class SegmentCheck:
    """One segment. `feed` its bytes in order, then `close`."""

    def __init__(self, base_offset: int, *, checksum: int = 0) -> None:
        """`checksum`: the running one (CRC-32C) where the segment begins."""
        self.segment = GrowingSegment(base_offset)
        """What the bytes give so far."""
        self.checksum = checksum
        """The running one behind them."""
        self.voids: list[tuple[int, int]] = []
        """Offsets [first, behind) that have no records."""
        self.fault: SegmentFault | None = None
        self._held = b""

    def feed(self, data: bytes) -> bool:
        """Check what of it is whole; False: there is a fault, and no more is looked at."""
        held = self._held + data
        while self.fault is None and held:
            scan = kernels.scan(held, max_batch_bytes=HELD_BATCH_BYTES)
            if scan.end == 0:
                if scan.error is not None or not scan.short:
                    self.fail(scan.error or "the last batch is cut")
                break
            self._grow(held[: scan.end])
            held = held[scan.end :]
        self._held = held
        return self.fault is None

    def close(self) -> None:
        """There are no more bytes."""
        if self.fault is None and self._held:
            self.fail("the last batch is cut")

    def _grow(self, data: bytes) -> None:
        segment = self.segment
        try:
            growth = segment.measure(data, len(data))
        except CorruptBatch as error:
            self.fail(str(error), word="from byte")
            return
        self._note_voids(data)
        segment.grow(data, growth)
        self.checksum = kernels.crc32c(data, self.checksum)

    def _note_voids(self, data: bytes) -> None:
        offset = self.segment.next_offset
        for header in kernels.batch_headers(data, 0, len(data)):
            if stands_for_lost(header[3]):
                self._add_void(offset, offset + header[2])
            offset += header[2]

    def _add_void(self, first: int, behind: int) -> None:
        if self.voids and self.voids[-1][1] == first:
            first = self.voids.pop()[0]
        self.voids.append((first, behind))

    def fail(self, reason: str, *, word: str = "byte") -> None:
        """Something is wrong behind what was checked so far."""
        segment = self.segment
        place = f"segment {segment.base_offset}, {word} {segment.size}"
        wanted = f"a whole valid batch with offset {segment.next_offset}"
        self.fault = SegmentFault(segment.next_offset, place, wanted, reason)
