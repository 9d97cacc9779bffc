"""Hops over record batches by their headers, without reading their records.

Format: Kafka's RecordBatch, magic 2 (kafka/common/record/DefaultRecordBatch.java).

Invariant: a hop ends at a batch boundary; what lies there is a header of a batch that fits before
`stop`, or an error.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from samelog.format.batch import HEADER_BYTES, HELD_BATCH_BYTES, LENGTH_PREFIX_BYTES, MAGIC
from samelog.format.errors import CorruptLog
from samelog.store.disk.files import File

WINDOW_BYTES = 8 << 10
"""Read at once: a few small batches; of a large one little more than its header."""

_HEAD = Struct(">qi4xbI2xi8xq")
"""baseOffset, batchLength, magic, crc, lastOffsetDelta, maxTimestamp."""


class Head(NamedTuple):
    """What is asked of a batch; `start` and `size`: its bytes in the file."""

    start: int
    size: int
    crc: int
    last_offset: int
    max_timestamp: int


def heads(file: File, position: int, stop: int) -> Iterator[Head]:
    """The batches between two positions. Raises CorruptLog where none starts, DiskFault."""
    window, begin = b"", position
    while position < stop:
        if position - begin + HEADER_BYTES > len(window):
            window, begin = file.pread(min(WINDOW_BYTES, stop - position), position), position
        head = _head(window, position - begin, position)
        if head is None or position + head.size > stop:
            raise CorruptLog(file.path, position, "no whole record batch starts here")
        yield head
        position += head.size


def _head(window: bytes, at: int, position: int) -> Head | None:
    if len(window) - at < HEADER_BYTES:
        return None
    base_offset, length, magic, crc, last_delta, youngest = _HEAD.unpack_from(window, at)
    size = LENGTH_PREFIX_BYTES + length
    if magic != MAGIC or not HEADER_BYTES <= size <= HELD_BATCH_BYTES:
        return None
    return Head(position, size, crc, base_offset + last_delta, youngest)
