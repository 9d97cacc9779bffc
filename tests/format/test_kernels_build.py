"""Building batches: the kernels against the oracle, limits, and one batch known by its bytes."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samelog.format import _kernels as kernels
from samelog.format.batch import read_header
from samelog.format.compression import decompress
from samelog.format.errors import RecordTooLarge
from tests.format import oracle
from tests.format.batches import BYTES, HEADERS, RECORDS, TIMES

LIMITS: dict[str, Any] = {"batch_bytes": 1 << 20, "max_record_bytes": 1 << 20}

# One batch by hand: three records; producer 258, epoch 3, base sequence 7.
GOLDEN = bytes.fromhex(
    "0000000000000000"  # baseOffset 0
    "00000055"  # batchLength 85
    "00000000"  # partitionLeaderEpoch 0
    "02"  # magic
    "003ffa6e"  # crc, of the bytes below
    "0000"  # attributes
    "00000002"  # lastOffsetDelta 2
    "fffffffffffffffb"  # baseTimestamp -5
    "00000000000003e8"  # maxTimestamp 1000
    "0000000000000102"  # producerId 258
    "0003"  # producerEpoch 3
    "00000007"  # baseSequence 7
    "00000003"  # recordsCount 3
    # 8 bytes: attributes 0, deltas 0 0, null key, value "v0", no headers
    "10 00 00 00 01 04 7630 00"
    # 17 bytes: deltas +1005 1, key "k", null value, headers "a"="b" and "né"=null
    "22 00 da0f 02 02 6b 01 04 02 61 02 62 06 6ec3a9 01"
    # 8 bytes: deltas -1 2, empty key, empty value, header ""=""
    "10 00 01 04 00 00 02 00 00"
)


def build(records: list[Any], **options: Any) -> bytes:
    values, keys, headers, times = zip(*records, strict=True)
    return kernels.build_batches(
        values, keys=keys, headers=headers, timestamps=times, **{**LIMITS, **options}
    )


def test_known_bytes() -> None:
    records: list[Any] = [
        (b"v0", None, None, -5),
        (None, b"k", [("a", b"b"), ("né", None)], 1000),
        (b"", b"", [("", b"")], -6),
    ]
    built = build(records, producer_id=258, producer_epoch=3, base_sequence=7)
    assert built.hex(" ") == GOLDEN.hex(" ")
    decoded = kernels.decode_records(GOLDEN, 0, len(GOLDEN), "t", 4, decompress)
    assert decoded == [
        kernels.Record("t", 4, 0, -5, 0, None, b"v0", ()),
        kernels.Record("t", 4, 1, 1000, 0, b"k", None, (("a", b"b"), ("né", None))),
        kernels.Record("t", 4, 2, -6, 0, b"", b"", (("", b""),)),
    ]


@given(
    RECORDS,
    st.sampled_from([0, 62, 150, 400, 1 << 20]),
    st.sampled_from([-1, 0, 5, (1 << 31) - 1, (1 << 31) - 3]),
    st.sampled_from([(-1, -1), (0, 0), ((1 << 63) - 1, 32767)]),
)
def test_build_batches_agrees(
    records: list[Any], batch_bytes: int, sequence: int, producer: tuple[int, int]
) -> None:
    options: dict[str, Any] = {
        "batch_bytes": batch_bytes,
        "producer_id": producer[0],
        "producer_epoch": producer[1],
        "base_sequence": sequence,
    }
    values, keys, headers, times = zip(*records, strict=True)
    expected = oracle.build_batches(values, keys=keys, headers=headers, timestamps=times, **options)
    built = build(records, **options)
    assert built == expected
    scan = kernels.scan(built)
    assert (scan.records, scan.end, scan.error) == (len(records), len(built), None)


@given(st.lists(BYTES, max_size=20), TIMES)
def test_values_alone_with_one_time(values: list[bytes | None], timestamp: int) -> None:
    expected = oracle.build_batches(values, timestamps=timestamp, batch_bytes=300)
    built = kernels.build_batches(
        values, timestamps=timestamp, batch_bytes=300, max_record_bytes=1000
    )
    assert built == expected


def column(values: list[bytes | None], before: list[bytes | None]) -> kernels.BytesColumn:
    """The values as rows of an Arrow array, behind others."""
    rows = [*before, *values]
    ends = [sum(len(row or b"") for row in rows[:index]) for index in range(len(rows) + 1)]
    bits = sum((row is not None) << index for index, row in enumerate(rows))
    return kernels.BytesColumn(
        bits.to_bytes(len(rows) // 8 + 1, "little"),
        b"".join(end.to_bytes(8, sys.byteorder) for end in ends),
        b"".join(row or b"" for row in rows),
        len(before),
        len(values),
    )


@given(st.lists(BYTES, max_size=20), st.lists(BYTES, max_size=9), TIMES)
def test_a_column_is_what_its_values_are(
    values: list[bytes | None], before: list[bytes | None], timestamp: int
) -> None:
    lent = column(values, before)
    assert (list(lent), len(lent)) == (values, len(values))
    assert [list(lent[at:]) for at in range(3)] == [values[at:] for at in range(3)]
    built, expected = (
        kernels.build_batches(each, timestamps=timestamp, batch_bytes=300, max_record_bytes=1000)
        for each in (lent, values)
    )
    assert built == expected


@pytest.mark.parametrize(
    ("validity", "offsets", "data", "first", "count"),
    [
        (None, [0, 1], b"a", 0, 2),
        (None, [0, 1], b"a", 1, 1),
        (None, [0, 1], b"a", -1, 1),
        (None, [0, 1], b"a", 0, -1),
        (b"", [0, 1], b"a", 0, 1),
        (None, [0, 2], b"a", 0, 1),
        (None, [1, 0], b"a", 0, 1),
        (None, [-1, 1], b"a", 0, 1),
    ],
)
def test_a_column_does_not_reach_beyond_its_buffers(
    validity: bytes | None, offsets: list[int], data: bytes, first: int, count: int
) -> None:
    packed = b"".join(each.to_bytes(8, sys.byteorder, signed=True) for each in offsets)
    with pytest.raises(ValueError, match=r"row"):
        kernels.build_batches(
            kernels.BytesColumn(validity, packed, data, first, count), timestamps=1, **LIMITS
        )


@given(BYTES, BYTES, HEADERS, TIMES)
def test_build_record_is_a_batch_of_one(
    value: bytes | None, key: bytes | None, headers: Any, timestamp: int
) -> None:
    expected = oracle.build_batches(
        [value], keys=[key], headers=[headers], timestamps=timestamp, batch_bytes=0
    )
    assert kernels.build_record(value, key, headers, timestamp) == expected


@given(RECORDS, RECORDS)
def test_builder_gives_the_bytes_of_build_batches(first: list[Any], second: list[Any]) -> None:
    builder = kernels.BatchBuilder()
    size = 0
    for records in (first, second):
        for count, (value, key, headers, timestamp) in enumerate(records):
            assert builder.records == count
            size = builder.add(value, key, headers, timestamp)
        options: dict[str, Any] = {"producer_id": 5, "producer_epoch": 1, "base_sequence": 3}
        batch = builder.finish(**options)
        assert len(batch) == size
        assert batch == build(records, **options)
    assert builder.finish() == b""


def test_a_batch_closes_before_it_gets_larger_than_asked() -> None:
    size = len(kernels.build_record(b"x" * 10)) - 61
    for extra, count in ((-1, 3), (0, 2)):
        built = kernels.build_batches(
            [b"x" * 10] * 3, timestamps=0, batch_bytes=61 + 2 * size + extra, max_record_bytes=99
        )
        assert kernels.scan(built).batches == count


def test_other_buffers_are_taken() -> None:
    data: list[Any] = [bytearray(b"a"), memoryview(b"xbx")[1:2], memoryview(b"c-d-")[::2], b"e"]
    built = kernels.build_batches(data, keys=data, timestamps=0, **LIMITS)
    records = kernels.decode_records(built, 0, len(built), "t", 0, decompress)
    assert [record.value for record in records] == [b"a", b"b", b"cd", b"e"]
    assert [record.key for record in records] == [b"a", b"b", b"cd", b"e"]
    assert kernels.build_record(bytearray(b"a")) == kernels.build_record(b"a")


def test_no_values_give_no_bytes() -> None:
    assert kernels.build_batches([], timestamps=[], **LIMITS) == b""


def test_a_record_that_is_too_large_is_named() -> None:
    headers = [("h", b"12345")]
    size = len(kernels.build_record(b"x" * 50, b"key", headers)) - 61
    fits: dict[str, Any] = {"batch_bytes": 1000, "max_record_bytes": size}
    kernels.build_batches([b"x" * 50], keys=[b"key"], headers=[headers], timestamps=0, **fits)
    kernels.build_record(b"x" * 50, b"key", headers, 0, size)
    with pytest.raises(RecordTooLarge) as caught:
        kernels.build_batches([b"", b"x" * 99], timestamps=0, **fits)
    assert (caught.value.index, caught.value.limit) == (1, size)
    assert caught.value.size == len(kernels.build_record(b"x" * 99)) - 61
    with pytest.raises(RecordTooLarge):
        kernels.build_record(b"x" * 50, b"key", headers, 0, size - 1)
    builder = kernels.BatchBuilder(size)
    builder.add(b"x" * 50, b"key", headers)
    with pytest.raises(RecordTooLarge) as caught:
        builder.add(b"x" * 51, b"key", headers)
    assert (caught.value.index, builder.records) == (1, 1)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"values": [b"a"], "keys": []}, ValueError),
        ({"values": [b"a"], "headers": [[], []]}, ValueError),
        ({"values": [b"a"], "timestamps": [1, 2]}, ValueError),
        ({"values": [b"a"], "timestamps": [1 << 63]}, OverflowError),
        ({"values": [b"a"], "timestamps": ["x"]}, TypeError),
        ({"values": ["text"]}, TypeError),
        ({"values": [7]}, TypeError),
        ({"values": [b"a"], "keys": ["text"]}, TypeError),
        ({"values": [b"a"], "headers": [[(b"key", b"")]]}, TypeError),
        ({"values": [b"a"], "headers": [[("key", "text")]]}, TypeError),
        ({"values": [b"a"], "headers": [["abc"]]}, ValueError),
        ({"values": [b"a"], "headers": [[("\ud800", b"")]]}, UnicodeEncodeError),
        ({"values": [b"a"], "max_record_bytes": 0}, ValueError),
        ({"values": [b"a"], "max_record_bytes": (1 << 30) + 1}, ValueError),
        ({"values": [b"a"], "batch_bytes": (1 << 30) + 1}, ValueError),
    ],
)
def test_wrong_arguments(options: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        kernels.build_batches(**{"timestamps": 0, **LIMITS, **options})


def test_a_failed_add_leaves_the_builder_as_it_was() -> None:
    builder = kernels.BatchBuilder()
    builder.add(b"a")
    with pytest.raises(TypeError):
        builder.add(b"b", None, [("key", "text")])  # type: ignore[list-item]
    assert builder.finish() == kernels.build_record(b"a")


def test_max_timestamp_is_the_highest_not_the_last() -> None:
    built = kernels.build_batches([b"", b"", b""], timestamps=[5, 9, -3], **LIMITS)
    header = read_header(built)
    assert (header.base_timestamp, header.max_timestamp) == (5, 9)
