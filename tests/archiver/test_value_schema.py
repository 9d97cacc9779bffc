"""Values that are JSON objects, typed by a topic's schema."""

from __future__ import annotations

import json
from contextlib import suppress
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from samelog.archiver.copies.parquet import TypedValues
from samelog.archiver.copies.value_schema import TYPES, parse_schema
from samelog.sequencer.state.topic_settings import problem_with

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=2), inner),
    max_leaves=5,
)
ALL = {f"{kind} x": kind for kind in TYPES}


def column(schema: dict[str, str], *values: Any) -> list[Any]:
    """The rows for these values, each as JSON unless it is bytes."""
    data = [
        each if isinstance(each, bytes | None) else json.dumps(each).encode() for each in values
    ]
    found: list[Any] = TypedValues(schema).column(pa.array(data, pa.binary())).to_pylist()
    return found


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "is not JSON"),
        ("[]", "is not an object of fields"),
        ("{}", "is not an object of fields"),
        ('{"": "string"}', "is not an object of fields"),
        ('{"a": "varchar"}', "'a' is 'varchar'; types are bool, int8"),
        ('{"a": 3}', "types are bool"),
        ('{"a": []}', "types are bool"),
        (f'{{"a": "{"x" * 40_000}"}}', "is longer than"),
    ],
)
def test_what_is_no_schema_is_refused_as_a_setting(text: str, why: str) -> None:
    assert why in (problem_with("value_schema", text, 1) or "")


def test_a_schema_is_a_setting() -> None:
    assert problem_with("value_schema", '{"a": "int8"}', 1) is None
    assert parse_schema('{"b": "string", "a": "int8"}') == {"b": "string", "a": "int8"}
    assert parse_schema("") == {}


def test_values_have_the_types_of_the_schema() -> None:
    value = {
        "bool x": True,
        "int8 x": -128,
        "int16 x": 1,
        "int32 x": 2,
        "int64 x": (1 << 63) - 1,
        "float32 x": 1,
        "float64 x": 0.1,
        "string x": "é",
        "date32 x": "2026-11-21",
        "timestamp[ms] x": "2026-11-21T18:00:00.5+01:00",
        "unknown": [1],
    }
    moment = datetime(2026, 11, 21, 17, 0, 0, 500_000, UTC)
    expected = {**value, "date32 x": date(2026, 11, 21), "timestamp[ms] x": moment}
    del expected["unknown"]
    assert column(ALL, value, {}) == [expected, dict.fromkeys(ALL)]


@pytest.mark.parametrize(
    "value",
    [
        {"a": 128},
        {"a": 1.5},
        {"a": "1"},
        {"a": True},
        [],
        3,
        b"",
        b"{",
        b'{"a": 1} 2',
        b"\xff",
        None,
    ],
)
def test_a_value_that_does_not_fit_is_null(value: Any) -> None:
    assert column({"a": "int8"}, {"a": 1}, value, {"a": None}) == [{"a": 1}, None, {"a": None}]


@given(st.lists(JSON | st.dictionaries(st.sampled_from(list(ALL)), JSON) | st.binary(), max_size=6))
def test_whatever_values_are_there_is_a_row_for_each(values: list[Any]) -> None:
    assert len(column(ALL, *values)) == len(values)


@given(st.text() | JSON.map(json.dumps))
def test_any_text_is_a_schema_or_refused(text: str) -> None:
    with suppress(ValueError):
        TypedValues(parse_schema(text) or {"a": "string"}).column(pa.array([b"{}"]))
