"""Kafka's sparse indexes of a segment: where an offset is, and up to where a timestamp was reached.

Formats (org.apache.kafka.storage.internals.log.OffsetIndex and TimeIndex), big endian:

    .index      8 bytes: int32 offset - base offset, int32 position in the .log file
    .timeindex  12 bytes: int64 timestamp in ms, int32 offset - base offset

An offset entry names the last offset of a batch and where the batch starts; a time entry says that
no record up to its offset is younger than its timestamp.

Invariant: entries rise strictly, in every field. `checksum` is the CRC-32C of all entries, so that
a stored count and checksum tell whether a file still begins with the entries it had. An entry that
does not fit into 32 bits is left out.
"""

from __future__ import annotations

import struct

from samelog.format import _kernels as kernels

_OFFSET_ENTRY = struct.Struct(">ii")
_TIME_ENTRY = struct.Struct(">qi")
NO_TIMESTAMP = -1
_LARGEST = (1 << 31) - 1


class _Index:
    """What both have in common: entries of one size, of which the first ones are on file."""

    _entry: struct.Struct

    __slots__ = ("_entries", "_written_bytes", "base_offset", "checksum")

    def __init__(self, base_offset: int, entries: bytes = b"") -> None:
        self.base_offset = base_offset
        self._entries = bytearray(entries[: len(entries) // self._entry.size * self._entry.size])
        self._written_bytes = len(self._entries)
        self.checksum = kernels.crc32c(self._entries)

    def __len__(self) -> int:
        return len(self._entries) // self._entry.size

    def _append(self, first: int, second: int) -> None:
        if max(second, first if self._entry is _OFFSET_ENTRY else 0) > _LARGEST:
            return
        entry = self._entry.pack(first, second)
        self._entries += entry
        self.checksum = kernels.crc32c(entry, self.checksum)

    def _last(self) -> tuple[int, int]:
        first, second = self._entry.unpack_from(
            self._entries, len(self._entries) - self._entry.size
        )
        return first, second

    def _count_up_to(self, field: int, value: int) -> int:
        """How many entries have a `field` of at most `value`."""
        low, high = 0, len(self)
        size, unpack = self._entry.size, self._entry.unpack_from
        while low < high:
            middle = (low + high) // 2
            if unpack(self._entries, middle * size)[field] <= value:
                low = middle + 1
            else:
                high = middle
        return low

    def _get(self, number: int) -> tuple[int, int]:
        first, second = self._entry.unpack_from(self._entries, number * self._entry.size)
        return first, second

    def keep(self, count: int) -> None:
        """Drop all but the first `count` entries."""
        del self._entries[count * self._entry.size :]
        self._written_bytes = min(self._written_bytes, len(self._entries))
        self.checksum = kernels.crc32c(self._entries)

    def begins_with(self, count: int, checksum: int) -> bool:
        """Whether the first `count` entries are those with this checksum."""
        if count > len(self):
            return False
        return kernels.crc32c(memoryview(self._entries)[: count * self._entry.size]) == checksum

    def encode(self) -> bytes:
        """All entries, as a file holds them."""
        return bytes(self._entries)

    @property
    def has_unwritten(self) -> bool:
        """Whether entries were added since `written`."""
        return len(self._entries) > self._written_bytes

    def unwritten(self) -> tuple[int, bytes]:
        """Where in the file the entries belong that were added since `written`, and these."""
        return self._written_bytes, bytes(self._entries[self._written_bytes :])

    def written(self) -> None:
        """The file holds all entries."""
        self._written_bytes = len(self._entries)


class OffsetIndex(_Index):
    """The .index of one segment."""

    _entry = _OFFSET_ENTRY

    def append(self, offset: int, position: int) -> None:
        """Note that the batch that ends with `offset` starts at `position`."""
        self._append(offset - self.base_offset, position)

    def lookup(self, offset: int) -> tuple[int, int]:
        """(offset, position) of the last entry up to `offset`; the segment's start if there is
        none.
        """
        count = self._count_up_to(0, offset - self.base_offset)
        if count == 0:
            return self.base_offset, 0
        relative, position = self._get(count - 1)
        return self.base_offset + relative, position

    @property
    def last(self) -> tuple[int, int]:
        """(offset, position) of the last entry; the segment's start if there is none."""
        if not self._entries:
            return self.base_offset, 0
        relative, position = self._last()
        return self.base_offset + relative, position

    def keep_before(self, position: int) -> None:
        """Drop the entries of batches that start at or behind `position`."""
        self.keep(self._count_up_to(1, position - 1))


class TimeIndex(_Index):
    """The .timeindex of one segment."""

    _entry = _TIME_ENTRY

    @property
    def last(self) -> tuple[int, int]:
        """(timestamp, offset) of the last entry; (-1, base offset) if there is none."""
        if not self._entries:
            return NO_TIMESTAMP, self.base_offset
        timestamp, relative = self._last()
        return timestamp, self.base_offset + relative

    def maybe_append(self, timestamp: int, offset: int) -> None:
        """Note that `timestamp` is the highest up to `offset`, if it is news."""
        if timestamp > self.last[0]:
            self._append(timestamp, offset - self.base_offset)

    def lookup(self, timestamp: int) -> tuple[int, int]:
        """(timestamp, offset) of the last entry up to `timestamp`; (-1, base offset) if none."""
        count = self._count_up_to(0, timestamp)
        if count == 0:
            return NO_TIMESTAMP, self.base_offset
        reached, relative = self._get(count - 1)
        return reached, self.base_offset + relative

    def keep_up_to(self, offset: int) -> None:
        """Drop the entries that speak of offsets behind `offset`."""
        self.keep(self._count_up_to(1, offset - self.base_offset))
