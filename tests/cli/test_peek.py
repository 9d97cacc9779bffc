"""`samelog peek`: which records it chooses, and where it begins."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import date
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import click
import pyarrow as pa
import pytest
from click.testing import CliRunner

from samelog.admin.answers import SchemaInfo, SchemaPage
from samelog.admin.errors import AdminError
from samelog.cli import value_rows
from samelog.cli.commands.look import peek
from samelog.cli.commands.look.peek import (
    Beginning,
    RecordFilter,
    command,
    matching,
    parse_moment,
    parse_pattern,
)
from samelog.cli.record_text import as_line, as_value
from samelog.cli.value_rows import PartitionRows
from samelog.format._kernels import Record
from samelog.spark.plan.offsets import OffsetRange, PartitionName
from samelog.typed.schema import Column, Schema, SchemaFormat
from samelog.typed.types import parse_type
from samelog.typed.values.codec import reading_schema
from samelog.typed.values.codecs import codec_of
from samelog.typed.versions import SCHEMA_HEADER, mark

CONTEXT = click.Context(command)
OPTION = command.params[0]
Headers = Sequence[tuple[str, bytes | None]]


def record(
    offset: int, key: bytes | None = None, value: bytes | None = b"v", headers: Headers = ()
) -> Record:
    return Record("t", 0, offset, 1_000 + offset, key=key, value=value, headers=headers)


def pattern(text: str) -> Any:
    return parse_pattern(CONTEXT, OPTION, text)


@pytest.mark.parametrize(
    ("choice", "wanted"),
    [
        (RecordFilter(), [0, 1, 2, 3]),
        (RecordFilter(key=b"a"), [0, 2]),
        (RecordFilter(key=b""), [3]),
        (RecordFilter(pattern=pattern("^x")), [1, 2]),
        (RecordFilter(b"a", pattern("^x")), [2]),
        (RecordFilter(pattern=pattern("\\xff|^$")), [3]),
    ],
)
def test_records_are_chosen_by_key_and_value(choice: RecordFilter, wanted: list[int]) -> None:
    records = [
        record(0, b"a", b"yx"),
        record(1, None, b"x\xff"),
        record(2, b"a", b"x"),
        record(3, b"", None),
    ]
    assert [each.offset for each in records if choice.has(each)] == wanted


def test_no_record_is_asked_for_behind_the_last_that_is_shown() -> None:
    def endless() -> Iterator[Record]:
        yield from map(record, range(3))
        raise AssertionError("asked for more")

    assert [each.offset for each in matching(endless(), RecordFilter(), 3)] == [0, 1, 2]


def test_what_is_read_is_let_go_before_the_connection_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also where whoever takes the output goes away."""
    happened = []

    class Served:
        def __init__(self, config: str, **options: object) -> None:
            pass

        def read(self, wanted: OffsetRange) -> Iterator[Any]:
            try:
                yield SimpleNamespace(data=b"", size=0, next_offset=5)
            finally:
                happened.append("let go")

        def close(self) -> None:
            happened.append("closed")

    def nobody_takes_it(records: Iterator[Record], rows: object) -> int:
        next(records)
        raise BrokenPipeError

    wanted = OffsetRange(PartitionName("t", 0), "id", 0, 9)
    monkeypatch.setattr("samelog.config.load.load_client", lambda place: None)
    monkeypatch.setattr("samelog.spark.logs.nodes.Nodes", Served)
    monkeypatch.setattr(peek, "ranges_of", lambda *place: [wanted])
    monkeypatch.setattr(peek, "decode_records", lambda *place: [record(0)])
    monkeypatch.setattr(peek, "_print", nobody_takes_it)
    CliRunner().invoke(command, ["t", "--config", "c.toml"])
    assert happened == ["let go", "closed"]


class Times:
    """Logs whose record at offset n has the time 1,000 + n, up to 20."""

    def offset_at(self, name: PartitionName, timestamp_ms: int) -> int | None:
        offset = max(5, timestamp_ms - 1_000)
        return offset if offset < 20 else None


@pytest.mark.parametrize(
    ("place", "first"),
    [
        (Beginning(), 5),
        (Beginning(offset=7), 7),
        (Beginning(last=3), 17),
        (Beginning(last=100), 5),
        (Beginning(at_ms=1_010), 10),
        (Beginning(at_ms=9_999), 20),
    ],
)
def test_where_to_begin(place: Beginning, first: int) -> None:
    whole = OffsetRange(PartitionName("t", 0), "id", 5, 20)
    assert place.first(Times(), whole) == first  # type: ignore[arg-type]


def test_times_are_utc_unless_they_say() -> None:
    assert parse_moment(CONTEXT, OPTION, "1970-01-01T00:00:01") == 1_000
    assert parse_moment(CONTEXT, OPTION, "1970-01-01T01:00:01+01:00") == 1_000


