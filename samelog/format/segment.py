"""One segment of a merged log: what is known of it, and how it grows.

Index entries follow Kafka's rule for every batch (LogSegment.append): before a batch, if more than
4096 bytes were written since the last entry, note the batch's last offset and its position, and the
highest timestamp so far if it rose. The rule looks at batches only, so that the indexes are the
same bytes on every node, however the log's bytes arrived.

Invariant: a `GrowingSegment` equals the one that a walk over the segment's bytes from the start
would give.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import msgspec

from samelog.format import _kernels as kernels
from samelog.format.batch import Bytes
from samelog.format.errors import CorruptBatch
from samelog.format.index import OffsetIndex, TimeIndex

INDEX_INTERVAL_BYTES = 4096

Point = tuple[int, int, int, int]
"""(last offset of a batch, its position, highest timestamp up to it in the call, its offset)."""


_BASE_OFFSET = struct.Struct(">q")


@dataclass(frozen=True, slots=True)
class Segment:
    """One segment as others see it; offsets [base_offset, next_offset)."""

    base_offset: int
    size: int
    sealed: bool
    next_offset: int
    max_timestamp: int
    """ms; -1 if no record has a timestamp."""


class SealedSegment(msgspec.Struct, frozen=True, array_like=True):
    """A segment that will never grow; the checksums say that its files are still the same."""

    base_offset: int
    size: int
    next_offset: int
    max_timestamp: int
    checksum: int
    """CRC-32C of all merged bytes up to the end of this segment."""
    index_entries: int
    index_checksum: int
    time_entries: int
    time_checksum: int


class Growth(msgspec.Struct, frozen=True):
    """What an append does to a segment, kept apart until the bytes are written."""

    size: int
    next_offset: int
    bytes_since_index: int
    attributes: int
    """Of all batches, ORed."""
    points: list[Point]


class GrowingSegment:
    """The newest segment: its extent, and the state of Kafka's index rule."""

    __slots__ = (
        "base_offset",
        "bytes_since_index",
        "max_timestamp",
        "max_timestamp_offset",
        "next_offset",
        "offsets",
        "size",
        "times",
    )

    def __init__(self, base_offset: int) -> None:
        self.base_offset = base_offset
        self.next_offset = base_offset
        self.size = 0
        self.bytes_since_index = 0
        self.offsets = OffsetIndex(base_offset)
        self.times = TimeIndex(base_offset)
        self.max_timestamp, self.max_timestamp_offset = self.times.last

    def assign(self, data: Bytes, size: int, leader_epoch: int | None) -> Growth:
        """Give the batches in the writable `data` their offsets, unless they keep what they have
        (None). Raises CorruptBatch.
        """
        if leader_epoch is None:
            return self.measure(data, size)
        points: list[Point] = []
        next_offset, since, attributes = kernels.assign_offsets(
            data,
            0,
            size,
            self.next_offset,
            leader_epoch,
            file_position=self.size,
            bytes_since_index=self.bytes_since_index,
            index_interval=INDEX_INTERVAL_BYTES,
            points=points,
        )
        return Growth(size, next_offset, since, attributes, points)

    def measure(self, data: Bytes, size: int) -> Growth:
        """Measure what batches add that have their offsets, as `assign` does for others. Raises
        CorruptBatch: a header is invalid, or an offset is not the next one.
        """
        points: list[Point] = []
        next_offset, since, attributes = self.next_offset, self.bytes_since_index, 0
        timestamp = timestamp_offset = -1
        for header in kernels.batch_headers(data, 0, size):
            start = header[0]
            if _BASE_OFFSET.unpack_from(data, start)[0] != next_offset:
                raise CorruptBatch(start, f"its offset is not {next_offset}")
            next_offset += header[2]
            attributes |= header[3]
            if start == 0 or header[5] > timestamp:
                timestamp, timestamp_offset = header[5], next_offset - 1
            if since > INDEX_INTERVAL_BYTES:
                points.append((next_offset - 1, self.size + start, timestamp, timestamp_offset))
                since = 0
            since += header[1]
        return Growth(size, next_offset, since, attributes, points)

    def grow(self, data: Bytes, growth: Growth) -> None:
        """The bytes of a growth are written."""
        for last_offset, position, timestamp, timestamp_offset in growth.points:
            if timestamp > self.max_timestamp:
                self.max_timestamp, self.max_timestamp_offset = timestamp, timestamp_offset
            self.offsets.append(last_offset, position)
            self.times.maybe_append(self.max_timestamp, self.max_timestamp_offset)
        # The batches from the last point on: few, as the next point would come after 4 KiB.
        start = growth.points[-1][1] - self.size if growth.points else 0
        headers = kernels.batch_headers(data, start, growth.size)
        behind, highest = growth.next_offset, self.max_timestamp + 1
        for header in reversed(headers):
            if header[5] >= highest:  # of equal ones the first counts
                highest = self.max_timestamp = header[5]
                self.max_timestamp_offset = behind - 1
            behind -= header[2]
        self.size += growth.size
        self.next_offset = growth.next_offset
        self.bytes_since_index = growth.bytes_since_index

    def resume(self, offsets: OffsetIndex, times: TimeIndex, next_offset: int) -> None:
        """Go on from the last batch that has an index entry, and starts with `next_offset`.

        `offsets` must not be empty. The state right behind the entry follows from the indexes: no
        byte since the entry, and the highest timestamp is the last time entry's.
        """
        last_offset, self.size = offsets.last
        self.next_offset = next_offset
        times.keep_up_to(last_offset)
        self.offsets, self.times = offsets, times
        self.max_timestamp, self.max_timestamp_offset = times.last
        self.bytes_since_index = 0

    def seal(self, checksum: int) -> SealedSegment:
        """The segment ends here; as in Kafka, the last time entry covers the whole segment."""
        self.times.maybe_append(self.max_timestamp, self.max_timestamp_offset)
        return SealedSegment(
            self.base_offset,
            self.size,
            self.next_offset,
            self.max_timestamp,
            checksum,
            len(self.offsets),
            self.offsets.checksum,
            len(self.times),
            self.times.checksum,
        )
