"""One JSON record is one row: for nodes and `rows()`, for `valueFormat=schema`, for
`valueFormat=json` with the topic's own columns, and in archived copies as Parquet.
"""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from samelog.archiver.copies.manifests import SegmentSchemas
from samelog.archiver.copies.parquet import TypedValues
from samelog.archiver.copies.schema_fields import schema_fields
from samelog.archiver.copies.value_schema import TYPES
from samelog.format import _kernels as kernels
from samelog.format.arrow import to_arrow
from samelog.spark.payload.value_formats import json_parser
from samelog.typed.arrow_types import arrow_type
from samelog.typed.schema import Column, Schema, SchemaFormat
from samelog.typed.types import parse_type
from samelog.typed.values.codecs import codec_of
from samelog.typed.values.halves import decode_each

UNFIT = "does not fit"
NOON = datetime(2024, 3, 10, 12, tzinfo=UTC)
LOCAL = NOON.replace(tzinfo=None)
VERDICTS: list[tuple[str, bytes, Any]] = [
    ("int64", b'{"c":1,"c":2}', 2),
    ("int64", b'{"c":1,"c":null}', None),
    ("int64", b'{"c":1.0}', UNFIT),
    ("int64", b'{"c":1.5}', UNFIT),
    ("int64", b'{"c":1e3}', UNFIT),
    ("int64", b'{"c":"1"}', UNFIT),
    ("int64", b'{"c":true}', UNFIT),
    ("int64", b'{"c":-0}', 0),
    ("int64", b'{"c":9223372036854775807}', (1 << 63) - 1),
    ("int64", b'{"c":9223372036854775808}', UNFIT),
    ("int8", b'{"c":128}', UNFIT),
    ("uint64", b'{"c":18446744073709551615}', (1 << 64) - 1),
    ("uint64", b'{"c":18446744073709551616}', UNFIT),
    ("int64", b'{"c":01}', UNFIT),
    ("float64", b'{"c":NaN}', UNFIT),
    ("float64", b'{"c":Infinity}', UNFIT),
    ("float64", b'{"c":1e400}', UNFIT),
    ("float64", b'{"c":1}', 1.0),
    ("float64", b'{"c":"1.5"}', UNFIT),
    ("float32", b'{"c":1e39}', UNFIT),
    ("bool", b'{"c":1}', UNFIT),
    ("bool", b'{"c":true}', True),
    ("string", b'{"c":1}', UNFIT),
    ("string", b'{"c":"\xff"}', UNFIT),
    ("string", b'{"c":"\\ud800"}', UNFIT),
    ("string", b'{"c":"a\\u0000b"}', "a\0b"),
    ("binary", b'{"c":"AQI="}', b"\1\2"),
    ("binary", b'{"c":"%"}', UNFIT),
    ("timestamp[us, UTC]", b'{"c":"2024-03-10T12:00:00Z"}', NOON),
    ("timestamp[us, UTC]", b'{"c":"2024-03-10T13:00:00+01:00"}', NOON),
    ("timestamp[us, UTC]", b'{"c":"2024-03-10T12:00:00"}', UNFIT),
    ("timestamp[us, UTC]", b'{"c":"2024-03-10T12:00:00.0000001Z"}', UNFIT),
    ("timestamp[us, UTC]", b'{"c":1710072000}', UNFIT),
    ("timestamp[ms, UTC]", b'{"c":"2024-03-10T13:00:00.000+01:00"}', NOON),
    ("timestamp[ms, UTC]", b'{"c":"2024-03-10T12:00:00"}', UNFIT),
    ("timestamp[ms, UTC]", b'{"c":"2024-03-10T12:00:00.0001Z"}', UNFIT),
    ("timestamp[ms, UTC]", b'{"c":1710072000000}', UNFIT),
    ("timestamp[us]", b'{"c":"2024-03-10T12:00:00"}', LOCAL),
    ("timestamp[us]", b'{"c":"2024-03-10T12:00:00Z"}', UNFIT),
    ("date32", b'{"c":"2024-03-10"}', date(2024, 3, 10)),
    ("date32", b'{"c":"2024-02-30"}', UNFIT),
    ("decimal128(5, 2)", b'{"c":"123.45"}', Decimal("123.45")),
    ("decimal128(5, 2)", b'{"c":"123.456"}', UNFIT),
    ("decimal128(5, 2)", b'{"c":123.45}', UNFIT),
    ("list<int64>", b'{"c":[1,null]}', [1, None]),
    ("list<int64>", b'{"c":[1,"2"]}', UNFIT),
    ("int64", b'{"c":1} ', 1),
    ("int64", b'\n{"c":1}\r\n', 1),
    ("int64", b'{"c":1}{"c":2}', UNFIT),
    ("int64", b'{"c":1}\0', UNFIT),
    ("int64", b'\xef\xbb\xbf{"c":1}', UNFIT),
    ("int64", b'{"c":1,}', UNFIT),
    ("int64", b"{'c':1}", UNFIT),
    ("int64", b"null", UNFIT),
    ("int64", b"[1]", UNFIT),
    ("int64", b"", UNFIT),
    ("int64", b"{}", None),
    ("int64", b"[" * 100_000, UNFIT),
]
"""Type of the column `c`, a record's value, and what every reader makes of it."""


