"""Arrow tables as records."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from samelog import Publisher, Record
from tests.publisher import reading


def publish(root: Path, table: Any, **options: Any) -> list[Record]:
    with Publisher("t", session="s", directory=root) as publisher:
        publisher.append_arrow(table, **options)
    return reading.records(root / "s")


def test_the_columns_of_a_subscribers_table_are_taken_as_they_are(tmp_path: Path) -> None:
    headers = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    table = pa.table(
        {
            "key": pa.array([b"k", None], pa.binary()),
            "value": pa.array([b"v", None], pa.binary()),
            "topic": ["other", "other"],
            "timestamp": pa.array([5, 1000], pa.timestamp("ms", tz="UTC")),
            "headers": pa.array([[{"key": "h", "value": b"x"}], []], headers),
        }
    )
    found = [(r.value, r.key, r.timestamp, r.headers) for r in publish(tmp_path, table)]
    assert found == [(b"v", b"k", 5, (("h", b"x"),)), (None, None, 1000, ())]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()])
def test_values_are_binary_or_text(tmp_path: Path, kind: Any) -> None:
    table = pa.table({"value": pa.array(["é", None, ""], pa.string()).cast(kind)})
    assert [r.value for r in publish(tmp_path, table)] == ["é".encode(), None, b""]


def test_a_part_of_a_table_in_many_chunks(tmp_path: Path) -> None:
    chunks = [pa.array([b"a", None, b"b"]), pa.array([], pa.binary()), pa.array([b"", b"c"])]
    table = pa.table({"value": pa.chunked_array(chunks, pa.binary())})
    wanted = table["value"].to_pylist()
    for start, stop in ((0, 5), (1, 4), (2, 3), (3, 5)):
        found = publish(tmp_path / f"{start}-{stop}", table.slice(start, stop - start))
        assert [record.value for record in found] == wanted[start:stop]


def test_columns_can_be_named(tmp_path: Path) -> None:
    table = pa.table(
        {
            "payload": [b"a"],
            "symbol": pa.array(["S"]).dictionary_encode(),
            "at": pa.array([datetime(2020, 1, 1, tzinfo=UTC)], pa.timestamp("us", tz="UTC")),
            "extra": pa.array([[("h", b"x")]], pa.map_(pa.string(), pa.binary())),
        }
    )
    (record,) = publish(
        tmp_path,
        table,
        value_column="payload",
        key_column="symbol",
        timestamp_column="at",
        headers_column="extra",
    )
    assert (record.value, record.key, record.timestamp) == (b"a", b"S", 1_577_836_800_000)
    assert record.headers == (("h", b"x"),)


def test_without_a_value_column_rows_become_json_objects(tmp_path: Path) -> None:
    batch = pa.RecordBatch.from_pydict({"carrier": ["UA", None], "delay": [2, -1], "ms": [7, 8]})
    records = publish(
        tmp_path, batch, value_column=None, key_column="carrier", timestamp_column="ms"
    )
    assert [r.value for r in records] == [
        b'{"carrier":"UA","delay":2,"ms":7}',
        b'{"carrier":null,"delay":-1,"ms":8}',
    ]
    assert [(r.key, r.timestamp) for r in records] == [(b"UA", 7), (None, 8)]


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        ({"v": [b"a"]}, {}, "no column 'value'; it has: v"),
        ({"value": [1]}, {}, "'value' is int64; it must be binary or string"),
        ({"value": [b"a"], "key": [1.5]}, {}, "'key' is double"),
        ({"value": [b"a"], "timestamp": ["now"]}, {}, "must be a timestamp, or int"),
        ({"value": [b"a"], "timestamp": pa.array([None], pa.int64())}, {}, "1 rows without"),
        ({"value": [b"a"], "headers": [["x"]]}, {}, "list of struct"),
        ({"value": [b"a"]}, {"key_column": "k"}, "no column 'k'"),
    ],
)
def test_columns_without_an_exact_meaning_are_refused(
    tmp_path: Path, columns: dict[str, Any], options: dict[str, str], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        publish(tmp_path, pa.table(columns), **options)
    assert not (tmp_path / "s" / "t-0").exists()
