"""What the console makes of Arrow's streams and of Avro's records, against their own libraries."""

from __future__ import annotations

import asyncio
import base64
import datetime as dt
import io
import json
import random
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any
from unittest.mock import patch

import fastavro
import pyarrow as pa
from msgspec import UNSET

from samelog.admin import answers, requests, views
from samelog.http.routes import problem_of
from samelog.typed.schema import Column, Schema, SchemaFormat
from samelog.typed.types import parse_type
from samelog.typed.values.codec import reading_schema
from samelog.typed.values.codecs import codec_of
from samelog.typed.versions import mark
from samelog.wire.errors import FaultCode
from tests.console import seeded_answers
from tests.console.chromium import Page, needs_chromium
from tests.console.showing import console, show

READ = """Promise.all(['arrow', 'avro', 'values'].map((each) => import(`/ui/${each}.js`))).then(
  ([{ readArrow }, { avroReader }, { cellText }]) => %s.map(({ data, schema }) => {
    const value = Uint8Array.from(atob(data), (each) => each.charCodeAt(0));
    try {
      const found = schema ? avroReader(schema).read(value) : readArrow(value, 20);
      return cellText(found, { quoted: true });
    } catch (error) {
      return `!${error.message}`;
    }
  }))"""


async def read(page: Page, *values: bytes, schema: str | None = None) -> list[Any]:
    """What pages make of values; a text that begins with ! says why they make nothing of one."""
    given = [{"data": base64.b64encode(each).decode(), "schema": schema} for each in values]
    found = await page.value(READ % json.dumps(given))
    return [each if each.startswith("!") else json.loads(each) for each in found]


def stream(table: pa.Table, *, rows: int = 2, compression: str | None = None) -> bytes:
    """A table as an Arrow stream of batches of so many rows."""
    into = io.BytesIO()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(into, table.schema, options=options) as writer:
        for batch in table.to_batches(max_chunksize=rows):
            writer.write_batch(batch)
    return into.getvalue()


COLUMNS: dict[str, tuple[pa.Array, list[Any]]] = {
    "int8": (pa.array([1, None, -3], pa.int8()), [1, None, -3]),
    "uint64": (pa.array([1, (1 << 64) - 1, None], pa.uint64()), [1, (1 << 64) - 1, None]),
    "int64": (pa.array([(1 << 53) + 1, None, -1 << 63]), [(1 << 53) + 1, None, -1 << 63]),
    "float32": (pa.array([1.5, None, -0.25], pa.float32()), [1.5, None, -0.25]),
    "float64": (pa.array([0.1, 2.5, None]), [0.1, 2.5, None]),
    "bool": (pa.array([True, None, False]), [True, None, False]),
    "string": (pa.array(["a", None, "ü€"]), ["a", None, "ü€"]),
    "large_string": (pa.array(["x", "", "yy"], pa.large_string()), ["x", "", "yy"]),
    "binary": (pa.array([b"\0\1", None, b""]), ["0x0001", None, "0x"]),
    "binary[2]": (pa.array([b"ab", None, b"cd"], pa.binary(2)), ["0x6162", None, "0x6364"]),
    "decimal128(10, 2)": (
        pa.array([Decimal("12.34"), None, Decimal("-0.05")], pa.decimal128(10, 2)),
        ["12.34", None, "-0.05"],
    ),
    "date32": (
        pa.array([20780, None, -1], pa.int32()).cast(pa.date32()),
        ["2026-11-23", None, "1969-12-31"],
    ),
    "timestamp[ms]": (
        pa.array([1_795_449_717_453, None, -1], pa.timestamp("ms")),
        ["2026-11-23T16:01:57.453", None, "1969-12-31T23:59:59.999"],
    ),
    "timestamp[ns, UTC]": (
        pa.array([1_795_449_717_453_000_123, None, 1 << 62], pa.timestamp("ns", "UTC")),
        ["2026-11-23T16:01:57.453000123Z", None, "2116-02-20T23:53:38.427387904Z"],
    ),
    "timestamp[s]": (
        pa.array([0, None, 1 << 62], pa.timestamp("s")),
        ["1970-01-01T00:00:00", None, f"{1 << 62} s since 1970"],
    ),
    "time32[s]": (pa.array([3661, None, 0], pa.time32("s")), ["01:01:01", None, "00:00:00"]),
    "duration[ms]": (pa.array([5, None, -1], pa.duration("ms")), ["5 ms", None, "-1 ms"]),
    "list<int64>": (pa.array([[1, 2], None, []]), [[1, 2], None, []]),
    "list<int16>[2]": (
        pa.array([[1, 2], None, [3, 4]], pa.list_(pa.int16(), 2)),
        [[1, 2], None, [3, 4]],
    ),
    "struct<a: int64, b: string>": (
        pa.array([{"a": 1, "b": "x"}, None, {"a": None, "b": "y"}]),
        [{"a": 1, "b": "x"}, None, {"a": None, "b": "y"}],
    ),
    "null": (pa.nulls(3), [None, None, None]),
}
"""Type as it is shown -> values, and as they are shown."""