def by_schema(kind: str, values: list[bytes]) -> list[Any]:
    """What nodes, `rows()` and `valueFormat=schema` make of values."""
    columns = (Column("c", parse_type(kind)),)
    found = codec_of(Schema(SchemaFormat.JSON, columns)).decode(values)
    unfit = {misfit.index for misfit in found.misfits}
    return _rows(found.table, unfit)


def by_query(kind: str, values: list[bytes]) -> list[Any]:
    """What `valueFormat=json` makes of them."""
    schema = pa.schema([("c", arrow_type(parse_type(kind)))])
    found = decode_each(pa.array(values, pa.binary()), json_parser(schema), schema)
    return _rows(found.columns, set(found.bad))


def by_setting(kind: str, values: list[bytes]) -> list[Any]:
    """What copies make of them for a topic with `value_schema`."""
    column = TypedValues({"c": SETTINGS.get(kind, kind)}).column(pa.array(values, pa.binary()))
    return _fields(column)


def by_copied_schema(kind: str, values: list[bytes]) -> list[Any]:
    """What copies make of them for a topic with a schema."""
    text = json.dumps({"format": "json", "columns": [{"name": "c", "type": kind}]})
    fields = schema_fields(SegmentSchemas((text,), ((0, 1),)))
    assert fields is not None
    data = kernels.build_batches(
        values, timestamps=0, batch_bytes=1 << 20, max_record_bytes=1 << 20
    )
    return _fields(fields.of(to_arrow(data, 0, len(data), topic="t", partition=0)))


SETTINGS = {"timestamp[ms, UTC]": "timestamp[ms]"}
"""The name that the setting `value_schema` has for a type, where it is another one."""


def all_readers(kind: str, values: list[bytes]) -> list[list[Any]]:
    """What each reader that knows the type makes of values."""
    readers = [by_schema, by_query, by_copied_schema]
    if SETTINGS.get(kind, kind) in TYPES:
        readers.append(by_setting)
    return [read(kind, values) for read in readers]


def _fields(column: pa.StructArray) -> list[Any]:
    return [UNFIT if row is None else row["c"] for row in column.to_pylist()]


def _rows(table: pa.Table, unfit: set[int]) -> list[Any]:
    cells = table["c"].to_pylist()
    return [UNFIT if place in unfit else cell for place, cell in enumerate(cells)]


@pytest.mark.parametrize(("kind", "value", "verdict"), VERDICTS)
def test_the_table_of_verdicts(kind: str, value: bytes, verdict: Any) -> None:
    """Case 10 of the list of defects, and its siblings."""
    found = all_readers(kind, [value])
    assert found == [[verdict]] * len(found)


CELLS = st.one_of(
    st.sampled_from([value[5:-1] for _, value, _ in VERDICTS if value.startswith(b'{"c":')]),
    st.floats().map(lambda number: repr(number).encode()),
    st.integers().map(lambda number: b"%d" % number),
    st.datetimes().map(lambda moment: b'"%s"' % moment.isoformat().encode()),
    st.text().map(lambda text: b'"%s"' % text.encode(errors="replace")),
    st.binary(max_size=6),
)


@given(
    st.sampled_from(sorted({kind for kind, _, _ in VERDICTS})),
    st.lists(CELLS.map(lambda cell: b'{"c":%s}' % cell) | st.binary(max_size=9), max_size=8),
)
@example("timestamp[us, UTC]", [b'{"c":"2024-03-10T02:30:00"}', b'{"c":null,"c":null}'])
def test_all_readers_agree_on_any_value(kind: str, values: list[bytes]) -> None:
    first, *others = all_readers(kind, values)
    assert [repr(each) for each in others] == [repr(first)] * len(others)


def test_structs_are_read_by_the_same_rules() -> None:
    inner = pa.struct([("n", pa.int64()), ("at", pa.timestamp("us", tz="UTC"))])
    schema = pa.schema([("s", inner), ("l", pa.list_(inner))])
    values = [
        b'{"s":{"n":1,"at":"2024-03-10T12:00:00Z","x":[]},"l":[{"n":2},null]}',
        b'{"s":null}',
        b'{"s":{"n":1.5}}',
        b'{"l":[{"at":"2024-03-10T12:00:00"}]}',
    ]
    found = decode_each(pa.array(values, pa.binary()), json_parser(schema), schema)
    assert sorted(found.bad) == [2, 3]
    assert found.columns.to_pylist()[:2] == [
        {"s": {"n": 1, "at": NOON}, "l": [{"n": 2, "at": None}, None]},
        {"s": None, "l": None},
    ]
