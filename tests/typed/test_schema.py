"""What a schema is, and which version may follow which."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samelog.typed.arrow_types import arrow_schema, from_arrow
from samelog.typed.compatibility import Compatibility, problems_between, problems_reading
from samelog.typed.schema import BadSchema, Schema, SchemaFormat, parse_schema
from tests.typed.worlds import schemas


def schema(*columns: str, value_format: str = "json") -> Schema:
    """Columns as `name type`, with `!` behind the type of those that are not nullable, and `=5` for
    a default.
    """
    found = []
    for column in columns:
        name, kind = column.split(" ", 1)
        kind, _, default = kind.partition("=")
        each = {"name": name, "type": kind.rstrip("!"), "nullable": not kind.endswith("!")}
        found.append(each | ({"default": int(default)} if default else {}))
    return parse_schema(json.dumps({"format": value_format, "columns": found}))


@given(schemas())
def test_a_schema_is_its_text(drawn: Schema) -> None:
    assert parse_schema(drawn.text) == drawn
    assert parse_schema(drawn.text).fingerprint == drawn.fingerprint


@given(schemas(SchemaFormat.ARROW))
def test_a_schema_is_the_one_of_arrow(drawn: Schema) -> None:
    found = from_arrow(arrow_schema(drawn))
    assert [(c.name, c.type, c.is_nullable) for c in found.columns] == [
        (c.name, c.type, c.is_nullable) for c in drawn.columns
    ]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "JSON object"),
        ("[]", "format"),
        ('{"format":"json","columns":[]}', "1 to 1000 columns"),
        ('{"format":"xml","columns":[{"name":"a","type":"bool"}]}', "none of arrow"),
        (
            '{"format":"json","columns":[{"name":"a","type":"int128"}]}',
            "'int128' is not a type of a column. Types are: ",
        ),
        ('{"format":"json","columns":[{"name":"_a","type":"bool"}]}', "no _ in front"),
        ('{"format":"json","columns":[{"name":"a","name":"b","type":"bool"}]}', "twice"),
        ('{"format":"csv","columns":[{"name":"a","type":"list<bool>"}]}', "no lists"),
        ('{"format":"avro","columns":[{"name":"a","type":"uint64"}]}', "no uint64"),
        ('{"format":"json","columns":[{"name":"a","type":"int8","default":300}]}', "no default"),
        ('{"format":"json","columns":[{"name":"a","type":"float64","default":1e999}]}', "finite"),
        ('{"format":"json","columns":[{"name":"\\ud800","type":"bool"}]}', "no text"),
        ('{"format":"json","columns":[{"name":"a","type":"bool","x":1}]}', "no more"),
    ],
)
def test_what_is_no_schema_is_refused(text: str, reason: str) -> None:
    with pytest.raises(BadSchema, match=reason):
        parse_schema(text)


@pytest.mark.parametrize(
    ("old", "new", "backward", "forward"),
    [
        (["a int64"], ["a int64"], True, True),
        (["a int64"], ["a int64", "b string"], True, True),
        (["a int64"], ["a int64", "b string!"], False, True),
        (["a int64"], ["a int64", "b int32!=5"], True, True),
        (["a int64", "b string!"], ["a int64"], True, False),
        (["a int64", "b string"], ["a int64"], True, True),
        (["a int32"], ["a int64"], True, False),
        (["a int64"], ["a int32"], False, True),
        (["a int64"], ["a float64"], True, False),
        (["a uint32"], ["a int32"], False, False),
        (["a int64!"], ["a int64"], True, False),
        (["a string"], ["a int64"], False, False),
        (["a list<int32>"], ["a list<int64>"], True, False),
        (["a int64", "b string"], ["b string", "a int64"], True, True),
    ],
)
def test_modes_mean_what_they_mean_in_a_registry(
    old: list[str], new: list[str], backward: bool, forward: bool
) -> None:
    before, after = schema(*old), schema(*new)
    allowed = {mode: not problems_between(mode, after, before) for mode in Compatibility}
    assert allowed == {
        Compatibility.NONE: True,
        Compatibility.BACKWARD: backward,
        Compatibility.FORWARD: forward,
        Compatibility.FULL: backward and forward,
    }


def test_a_step_that_is_compatible_need_not_be_after_two() -> None:
    first, second, third = schema("a int64"), schema("a int64", "b int32!=5"), schema("b int32!")
    assert problems_between(Compatibility.BACKWARD, second, first) == []
    assert problems_between(Compatibility.BACKWARD, third, second) == []
    assert "'b' is not there" in problems_reading(third, first)[0]


def test_the_format_stays() -> None:
    before, after = schema("a int64"), schema("a int64", value_format="csv")
    assert problems_between(Compatibility.FULL, after, before)
    assert not problems_between(Compatibility.NONE, after, before)


@given(st.text(max_size=30))
def test_any_text_is_a_schema_or_refused(text: str) -> None:
    with suppress(BadSchema):
        parse_schema(text)
