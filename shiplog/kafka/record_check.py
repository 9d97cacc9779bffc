"""What Kafka's broker demands of the records in a Produce request, with the same error codes.

Source: ProduceRequest.validateRecords and LogValidator. The records inside are looked at where
every session's batches are (sequencer.batch_check).

Invariant: what passes is one batch with a valid header and CRC, of a codec that the version allows.
"""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from shiplog.kafka.refusal import Refusal
from shiplog.logformat import _kernels as kernels
from shiplog.logformat.batch import (
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    MAGIC,
    Attribute,
    BatchHeader,
    read_header,
)
from shiplog.logformat.compression import Codec
from shiplog.logformat.errors import CorruptBatch

ZSTD_FROM = 7
_MAGIC_AT = 16
_CRC_FROM = 21


def check_records(records: memoryview | None, *, version: int, limit_bytes: int) -> BatchHeader:
    """The one batch that a partition's records are. Raises Refusal."""
    if not records:
        raise Refusal(ErrorCode.invalid_record, "there is no record batch")
    if len(records) > _MAGIC_AT and records[_MAGIC_AT] != MAGIC:
        text = f"record batches must have magic {MAGIC}, not {records[_MAGIC_AT]}"
        raise Refusal(ErrorCode.invalid_record, text)
    if len(records) < HEADER_BYTES:
        raise Refusal(ErrorCode.corrupt_message, "the record batch is cut")
    size = LENGTH_PREFIX_BYTES + int.from_bytes(records[8:12], "big", signed=True)
    if size > limit_bytes:
        text = f"a record batch of {size} bytes; at most {limit_bytes} are taken"
        raise Refusal(ErrorCode.message_too_large, text)
    if not HEADER_BYTES <= size <= len(records):
        text = f"the record batch claims {size} bytes of {len(records)}"
        raise Refusal(ErrorCode.corrupt_message, text)
    if size < len(records):
        raise Refusal(ErrorCode.invalid_record, "there is more than one record batch")
    if kernels.crc32c(records[_CRC_FROM:]) != int.from_bytes(records[17:21], "big"):
        raise Refusal(ErrorCode.corrupt_message, "the record batch's CRC is wrong")
    try:
        header = read_header(records)
    except CorruptBatch as error:
        raise Refusal(ErrorCode.invalid_record, str(error)) from error
    _check_header(header, version)
    return header


def _check_header(header: BatchHeader, version: int) -> None:
    if header.attributes & Attribute.CONTROL:
        raise Refusal(ErrorCode.invalid_record, "control batches are the broker's own")
    if header.attributes & Attribute.TRANSACTIONAL:
        raise Refusal(ErrorCode.invalid_txn_state, "there are no transactions")
    if header.attributes & (Attribute.LOG_APPEND_TIME | Attribute.DELETE_HORIZON):
        raise Refusal(ErrorCode.invalid_record, "the time of appending is the broker's to set")
    if header.codec is Codec.ZSTD and version < ZSTD_FROM:
        text = f"zstd needs Produce version {ZSTD_FROM}, this is version {version}"
        raise Refusal(ErrorCode.unsupported_compression_type, text)
    if header.producer_id >= 0 and (header.base_sequence < 0 or header.producer_epoch < 0):
        text = f"sequence {header.base_sequence}, epoch {header.producer_epoch} of a producer"
        raise Refusal(ErrorCode.invalid_record, text)
