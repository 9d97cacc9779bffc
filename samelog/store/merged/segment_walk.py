"""Walks over a segment's bytes to know its state: on opening, when tailing, when an index is lost.

Invariant: a walk counts a batch only if it is whole, valid, and its offset is the next one.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct

from samelog.format import _kernels as kernels
from samelog.format.errors import CorruptBatch
from samelog.format.index import OffsetIndex, TimeIndex
from samelog.format.marks import IndexMark
from samelog.format.segment import GrowingSegment
from samelog.store.disk.batch_walk import BatchWalk
from samelog.store.disk.files import File

_OFFSETS = Struct(">q15xi")  # of a batch: baseOffset, lastOffsetDelta


@dataclass(slots=True)
class RunningChecksum:
    """CRC-32C over the bytes from `byte` of a segment on; feeding may begin before it."""

    byte: int
    value: int

    def feed(self, position: int, data: memoryview) -> None:
        """Add bytes at `position`, without those that were added before."""
        end = position + len(data)
        if end > self.byte:
            self.value = kernels.crc32c(data[max(self.byte - position, 0) :], self.value)
            self.byte = end


def walk_into(
    segment: GrowingSegment, file: File, stop: int, checksum: RunningChecksum
) -> str | None:
    """Take up the batches from the segment's end to `stop`; why not all of them, if so.

    Raises:
        DiskFault: the disk fails.
    """
    walk = BatchWalk(file, segment.size, stop)
    for piece in walk:
        with memoryview(piece.data)[: piece.size] as data:
            try:
                growth = segment.measure(data, piece.size)
            except CorruptBatch as error:
                _take_up(segment, data[: error.position], piece.position, checksum)
                return error.reason
            segment.grow(data, growth)
            checksum.feed(piece.position, data)
    return walk.reason


def _take_up(
    segment: GrowingSegment, data: memoryview, position: int, checksum: RunningChecksum
) -> None:
    segment.grow(data, segment.measure(data, len(data)))
    checksum.feed(position, data)


def resume_from_index(
    segment: GrowingSegment, file: File, stored: tuple[bytes, bytes], mark: IndexMark, byte: int
) -> None:
    """Spare the walk what lies before the last trusted index entry below `byte`.

    The entries in the index files are trusted as far as the mark's checksums vouch for them.
    """
    base = segment.base_offset
    offsets, times = OffsetIndex(base, stored[0]), TimeIndex(base, stored[1])
    if not offsets.begins_with(mark.index_entries, mark.index_checksum):
        return
    if not times.begins_with(mark.time_entries, mark.time_checksum):
        return
    offsets.keep(mark.index_entries)
    times.keep(mark.time_entries)
    offsets.keep_before(byte)
    if len(offsets) == 0:
        return
    last_offset, position = offsets.last
    header = file.pread(_OFFSETS.size, position)
    if len(header) == _OFFSETS.size:
        base_offset, last_delta = _OFFSETS.unpack(header)
        if base_offset + last_delta == last_offset:
            segment.resume(offsets, times, base_offset)
