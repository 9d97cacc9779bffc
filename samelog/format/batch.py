"""The Kafka v2 record batch: its layout, its header as a value, and how a batch is sliced.

Layout (big endian; source: Kafka's DefaultRecordBatch):

    at  size  field
     0     8  baseOffset            assigned when merged; not covered by the CRC
     8     4  batchLength           bytes behind this field; the whole batch takes 12 more
    12     4  partitionLeaderEpoch  assigned when merged; not covered by the CRC
    16     1  magic                 2
    17     4  crc                   CRC-32C of all bytes from 21 on
    21     2  attributes            bits 0-2 codec, 3 LogAppendTime, 4 transactional, 5 control,
                                    6 delete horizon, the rest 0
    23     4  lastOffsetDelta       recordsCount - 1, or more behind compaction
    27     8  baseTimestamp         ms
    35     8  maxTimestamp          ms
    43     8  producerId            -1: none
    51     2  producerEpoch         -1: none
    53     4  baseSequence          -1: none
    57     4  recordsCount          0 where compaction left none
    61        records               one compressed blob if there is a codec

Record: varint length of what follows; int8 attributes; varlong timestamp delta to baseTimestamp;
varint offset delta to baseOffset; varint key length (-1: null) and key; the same for the value;
varint number of headers, each a varint key length, key (UTF-8), varint value length (-1: null) and
value. All varints are zigzag.

Invariant: in our logs every offset is in one batch. A record's offset delta is its place in the
batch, but where compaction dropped some (`samelog.format.compaction`): there deltas rise.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from enum import IntFlag
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import msgspec

from samelog.format import _kernels as kernels
from samelog.format.compression import Codec, decompress
from samelog.format.errors import CorruptBatch

if TYPE_CHECKING:
    from typing_extensions import Buffer

Bytes: TypeAlias = bytes | bytearray | memoryview

HEADER_BYTES = kernels.HEADER_BYTES
LENGTH_PREFIX_BYTES = 12  # what batchLength does not count
MAGIC = 2
MAX_BATCH_BYTES_DEFAULT = kernels.MAX_BATCH_BYTES_DEFAULT  # a 1 MiB record and what is around it
HELD_BATCH_BYTES = 65 << 20
"""No batch that was ever accepted is longer than this, whatever the limits were at the time."""
MAX_RECORD_BYTES = kernels.MAX_RECORD_BYTES  # keeps every length of a batch below 31 bits
SEQUENCES = 1 << 31  # sequence numbers count from 0 to this, and on from 0
CODEC_BITS = 0x07
RESERVED_BITS = 0xFF80
_NEWEST_CODEC = max(Codec)

_STAMP = struct.Struct(">q")
MAX_TIMESTAMP_AT = 35
_HEADER = struct.Struct(">qiibIHiqqqhii")
_HEAD = struct.Struct(">qi4xbI2xi8xq")
"""baseOffset, batchLength, magic, crc, lastOffsetDelta, maxTimestamp."""


class Attribute(IntFlag):
    """The flags among a batch's attributes."""

    LOG_APPEND_TIME = 0x08
    TRANSACTIONAL = 0x10
    CONTROL = 0x20
    DELETE_HORIZON = 0x40


class BatchHeader(msgspec.Struct, frozen=True):
    """The fields of a valid header; times in ms."""

    base_offset: int
    size: int  # bytes of the whole batch
    leader_epoch: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records: int

    @property
    def codec(self) -> Codec:
        """How the records are compressed."""
        return Codec(self.attributes & CODEC_BITS)

    @property
    def next_offset(self) -> int:
        """The offset behind the last record."""
        return self.base_offset + self.last_offset_delta + 1


class BatchHead(NamedTuple):
    """What a walk over headers tells of a batch; `start` and `size`: its bytes in the file."""

    start: int
    size: int
    crc: int
    last_offset: int
    max_timestamp: int


def max_timestamp(data: Buffer, start: int = 0) -> int:
    """The newest timestamp (ms) of the batch at `start`, whose header is there and known good."""
    stamp: int = _STAMP.unpack_from(data, start + MAX_TIMESTAMP_AT)[0]
    return stamp


def read_header(data: Buffer, start: int = 0) -> BatchHeader:
    """Read and check the 61 header bytes at `start` of any buffer; the records need not be there.

    Checks what `scan` checks, but for the CRC and the size limit.

    Raises:
        CorruptBatch: fewer than 61 bytes, or a field is invalid.
    """
    view = memoryview(data)
    if not 0 <= start <= view.nbytes - HEADER_BYTES:
        raise CorruptBatch(start, "its header is cut off")
    base, length, epoch, magic, *rest = _HEADER.unpack_from(view, start)
    header = BatchHeader(base, LENGTH_PREFIX_BYTES + length, epoch, *rest)
    if magic != MAGIC:
        raise CorruptBatch(start, f"its magic byte is {magic}, not 2")
    if header.size < HEADER_BYTES:
        raise CorruptBatch(start, f"its length, {length}, is too small for a header")
    if not 0 <= header.records <= header.last_offset_delta + 1 > 0:
        claims = f"{header.records} records and last offset delta {header.last_offset_delta}"
        raise CorruptBatch(start, f"it claims {claims}")
    if header.attributes & RESERVED_BITS or header.attributes & CODEC_BITS > _NEWEST_CODEC:
        raise CorruptBatch(start, f"its attributes, {header.attributes:#06x}, are not known")
    return header


