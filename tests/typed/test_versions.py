"""Which version a record has, and records of any age as rows of one (docs/typed.md, T1, T10, T11,
T19).
"""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from samelog.format.arrow import to_arrow
from samelog.typed.compatibility import problems_reading
from samelog.typed.reading import TypedReader, TypedRows
from samelog.typed.resolution import Resolution, Unresolvable
from samelog.typed.rows import table_of
from samelog.typed.schema import Schema, SchemaFormat, parse_schema
from samelog.typed.values.codec import DecodedValues
from samelog.typed.values.codecs import codec_of
from samelog.typed.versions import (
    FOREIGN,
    NO_VERSION,
    Since,
    mark,
    marked_version,
    number_in,
    version_at,
)
from tests.typed.worlds import changed, rows, schemas

RECORDS = to_arrow(b"", 0, 0, topic="t", partition=0).schema


def schema(*columns: str, value_format: str = "json") -> Schema:
    found: list[dict[str, Any]] = []
    for column in columns:
        name, kind, *default = column.split(" ")
        found.append({"name": name, "type": kind} | ({"default": int(*default)} if default else {}))
    return parse_schema(json.dumps({"format": value_format, "columns": found}))


FIRST = schema("a int32")
SECOND = schema("a int64", "b int32 7")
THIRD = schema("b int32 5", value_format="csv")


def records(
    *values: bytes | None, marks: dict[int, bytes] | None = None, base: int = 0
) -> pa.Table:
    """One after the other from offset `base` on."""
    rows = [
        {
            "value": value,
            "offset": base + place,
            "headers": [("x", b"1"), ("samelog.schema", (marks or {})[place])]
            if place in (marks or {})
            else [],
        }
        for place, value in enumerate(values)
    ]
    return pa.Table.from_pylist(rows, schema=RECORDS)


def read(found: pa.Table, version: int, since: Since = ()) -> TypedRows:
    return TypedReader({1: FIRST, 2: SECOND, 3: THIRD}, version).read(found, since)


# --- versions -----------------------------------------------------------------------------------


@given(st.integers(1, 1000))
def test_a_mark_says_its_version(version: int) -> None:
    said = mark(version, FIRST.fingerprint)[1]
    assert number_in(said) == version
    assert marked_version(said, {version: FIRST}) == version
    assert marked_version(b"%d" % version, {}) == version


@pytest.mark.parametrize(
    "value",
    [
        *(None, b"", b"0", b"01", b"-1", b"1.0", b" 1", b"10000", b"\xd9"),
        *(b"1@", b"1@0123", b"1@0123456789aB", b"1@0123456789abc", b"@0123456789ab"),
    ],
)
def test_anything_else_is_no_mark(value: bytes | None) -> None:
    assert number_in(value) == NO_VERSION
    assert marked_version(value, {1: FIRST}) == NO_VERSION


def test_a_mark_follows_its_schema_and_not_the_number() -> None:
    said = mark(1, FIRST.fingerprint)[1]
    assert marked_version(said, {1: SECOND, 2: FIRST, 3: THIRD}) == 2
    assert marked_version(said, {1: SECOND}) == FOREIGN
    assert marked_version(said, {}) == FOREIGN


def test_a_record_of_a_schema_that_the_topic_does_not_have_is_never_read_by_another() -> None:
    """The values fit version 1 of the topic, whose columns mean something else."""
    said = mark(1, schema("metres int32", value_format="csv").fingerprint)[1]
    found = read(records(b"7", b'{"a":1}', marks={0: said}), 1)
    assert found.table.to_pylist() == [{"a": 1}]
    [unread] = found.unread
    assert (unread.offset, unread.version) == (0, FOREIGN)
    assert "written with a schema that this topic does not have" in str(unread)


def test_a_record_without_a_mark_has_the_version_at_its_offset() -> None:
    since = [(5, 1), (10, 3), (12, 4)]
    assert [version_at(since, offset) for offset in (0, 5, 9, 10, 11, 12, 99)] == [
        *(1, 1, 1, 3, 3, 4, 4)
    ]
    assert version_at([], 7) == 1


# --- reading ------------------------------------------------------------------------------------


def test_records_are_read_by_their_own_versions() -> None:
    found = read(
        records(b'{"a":1}', b'{"a":2,"b":3}', b'{"a":4}', None, marks={2: b"1"}),
        2,
        since=[(0, 1), (1, 2)],
    )
    assert found.unread == []
    assert list(found.sources) == [0, 1, 2, 3]
    assert found.table.to_pylist() == [
        {"a": 1, "b": 7},
        {"a": 2, "b": 3},
        {"a": 4, "b": 7},
        {"a": None, "b": None},
    ]


