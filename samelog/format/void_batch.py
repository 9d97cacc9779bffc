"""Void batches: what stands in a merged log for records that no copy of it has any more; and empty
ones, for offsets that compaction has left nothing of.

A void batch is a Kafka control batch that holds one commit marker for each lost record. Every Kafka
client and samelog's own readers pass over control batches, while offsets stay dense and the batch
is as whole and checkable as any other. Publishers cannot write one: control batches are refused.

Invariant: the same arguments give the same bytes on every node.
"""

from __future__ import annotations

import struct

from samelog.format import _kernels as kernels
from samelog.format.batch import MAX_RECORD_BYTES, Attribute, read_header

RECORDS_LIMIT = 32_768
"""Records of one void batch: about 600 kB, within every reader's limits."""

_MARKER_KEY = struct.pack(">hh", 0, 1)  # version, type: commit (Kafka's ControlRecordType)
_MARKER_VALUE = struct.pack(">hi", 0, 0)  # version, coordinator epoch (EndTransactionMarker)
_CRC_AT, _ATTRIBUTES_AT = 17, 21
EMPTY_OFFSETS_MOST = 1 << 29
"""One empty batch stands for so many offsets at most."""


def void_batches(records: int, timestamp_ms: int) -> bytearray:
    """Batches that take the place of `records` records; they have no offsets yet."""
    whole, rest = divmod(records, RECORDS_LIMIT)
    counts = [RECORDS_LIMIT] * whole + ([rest] if rest else [])
    return bytearray(b"".join(_void_batch(count, timestamp_ms) for count in counts))


def empty_batches(first: int, behind: int, epoch: int) -> bytes:
    """Batches without records that take the offsets [first, behind)."""
    return b"".join(
        kernels.build_sparse(
            (),
            keys=(),
            headers=(),
            timestamps=(),
            offsets=(),
            first=start,
            behind=min(behind, start + EMPTY_OFFSETS_MOST),
            leader_epoch=epoch,
        )
        for start in range(first, behind, EMPTY_OFFSETS_MOST)
    )


def is_void(header: bytes) -> bool:
    """Whether a valid batch header, of 61 bytes or more, is a void batch's."""
    return stands_for_lost(read_header(header).attributes)


def stands_for_lost(attributes: int) -> bool:
    """Whether a batch with these attributes is a void batch; what ends a transaction has both."""
    return attributes & (Attribute.CONTROL | Attribute.TRANSACTIONAL) == Attribute.CONTROL


def _void_batch(records: int, timestamp_ms: int) -> bytes:
    batch = bytearray(
        kernels.build_batches(
            [_MARKER_VALUE] * records,
            keys=[_MARKER_KEY] * records,
            timestamps=timestamp_ms,
            batch_bytes=MAX_RECORD_BYTES,
            max_record_bytes=MAX_RECORD_BYTES,
        )
    )
    attributes = read_header(batch).attributes | Attribute.CONTROL
    struct.pack_into(">H", batch, _ATTRIBUTES_AT, attributes)
    struct.pack_into(">I", batch, _CRC_AT, kernels.crc32c(memoryview(batch)[_ATTRIBUTES_AT:]))
    return bytes(batch)
