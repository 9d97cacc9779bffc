"""What Kafka's broker demands of the records in a Produce request, with the same error codes.

Source: ByteBufferLogInputStream, ProduceRequest.validateRecords, UnifiedLog and LogValidator; their
order decides on the code where several would do. Old formats are INVALID_RECORD: only brokers whose
own logs are older than format 2 say UNSUPPORTED_FOR_MESSAGE_FORMAT. The records inside are checked
where every session's batches are (sequencer.ingest.batch_check).

The CRC is checked once, by whoever takes the batch; a fault that it would hide is told only of a
batch whose CRC is right (`check_crc`), as Kafka's broker does.

Invariant: what passes is one batch with a valid header, of a codec that the version allows.
"""

from __future__ import annotations

from samelog.format import _kernels as kernels
from samelog.format.batch import (
    CODEC_BITS,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    MAGIC,
    MAX_BATCH_BYTES_DEFAULT,
    Attribute,
    BatchHeader,
    read_header,
)
from samelog.format.compression import LIMIT_BYTES_DEFAULT, Codec
from samelog.format.errors import CorruptBatch
from samelog.kafka.codec.error_codes import ErrorCode
from samelog.kafka.codec.errors import ApiError

ZSTD_FROM = 7
_MAGIC_AT = 16
_SMALLEST_BYTES = 26
"""Of a batch of any format."""
_CRC_AT, _CRC_FROM = 17, 21
UNPACKED_FACTOR = 16
_NEWEST_CODEC = max(Codec)
_FLAGS = ~CODEC_BITS


def check_records(
    records: memoryview | None, *, version: int, limit_bytes: int, flags: int = 0
) -> BatchHeader:
    """The one batch that a partition's records are. `flags`: TRANSACTIONAL, where the request is a
    transactional id's. Raises ApiError.
    """
    header = None if records is None else _good_header(records, version, limit_bytes, flags)
    return _looked_into(records, version, limit_bytes, flags) if header is None else header


def _good_header(
    records: memoryview, version: int, limit_bytes: int, flags: int
) -> BatchHeader | None:
    """The header of a batch with which nothing is wrong; None where something may be."""
    try:
        header = read_header(records)
    except CorruptBatch:
        return None
    newest = _NEWEST_CODEC if version >= ZSTD_FROM else Codec.LZ4
    is_plain = header.producer_id < 0 or min(header.base_sequence, header.producer_epoch) >= 0
    codec = header.attributes & ~flags if header.producer_id >= 0 else header.attributes
    is_whole = header.records == header.last_offset_delta + 1 > 0
    is_good = is_plain and is_whole and header.base_offset == 0 and 0 <= codec <= newest
    return header if is_good and header.size == len(records) <= limit_bytes else None


def _looked_into(
    records: memoryview | None, version: int, limit_bytes: int, flags: int
) -> BatchHeader:
    """The same, with what is wrong in the order in which Kafka's broker finds it."""
    whole = _only_batch(records, version)
    if whole[:8] != bytes(8):
        raise ApiError(ErrorCode.invalid_record, "the base offset is not 0")
    if len(whole) > limit_bytes:
        text = f"a record batch of {len(whole)} bytes; at most {limit_bytes} are taken"
        raise ApiError(ErrorCode.message_too_large, text)
    if len(whole) < HEADER_BYTES:
        raise ApiError(ErrorCode.corrupt_message, f"a record batch of {len(whole)} bytes")
    try:
        _check_codec(whole, _NEWEST_CODEC)
        header = read_header(whole)
        _check_header(header, flags)
    except (ApiError, CorruptBatch) as fault:
        check_crc(whole)
        if isinstance(fault, ApiError):
            raise
        raise ApiError(ErrorCode.invalid_record, str(fault)) from fault
    return header


def unpacked_limit(limit_bytes: int) -> int:
    """What a batch may unpack to where batches of `limit_bytes` are taken."""
    return min(LIMIT_BYTES_DEFAULT, UNPACKED_FACTOR * max(limit_bytes, MAX_BATCH_BYTES_DEFAULT))


def check_crc(batch: memoryview) -> None:
    """Raises ApiError if a batch is not what its producer wrote."""
    if kernels.crc32c(batch[_CRC_FROM:]) != int.from_bytes(batch[_CRC_AT:_CRC_FROM], "big"):
        raise ApiError(ErrorCode.corrupt_message, "the record batch's CRC is wrong")


def _only_batch(records: memoryview | None, version: int) -> memoryview:
    """One whole batch of format 2, as ProduceRequest.validateRecords demands. Raises ApiError."""
    if records is None or len(records) <= _MAGIC_AT:
        raise ApiError(ErrorCode.invalid_record, "there is no record batch")
    size = LENGTH_PREFIX_BYTES + int.from_bytes(records[8:12], "big", signed=True)
    magic = records[_MAGIC_AT]
    if size < _SMALLEST_BYTES or magic > MAGIC:
        text = f"a record batch of {size} bytes with magic {magic}"
        raise ApiError(ErrorCode.corrupt_message, text)
    if size > len(records):
        text = f"the record batch claims {size} bytes of {len(records)}"
        raise ApiError(ErrorCode.invalid_record, text)
    if magic != MAGIC:
        text = f"record batches must have magic {MAGIC}, not {magic}"
        raise ApiError(ErrorCode.invalid_record, text)
    if version < ZSTD_FROM:
        _check_codec(records, Codec.LZ4, f" before version {ZSTD_FROM}")
    if size < len(records):
        raise ApiError(ErrorCode.invalid_record, "there is more than one record batch")
    return records


def _check_codec(batch: memoryview, newest: int, when: str = "") -> None:
    """Raises ApiError. For codecs that nobody has defined Kafka has UNKNOWN_SERVER_ERROR, which
    would be a fault of ours.
    """
    codec = int.from_bytes(batch[_CRC_FROM : _CRC_FROM + 2], "big") & CODEC_BITS
    if codec > newest:
        text = f"codec {codec} is not supported{when}; the newest is {newest}"
        raise ApiError(ErrorCode.unsupported_compression_type, text)


def _check_header(header: BatchHeader, flags: int) -> None:
    if header.attributes & _FLAGS & ~flags:
        _refuse_flags(header.attributes & ~flags)
    if not header.records == header.last_offset_delta + 1 > 0:
        text = f"{header.records} records, last offset delta {header.last_offset_delta}"
        raise ApiError(ErrorCode.invalid_record, text)
    if header.attributes & Attribute.TRANSACTIONAL and header.producer_id < 0:
        raise ApiError(ErrorCode.invalid_record, "a transaction's batch without a producer id")
    if header.producer_id >= 0 and (header.base_sequence < 0 or header.producer_epoch < 0):
        text = f"sequence {header.base_sequence}, epoch {header.producer_epoch} of a producer"
        raise ApiError(ErrorCode.invalid_record, text)


def _refuse_flags(attributes: int) -> None:
    if attributes & Attribute.CONTROL:
        raise ApiError(ErrorCode.invalid_record, "control batches are the broker's own")
    if attributes & Attribute.TRANSACTIONAL:
        text = "a transaction's batch in a request without its transactional id"
        raise ApiError(ErrorCode.transactional_id_authorization_failed, text)
    if attributes & Attribute.LOG_APPEND_TIME:
        raise ApiError(ErrorCode.invalid_timestamp, "the time of appending is the broker's to set")
    if attributes & Attribute.DELETE_HORIZON:
        raise ApiError(ErrorCode.invalid_record, "the delete horizon is the broker's to set")
