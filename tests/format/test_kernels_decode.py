"""Decoding records: the kernel against the oracle, on good and lying batches; and `Record`."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samelog.format import _kernels as kernels
from samelog.format.compression import Codec, compress, decompress
from samelog.format.errors import CorruptBatch, DecompressionError
from tests.format import oracle
from tests.format.batches import (
    CONTROL,
    LOG_APPEND_TIME,
    changes,
    guarded,
    logs,
    lying_batches,
    outcome,
    whole_batches,
)
from tests.kafka.batches import packed, put


def decode(data: Any, start: int = 0, stop: int | None = None) -> list[kernels.Record]:
    stop = len(data) if stop is None else stop
    return kernels.decode_records(data, start, stop, "topic", 3, decompress)


def fields(records: list[kernels.Record]) -> list[oracle.Fields]:
    assert all((record.topic, record.partition) == ("topic", 3) for record in records)
    return [
        (
            record.offset,
            record.timestamp,
            record.timestamp_type,
            record.key,
            record.value,
            record.headers,
        )
        for record in records
    ]


def agree(data: bytes) -> None:
    """Both answer alike, or both raise; a blob that cannot be unpacked is one way to be invalid."""
    view = guarded(data)

    def twin() -> Any:
        return oracle.decode_records(data, 0, len(data))

    try:
        expected = outcome(twin)
    except DecompressionError:
        with pytest.raises(DecompressionError):
            decode(view)
    else:
        assert outcome(lambda: fields(decode(view))) == expected
        scan = kernels.scan(data)
        if scan.end == len(data) and not scan.attributes & CONTROL and not scan.is_sparse:
            checked = outcome(lambda: kernels.check_records(view, decompress))
            if isinstance(expected, list):
                expected = sum(key is None for _, _, _, key, *_ in expected)
            assert checked == expected


def plain_batch(values: list[bytes | None], **changes: Any) -> oracle.Batch:
    data = oracle.build_batches(values, timestamps=50, batch_bytes=1 << 20)
    return replace(oracle.read_batch(data, 0, len(data), 1 << 20), **changes)


@given(logs())
def test_decoding_logs_agrees(data: bytes) -> None:
    agree(data)


@given(lying_batches())
def test_decoding_lying_batches_agrees(batch: oracle.Batch) -> None:
    agree(batch.encode())


@given(st.integers(1, 3), st.binary(max_size=60))
def test_decoding_any_bytes_as_records_agrees(count: int, body: bytes) -> None:
    batch = plain_batch([b""], body=body, count=count, last_offset_delta=count - 1)
    agree(batch.encode())


def small_batch() -> oracle.Batch:
    """Every kind of field, and lengths of one and two bytes."""
    data = oracle.build_batches(
        [b"v", None, b"x" * 64, b""],
        keys=[None, b"key", b"", b"k"],
        headers=[None, [("h", b"v"), ("", None)], [], [("header", b"")]],
        timestamps=[50, 49, 5000, 50],
        batch_bytes=1000,
    )
    return oracle.read_batch(data, 0, len(data), 1000)


def test_every_cut_and_every_changed_byte_of_the_records() -> None:
    batch = small_batch()
    bodies = [batch.body[:size] for size in range(len(batch.body))]
    bodies += changes(batch.body)
    bodies += [batch.body + b"\x00", batch.body + batch.body]
    for body in bodies:
        agree(replace(batch, body=body).encode())


LENGTHS = st.sampled_from(
    [0, -1, -2, 1, 5, 127, (1 << 31) - 1, -(1 << 31), 1 << 31, 1 << 34, -(1 << 63), (1 << 63) - 1]
)


@given(st.lists(LENGTHS, min_size=5, max_size=9), st.booleans(), st.binary(max_size=6))
def test_decoding_absurd_numbers_agrees(numbers: list[int], sized: bool, tail: bytes) -> None:
    """A record whose every number may be anything, with a length that fits or does not."""
    record = b"\x00" + b"".join(oracle.varint(number) for number in numbers[1:]) + tail
    length = oracle.varint(len(record) if sized else numbers[0])
    agree(plain_batch([b""], body=length + record).encode())


@pytest.mark.parametrize(
    "encoded",
    [
        "8080808010 00000000000000",  # 33 bits
        "808080808000 00000000000000",  # six bytes
        "ffffffffff01 00000000000000",
        "0c 00 00 00 01 01 80",  # cut off
        "1e 00 80808080808080808002 00 01 01 00",  # 65 bits
    ],
)
def test_a_number_too_long_is_rejected(encoded: str) -> None:
    batch = plain_batch([b""], body=bytes.fromhex(encoded))
    with pytest.raises(CorruptBatch, match="number"):
        decode(batch.encode())


def test_a_number_may_take_more_bytes_than_needed() -> None:
    batch = plain_batch([b""], body=bytes.fromhex("9000 00 8000 00 01 01 8000"))
    assert fields(decode(batch.encode())) == [(0, 50, 0, None, None, ())]


def test_more_records_than_there_is_room_for() -> None:
    count = (1 << 31) - 1
    batch = plain_batch([b"x"], count=count, last_offset_delta=count - 1)
    with pytest.raises(CorruptBatch, match="more records than it has room for"):
        decode(batch.encode())


def test_the_error_names_the_batch_and_the_record() -> None:
    good = plain_batch([b"a", b"b"]).encode()
    bad = plain_batch([b"a", b"b"])
    bad = replace(bad, body=bad.body[:-1] + b"\x02")
    with pytest.raises(CorruptBatch) as caught:
        decode(good + bad.encode())
    assert caught.value.position == len(good)
    assert str(caught.value).startswith(f"record batch at byte {len(good)}: record 1: ")


def test_a_wrong_crc_is_rejected() -> None:
    data = bytearray(kernels.build_record(b"value"))
    data[-2] ^= 1
    with pytest.raises(CorruptBatch, match="CRC"):
        decode(data)


def test_log_append_time_gives_the_batch_time_to_all() -> None:
    batch = plain_batch([b"a", b"b"], attributes=LOG_APPEND_TIME, max_timestamp=99)
    assert [(r.timestamp, r.timestamp_type) for r in decode(batch.encode())] == [(99, 1), (99, 1)]


def test_control_batches_are_skipped_and_keep_their_offsets() -> None:
    control = plain_batch([b"c"], attributes=CONTROL, base_offset=1).encode()
    data = plain_batch([b"a"]).encode() + control + plain_batch([b"b"], base_offset=2).encode()
    assert [(r.offset, r.value) for r in decode(data)] == [(0, b"a"), (2, b"b")]


def test_header_keys_that_are_not_utf8_are_shown_with_replacements() -> None:
    header_bytes = oracle.varint(1) + oracle.field(b"a\xff") + oracle.field(b"v")
    batch = plain_batch([b""], body=oracle.encode_record(0, 0, None, b"", header_bytes))
    (record,) = decode(batch.encode())
    assert record.headers == (("a\ufffd", b"v"),)


@pytest.mark.parametrize("codec", list(Codec))
def test_every_codec_decodes(codec: Codec) -> None:
    batch = plain_batch([b"a" * 100, None, b"b"])
    batch = replace(batch, attributes=int(codec), body=compress(codec, batch.body))
    assert [record.value for record in decode(batch.encode())] == [b"a" * 100, None, b"b"]


def test_what_the_decompressor_raises_comes_through() -> None:
    batch = plain_batch([b"a"], attributes=2, body=b"junk")
    with pytest.raises(DecompressionError):
        decode(batch.encode())


def test_a_decompressor_that_answers_nonsense_is_an_error() -> None:
    data = plain_batch([b"a"], attributes=2).encode()
    with pytest.raises(TypeError):
        kernels.decode_records(data, 0, len(data), "t", 0, lambda _codec, _blob: None)  # type: ignore[arg-type,return-value]


@given(whole_batches(), whole_batches())
def test_a_part_of_a_buffer_is_decoded(first: oracle.Batch, second: oracle.Batch) -> None:
    head, tail = first.encode(), second.encode()
    expected = fields(decode(tail))
    assert fields(decode(b"junk" + head + tail, 4 + len(head))) == expected
    assert fields(decode(tail + head, 0, len(tail))) == expected


def test_a_large_batch_decodes() -> None:
    values = [b"%d" % i * 20 for i in range(5000)]
    data = kernels.build_batches(
        values, timestamps=1, batch_bytes=1 << 20, max_record_bytes=1 << 20
    )
    assert [record.value for record in decode(data)] == values
    assert [record.offset for record in decode(data)] == list(range(5000))


# --- Record ------------------------------------------------------------------------------------


def test_record_is_a_value() -> None:
    record = kernels.Record("t", 1, 2, 3, 0, b"k", b"v", [("h", None)])
    same = kernels.Record("t", 1, 2, 3, 0, b"k", b"v", (("h", None),))
    assert record == same
    assert hash(record) == hash(same)
    assert record != kernels.Record("t", 1, 3, 3, 0, b"k", b"v", (("h", None),))
    assert copy(record) == record
    assert repr(record) == (
        "Record(topic='t', partition=1, offset=2, timestamp=3, timestamp_type=0, key=b'k', "
        "value=b'v', headers=(('h', None),))"
    )


@pytest.mark.parametrize("name", ["topic", "offset", "timestamp", "key", "value", "headers"])
def test_record_cannot_be_changed(name: str) -> None:
    record = kernels.Record("t", 1, 2, 3, 0, b"k", b"v")
    with pytest.raises(AttributeError):
        setattr(record, name, None)
    with pytest.raises(AttributeError):
        record.extra = 1  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "wrong", [{"topic": b"t"}, {"key": "k"}, {"value": bytearray()}, {"headers": [(b"h", b"")]}]
)
def test_record_takes_only_the_right_types(wrong: dict[str, Any]) -> None:
    with pytest.raises(TypeError):
        kernels.Record(**wrong)


@pytest.mark.parametrize("codec", list(Codec))
def test_a_time_is_found_as_by_decoding(codec: Codec) -> None:
    times = [10, 30, 20, 30, 40]
    data = packed(codec, *[b"%d" % time for time in times], timestamps=times)
    records = decode(data)
    for since, first in product(range(50), range(7)):
        wanted = [(x.offset, x.timestamp) for x in records if x.timestamp >= since]
        expected = next((found for found in wanted if found[0] >= first), None)
        assert kernels.find_time(data, since, first, decompress) == expected


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_no_time_is_found_in_records_that_cannot_be_read(codec: Codec) -> None:
    data = put(57, ">i", 2)(packed(codec, b"one"))
    with pytest.raises(CorruptBatch):
        kernels.find_time(data, 100, 0, decompress)
