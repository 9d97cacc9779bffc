"""A merged log as plain Python would keep it: the oracle of the tests of the real one.

Invariant: nothing here uses the code under test; batches are taken apart with `struct`.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from crc32c import crc32c

INTERVAL_BYTES = 4096


@dataclass
class Batch:
    """One batch with its offset assigned."""

    data: bytes
    first: int
    records: int
    timestamp: int
    """maxTimestamp."""

    @property
    def last(self) -> int:
        """The last offset."""
        return self.first + self.records - 1


@dataclass
class Segment:
    """One segment: its batches, one behind the other."""

    base: int
    sealed: bool = False
    batches: list[Batch] = field(default_factory=list)

    @property
    def data(self) -> bytes:
        """The .log file."""
        return b"".join(batch.data for batch in self.batches)

    @property
    def end(self) -> int:
        """The next offset."""
        return self.batches[-1].last + 1 if self.batches else self.base

    def starts(self) -> list[int]:
        """Where each batch starts, and the segment's size."""
        starts = [0]
        for batch in self.batches:
            starts.append(starts[-1] + len(batch.data))
        return starts

    def indexes(self) -> tuple[bytes, bytes]:
        """The .index and .timeindex files, by Kafka's LogSegment.append and onBecomeInactive."""
        index = times = b""
        since, noted = 0, -1
        highest, highest_at = -1, self.base
        for batch, position in zip(self.batches, self.starts(), strict=False):
            if batch.timestamp > highest:
                highest, highest_at = batch.timestamp, batch.last
            if since > INTERVAL_BYTES:
                index += struct.pack(">ii", batch.last - self.base, position)
                if highest > noted:
                    times += struct.pack(">qi", highest, highest_at - self.base)
                    noted = highest
                since = 0
            since += len(batch.data)
        if self.sealed and highest > noted:
            times += struct.pack(">qi", highest, highest_at - self.base)
        return index, times


class Oracle:
    """The merged log."""

    def __init__(self) -> None:
        self.segments = [Segment(0)]

    @property
    def next_offset(self) -> int:
        """The offset of the next record."""
        return self.segments[-1].end

    def append(self, data: bytes, *, epoch: int) -> bytes:
        """Add one batch; its bytes as they should be in the log."""
        first = self.next_offset
        records = struct.unpack_from(">i", data, 57)[0]
        timestamp = struct.unpack_from(">q", data, 35)[0]
        merged = struct.pack(">q", first) + data[8:12] + struct.pack(">i", epoch) + data[16:]
        self.segments[-1].batches.append(Batch(merged, first, records, timestamp))
        return merged

    def roll(self) -> None:
        """Seal the newest segment, unless it is empty."""
        if self.segments[-1].batches:
            self.segments[-1].sealed = True
            self.segments.append(Segment(self.next_offset))

    @property
    def batches(self) -> list[Batch]:
        """All batches in order."""
        return [batch for segment in self.segments for batch in segment.batches]

    def files(self) -> dict[str, bytes]:
        """Every file of a segment."""
        files: dict[str, bytes] = {}
        for segment in self.segments:
            index, times = segment.indexes()
            name = f"{segment.base:020d}"
            files |= {f"{name}.log": segment.data, f"{name}.index": index}
            files[f"{name}.timeindex"] = times
        return files

    @property
    def checksum(self) -> int:
        """CRC-32C of all bytes."""
        return crc32c(b"".join(segment.data for segment in self.segments))

    def place(self, offset: int) -> tuple[int, int]:
        """(segment, byte) of the batch with this offset; the end for the next one."""
        for segment in self.segments:
            for batch, start in zip(segment.batches, segment.starts(), strict=False):
                if batch.first <= offset <= batch.last:
                    return segment.base, start
        return self.segments[-1].base, len(self.segments[-1].data)
