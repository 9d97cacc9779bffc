"""What a partition's bytes say of transactions: markers, what is open, and what was aborted.

A transaction's records are in batches with the transactional bit. It ends in each of its partitions
with a *marker*: a control batch of one record, which says commit or abort, as Kafka's broker writes
it. Nobody but the merger writes one.

Invariant: what is open behind an offset, and what was aborted below it, follows from the bytes of
the log alone, so that nodes, copies and readers in other processes agree.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from enum import Enum

import msgspec

from samelog.format import _kernels as kernels
from samelog.format.batch import HEADER_BYTES, MAX_RECORD_BYTES, Attribute, Bytes

ABORT, COMMIT = 0, 1
"""Kafka's ControlRecordType."""
ABORTED_BYTES = 34
TRANSACTIONAL = int(Attribute.TRANSACTIONAL)
"""A plain number: IntFlag's operators take five calls."""
_MARKER = int(Attribute.TRANSACTIONAL | Attribute.CONTROL)
_KEY = struct.Struct(">hh")  # version, type
_VALUE = struct.Struct(">hi")  # version, coordinator epoch (EndTransactionMarker)
_TYPE_AT = HEADER_BYTES + 7  # behind five bytes of lengths and deltas, and the key's version
_ABORTED = struct.Struct(">hqqqq")
_ATTRIBUTES_AT, _CRC_AT = 21, 17


class Isolation(Enum):
    """What a reader wants of transactions: everything as it is merged, as Kafka's consumers by
    default; or only what is decided, without what was aborted.
    """

    READ_UNCOMMITTED = "read_uncommitted"
    READ_COMMITTED = "read_committed"


class Aborted(msgspec.Struct, frozen=True, array_like=True):
    """An aborted transaction in one partition: from its first record to its marker.
    `last_stable_offset`: below it everything was decided once the marker was there.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


def marker_batch(
    producer_id: int, producer_epoch: int, *, is_commit: bool, coordinator_epoch: int, at_ms: int
) -> bytearray:
    """The batch that ends a transaction; it has no offset yet."""
    batch = bytearray(
        kernels.build_batches(
            [_VALUE.pack(0, coordinator_epoch)],
            keys=[_KEY.pack(0, COMMIT if is_commit else ABORT)],
            timestamps=at_ms,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            batch_bytes=MAX_RECORD_BYTES,
            max_record_bytes=MAX_RECORD_BYTES,
        )
    )
    struct.pack_into(">H", batch, _ATTRIBUTES_AT, _MARKER)
    struct.pack_into(">I", batch, _CRC_AT, kernels.crc32c(memoryview(batch)[_ATTRIBUTES_AT:]))
    return batch


MARKER_BYTES = len(marker_batch(0, 0, is_commit=True, coordinator_epoch=0, at_ms=0))


def is_marker(attributes: int) -> bool:
    """Whether a batch with these attributes ends a transaction."""
    return attributes & _MARKER == _MARKER


class OpenTransactions:
    """Which transactions are open behind `offset` of a log."""

    __slots__ = ("offset", "open")

    def __init__(self, offset: int, known: Iterable[tuple[int, int]] = ()) -> None:
        self.offset = offset
        self.open: dict[int, int] = dict(known)
        """Producer id -> first offset, in the order of these."""

    def take(self, data: Bytes) -> list[Aborted]:
        """Go on behind these batches, which have the next offsets: what was aborted in them."""
        scan = kernels.scan(data, verify_crc=False)
        if not scan.attributes & TRANSACTIONAL:
            self.offset += scan.records
            return []
        aborted = []
        for header in kernels.batch_headers(data, 0, scan.end):
            if is_marker(header[3]):
                found = self._end(header[6], data[header[0] + _TYPE_AT + 1])
                aborted += [] if found is None else [found]
            elif header[3] & TRANSACTIONAL:
                self.open.setdefault(header[6], self.offset)
            self.offset += header[2]
        return aborted

    def _end(self, producer_id: int, kind: int) -> Aborted | None:
        """A marker at `offset`. Where none of its records are, nothing was aborted."""
        first = self.open.pop(producer_id, None)
        if first is None or kind == COMMIT:
            return None
        stable = next(iter(self.open.values()), self.offset + 1)
        return Aborted(producer_id, first, self.offset, stable)

    @property
    def last_stable_offset(self) -> int:
        """Below it, all transactions are decided."""
        return next(iter(self.open.values()), self.offset)


def encode_aborted(entries: Iterable[Aborted]) -> bytes:
    """A `.txnindex`, in Kafka's format."""
    return b"".join(
        _ABORTED.pack(
            0, each.producer_id, each.first_offset, each.last_offset, each.last_stable_offset
        )
        for each in entries
    )


def decode_aborted(data: bytes) -> list[Aborted]:
    """The whole entries of a `.txnindex`, up to the first that is none."""
    entries: list[Aborted] = []
    for start in range(0, len(data) - ABORTED_BYTES + 1, ABORTED_BYTES):
        version, *fields = _ABORTED.unpack_from(data, start)
        entry = Aborted(*fields)
        before = entries[-1].last_offset if entries else -1
        if version != 0 or not before < entry.last_offset >= entry.first_offset:
            break
        entries.append(entry)
    return entries


def without_aborted(data: bytes, size: int, offset: int, aborted: Sequence[Aborted]) -> bytes:
    """The batches of `data[:size]`, the first of which has this offset, that were not aborted."""
    kept, begin = [], 0
    for header in kernels.batch_headers(data, 0, size) if aborted else ():
        if header[3] & TRANSACTIONAL and hides(aborted, header[6], offset):
            kept.append(data[begin : header[0]])
            begin = header[0] + header[1]
        offset += header[2]
    return b"".join((*kept, data[begin:size])) if begin else data


def hides(aborted: Iterable[Aborted], producer_id: int, offset: int) -> bool:
    """Whether a transactional batch of this producer at this offset was aborted."""
    return any(
        each.producer_id == producer_id and each.first_offset <= offset <= each.last_offset
        for each in aborted
    )