@needs_chromium
def test_arrow_streams_are_read() -> None:
    async def body(page: Page) -> None:
        table = pa.table({name: values for name, (values, _) in COLUMNS.items()})
        (found,) = await read(page, stream(table))
        assert found["columns"] == [{"name": name, "type": name} for name in COLUMNS]
        shown = [list(column) for column in zip(*found["rows"], strict=True)]
        assert dict(zip(COLUMNS, shown, strict=True)) == {
            n: told for n, (_, told) in COLUMNS.items()
        }
        assert found["count"] == 3

    in_browser(body)


@needs_chromium
def test_of_long_streams_the_first_rows_and_items_are_read() -> None:
    async def body(page: Page) -> None:
        table = pa.table({"n": range(1000), "l": [list(range(30))] * 1000})
        (found,) = await read(page, stream(table, rows=7))
        assert [row[0] for row in found["rows"]] == list(range(20))
        assert found["rows"][19][1] == [*range(20), "…"]
        assert found["count"] == 1000

    in_browser(body)


@needs_chromium
def test_what_is_not_read_says_why() -> None:
    async def body(page: Page) -> None:
        table = pa.table({"n": [1, 2]})
        names = pa.table({"n": pa.array(["a", "b"]).dictionary_encode()})
        found = await read(
            page,
            stream(table, compression="zstd"),
            stream(names),
            stream(table)[:-20],
            bytes(20),
        )
        assert found[0] == "!the console reads no compressed batches"
        assert found[1] == "!the console reads no dictionaries"
        assert all(each.startswith("!") for each in found)

    in_browser(body)


@needs_chromium
def test_damaged_values_are_read_in_bounds_or_not_at_all() -> None:
    async def body(page: Page) -> None:
        chance = random.Random(17)
        whole = stream(pa.table({name: values for name, (values, _) in COLUMNS.items()}))
        damaged = []
        for _ in range(300):
            data = bytearray(whole)
            for _ in range(chance.randrange(1, 4)):
                data[chance.randrange(len(data))] = chance.choice((0, 1, 0x7F, 0x80, 0xFF))
            damaged.append(bytes(data))
        assert len(await read(page, *damaged)) == len(damaged)
        written = avro(RECORD)
        cut = [written[:size] for size in range(len(written))]
        found = await read(page, *cut, written + b"\0", schema=json.dumps(SCHEMA))
        assert all(str(each).startswith("!") for each in found)

    in_browser(body)


# --- Avro -----------------------------------------------------------------------------------------

