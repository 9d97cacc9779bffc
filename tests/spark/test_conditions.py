"""Filters of Spark as conditions of nodes: they mean the same of every row."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from samelog.spark.plan.conditions import conditions
from samelog.typed.filters.filter import Filter as RowFilter

COLUMNS = pa.schema([("n", pa.int64()), ("x", pa.float64()), ("s", pa.string()), ('q u"o', "bool")])
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "n": st.integers(-3, 3),
    "x": st.sampled_from([-1.5, -0.0, 0.1, 1e-7, 1e22, 3.0]),
    "s": st.text("a'%_\\é", max_size=3),
    'q u"o': st.booleans(),
}
TESTS: dict[Any, Callable[[Any, Any], Any]] = {
    EqualTo: lambda found, value: found == value,
    GreaterThan: lambda found, value: found > value,
    GreaterThanOrEqual: lambda found, value: found >= value,
    LessThan: lambda found, value: found < value,
    LessThanOrEqual: lambda found, value: found <= value,
    StringContains: lambda found, value: value in found,
    StringEndsWith: lambda found, value: found.endswith(value),
    StringStartsWith: lambda found, value: found.startswith(value),
}
TEXTS = (StringContains, StringEndsWith, StringStartsWith)


def truth(each: Any, row: dict[str, Any]) -> bool | None:
    """What Spark makes of a row; None: unknown."""
    if isinstance(each, Not):
        inner = truth(each.child, row)
        return None if inner is None else not inner
    found = row[each.attribute[0]]
    if isinstance(each, IsNull | IsNotNull):
        return (found is None) == isinstance(each, IsNull)
    if isinstance(each, EqualNullSafe):
        return bool(found == each.value)
    if found is None:
        return None
    if isinstance(each, In):
        return True if found in each.value else (None if None in each.value else False)
    return bool(TESTS[type(each)](found, each.value))


@st.composite
def filters(draw: st.DrawFn) -> Filter:
    column = draw(st.sampled_from(sorted(VALUES)))
    ordered = () if COLUMNS.field(column).type == pa.bool_() else (GreaterThan, LessThanOrEqual)
    kinds = [EqualTo, EqualNullSafe, In, IsNull, IsNotNull, *ordered, *TEXTS * (column == "s")]
    if ordered:
        kinds += [GreaterThanOrEqual, LessThan]
    kind: Any = draw(st.sampled_from(kinds))
    one = VALUES[column]
    if kind is In:
        made = In((column,), tuple(draw(st.lists(st.none() | one, min_size=1, max_size=3))))
    elif kind in (IsNull, IsNotNull):
        made = kind((column,))
    else:
        made = kind((column,), draw(one))
    return Not(made) if draw(st.booleans()) else made


ROWS = st.fixed_dictionaries({name: st.none() | one for name, one in VALUES.items()})


@given(filters(), st.lists(ROWS, min_size=1, max_size=4))
def test_a_condition_means_what_the_filter_does(each: Filter, rows: list[dict[str, Any]]) -> None:
    (text,) = conditions([each], COLUMNS.names)
    table = pa.Table.from_pylist(rows, schema=COLUMNS)
    records = pa.table({"key": pa.array([None] * len(rows), pa.binary())})
    mask = RowFilter(text, COLUMNS, records.schema).mask(table, records)
    assert mask.to_pylist() == [truth(each, row) is True for row in rows], text


@pytest.mark.parametrize(
    "each",
    [
        EqualTo(("other",), 1),
        EqualTo(("s", "inner"), 1),
        EqualTo(("n",), datetime(2026, 1, 1, tzinfo=UTC)),
        EqualTo(("s",), b"bytes"),
        EqualTo(("x",), float("nan")),
        EqualTo(("x",), None),
        In(("n",), (1, b"x")),
        Not(EqualTo(("x",), float("inf"))),
        object(),
    ],
)
def test_what_has_no_counterpart_stays_with_spark(each: Any) -> None:
    assert conditions([each, IsNull(("n",))], COLUMNS.names) == ['"n" IS NULL']


def test_decimals_and_dates() -> None:
    chosen = [GreaterThan(("d",), Decimal("1E+3")), LessThan(("d",), date(2026, 2, 3))]
    assert conditions(chosen, ["d"]) == ['"d" > 1000', "\"d\" < DATE '2026-02-03'"]
