"""One JSON record is one row: for nodes and `rows()`, for `valueFormat=schema`, and for
`valueFormat=json` with the topic's own columns.
"""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from samelog.spark.payload.value_formats import decode_each, json_parser
from samelog.typed.arrow_types import arrow_type
from samelog.typed.schema import Column, Schema, SchemaFormat
from samelog.typed.types import parse_type
from samelog.typed.values.codecs import codec_of

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


def _rows(table: pa.Table, unfit: set[int]) -> list[Any]:
    cells = table["c"].to_pylist()
    return [UNFIT if place in unfit else cell for place, cell in enumerate(cells)]


@pytest.mark.parametrize(("kind", "value", "verdict"), VERDICTS)
def test_the_table_of_verdicts(kind: str, value: bytes, verdict: Any) -> None:
    """Case 10 of the list of defects, and its siblings."""
    assert by_schema(kind, [value]) == [verdict]
    assert by_query(kind, [value]) == [verdict]


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
    schema, query = by_schema(kind, values), by_query(kind, values)
    assert [repr(each) for each in schema] == [repr(each) for each in query]


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
