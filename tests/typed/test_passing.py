"""What passes a filter, as record batches again (docs/typed.md, T21, T24)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samelog.format import _kernels as kernels
from samelog.format.arrow import to_arrow
from samelog.format.errors import CorruptBatch
from samelog.format.transactions import Aborted
from samelog.typed.arrow_types import import_arrow
from samelog.typed.filters.operands import BadFilter
from samelog.typed.filters.passing import PassedPiece, Passing, projected
from samelog.typed.filters.selection import RowsWanted
from samelog.typed.filters.view_text import ViewText, names_in, parse_view
from samelog.typed.reading import unread_of
from samelog.typed.schema import Schema, parse_schema
from samelog.typed.values.codecs import codec_of
from samelog.typed.versions import mark
from tests.typed.known import schema_text

FORMATS = ("json", "avro", "csv", "arrow")
PLACE = ("t", 0)


def schema_of(value_format: str) -> Schema:
    return parse_schema(schema_text("a int64", "b string", value_format=value_format))


def log_of(
    values: list[bytes | None], first: int = 0, headers: Any = None, size: int = 300
) -> bytes:
    """Batches of a merged log."""
    data = bytearray(
        kernels.build_batches(
            values,
            keys=[b"k%d" % n for n in range(len(values))],
            headers=headers,
            timestamps=list(range(len(values))),
            batch_bytes=size,
            max_record_bytes=1 << 20,
        )
    )
    kernels.assign_offsets(
        data,
        0,
        len(data),
        first,
        3,
        file_position=0,
        bytes_since_index=0,
        index_interval=1 << 30,
        points=[],
    )
    return bytes(data)


def records_of(piece: PassedPiece) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = to_arrow(
        piece.data, 0, len(piece.data), topic="t", partition=0
    ).to_pylist()
    return found


@given(
    st.lists(st.one_of(st.none(), st.integers(0, 9)), min_size=1, max_size=60),
    st.integers(0, 20),
    st.integers(0, 20),
    st.integers(20, 2000),
)
def test_every_offset_is_in_a_batch_and_rows_keep_theirs(
    numbers: list[int | None], skip: int, cut: int, size: int
) -> None:
    """A null stands for a record without a value."""
    values = [None if n is None else b'{"a":%d,"b":"x"}' % n for n in numbers]
    data = log_of(values, first=100, size=size)
    first, stop = 100 + min(skip, len(numbers) - 1), 100 + len(numbers)
    stop = max(first + 1, stop - cut)
    passing = Passing(RowsWanted("a < 5 OR a IS NULL", ["a"]), {1: schema_of("json")}, 1)
    piece = passing.piece(data, PLACE, (first, stop), [(0, 1)])
    assert piece.next_offset == stop
    scan = kernels.scan(piece.data)
    assert (scan.end, scan.records) == (len(piece.data), stop - first)
    assert int.from_bytes(piece.data[:8], "big") == first
    expected = [
        (100 + n, None if number is None else {"a": number}, b"k%d" % n)
        for n, number in enumerate(numbers)
        if first <= 100 + n < stop and (number is None or number < 5)
    ]
    found = [
        (each["offset"], each["value"] and json.loads(each["value"]), each["key"])
        for each in records_of(piece)
    ]
    assert found == expected


@pytest.mark.parametrize("value_format", FORMATS)
def test_rows_are_written_anew_in_the_format_of_the_topic(value_format: str) -> None:
    schema, arrow = schema_of(value_format), import_arrow()
    rows = [{"a": n, "b": f"text {n}"} for n in range(20)]
    table = arrow.Table.from_pylist(rows)
    values: list[bytes | None] = [*codec_of(schema).encode(table)]
    if value_format == "arrow":
        values = [codec_of(schema).encode(table.slice(n, 5))[0] for n in range(0, 20, 5)]
    passing = Passing(RowsWanted("a >= 7 AND a <> 9", ["b"]), {1: schema}, 1)
    piece = passing.piece(log_of(values), PLACE, (0, 100), [(0, 1)])
    found = [each["value"] for each in records_of(piece)]
    read = codec_of(projected(schema, ["b"])).decode(found)
    assert not read.misfits
    assert read.table.to_pylist() == [{"b": f"text {n}"} for n in range(7, 20) if n != 9]


def test_what_cannot_be_read_passes_as_it_is_and_is_named() -> None:
    values: list[bytes | None] = [b'{"a":1,"b":"x"}', b"no json", b'{"a":2,"b":"x"}']
    passing = Passing(RowsWanted("a > 1", ["a"]), {1: schema_of("json")}, 1)
    piece = passing.piece(log_of(values), PLACE, (0, 3), [(0, 1)])
    assert [each["value"] for each in records_of(piece)] == [b"no json", b'{"a":2}']
    found = to_arrow(piece.data, 0, len(piece.data), topic="t", partition=0)
    place, why = unread_of(found) or (9, "")
    assert (place, piece.unread, piece.newest_unread) == (0, 1, 1)
    assert why.startswith("offset 1, written with version 1")
    skipping = Passing(RowsWanted("a > 1", ["a"]), {1: schema_of("json")}, 1, skips_unread=True)
    piece = skipping.piece(log_of(values), PLACE, (0, 3), [(0, 1)])
    assert [each["value"] for each in records_of(piece)] == [b'{"a":2}']
    assert (piece.unread, piece.newest_unread) == (1, 1)


def test_marks_are_read_and_not_passed_on() -> None:
    old = parse_schema(schema_text("b string", "a int64", value_format="csv"))
    new = parse_schema(schema_text("a int64", "b string", value_format="csv"))
    headers = [[mark(1, old.fingerprint), ("own", b"1")], [mark(2, new.fingerprint)], None]
    data = log_of([b"x,1", b"2,y", b"3,z"], headers=headers)
    passing = Passing(RowsWanted("a < 3"), {1: old, 2: new}, 2)
    found = records_of(passing.piece(data, PLACE, (0, 3), [(0, 2)]))
    assert [each["value"] for each in found] == [b"1,x", b"2,y"]
    assert [each["headers"] for each in found] == [[{"key": "own", "value": b"1"}], []]


def test_records_without_a_schema_pass_as_they_are() -> None:
    passing = Passing(RowsWanted("_key = 'k2' OR _header('h') = '1'"), {}, 0)
    data = log_of([b"a", None, b"c"], headers=[[("h", b"1")], [("h", b"2")], None])
    found = records_of(passing.piece(data, PLACE, (0, 3), ()))
    assert [(each["offset"], each["value"]) for each in found] == [(0, b"a"), (2, b"c")]
    for wanted in (RowsWanted("a = 1"), RowsWanted(None, ["a"])):
        with pytest.raises(BadFilter):
            Passing(wanted, {}, 0)


def test_what_was_aborted_does_not_pass() -> None:
    data = bytearray(
        kernels.build_batches(
            [b"a"],
            timestamps=1,
            producer_id=7,
            producer_epoch=0,
            base_sequence=0,
            batch_bytes=500,
            max_record_bytes=500,
        )
    )
    data[22] |= 16
    data[17:21] = kernels.crc32c(memoryview(data)[21:]).to_bytes(4, "big")
    passing = Passing(RowsWanted("_offset >= 0"), {}, 0)
    aborted = [Aborted(7, 0, 5, 0)]
    assert records_of(passing.piece(bytes(data), PLACE, (0, 1), (), aborted)) == []
    assert len(records_of(passing.piece(bytes(data), PLACE, (0, 1), ()))) == 1


def test_damage_is_not_passed_on() -> None:
    data = bytearray(log_of([b"a" * 50]))
    data[-10] ^= 1
    with pytest.raises(CorruptBatch):
        Passing(RowsWanted("TRUE"), {}, 0).piece(bytes(data), PLACE, (0, 1), ())


# --- the text of a view -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT a, b FROM t WHERE a > 1", ViewText("t", ("a", "b"), "a > 1")),
        ("select * from t", ViewText("t", None, "")),
        (
            'SELECT "A" FROM "my-topic" WHERE b = \'WHERE x\' ;',
            ViewText("my-topic", ("A",), "b = 'WHERE x'"),
        ),
        (
            "SELECT a FROM t WHERE (a BETWEEN 1 AND 2) -- it",
            ViewText("t", ("a",), "(a BETWEEN 1 AND 2) -- it"),
        ),
    ],
)
def test_a_view_is_columns_a_topic_and_a_condition(text: str, expected: ViewText) -> None:
    assert parse_view(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "DROP TABLE t",
        "SELECT a, b FROM t, u",
        "SELECT a FROM t JOIN u USING (a)",
        "SELECT a + 1 FROM t",
        "SELECT a AS c FROM t",
        "SELECT t.a FROM t",
        "SELECT DISTINCT a FROM t",
        "SELECT a FROM t LIMIT 3",
        "SELECT a FROM x.t",
        "SELECT a FROM (SELECT * FROM t)",
        "SELECT a FROM t AS u WHERE a > 1",
        "SELECT a FROM t; SELECT b FROM t",
        "SELECT a FROM t UNION SELECT a FROM u",
        "SELECT 'a",
        "SELECT a",
        "WITH t AS (SELECT 1) SELECT a FROM t",
        "SELECT " + "a," * 10_000 + "a FROM t",
    ],
)
def test_a_view_is_nothing_else(text: str) -> None:
    with pytest.raises(BadFilter):
        parse_view(text)


def test_which_columns_a_condition_needs() -> None:
    assert names_in("a > 1 AND (_key = 'x' OR NOT b IS NULL) AND _header('c') = 'd'") == {"a", "b"}
    assert names_in("") == set()