@pytest.mark.parametrize(
    "arguments",
    [
        ("--at", "yesterday"),
        ("--grep", "("),
        ("--offset", "1", "--last", "1"),
        ("--last", "0"),
        ("--timeout", "0"),
    ],
)
def test_what_cannot_be_understood_is_said_before_anything_is_asked(
    arguments: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("samelog.config.load.load_client", lambda place: None)
    result = CliRunner().invoke(command, ["t", "--config", "c.toml", *arguments])
    assert result.exit_code == 2, result.output


# --- by the topic's schema ------------------------------------------------------------------------


def schema(value_format: SchemaFormat, *columns: tuple[str, str]) -> Schema:
    return Schema(value_format, tuple(Column(name, parse_type(kind)) for name, kind in columns))


VERSIONS = [
    schema(SchemaFormat.AVRO, ("old", "string")),
    schema(SchemaFormat.AVRO, ("price", "decimal128(9, 2)"), ("day", "date32")),
    schema(SchemaFormat.ARROW, ("n", "int64")),
    schema(SchemaFormat.JSON, ("n", "int64")),
]


def values(version: int, *rows: dict[str, Any]) -> list[bytes]:
    written = VERSIONS[version - 1]
    return codec_of(written).encode(pa.Table.from_pylist(list(rows), reading_schema(written)))


def told(config: object, topic: str, partition: int) -> SchemaPage:
    """Version 2 from offset 5 on."""
    found = tuple(
        SchemaInfo(number, 0, each.fingerprint, each.text)
        for number, each in enumerate(VERSIONS, 1)
    )
    return SchemaPage(topic, "none", len(found), found, more=False, since=((0, 1), (5, 2)))


def shown(found: Record) -> str:
    rows = PartitionRows(None, "t", 0).of(found)  # type: ignore[arg-type]
    return b"\n".join([as_value(found)] if rows is None else rows).decode(errors="replace")


def said(version: int) -> tuple[str, bytes]:
    """The mark of a version."""
    return mark(version, VERSIONS[version - 1].fingerprint)


def test_values_are_rows_by_the_version_that_wrote_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(value_rows, "topic_schemas", told)
    (old,) = values(1, {"old": "first"})
    (new,) = values(2, {"price": Decimal("1.50"), "day": date(2026, 11, 23)})
    (table,) = values(3, {"n": 1}, {"n": None})
    assert shown(record(4, value=old)) == '{"old":"first"}'
    assert shown(record(5, value=new)) == '{"price":"1.50","day":"2026-11-23"}'
    marked = record(9, value=old, headers=(said(2), said(1)))
    assert shown(marked) == '{"old":"first"}'
    assert shown(record(9, value=table, headers=(said(3),))) == '{"n":1}\n{"n":null}'
    foreign = mark(1, "0" * 64)
    for value, headers in (
        *((b"text", (said(4),)), (old, ((SCHEMA_HEADER, b"9"),)), (old, (foreign,))),
        *((b"\x02", ()), (None, ())),
    ):
        found = record(9, value=value, headers=headers)
        assert shown(found) == (value or b"").decode()
    rows = PartitionRows(None, "t", 0).of(record(4, value=old))  # type: ignore[arg-type]
    assert json.loads(as_line(record(4, value=old), rows))["rows"] == [{"old": "first"}]


def test_each_row_is_a_line_whatever_its_cells_are() -> None:
    late = pa.array([1 << 60, 5])
    table = pa.table(
        {
            "ns": pa.array([1 << 60, 5], pa.timestamp("ns")),
            "text": ["a\nb", None],
            "late": late.cast(pa.timestamp("ms", "UTC")),
            "list": pa.array([[1 << 60], [5]], pa.list_(pa.timestamp("us"))),
            "day": pa.array([2**31 - 1, 5], pa.int32()).cast(pa.date32()),
        }
    )
    found = value_rows.lines(table)
    assert not any(b"\n" in line for line in found)
    first, second = map(json.loads, found)
    assert second["day"] == "1970-01-06"
    for each in ([first, second], list(map(json.loads, value_rows.lines(table.select([0, 1]))))):
        assert each[0]["text"] == "a\nb"
        assert each[0]["ns"][:10] == "2006-07-14"
        assert each[1]["ns"][-9:] == "000000005"


def test_who_gets_no_answer_is_told_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def nobody(*place: object) -> SchemaPage:
        raise AdminError("nobody answers")

    monkeypatch.setattr(value_rows, "topic_schemas", nobody)
    rows = PartitionRows(None, "t", 0)  # type: ignore[arg-type]
    assert [rows.of(record(offset)) for offset in range(3)] == [None] * 3
    assert capsys.readouterr().err.count("the schema of topic t is not known") == 1