def test_the_mark_decides_and_not_the_time_of_merging() -> None:
    """Published under version 3, merged after version 2 was set again behind it."""
    [row] = read(records(b"9", marks={0: b"3"}), 3, since=[(0, 2)]).table.to_pylist()
    assert row == {"b": 9}


def test_what_cannot_be_read_is_named_and_the_rest_is_read() -> None:
    values = (b'{"a":1}', b'{"a":1}', b"no json", b'{"a":2}', b'{"a":3}')
    found = read(records(*values, marks={1: b"999", 3: b"x"}, base=100), 1, since=[(0, 1)])
    assert found.table.to_pylist() == [{"a": 1}, {"a": 3}]
    assert list(found.sources) == [0, 4]
    assert [(each.offset, each.version, each.misfit.index) for each in found.unread] == [
        *((101, 999, 1), (102, 1, 2), (103, 0, 3))
    ]
    assert "offset 102, written with version 1, read with version 1" in str(found.unread[1])
    assert "marked wrongly" in str(found.unread[2])


def test_a_step_that_is_compatible_need_not_be_after_two() -> None:
    reader = TypedReader({1: schema("a int64"), 2: schema("a string")}, 2)
    found = reader.read(records(b'{"a":1}', None), [])
    assert found.table.to_pylist() == [{"a": None}]
    [unread] = found.unread
    assert (unread.offset, unread.version, unread.reader) == (0, 1, 2)
    assert "column 'a' is int64, which is not read as string" in str(unread)


def test_a_stream_of_arrow_has_the_version_of_its_columns() -> None:
    old, new = schema("a int32", value_format="arrow"), schema("a int64", value_format="arrow")
    [of_old] = codec_of(old).encode(table_of([(1,), (2,)], old))
    [of_new] = codec_of(new).encode(table_of([(3,)], new))
    found = TypedReader({1: old, 2: new}, 2).read(records(of_new, None, of_old), [(0, 1)])
    assert found.unread == []
    assert found.table["a"].to_pylist() == [3, None, 1, 2]
    assert list(found.sources) == [0, 1, 2, 2]


def test_bytes_that_are_no_text_are_named_alone() -> None:
    old, new = schema("a binary"), schema("a string")
    values = codec_of(old).encode(table_of([(b"\xff",), (b"text",)], old))
    found = TypedReader({1: old, 2: new}, 2).read(records(*values), [])
    assert found.table.to_pylist() == [{"a": "text"}]
    assert [(each.offset, each.misfit.column) for each in found.unread] == [(0, "a")]


def test_nothing_is_read_as_no_rows() -> None:
    found = read(records(), 2)
    assert (found.table.num_rows, found.table.schema.names) == (0, ["a", "b"])


# --- resolution ---------------------------------------------------------------------------------


@given(st.data())
def test_what_is_compatible_is_read_and_nothing_else(data: st.DataObject) -> None:
    writer = data.draw(schemas(SchemaFormat.JSON))
    reader = data.draw(changed(writer))
    table = table_of(data.draw(rows(writer)), writer)
    if problems_reading(reader, writer):
        with pytest.raises(Unresolvable):
            Resolution(writer, reader)
        return
    resolved = Resolution(writer, reader).resolve(DecodedValues(table, []))
    unfit = {misfit.index for misfit in resolved.misfits}
    for index, (before, after) in enumerate(
        zip(table.to_pylist(), resolved.table.to_pylist(), strict=True)
    ):
        if index in unfit:
            assert any(not is_text(value) for value in before.values())
            continue
        for column in reader.columns:
            wanted = before.get(column.name, column.default)
            assert same(after[column.name], wanted)


def is_text(value: Any) -> bool:
    """Whether it is no bytes, or those of a text."""
    values = value if isinstance(value, list) else [value]
    try:
        return all(not isinstance(each, bytes) or each.decode() is not None for each in values)
    except UnicodeDecodeError:
        return False


def same(read_as: Any, written: Any) -> bool:
    if isinstance(written, list):
        return len(read_as) == len(written) and all(map(same, read_as, written))
    if isinstance(written, str | bytes) and type(read_as) is not type(written):
        return as_bytes(read_as) == as_bytes(written)
    if isinstance(written, int) and isinstance(read_as, float):
        return read_as == float(written)
    if isinstance(written, Decimal):
        return Decimal(read_as) == written
    return bool(read_as == written)


def as_bytes(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else value
