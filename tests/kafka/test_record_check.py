"""What Kafka's broker demands of produced batches, and what it says when they are not so."""

from __future__ import annotations

import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samelog.kafka.codec.error_codes import ErrorCode
from samelog.kafka.codec.errors import ApiError
from samelog.kafka.record_check import check_crc, check_records
from tests.kafka.batches import batch, put

LIMIT = 10_000


def code_of(data: bytes | None, version: int = 9) -> ErrorCode:
    view = None if data is None else memoryview(data)
    try:
        check_records(view, version=version, limit_bytes=LIMIT)
        if view is not None:
            check_crc(view)
    except ApiError as refusal:
        return refusal.code
    return ErrorCode.none


def old_message(magic: int) -> bytes:
    """A message of format 0 or 1 with a right CRC, as clients older than Kafka 0.11 send it."""
    body = struct.pack(">bb", magic, 0) + (struct.pack(">q", 5) if magic else b"")
    body += struct.pack(">ii", -1, 5) + b"value"
    return struct.pack(">qiI", 0, len(body) + 4, zlib.crc32(body)) + body


def test_a_good_batch_passes() -> None:
    data = batch(b"a", b"b", producer_id=7, producer_epoch=0, base_sequence=3)
    header = check_records(memoryview(data), version=3, limit_bytes=LIMIT)
    assert (header.records, header.producer_id, header.base_sequence) == (2, 7, 3)


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (None, ErrorCode.invalid_record),
        (b"", ErrorCode.invalid_record),
        (batch()[:10], ErrorCode.invalid_record),
        (batch()[:16], ErrorCode.invalid_record),
        (batch()[:60], ErrorCode.invalid_record),
        (batch()[:-1], ErrorCode.invalid_record),
        (old_message(0), ErrorCode.invalid_record),
        (old_message(1), ErrorCode.invalid_record),
        (put(16, ">b", 3)(batch()), ErrorCode.corrupt_message),
        (put(16, ">b", -1)(batch()), ErrorCode.corrupt_message),
        (put(0, ">q", 7)(batch()), ErrorCode.invalid_record),
        (put(8, ">i", 13)(batch()), ErrorCode.corrupt_message),
        (put(8, ">i", 14)(batch()[:26]), ErrorCode.corrupt_message),
        (put(8, ">i", 1 << 30)(batch()), ErrorCode.invalid_record),
        (batch() + batch(), ErrorCode.invalid_record),
        (batch() + b"x", ErrorCode.invalid_record),
        (batch(b"x" * 8000, b"y" * 3000), ErrorCode.message_too_large),
        (put(16, ">b", 1)(batch()), ErrorCode.invalid_record),
        (put(16, ">b", 0)(batch()), ErrorCode.invalid_record),
        (batch()[:-1] + b"!", ErrorCode.corrupt_message),
        (put(8, ">i", -5)(batch()), ErrorCode.corrupt_message),
        (put(21, ">H", 0x20)(batch()), ErrorCode.invalid_record),
        (put(21, ">H", 0x10)(batch()), ErrorCode.invalid_txn_state),
        (put(21, ">H", 0x08)(batch()), ErrorCode.invalid_timestamp),
        (put(21, ">H", 0x40)(batch()), ErrorCode.invalid_record),
        (put(21, ">H", 0x80)(batch()), ErrorCode.invalid_record),
        (put(21, ">H", 5)(batch()), ErrorCode.unsupported_compression_type),
        (put(21, ">H", 7)(batch()), ErrorCode.unsupported_compression_type),
        (put(21, ">H", 5)(batch())[:-1] + b"!", ErrorCode.corrupt_message),
        (put(23, ">i", 4)(batch()), ErrorCode.invalid_record),
        (put(57, ">i", 0)(batch()), ErrorCode.invalid_record),
        (put(43, ">qhi", 5, 0, -1)(batch()), ErrorCode.invalid_record),
        (put(43, ">qhi", 5, -1, 0)(batch()), ErrorCode.invalid_record),
    ],
)
def test_a_bad_one_is_refused_with_kafkas_code(data: bytes | None, code: ErrorCode) -> None:
    assert code_of(data) == code


def test_zstd_needs_a_newer_request() -> None:
    zstd = put(21, ">H", 4)(batch())
    assert code_of(zstd, 6) == ErrorCode.unsupported_compression_type
    assert code_of(put(21, ">H", 5)(batch()), 6) == ErrorCode.unsupported_compression_type
    assert code_of(zstd, 7) == ErrorCode.none


@given(data=st.binary(max_size=120), version=st.integers(3, 11))
def test_any_bytes_pass_or_are_refused(data: bytes, version: int) -> None:
    code_of(data, version)


@given(at=st.integers(0, 70), value=st.integers(0, 255))
def test_a_damaged_batch_passes_or_is_refused(at: int, value: int) -> None:
    data = bytearray(batch(b"some value"))
    data[at] = value
    code_of(bytes(data))
