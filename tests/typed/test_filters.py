"""Filters mean what they mean in DuckDB (docs/typed.md, T20), and cannot be abused (T23)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date, datetime
from decimal import Decimal
from itertools import product, zip_longest
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from samelog.format.arrow import to_arrow
from samelog.typed.filters.filter import Filter
from samelog.typed.filters.operands import BadFilter

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
        ("z", pa.timestamp("ms", "UTC")),
        ("i", pa.int8()),
        ("u", pa.uint64()),
        ("f", pa.float32()),
        ("c", pa.decimal128(9, 3)),
        ("k", pa.binary()),
    ]
)
NO_RECORDS = to_arrow(b"", 0, 0, topic="t", partition=0)
INTEGERS = [-(1 << 63), -2, -1, 0, 1, 2, 3, (1 << 53) + 1, (1 << 63) - 1]
FLOATS = [float("-inf"), -1.5, -0.0, 0.0, 1.0, 1.5, float("inf"), float("nan")]
TEXTS = st.text("aB%_\\!\n\xe9", max_size=4)
DAYS = ["1969-12-31", "2026-01-01", "2026-11-23"]
TIMES = [
    datetime.fromisoformat(f"{day}T{time}+00:00")
    for day in DAYS
    for time in ("00:00", "10:00", "10:00:00.001")
]
EDGES: dict[str, list[Any]] = {
    "n": INTEGERS,
    "m": INTEGERS,
    "x": FLOATS,
    "y": FLOATS,
    "s": ["", "a", "B", "aB", "\xe9"],
    "b": [False, True],
    "d": [date.fromisoformat(day) for day in ("0001-01-01", *DAYS, "9999-12-31")],
    "t": [time.replace(tzinfo=None) for time in TIMES],
    "z": TIMES,
    "i": [-128, -2, -1, 0, 1, 2, 127],
    "u": [0, 1, 2, 3, 1 << 63, (1 << 64) - 1],
    "f": [-0.0, 0.1, 1.0, 1.5, float("nan"), float("-inf")],
    "c": list(map(Decimal, ["-999999.999", "-0.001", "0", "1", "1.5", "2.999", "999999.999"])),
    "k": [b"", b"a", b"a\x00", b"B"],
}
"""Values of each column that are compared in different ways."""
CELLS: dict[str, st.SearchStrategy[Any]] = {
    **{name: st.sampled_from(values) for name, values in EDGES.items()},
    "s": TEXTS,
    "d": st.dates(date(1000, 1, 1)),
    "t": st.datetimes(datetime(1000, 1, 1)),  # noqa: DTZ001
}
ROWS = st.lists(st.fixed_dictionaries({k: st.none() | v for k, v in CELLS.items()}), max_size=6)
OPERATORS = ["=", "<>", "<", "<=", ">", ">="]
NUMBERS = ["-2", "0", "1", "1.5", "-0.5", "2.999", "9223372036854775807", "1000.0"]
MOMENTS = [
    form.format(day)
    for form in (
        "DATE '{}'",
        "CAST('{}' AS DATE)",
        "TIMESTAMP '{} 10:00'",
        "CAST('{} 10:00' AS TIMESTAMP)",
        "TIMESTAMP '{} 10:00:00.000001'",
    )
    for day in DAYS
]
LITERALS: dict[str, list[str]] = {
    "n": NUMBERS,
    "x": ["-1.5", "0", "1", "1.5", "2"],
    "s": ["''", "'a'", "'B'", "'aB'", "'\xe9'", "'a''b'"],
    "b": ["TRUE", "FALSE"],
    "d": MOMENTS,
    "t": MOMENTS,
    "z": MOMENTS,
    "i": NUMBERS,
    "u": NUMBERS,
    "f": ["-1.5", "0", "0.1", "1", "1.5"],
    "c": [*NUMBERS, "1.50001"],
    "k": ["''", "'a'", "'B'"],
}


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


@st.composite
def simple(draw: st.DrawFn) -> str:
    """A comparison, or what is one."""
    name = draw(st.sampled_from(sorted(LITERALS)))
    value = st.sampled_from(LITERALS[name])
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
                "s NOT LIKE {e} ESCAPE '!'",
            ]
        )
    )
    pattern = draw(TEXTS)
    escaped = draw(TEXTS).replace("!", "!!").replace("\\", "!%")
    return shape.format(
        c=name,
        op=draw(st.sampled_from(OPERATORS)),
        v=one,
        w=other,
        p=quoted(pattern),
        e=quoted(escaped),
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
    with duckdb.connect(config={"threads": 1}) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        yield connection


def records(count: int) -> pa.Table:
    return pa.Table.from_pylist([{}] * count, schema=NO_RECORDS.schema)


def in_duckdb(
    duck: duckdb.DuckDBPyConnection, table: pa.Table, texts: Sequence[str]
) -> list[list[bool]]:
    """Which rows pass each condition."""
    numbered = table.append_column("place", pa.array(range(table.num_rows), pa.int64()))
    duck.register("drawn", numbered)  # of a table of its own: else Arrow would do the filtering
    duck.execute("CREATE OR REPLACE TEMP TABLE given AS SELECT * FROM drawn")
    chosen = ", ".join(f"coalesce({text}, FALSE) AS c{n}" for n, text in enumerate(texts))
    found = duck.execute(f"SELECT {chosen} FROM given ORDER BY place").fetchall()
    return [list(column) for column in zip(*found, strict=True)] or [[] for _ in texts]


def passing(table: pa.Table, text: str) -> list[bool]:
    mask = Filter(text, SCHEMA, NO_RECORDS.schema).mask(table, records(table.num_rows))
    return list(mask.to_pylist())


@given(ROWS, conditions())
def test_a_condition_passes_what_it_passes_in_duckdb(
    duck: duckdb.DuckDBPyConnection, rows: list[dict[str, Any]], text: str
) -> None:
    table = pa.Table.from_pylist(rows, schema=SCHEMA)
    assert [passing(table, text)] == in_duckdb(duck, table, [text])


@pytest.mark.parametrize("name", EDGES)
def test_every_value_compares_with_every_literal_as_in_duckdb(
    duck: duckdb.DuckDBPyConnection, name: str
) -> None:
    """A comparison and its opposite: what passes neither is unknown."""
    others = LITERALS.get(name, []) + [
        each for each in ("m", "y") if type_of(each) == type_of(name)
    ]
    texts = [f"{name} {operator} {other}" for operator in OPERATORS for other in others]
    texts += [f"NOT ({text})" for text in texts]
    texts += [f"{name} IS {kind} {other}" for kind in DISTINCT for other in others]
    pairs = product(EDGES["n"], EDGES["n"]), product(EDGES["x"], EDGES["x"])
    rows = [dict(zip(EDGES, row, strict=True)) for row in zip_longest(*EDGES.values())]
    rows += [
        {"n": n, "m": m, "x": x, "y": y}
        for (n, m), (x, y) in zip_longest(*pairs, fillvalue=(None, None))
    ]
    table = pa.Table.from_pylist(rows, schema=SCHEMA)
    found = in_duckdb(duck, table, texts)
    assert {text: passing(table, text) for text in texts} == dict(zip(texts, found, strict=True))


DISTINCT = ["DISTINCT FROM", "NOT DISTINCT FROM"]


def type_of(name: str) -> pa.DataType:
    return SCHEMA.field(name).type


LARGE = [1000, 1 << 53, (1 << 53) + 1, (1 << 63) - 1]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("n = 1e3", LARGE[:1]),
        ("n < 9007199254740993e0", LARGE[:2]),
        ("n > 9223372036854775806.5", LARGE[3:]),
        ("n < 1234567890123456789012345678901234567890.5", LARGE),
        ("n > -9223372036854775808.00000000000000000000000000001", LARGE),
        ("n IN (9223372036854775806.0, 9223372036854775807e0)", LARGE[3:]),
    ],
)
def test_numbers_that_duckdb_rounds_are_compared_exactly(text: str, expected: list[int]) -> None:
    """One with an exponent makes it compare DOUBLEs."""
    table = pa.Table.from_pylist([{"n": number} for number in LARGE], schema=SCHEMA)
    assert table["n"].filter(pa.array(passing(table, text))).to_pylist() == expected


def test_untyped_records_are_chosen_by_key_header_and_place() -> None:
    found = pa.Table.from_pylist(
        [
            {
                "key": b"A",
                "offset": 7,
                "partition": 0,
                "timestamp": TIMES[1],
                "headers": [("x", b"1"), ("x", b"2")],
            },
            {"key": None, "offset": 8, "partition": 0, "headers": []},
            {"key": b"B", "offset": 9, "partition": 1, "headers": [("x", None)]},
        ],
        schema=NO_RECORDS.schema,
    )
    rows = pa.table({"none": pa.nulls(3)}).drop_columns(["none"])

    def chosen(text: str) -> list[int]:
        mask = Filter(text, rows.schema, found.schema).mask(rows, found).to_pylist()
        return [
            offset for offset, is_in in zip(found["offset"].to_pylist(), mask, strict=True) if is_in
        ]

    assert chosen("_key = 'A'") == [7]
    assert chosen("_key IN ('A', 'B') AND _partition = 1") == [9]
    assert chosen("_header('x') = '2'") == [7]
    assert chosen("_header('x') IS NULL") == [8, 9]
    assert chosen("_offset > 7.5") == [8, 9]
    assert chosen("_timestamp = TIMESTAMP '1969-12-31 11:00+01:00'") == [7]
    assert chosen("_timestamp >= TIMESTAMP '1969-12-31 10:00:00.000000001'") == []


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
        "n BETWEEN SYMMETRIC 2 AND 1",
        "s ILIKE 'a'",
        "TRY_CAST('2026-01-01' AS DATE) = d",
        "CAST('1' AS INTEGER) = n",
        "x = 1e309",
        "t = TIMESTAMP '2026-01-01 10:00+01:00'",
        "d = DATE '2026-01-01 10:00'",
        "d = DATE '2026-02-30'",
        "d = 1",
        "c = 'a'",
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
    assert passing(table, text) == [True, False]