def told_size(data: Bytes) -> int:
    """How long the batch says it is that begins so, within what a batch may have."""
    size = LENGTH_PREFIX_BYTES + int.from_bytes(data[8:LENGTH_PREFIX_BYTES], "big", signed=True)
    return max(HEADER_BYTES, min(size, HELD_BATCH_BYTES))


def read_head(data: Buffer, at: int, position: int) -> BatchHead | None:
    """The head of the batch whose header is at `at` of a buffer and at `position` of a file; None
    if the 61 bytes are not all there, or none of a batch. The records need not be there.
    """
    if memoryview(data).nbytes - at < HEADER_BYTES:
        return None
    base_offset, length, magic, crc, last_delta, youngest = _HEAD.unpack_from(data, at)
    size = LENGTH_PREFIX_BYTES + length
    if magic != MAGIC or not HEADER_BYTES <= size <= HELD_BATCH_BYTES:
        return None
    return BatchHead(position, size, crc, base_offset + last_delta, youngest)


def slice_batch(batch: Buffer, skip: int) -> bytes:
    """Return `batch` without its first `skip` records, as one uncompressed batch.

    The rule, which every node must follow to the byte:

    - The records are decompressed. Records `skip` and later are kept, in order.
    - baseTimestamp becomes the timestamp of the first kept record: the old baseTimestamp plus the
      record's timestamp delta, as signed 64-bit numbers that wrap. maxTimestamp becomes the highest
      such timestamp of the kept records, but is left alone in LogAppendTime batches.
    - Each kept record is rewritten: its attributes byte, its timestamp minus the new
      baseTimestamp, its place in the new batch as offset delta, then key, value and headers.
      Length, deltas, key length and value length are varints of the fewest bytes; the header count
      and the headers are copied byte by byte.
    - The codec bits of the attributes become 0; the other bits stay.
    - baseOffset grows by `skip`, modulo 2^64; baseSequence, unless it is negative, by `skip` modulo
      2^31. batchLength, lastOffsetDelta, recordsCount and the CRC are those of the result. All
      other fields stay.

    A `skip` of 0 is legal and gives the same re-encoding of the whole batch. The result may be
    larger than any limit for batches that the original kept, since it is not compressed.

    Raises:
        CorruptBatch: the batch or a record in it (kept or not) is invalid, or bytes lie behind it.
        DecompressionError: the records cannot be unpacked, or take more than the default limit.
        ValueError: `skip` leaves no record, or the batch is a control batch.
    """
    return kernels.slice_batch(batch, skip, decompress)


def leave_out(data: Buffer, runs: Sequence[int]) -> bytearray:
    """Return whole batches without the records that `runs` leave out: so many stay, so many are
    left out, so many stay, and so on. The first number may be 0; behind the last run all stay.

    The rule, which every node must follow to the byte: a batch of which all stays is copied. One of
    which nothing stays is gone. Any other is rewritten as `slice_batch` does, with the
    records that stay instead of the last ones; baseOffset and baseSequence grow by the number of
    records before the first that stays.

    Raises:
        CorruptBatch: a batch is invalid, or a record of one that is rewritten.
        DecompressionError: such a batch cannot be unpacked, or takes more than the default limit.
        ValueError: the runs are of more records than there are.
    """
    return kernels.leave_out(data, runs, decompress)


def runs_of(staying: Iterable[bool]) -> list[int]:
    """The runs that say, record by record, which ones stay; the last one leaves some out."""
    runs, stays = [0], True
    for each in staying:
        if each is not stays:
            runs.append(0)
            stays = each
        runs[-1] += 1
    return runs if len(runs) % 2 == 0 else runs[:-1]


def joined(before: Sequence[int], records: int, behind: Sequence[int]) -> list[int]:
    """The runs of a range that begins with `records` records, by `before`, and goes on by
    `behind`.
    """
    if not behind:
        return [*before]
    runs, covered = [*before], sum(before)
    if runs and covered == records and behind[0] == 0:  # what is left out goes on
        runs[-1] += behind[1]
        return [*runs, *behind[2:]]
    return [*runs, records - covered + behind[0], *behind[1:]]


def count_staying(runs: Sequence[int], start: int, records: int) -> int:
    """How many of `records` records from number `start` on stay."""
    stop, at, left_out = start + records, 0, 0
    for place, length in enumerate(runs):
        if place % 2:
            left_out += max(0, min(stop, at + length) - max(start, at))
        at += length
    return records - left_out
