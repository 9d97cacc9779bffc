"""A copy as it was: up to the records that are due by now, from where the replay begins.

A batch of which only some records are due is served as these, uncompressed. One of a transaction
is due with its last record: to cut it would make its records look committed.

A *position* of this log is an offset times a typical record's size: readers count bytes by it.

Invariant: nothing is served before it is due; the end never falls.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterator

from samelog.format import _kernels as kernels
from samelog.format.batch import MAX_RECORD_BYTES, Attribute, BatchHeader, read_header
from samelog.format.compression import decompress
from samelog.format.transactions import Aborted
from samelog.store.merged.reader import MergedReader

TYPICAL_BYTES = 160
READ_BYTES = 256 << 10
NOTHING = memoryview(b"")
ALWAYS = -(1 << 63)
"""The time of what is shown with what is before it."""
_WHOLE = Attribute.TRANSACTIONAL | Attribute.CONTROL


class ReplayLog:
    """What Kafka clients read of one copy. Implements any_broker.ReadableLog."""

    layout = 0

    def __init__(self, log: MergedReader, first: int) -> None:
        """`first`: the offset at which the replay begins."""
        self._log = log
        self._first = first
        self._due = first
        self._read_to = first
        self._ahead: deque[tuple[int, int]] = deque()
        """(offset behind, timestamp) of what was read, in order: it is due with its timestamp, and
        not before what is ahead of it.
        """

    # --- what is due ------------------------------------------------------------------------------

    @property
    def name(self) -> tuple[str, int]:
        """(topic, partition)."""
        return self._log.topic, self._log.partition

    def next_due(self) -> int | None:
        """When the next record is due, as a timestamp; None if there is none. Raises
        LogFormatError.
        """
        if not self._ahead:
            self._read_ahead()
        return self._ahead[0][1] if self._ahead else None

    def upcoming(self) -> list[int]:
        """Return the timestamps of records that were read and are not shown, without markers."""
        return [timestamp for _, timestamp in self._ahead if timestamp != ALWAYS]

    def advance(self, due_ms: float) -> int | None:
        """Show what is due, of what was read; the newest timestamp of it, None if that is nothing.
        Raises LogFormatError.
        """
        newest = None
        while self._ahead and self._ahead[0][1] <= due_ms:
            timestamp = self.show_next()
            newest = timestamp if newest is None else max(newest, timestamp)
        return newest

    def show_next(self) -> int:
        """Show the next record of those that were read, whenever it is due; its timestamp."""
        self._due, timestamp = self._ahead.popleft()
        return timestamp

    def _read_ahead(self) -> None:
        """The next batches that are there."""
        self._read_to = max(self._read_to, self._log.start_offset)
        if self._read_to >= self._log.next_offset:
            return
        data = self._log.view(*self._log.locate(self._read_to), READ_BYTES)
        for start, header in _batches(data):
            for behind, timestamp in _steps(data, start, header):
                if behind > self._read_to:
                    self._ahead.append((behind, timestamp))
            self._read_to = max(self._read_to, header.next_offset)

    # --- as of a merged log -----------------------------------------------------------------------

    @property
    def start_offset(self) -> int:
        """Where the replay begins, or what is left begins."""
        return max(self._first, self._log.start_offset)

    @property
    def next_offset(self) -> int:
        """The offset of the next record that is due."""
        return max(self._due, self.start_offset)

    @property
    def last_stable_offset(self) -> int:
        """As if nothing had come since. Raises LogFormatError."""
        return max(self.start_offset, min(self.next_offset, self._log.last_stable_offset))

    def aborted(self, first: int, stop: int) -> list[Aborted]:
        """The aborted transactions with records there. Raises LogFormatError."""
        return self._log.aborted(first, stop)

    def end(self) -> tuple[int, int]:
        """The position of the next offset."""
        return self.locate(self.next_offset)

    def locate(self, offset: int) -> tuple[int, int]:
        """The position of an offset."""
        return 0, offset * TYPICAL_BYTES

    def view(self, base: int, byte: int, limit_bytes: int) -> memoryview:
        """Whole batches from a position on, as far as they are due. Raises LogFormatError."""
        offset = max(byte // TYPICAL_BYTES, self._log.start_offset)
        if offset >= self.next_offset:
            return NOTHING
        data = self._log.view(*self._log.locate(offset), limit_bytes)
        for start, header in _batches(data):
            if header.next_offset > self._due:
                return memoryview(bytes(data[:start]) + _begun(data, start, header, self._due))
        return data

    def highest_timestamp(self) -> int | None:
        """Of what is due; None if that is nothing."""
        found = [record.timestamp for batch in self.batches_since(0) for record in _decoded(batch)]
        return max(found, default=None)

    def batches_since(self, timestamp: int) -> Iterator[bytes]:
        """The batches that may have a record that is not older, as far as they are due."""
        for batch in self._log.batches_since(timestamp):
            header = read_header(batch)
            if header.next_offset <= self._first:
                continue
            if header.next_offset <= self._due:
                yield batch
            elif cut := _begun(batch, 0, header, self._due):
                yield cut

    def epoch_at(self, offset: int) -> int:
        """None: nothing is ever cut off."""
        return -1

    def end_of_epoch(self, epoch: int) -> int:
        """The end: nothing is ever cut off."""
        return self.next_offset


def _batches(data: memoryview | bytes) -> Iterator[tuple[int, BatchHeader]]:
    """(start, header) of whole batches."""
    start = 0
    while start < len(data):
        header = read_header(data, start)
        yield start, header
        start += header.size


def _decoded(batch: memoryview | bytes) -> list[kernels.Record]:
    return kernels.decode_records(batch, 0, len(batch), "", 0, decompress, verify_crc=False)


def _steps(data: memoryview, start: int, header: BatchHeader) -> list[tuple[int, int]]:
    """(offset behind, timestamp) of what of a batch is shown by itself."""
    if header.attributes & Attribute.CONTROL:
        return [(header.next_offset, ALWAYS)]  # with what is before it
    if header.attributes & _WHOLE:
        return [(header.next_offset, header.max_timestamp)]
    records = _decoded(data[start : start + header.size])
    steps = [(record.offset + 1, record.timestamp) for record in records]
    return [*steps[:-1], (header.next_offset, steps[-1][1] if steps else ALWAYS)]


def _begun(data: memoryview | bytes, start: int, header: BatchHeader, due: int) -> bytes:
    """The records of a batch that are due, as batches; those of a transaction none."""
    if header.attributes & _WHOLE:
        return b""
    records = _decoded(data[start : start + header.size])
    return b"".join(_batch(record) for record in records if record.offset < due)


def _batch(record: kernels.Record) -> bytes:
    """A record by itself: a compacted log has gaps between records."""
    data = bytearray(
        kernels.build_batches(
            [record.value],
            keys=[record.key],
            headers=[record.headers],
            timestamps=record.timestamp,
            batch_bytes=MAX_RECORD_BYTES,
            max_record_bytes=MAX_RECORD_BYTES,
        )
    )
    struct.pack_into(">q", data, 0, record.offset)
    return bytes(data)
