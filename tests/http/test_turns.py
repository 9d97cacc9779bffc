"""No answer over HTTP takes a long turn of a node's event loop, however long it is."""

from __future__ import annotations

import asyncio
import json
from enum import IntEnum
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samelog.format.steps import finished
from samelog.runtime import slices
from samelog.wire.plain import encode_steps, to_json
from tests.http.test_server import LOOPBACK, NO_FILES, OneApi, serving
from tests.kafka.test_turns import BOUND, Turns

ROWS = 1_000


class Level(IntEnum):
    """Becomes its name."""

    LOW = 1


class Row(NamedTuple):
    """One element of an answer."""

    name: str
    number: int
    settings: dict[str, str]
    replicas: tuple[int, ...]


class Answer(NamedTuple):
    """An answer whose list has no bound."""

    rows: tuple[Row, ...]


ROW = Row("name", 7, {"retention.ms": "1"}, (1, 2, 3))
ANSWERS = {
    "rows": Answer((ROW,) * ROWS),
    "numbers": {"ends": list(range(20 * ROWS))},
    "settings": {str(number): "x" for number in range(10 * ROWS)},
}


def test_no_answer_takes_a_long_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    turns, found = Turns(), dict[str, int]()

    async def main() -> None:
        monkeypatch.setattr(slices.slices(), "now", turns.now)
        for name, answer in ANSWERS.items():

            async def act(answer: object = answer) -> object:
                return answer

            async with serving(OneApi(act), LOOPBACK, NO_FILES) as ask:
                with turns:
                    status, told = await ask("GET", "/look")
                assert (status, told) == (200, to_json(answer))
            found[name] = turns.most

    asyncio.run(main())
    assert not {what: most for what, most in found.items() if most > BOUND}


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.binary() | st.just(Level.LOW),
    lambda inner: (
        st.lists(inner)
        | st.lists(inner).map(tuple)
        | st.dictionaries(st.text() | st.integers(), inner)
        | st.builds(Row, st.text(), inner, inner, inner)
    ),
    max_leaves=20,
)


@given(VALUES)
def test_an_answer_in_steps_is_the_same_text(value: Any) -> None:
    assert json.loads(finished(encode_steps(value))) == json.loads(json.dumps(to_json(value)))
