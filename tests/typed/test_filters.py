"""Filters mean what they mean in DuckDB (docs/typed.md, T20), and cannot be abused (T23)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from samelog.format.arrow import to_arrow
from samelog.typed.filters.comparing import BadFilter
from samelog.typed.filters.filter import Filter

SCHEMA = pa.schema(
    [
        ("n", pa.int64()),
        ("m", pa.int64()),
        ("x", pa.float64()),
        ("y", pa.float64()),
        ("s", pa.string()),
        ("b", pa.bool_()),
        ("d", pa.date32()),
        ("t", pa.timestamp("us")),
    ]
)
NO_RECORDS = to_arrow(b"", 0, 0, topic="t", partition=0)
INTEGERS = st.sampled_from([-(1 << 63), -2, -1, 0, 1, 2, 3, (1 << 53) + 1, (1 << 63) - 1])
FLOATS = st.sampled_from([float("-inf"), -1.5, -0.0, 0.0, 1.0, 1.5, float("inf"), float("nan")])
TEXTS = st.text("aB%_\\!\n\xe9", max_size=4)
DAYS = ["1969-12-31", "2026-01-01", "2026-11-23"]
CELLS: dict[str, st.SearchStrategy[Any]] = {
    "n": INTEGERS,
    "m": INTEGERS,
    "x": FLOATS,
    "y": FLOATS,
    "s": TEXTS,
    "b": st.booleans(),
    "d": st.dates().filter(lambda day: day.year > 1000),
    "t": st.datetimes().filter(lambda time: time.year > 1000),
}
ROWS = st.lists(st.fixed_dictionaries({k: st.none() | v for k, v in CELLS.items()}), max_size=6)
COMPARED = st.sampled_from(["=", "<>", "<", "<=", ">", ">="])


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


NUMBERS = st.sampled_from(["-2", "0", "1", "1.5", "-0.5", "2.999", "9223372036854775807", "1e3"])
LITERALS: dict[str, st.SearchStrategy[str]] = {
    "n": NUMBERS,
    "x": st.sampled_from(["-1.5", "0", "1", "1.5", "2"]),
    "s": TEXTS.map(quoted),
    "b": st.sampled_from(["TRUE", "FALSE"]),
    "d": st.sampled_from(DAYS).map("DATE '{}'".format),
    "t": st.sampled_from(DAYS).map("TIMESTAMP '{} 10:00:00.000001'".format),
}


@st.composite
def simple(draw: st.DrawFn) -> str:
    """A comparison, or what is one."""
    name = draw(st.sampled_from(sorted(LITERALS)))
    value = LITERALS[name]
    one, other = draw(value), draw(value)
    shape = draw(
        st.sampled_from(
            [
                "{c} {op} {v}",
                "{v} {op} {c}",
                "{c} {op} NULL",
                "{c} IN ({v}, {w})",
                "{c} NOT IN ({v}, NULL)",
                "{c} BETWEEN {v} AND {w}",
                "{c} NOT BETWEEN {v} AND {w}",
                "{c} IS NULL",
                "{c} IS NOT NULL",
                "{c} IS DISTINCT FROM {v}",
                "{c} IS NOT DISTINCT FROM {v}",
                "n {op} m",
                "x {op} y",
                "x IS NOT DISTINCT FROM y",
                "b",
                "TRUE",
                "NULL",
                "s LIKE {p}",
                "s NOT LIKE {p}",
                "s LIKE {e} ESCAPE '!'",
            ]
        )
    )
    pattern = draw(TEXTS) or "%"
    escaped = (draw(TEXTS) or "%").replace("!", "!!").replace("\\", "!%")
    return shape.format(
        c=name, op=draw(COMPARED), v=one, w=other, p=quoted(pattern), e=quoted(escaped)
    )


def conditions() -> st.SearchStrategy[str]:
    """Any condition."""
    return st.recursive(
        simple(),
        lambda inner: (
            st.tuples(inner, st.sampled_from(["AND", "OR"]), inner).map(
                lambda parts: f"({' '.join(parts)})"
            )
            | inner.map("NOT ({})".format)
        ),
        max_leaves=5,
    )


@pytest.fixture(scope="module")
def duck() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        yield connection


def records(count: int) -> pa.Table:
    return pa.Table.from_pylist([{}] * count, schema=NO_RECORDS.schema)


@given(ROWS, conditions())
def test_a_condition_passes_what_it_passes_in_duckdb(
    duck: duckdb.DuckDBPyConnection, rows: list[dict[str, Any]], text: str
) -> None:
    table = pa.Table.from_pylist(rows, schema=SCHEMA)
    numbered = table.append_column("place", pa.array(range(len(rows)), pa.int64()))
    duck.register("given", numbered)
    wanted = duck.execute(f"SELECT place FROM given WHERE {text} ORDER BY place").fetchall()
    mask = Filter(text, SCHEMA, NO_RECORDS.schema).mask(table, records(len(rows)))
    assert [n for n, passes in enumerate(mask.to_pylist()) if passes] == [n for (n,) in wanted]


def test_untyped_records_are_chosen_by_key_header_and_place() -> None:
    found = pa.Table.from_pylist(
        [
            {"key": b"A", "offset": 7, "partition": 0, "headers": [("x", b"1"), ("x", b"2")]},
            {"key": None, "offset": 8, "partition": 0, "headers": []},
            {"key": b"B", "offset": 9, "partition": 1, "headers": [("x", None)]},
        ],
        schema=NO_RECORDS.schema,
    )
    rows = pa.table({"none": pa.nulls(3)}).drop_columns(["none"])

    def passing(text: str) -> list[int]:
        mask = Filter(text, rows.schema, found.schema).mask(rows, found).to_pylist()
        return [
            offset for offset, is_in in zip(found["offset"].to_pylist(), mask, strict=True) if is_in
        ]

    assert passing("_key = 'A'") == [7]
    assert passing("_key IN ('A', 'B') AND _partition = 1") == [9]
    assert passing("_header('x') = '2'") == [7]
    assert passing("_header('x') IS NULL") == [8, 9]
    assert passing("_offset > 7.5") == [8, 9]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "n = 1; DROP TABLE t",
        "n = (SELECT 1)",
        "abs(n) = 1",
        "s SIMILAR TO 'a'",
        "s = 1",
        "n = 'a'",
        "zzz = 1",
        "n",
        "1 = 1",
        "n IN (SELECT 1)",
        "t > TIMESTAMP 'yesterday'",
        "s LIKE 'a!' ESCAPE '!'",
        "n = 1e999999999",
        "n = n + 1",
        "(" * 3000 + "b" + ")" * 3000,
        "NOT " * 2000 + "b",
        "s = '" + "a" * 9000 + "'",
        " OR ".join(["b"] * 2000),
    ],
)
def test_what_is_not_in_the_grammar_is_refused(text: str) -> None:
    with pytest.raises(BadFilter):
        Filter(text, SCHEMA, NO_RECORDS.schema)


def test_a_long_chain_is_not_deep() -> None:
    table = pa.Table.from_pylist([{"n": 299}, {"n": 300}], schema=SCHEMA)
    text = " OR ".join(f"n = {number}" for number in range(300))
    assert Filter(text, SCHEMA, NO_RECORDS.schema).mask(table, records(2)).to_pylist() == [
        True,
        False,
    ]
