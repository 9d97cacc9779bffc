"""Arrow tables hold what `decode_records` gives, for all batches, compressed or not."""

from __future__ import annotations

import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samelog.format import _kernels as kernels
from samelog.format.arrow import KEPT_BYTES, ArrowMissing, to_arrow
from samelog.format.compression import Codec, compress, decompress
from samelog.format.errors import CorruptBatch, DecompressionError
from tests.format import oracle
from tests.format.batches import changes, good_logs, guarded, logs, lying_batches, outcome

pa = pytest.importorskip("pyarrow")

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def table_of(data: Any, start: int = 0, stop: int | None = None) -> Any:
    stop = len(data) if stop is None else stop
    table = to_arrow(data, start, stop, topic="flights", partition=2)
    table.validate(full=True)
    return table


def rows(data: Any) -> list[oracle.Fields]:
    """The rows of a table, as the oracle shows records."""
    table = table_of(data)
    assert set(table["topic"].to_pylist()) <= {"flights"}
    assert set(table["partition"].to_pylist()) <= {2}
    names = ["offset", "timestamp", "timestampType", "key", "value", "headers"]
    columns = [table[name] for name in names]
    columns[1] = columns[1].cast(pa.int64())
    lists = [column.to_pylist() for column in columns]
    lists[5] = [tuple((h["key"], h["value"]) for h in headers) for headers in lists[5]]
    return list(zip(*lists, strict=True))


@given(good_logs(max_size=6))
def test_rows_are_the_records(data: bytes) -> None:
    assert rows(guarded(data)) == oracle.decode_records(data, 0, len(data))


@given(st.one_of(logs(), lying_batches().map(oracle.Batch.encode)))
def test_bad_batches_are_rejected_as_records_are(data: bytes) -> None:
    view = guarded(data)
    try:
        expected = outcome(lambda: oracle.decode_records(data, 0, len(data)))
    except DecompressionError:
        with pytest.raises(DecompressionError):
            rows(view)
    else:
        assert outcome(lambda: rows(view)) == expected


def test_every_cut_and_every_changed_byte_of_the_records() -> None:
    data = oracle.build_batches(
        [b"v", None], headers=[None, [("h", b"v"), ("é", None)]], timestamps=5, batch_bytes=1000
    )
    batch = oracle.read_batch(data, 0, len(data), 1000)
    bodies = [batch.body[:size] for size in range(len(batch.body))]
    for body in [*bodies, *changes(batch.body), batch.body + b"\x00"]:
        broken = replace(batch, body=body).encode()
        expected = outcome(partial(oracle.decode_records, broken, 0, len(broken)))
        assert outcome(partial(rows, guarded(broken))) == expected


def test_types() -> None:
    assert str(table_of(b"").schema).splitlines()[:8] == [
        "key: binary",
        "value: binary",
        "topic: string",
        "partition: int32",
        "offset: int64",
        "timestamp: timestamp[ms, tz=UTC]",
        "timestampType: int32",
        "headers: list<item: struct<key: string, value: binary>>",
    ]


def test_no_bytes_give_no_rows() -> None:
    assert table_of(b"").num_rows == 0
    assert table_of(b"abc", 3).num_rows == 0


def test_values_by_hand() -> None:
    data = kernels.build_batches(
        [b"v", None, b""],
        keys=[None, b"k", b""],
        headers=[None, [("a", b"1"), ("é", None)], []],
        timestamps=[5, -7, 99],
        batch_bytes=1000,
        max_record_bytes=1000,
    )
    table = table_of(b"xx" + data, 2)
    assert table["value"].to_pylist() == [b"v", None, b""]
    assert table["key"].to_pylist() == [None, b"k", b""]
    assert table["timestamp"].to_pylist() == [
        EPOCH + timedelta(milliseconds=t) for t in (5, -7, 99)
    ]
    assert table["headers"].to_pylist() == [
        [],
        [{"key": "a", "value": b"1"}, {"key": "é", "value": None}],
        [],
    ]
    assert [table[name].null_count for name in table.column_names] == [1, 1, 0, 0, 0, 0, 0, 0]


