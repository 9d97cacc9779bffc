"""Texts that would exhaust a parser are refused before it sees them; honest ones never are."""

from __future__ import annotations

import re
import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samelog.config.document import DEPTH_MAX, ConfigText, is_too_deep, parse_toml
from samelog.config.values import ConfigError

MANY = 5000
DEEP = {
    "lists": "a = " + "[" * MANY,
    "closed lists": "a = " + "[" * MANY + "]" * MANY,
    "tables": "a = " + "{b = " * MANY,
    "a dotted key": "a." * 100_000 + "a = 1",
    "a dotted key in a table": "x = {" + "a." * 100_000 + "a = 1}",
    "a dotted key of quotes": "'a' . " * MANY + "a = 1",
    "a header": "[" + "a." * MANY + "a]",
    "behind a string": "a = ['''x'''', " + "[" * MANY + "]" * MANY + ", 'y']",
    "behind a longer string": 'a = ["""x\\"""""", ' + "[" * MANY + "]" * MANY + ', "y"]',
}


@pytest.mark.parametrize("name", DEEP)
def test_what_nests_too_deeply_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=rf"c\.toml: nests deeper than {DEPTH_MAX}"):
        parse_toml(ConfigText("c.toml", DEEP[name].encode()))


@pytest.mark.parametrize("quote", ['"', "'", '"""', "'''"])
def test_what_is_in_strings_and_comments_does_not_count(quote: str) -> None:
    inside = "[{." * 100
    text = f"# {inside}\na = [{quote}{inside}{quote}, {quote}{inside}{quote}]  # {inside}"
    assert parse_toml(ConfigText("c.toml", text.encode())) == {"a": [inside, inside]}


def test_many_that_are_not_deep_do_not_count() -> None:
    text = "\n".join(f"a.b.c{number} = [[1.5], [{{x.y = 1}}]]" for number in range(100))
    assert len(parse_toml(ConfigText("c.toml", text.encode()))["a"]["b"]) == 100


def test_a_number_without_an_end_is_refused() -> None:
    with pytest.raises(ConfigError, match=re.escape("c.toml: not valid TOML")):
        parse_toml(ConfigText("c.toml", b"a = " + b"1" * MANY))


@given(st.text(alphabet="\"'\\[]{}#a.=,\n ", max_size=60), st.integers(1, 2))
def test_what_counts_is_what_a_parser_sees(before: str, kind: int) -> None:
    """Whatever comes before: either it ends the parser, or what follows is seen as deep."""
    deep = f"\nx = {'[' * 40}{']' * 40}" if kind == 1 else f"\n{'x.' * 40}x = 1"
    try:
        found = tomllib.loads(before + deep)
    except tomllib.TOMLDecodeError:
        return
    assert is_too_deep(before + deep) == ("'x': " in repr(found))