FIELDS: dict[str, tuple[Any, Any, Any]] = {
    "id": ("long", (1 << 53) + 1, (1 << 53) + 1),
    "least": ("long", -1 << 63, -1 << 63),
    "name": (["null", "string"], "hé", "hé"),
    "side": ({"type": "enum", "name": "Side", "symbols": ["BUY", "SELL"]}, "SELL", "SELL"),
    "again": ("Side", "BUY", "BUY"),
    "sizes": ({"type": "array", "items": "int"}, [1, -2], [1, -2]),
    "by": ({"type": "map", "values": "double"}, {"x": 1.5}, {"x": 1.5}),
    "mark": ({"type": "fixed", "name": "Mark", "size": 3}, b"abc", "0x616263"),
    "raw": ("bytes", b"\0\xff", "0x00ff"),
    "float": ("float", 0.5, 0.5),
    "is_open": ("boolean", True, True),
    "at": (
        {"type": "long", "logicalType": "timestamp-micros"},
        dt.datetime(2026, 11, 23, 1, 2, 3, 4, tzinfo=dt.UTC),
        "2026-11-23T01:02:03.000004Z",
    ),
    "local": (
        {"type": "long", "logicalType": "local-timestamp-millis"},
        dt.datetime(2026, 11, 23, 1, 2, 3),  # noqa: DTZ001
        "2026-11-23T01:02:03.000",
    ),
    "day": ({"type": "int", "logicalType": "date"}, dt.date(2026, 11, 23), "2026-11-23"),
    "clock": ({"type": "int", "logicalType": "time-millis"}, dt.time(1, 2, 3), "01:02:03.000"),
    "price": (
        {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
        Decimal("-12.34"),
        "-12.34",
    ),
    "uuid": ({"type": "string", "logicalType": "uuid"}, "0" * 32, "0" * 32),
}
"""Name -> type, value, and as it is shown."""
SCHEMA = {
    "type": "record",
    "name": "Trade",
    "namespace": "n",
    "fields": [
        *({"name": name, "type": kind} for name, (kind, _, _) in FIELDS.items()),
        {"name": "next", "type": ["null", "Trade"]},
    ],
}
ONE = {name: value for name, (_, value, _) in FIELDS.items()}
RECORD = {**ONE, "next": {**ONE, "next": None}}
TOLD = {name: told for name, (_, _, told) in FIELDS.items()}


def avro(record: dict[str, Any]) -> bytes:
    """A record as its bytes."""
    into = io.BytesIO()
    fastavro.schemaless_writer(into, fastavro.parse_schema(json.loads(json.dumps(SCHEMA))), record)
    return into.getvalue()


@needs_chromium
def test_records_of_avro_are_read_by_their_schema() -> None:
    async def body(page: Page) -> None:
        data = avro(RECORD)
        found = await read(page, data, b"\0\0\0\0\7" + data, schema=json.dumps(SCHEMA))
        assert found == 2 * [{**TOLD, "next": {**TOLD, "next": None}}]
        endless = {"type": "record", "name": "R", "fields": [{"name": "r", "type": "R"}]}
        for schema in (json.dumps(endless), '{"type": "array", "items": "null"}', '"nothing"', "{"):
            (problem,) = await read(page, b"\xfe\xff\xff\xff\xff\x7f\0", schema=schema)
            assert problem.startswith("!"), schema

    in_browser(body)


# --- the page -------------------------------------------------------------------------------------


def shown(request: requests.PeekRecords) -> views.RecordPage:
    """A stream of Arrow, and a record of Avro."""
    values = stream(pa.table({"carrier": ["UA", "DL"], "delay": [3, None]})), avro(RECORD)
    rows = [
        views.PeekedRecord(offset, 1_795_449_717_453, None, value, len(value), ())
        for offset, value in enumerate(values)
    ]
    return views.RecordPage(0, 2, 2, tuple(rows))


@needs_chromium
def test_a_page_shows_rows_and_fields() -> None:
    async def body(page: Page) -> None:
        text = "document.querySelectorAll('.record')[%d]?.textContent"
        await page.until(f"{text % 0}?.includes('2 rows: carrier, delay')".replace("2 ", "2\u00a0"))
        assert "carrier stringdelay int64UA3DLnull" in await page.value(text % 0)
        await choose(page, "values", "avro")
        await page.until("document.querySelector('.schema textarea')")
        await write(page, json.dumps(SCHEMA))
        await page.until(f"{text % 1}?.includes('{(1 << 53) + 1}')")
        assert 'sideSide"SELL"' in await page.value(text % 1)
        await write(page, '{"type": "record", "name": "R", "fields": "none"}')
        await page.until("document.querySelector('.banner')?.textContent.includes('no schema')")
        await write(page, '"string"')
        await page.until(f"{text % 1}?.includes('It cannot be read as Avro')")

    with patch.dict(seeded_answers.ANSWERS, {requests.PeekRecords: shown}):
        in_browser(body)


# --- by the topic's schema ------------------------------------------------------------------------

COLUMNS_TYPED: dict[str, tuple[Any, Any]] = {
    "id": ((1 << 53) + 1, (1 << 53) + 1),
    "small": (-7, -7),
    "price": (Decimal("-12.3400"), "-12.3400"),
    "day": (dt.date(2026, 11, 23), "2026-11-23"),
    "at": (dt.datetime(2026, 11, 23, 1, 2, 3, 4, tzinfo=dt.UTC), "2026-11-23T01:02:03.000004Z"),
    "local": (dt.datetime(2026, 11, 23, 1, 2, 3), "2026-11-23T01:02:03.000"),  # noqa: DTZ001
    "sizes": ([1.5, None], [1.5, None]),
    "raw": (b"\0\xff", "0x00ff"),
    "is_open": (True, True),
    "name": (None, None),
}
"""Name -> value, and as it is shown."""
TYPES = (
    "int64 int16 decimal128(18, 4) date32 timestamp[us, UTC] timestamp[ms] list<float64> binary "
    "bool string"
)
TYPED = Schema(
    SchemaFormat.AVRO,
    tuple(
        Column(name, parse_type(text), is_nullable=name != "id")
        for name, text in zip(COLUMNS_TYPED, re.split(r"(?<!,) ", TYPES), strict=True)
    ),
)
BEFORE = Schema(SchemaFormat.AVRO, (Column("old", parse_type("string")),))
AFTER = Schema(SchemaFormat.JSON, (Column("new", parse_type("int8")),))
MISMARKED = b"mismarked"


def written(schema: Schema, row: dict[str, Any]) -> bytes:
    """A row as the publisher writes it."""
    (value,) = codec_of(schema).encode(pa.Table.from_pylist([row], reading_schema(schema)))
    return value


def typed(request: requests.PeekRecords) -> views.RecordPage:
    """Records of three versions: by what was in force, and by their marks."""
    row = {name: value for name, (value, _) in COLUMNS_TYPED.items()}
    values: list[tuple[bytes, tuple[tuple[str, bytes], ...]]] = [
        (written(BEFORE, {"old": "first"}), ()),
        (written(TYPED, row), (mark(2, TYPED.fingerprint),)),
        (written(TYPED, row), ()),
        (written(BEFORE, {"old": "late"}), (mark(1, BEFORE.fingerprint),)),
        (b'{"new": 5}', (mark(3, AFTER.fingerprint),)),
        (MISMARKED, (("samelog.schema", b"nine"),)),
    ]
    rows = [
        views.PeekedRecord(offset, 1_795_449_717_453, None, value, len(value), headers)
        for offset, (value, headers) in enumerate(values)
    ]
    return views.RecordPage(0, len(rows), len(rows), tuple(rows))


def versions(request: requests.ListSchemas) -> answers.SchemaPage:
    """One in a page."""
    place = request.from_version - 1
    schema = (BEFORE, TYPED, AFTER)[place]
    found = answers.SchemaInfo(place + 1, 0, schema.fingerprint, schema.text)
    since = () if request.partition is UNSET else ((2, 2), (5, 3))
    return answers.SchemaPage(
        request.topic, "none", 3, (found,), more=place < 2, since=since, next_offset=6
    )


@needs_chromium
def test_values_are_read_by_the_version_of_the_topics_schema_that_wrote_them() -> None:
    async def body(page: Page) -> None:
        text = "document.querySelectorAll('.record')[%d]?.textContent"
        await page.until(f"{text % 5}?.includes('{MISMARKED.decode()}')")
        assert 'oldstring"first"' in await page.value(text % 0)
        for number in (1, 2):
            found = await page.value(text % number)
            for name, kind in zip(COLUMNS_TYPED, TYPED.columns, strict=True):
                told = json.dumps(COLUMNS_TYPED[name][1], separators=(",", ":"))
                assert f"{name}{kind.type.text}{told}" in found, name
        assert 'oldstring"late"' in await page.value(text % 3)
        assert "newint85" in await page.value(text % 4)
        assert "Fields" not in await page.value(text % 5)

    given = {requests.PeekRecords: typed, requests.ListSchemas: versions}
    with patch.dict(seeded_answers.ANSWERS, given):
        in_browser(body)


@needs_chromium
def test_records_are_shown_where_the_schema_is_not_to_be_had() -> None:
    def refused(request: requests.ListSchemas) -> answers.SchemaPage:
        raise problem_of(FaultCode.NOT_READY, "nobody leads")

    async def body(page: Page) -> None:
        await page.until("document.querySelectorAll('.record').length")
        note = await page.value("document.querySelector('.panel .note').textContent")
        assert "The topic's schema is not known" in note
        page.problems.clear()  # the browser says that a request was refused

    with patch.dict(seeded_answers.ANSWERS, {requests.ListSchemas: refused}):
        in_browser(body)


async def choose(page: Page, name: str, value: str) -> None:
    """In a list of the form."""
    changed = "each.dispatchEvent(new Event('change'))"
    await page.value(
        f"{{ const each = document.querySelector('select[name={name}]'); "
        f"each.value = {json.dumps(value)}; {changed}; }}"
    )


async def write(page: Page, text: str) -> None:
    """Into the field of the schema."""
    await page.value(
        "{ const each = document.querySelector('.schema textarea'); "
        f"each.value = {json.dumps(text)}; each.dispatchEvent(new Event('change')); }}"
    )


def in_browser(body: Callable[[Page], Any]) -> None:
    """Run at the page of records."""

    async def run() -> None:
        async with console() as (page, base, _):
            await show(page, base, "records")
            await body(page)
            assert not page.problems, page.problems

    asyncio.run(run())