@pytest.mark.parametrize("codec", list(Codec))
def test_many_large_batches(codec: Codec) -> None:
    values = [b"%d" % number * 10 for number in range(20_000)]
    data = bytearray()
    for start in range(0, len(values), 5000):
        part = values[start : start + 5000]
        batch = kernels.build_batches(
            part, timestamps=start, batch_bytes=1 << 20, max_record_bytes=1000
        )
        data += packed(batch, codec, start)
    table = table_of(data)
    assert table["value"].to_pylist() == values
    assert table["offset"].to_pylist() == list(range(20_000))


def packed(batch: bytes, codec: Codec, base_offset: int) -> bytes:
    parsed = oracle.read_batch(batch, 0, len(batch), 1 << 20)
    body = compress(codec, parsed.body)
    return replace(parsed, attributes=int(codec), body=body, base_offset=base_offset).encode()


def test_header_keys_that_are_not_utf8_are_valid_strings() -> None:
    header_bytes = oracle.varint(1) + oracle.field(b"a\xff") + oracle.field(b"v")
    plain = kernels.build_record(b"")
    batch = oracle.read_batch(plain, 0, len(plain), 1000)
    body = oracle.encode_record(0, 0, None, b"", header_bytes)
    assert table_of(replace(batch, body=body).encode())["headers"].to_pylist() == [
        [{"key": "a\ufffd", "value": b"v"}]
    ]


def test_a_table_outlives_its_source() -> None:
    data = bytearray(kernels.build_record(b"value"))
    table = table_of(data)
    data[:] = bytes(len(data))
    assert table["value"].to_pylist() == [b"value"]


def test_columns_stop_at_a_batch_when_there_is_enough() -> None:
    one = kernels.build_record(b"x" * 100)
    size = len(one)
    for max_bytes, batches in ((1, 1), (size, 1), (size + 1, 2), (3 * size, 3), (1 << 30, 4)):
        columns = kernels.decode_columns(one * 4, 0, 4 * size, decompress, max_bytes=max_bytes)
        assert (columns.end, columns.rows) == (batches * size, batches)


def test_a_crc_that_was_just_verified_is_not_verified_again() -> None:
    data = bytearray(kernels.build_record(b"value"))
    data[17] ^= 1
    with pytest.raises(CorruptBatch):
        table_of(data)
    with pytest.raises(CorruptBatch):
        kernels.decode_records(data, 0, len(data), "t", 0, decompress)
    table = to_arrow(data, 0, len(data), topic="t", partition=0, verify_crc=False)
    [record] = kernels.decode_records(data, 0, len(data), "t", 0, decompress, verify_crc=False)
    assert table["value"].to_pylist() == [record.value] == [b"value"]


def test_topic_and_partition_of_many_logs_and_sizes_are_their_own() -> None:
    most = KEPT_BYTES // (len("a") + 8)
    for topic, partition, rows in [
        *(("a", number % 3, 1 + number) for number in range(12)),
        ("b", 0, 2),
        ("a", 2, most),
        ("a", 2, most + 1),
        ("\N{SNOWMAN}" * 99, 7, 3),
    ]:
        data = kernels.build_batches(
            [b""] * rows, timestamps=1, batch_bytes=64 << 10, max_record_bytes=99
        )
        table = to_arrow(data, 0, len(data), topic=topic, partition=partition)
        assert table.num_rows == rows
        assert set(table["topic"].to_pylist()) == {topic}
        assert set(table["partition"].to_pylist()) == {partition}


def test_without_pyarrow_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ArrowMissing, match="samelog with the extra 'arrow'"):
        to_arrow(b"", 0, 0, topic="t", partition=0)


def test_a_cut_batch_is_an_error() -> None:
    with pytest.raises(CorruptBatch):
        table_of(kernels.build_record(b"x")[:-1])
