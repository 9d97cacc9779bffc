"""Rows become values and come back; what is checked and what is read agree (docs/typed.md, T15)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samelog.typed.misfits import SHOWN_BYTES, RowMisfit
from samelog.typed.rows import table_of
from samelog.typed.schema import Schema, parse_schema
from samelog.typed.values.codecs import codec_of
from tests.typed.worlds import rows, schemas

TICKS = (
    '{"format": "%s", "columns": [{"name": "symbol", "type": "string", "nullable": false},'
    ' {"name": "price", "type": "float64"}, {"name": "size", "type": "int32", "default": 1}]}'
)


def ticks(value_format: str) -> Schema:
    return parse_schema(TICKS % value_format)


@given(st.data())
def test_rows_come_back_as_they_were(data: st.DataObject) -> None:
    schema = data.draw(schemas())
    given_rows = data.draw(rows(schema))
    table = table_of(given_rows, schema)
    values = codec_of(schema).encode(table)
    found = codec_of(schema).decode([*values, None])
    assert found.misfits == []
    nothing = dict.fromkeys(schema.names)
    assert found.table.to_pylist() == [*table.to_pylist(), nothing]
    assert table.to_pylist() == given_rows


HOSTILE = st.sampled_from(
    [
        b'{"symbol":"A","price":1e400}',
        b'{"symbol":"A","price":NaN}',
        b'{"symbol":"A","price":1,"price":2}',
        b'{"symbol":"A","size":1.0}',
        b'{"symbol":"A","size":2147483648}',
        b'{"symbol":null}',
        b'{"symbol":"\\ud800"}',
        b'{"symbol":"A"},{"symbol":"B"}',
        b'{"symbol":"A","prise":1}',
        b"null",
        b"",
        b"A,1.5,3",
        b"A,1.5,0x1f",
        b'"A,1.5,3',
        b"A,1e999,3",
        b"A,1.5,3,4",
        b",1.5,3",
        b"\xff,1,1",
        b"A,,\n",
    ]
)


@given(
    st.sampled_from(["json", "csv", "avro", "arrow"]), st.lists(HOSTILE | st.binary(max_size=20))
)
def test_what_the_check_refuses_is_what_reading_refuses(name: str, values: list[bytes]) -> None:
    codec = codec_of(ticks(name))
    checked, read = codec.check(values), codec.decode(values)
    if name != "arrow":  # whose buffers only a reader looks into
        assert [str(misfit) for misfit in checked] == [str(misfit) for misfit in read.misfits]
    for index, value in enumerate(values):  # alone, each is judged as among others
        assert bool(codec.check([value])) == (index in {misfit.index for misfit in checked})


@pytest.mark.parametrize(
    ("name", "value", "column"),
    [
        ("json", b'{"symbol":"A","size":"x"}', "size"),
        ("json", b'{"symbol":"A","prise":1}', "prise"),
        ("json", b'{"price":1}', "symbol"),
        ("json", b"[1]", ""),
        ("csv", b"A,1.5,1.0", "size"),
        ("csv", b",1.5,1", "symbol"),
        ("csv", b"A,1e999,1", "price"),
        ("csv", b"A,1", ""),
        ("avro", b"\x02", ""),
        ("arrow", b"no stream", ""),
    ],
)
def test_a_misfit_says_where_and_what(name: str, value: bytes, column: str) -> None:
    codec = codec_of(ticks(name))
    good = codec.encode(table_of([("A", 1.5, 3)], ticks(name)))[0]
    [misfit] = codec.check([good, value, None, good])
    assert (misfit.index, misfit.column) == (1, column)
    assert misfit.expected
    assert misfit.found
    assert len(misfit.found) <= 4 * SHOWN_BYTES
    assert codec.decode([good, value, good]).table["size"].to_pylist() == [3, None, 3]


def test_a_member_that_is_missing_has_its_default() -> None:
    read = codec_of(ticks("json")).decode([b'{"symbol":"A"}', b'{"symbol":"B","size":null}'])
    assert read.table.to_pylist() == [
        {"symbol": "A", "price": None, "size": 1},
        {"symbol": "B", "price": None, "size": None},
    ]


@pytest.mark.parametrize(
    ("row", "index", "column"),
    [
        ({"symbol": "A", "size": 1.5}, 1, "size"),
        ({"symbol": "A", "size": True}, 1, "size"),
        ({"symbol": "A", "size": 1 << 31}, 1, "size"),
        ({"symbol": "A", "prise": 1.0}, 1, "prise"),
        ({"symbol": None}, 1, "symbol"),
        ({"symbol": b"A"}, 1, "symbol"),
        ({"price": 1.0}, 1, "symbol"),
        (("A", 1.0), 1, ""),
        ("A", 1, ""),
    ],
)
def test_a_row_that_does_not_fit_is_named(row: Any, index: int, column: str) -> None:
    with pytest.raises(RowMisfit) as caught:
        table_of([{"symbol": "Z"}, row], ticks("json"))
    assert (caught.value.misfit.index, caught.value.misfit.column) == (index, column)


def test_numbers_that_json_lacks_are_refused() -> None:
    schema = ticks("json")
    with pytest.raises(RowMisfit, match="nan"):
        codec_of(schema).encode(table_of([("A", float("nan"), 1)], schema))


def test_tables_of_all_kinds_are_rows() -> None:
    import pandas
    import polars
    import pyarrow as pa

    schema, columns = ticks("json"), {"symbol": ["A", "B"], "price": [1.5, None], "size": [1, 2]}
    wanted = table_of([("A", 1.5, 1), ("B", None, 2)], schema)
    arrow = pa.table(columns)
    for rows_given in (
        arrow,
        arrow.to_batches()[0],
        pandas.DataFrame(columns),
        polars.DataFrame(columns),
        [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)],
    ):
        assert table_of(rows_given, schema).equals(wanted)
    with pytest.raises(RowMisfit, match="size"):
        table_of(arrow.set_column(2, "size", pa.array([1.0, 2.5])), schema)
    with pytest.raises(RowMisfit, match="row 1, column 'size'"):
        table_of(arrow.set_column(2, "size", pa.array([1, 1 << 40])), schema)
