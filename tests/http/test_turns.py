"""No request over HTTP takes a long turn of a node's event loop, however long it or its answer is,
and however much there is of what it asks for.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from enum import IntEnum
from pathlib import Path
from typing import Annotated, Any, NamedTuple
from unittest.mock import patch

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from samelog.admin.requests import AdminRequest
from samelog.admin.table import OPERATIONS, Operation
from samelog.format.steps import finished
from samelog.runtime import slices
from samelog.sequencer.admin.handlers import answer as answer_of
from samelog.sequencer.node import Node
from samelog.sequencer.state.commands import AnyCommand
from samelog.sequencer.state.tables.groups import CommitOffsets, CommittedOffset
from samelog.sequencer.state.tables.sessions import OpenInputCommand, OpenRunCommand
from samelog.sequencer.state.tables.topics import CreateTopicCommand
from samelog.sequencer.state.tables.transactions import InitProducer
from samelog.wire import conversion, plain
from samelog.wire.plain import SCALAR_MAX, TooManyValues, decode_steps, encode_steps, to_json
from tests.http.test_server import LOOPBACK, NO_FILES, OneApi, serving
from tests.kafka.test_turns import BOUND, Turns
from tests.sequencer.cluster import RunWith

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


def values(integers: st.SearchStrategy[int]) -> st.SearchStrategy[Any]:
    """Values as answers have them."""
    return st.recursive(
        st.none() | st.booleans() | integers | st.text() | st.binary() | st.just(Level.LOW),
        lambda inner: (
            st.lists(inner)
            | st.lists(inner).map(tuple)
            | st.dictionaries(st.text() | st.integers(), inner)
            | st.builds(Row, st.text(), inner, inner, inner)
        ),
        max_leaves=20,
    )


@given(values(st.integers()))
def test_an_answer_in_steps_is_the_same_text(value: Any) -> None:
    assert json.loads(finished(encode_steps(value))) == json.loads(json.dumps(to_json(value)))


@given(values(st.integers(-(1 << 63), (1 << 64) - 1)))
def test_text_in_steps_has_the_same_value(value: Any) -> None:
    text = json.dumps(to_json(value))
    assert finished(decode_steps(text.encode(), 10_000)) == json.loads(text)
    assert finished(decode_steps(b" \n" + text.encode() + b"\t", 10_000)) == json.loads(text)


SHORT = st.text(max_size=8) | st.integers(-999, 999) | st.booleans()


@given(st.recursive(SHORT, lambda inner: st.lists(inner) | st.dictionaries(SHORT, inner)))
def test_text_that_is_read_in_pieces_has_the_same_value(value: Any) -> None:
    text = json.dumps(value, indent=1, ensure_ascii=False)
    with patch.object(plain, "SCALAR_MAX", 50):
        assert finished(decode_steps(text.encode(), 10_000)) == json.loads(text)


class Scanner:
    """A decoder that notes how much text it may have to look at."""

    def __init__(self) -> None:
        self.most = 0

    def raw_decode(self, text: str, place: int) -> tuple[Any, int]:
        self.most = max(self.most, len(text) - place)
        return json.JSONDecoder().raw_decode(text, place)


@pytest.mark.parametrize(
    ("text", "refused"),
    [
        (json.dumps(["a" * 4000] * 1000), ""),
        (json.dumps(["é" * (SCALAR_MAX - 2)] * 4, ensure_ascii=False), ""),
        (json.dumps(["a" * (4 << 20)]), f"a text of more than {SCALAR_MAX} characters at char"),
        ("[" + " " * (4 << 20) + "1]", f"more than {SCALAR_MAX} spaces at character 1"),
        ("[1" + "0" * (4 << 20) + "]", "at character|digits"),
    ],
    ids=["texts", "long-texts", "one-text", "spaces", "digits"],
)
def test_a_step_scans_a_bounded_part_of_a_body(
    text: str, refused: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    scanner = Scanner()
    monkeypatch.setattr(plain, "_DECODER", scanner)
    if refused:
        with pytest.raises(ValueError, match=refused):
            finished(decode_steps(text.encode(), 10_000))
    else:
        assert finished(decode_steps(text.encode(), 10_000)) == json.loads(text)
    assert scanner.most <= 2 * SCALAR_MAX


BAD_TEXTS = {
    "nothing": b"",
    "two values": b"{} {}",
    "not UTF-8": b'"\xff"',
    "half of a surrogate pair": b'{"a": "\\ud800"}',
    "an end too early": b'{"a": [1, ',
    "no comma": b"[1 2]",
    "a comma too many": b"[1,]",
    "another end": b"[1}",
    "no name": b"{1: 2}",
    "no colon": b'{"a" 2}',
    "no number": b"[NaN]",
    "an infinite number": b"[1e999]",
    "a number of 80 bits": b"[1208925819614629174706176]",
    "a number of 10,000 digits": b"1" * 10_000,
    "deep": b"[" * 100_000,
    "a line within a text": b'"a\nb"',
}


@pytest.mark.parametrize("name", BAD_TEXTS)
def test_what_is_no_json_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        finished(decode_steps(BAD_TEXTS[name], 1_000))


@pytest.mark.parametrize("text", [b"[1,2]", b'{"a": 1}', b'[["a"]]'])
def test_values_are_counted(text: bytes) -> None:
    needed = {b"[1,2]": 3, b'{"a": 1}': 3, b'[["a"]]': 3}[text]
    finished(decode_steps(text, needed))
    with pytest.raises(TooManyValues, match=f"more than {needed - 1} values"):
        finished(decode_steps(text, needed - 1))


def count_values(value: Any) -> int:
    """The values of a decoded text."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + sum(map(count_values, inner))


class Part(msgspec.Struct, forbid_unknown_fields=True):
    """One element of a long list in a request."""

    numbers: tuple[Annotated[int, msgspec.Meta(ge=0)], ...] = ()
    name: str = ""


class Whole(msgspec.Struct, forbid_unknown_fields=True):
    """A request that may be long."""

    parts: Annotated[tuple[Part, ...], msgspec.Meta(max_length=9)]
    left_out: Annotated[tuple[int, ...] | msgspec.UnsetType, msgspec.Meta(description="d")] = (
        msgspec.UNSET
    )
    by_name: Annotated[dict[str, int], msgspec.Meta(max_length=9)] = {}


WRONG: st.SearchStrategy[Any] = st.sampled_from([None, -1, "x", {}, [], True])
NUMBERS = st.lists(st.integers(0, 9) | WRONG, max_size=12)
SOUND = st.lists(st.integers(0, 9), max_size=12)


@given(
    st.dictionaries(st.sampled_from(["parts", "left_out", "by_name", "other"]), WRONG, max_size=1),
    st.lists(st.fixed_dictionaries({"numbers": SOUND | NUMBERS}), max_size=11),
    SOUND | NUMBERS,
    st.dictionaries(st.text(max_size=2), st.integers() | WRONG, max_size=11),
)
def test_a_request_in_pieces_is_converted_as_at_once(
    wrong: dict[str, Any], parts: list[Any], left_out: list[Any], by_name: dict[str, Any]
) -> None:
    value = {"parts": parts, "left_out": left_out, "by_name": by_name} | wrong

    def outcome(convert: Callable[[], Whole]) -> object:
        try:
            return convert()
        except msgspec.ValidationError as error:
            return str(error)

    with patch.object(conversion, "PIECE", 3):
        in_pieces = outcome(lambda: finished(conversion.convert_steps(value, Whole)))
    assert in_pieces == outcome(lambda: msgspec.convert(value, Whole))


def test_no_body_is_decoded_in_a_long_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """A value that is converted counts as a call, because one call converts any number."""
    turns, bodies = Turns(), {"numbers": [0] * 100_000, "objects": [{"x": [1]}] * 20_000}
    found, convert = dict[str, int](), msgspec.convert

    def counted(value: Any, kind: Any, **more: Any) -> Any:
        turns.calls += count_values(value)
        return convert(value, kind, **more)

    async def main() -> None:
        monkeypatch.setattr(slices.slices(), "now", turns.now)
        monkeypatch.setattr(msgspec, "convert", counted)
        async with serving(OneApi(), LOOPBACK, NO_FILES) as ask:
            for name, values in bodies.items():
                with turns:
                    status, told = await ask("POST", "/groups/mine/send", json={"values": values})
                assert (status, "values" in told.get("detail", "values")) == (
                    200 if name == "numbers" else 400,
                    True,
                )
                found[name] = turns.most
            status, told = await ask("POST", "/groups/mine/send", json={"values": [0] * 300_000})
            assert (status, told["detail"]) == (413, "the body has more than 200000 values")

    asyncio.run(main())
    assert not {what: most for what, most in found.items() if most > BOUND}


def test_requests_without_a_pause_take_no_long_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    turns, count = Turns(), 200

    async def main() -> None:
        monkeypatch.setattr(slices.slices(), "now", turns.now)
        async with serving(OneApi(), LOOPBACK, NO_FILES) as ask:
            reader, writer = await asyncio.open_connection(*ask.address)
            with turns:
                writer.write(b"GET /look HTTP/1.1\r\nHost: localhost\r\n\r\n" * count)
                for _ in range(count):
                    await reader.readuntil(b'{"done": true}')
            writer.close()

    asyncio.run(main())
    assert turns.most <= BOUND


# --- the table of requests ------------------------------------------------------------------------

THINGS = 1_500
"""Of each kind that there can be many of."""
ATTEMPTS = 3
"""A timer of the node may fall into the turns of one."""
WIDE, GROUP, DEDUP = "wide", "g0", "d"
PATHS = {"topic": WIDE, "group": GROUP, "transactional_id": "t0"}
ADMIN = "samelog://client/admin"


def crowd() -> Iterator[AnyCommand]:
    """Commands that make many of everything."""
    yield CreateTopicCommand("f" * 32, WIDE, THINGS, {}, 1)
    for number in range(THINGS):
        name = f"{number:032d}"
        yield CreateTopicCommand(name, f"n{number}", 1, {}, 1)
        yield OpenRunCommand(f"s{number}", name, ADMIN, number, name, DEDUP, 0)
        yield OpenInputCommand(f"s{number}", "f" * 32, number)
        yield InitProducer(f"t{number}", 60_000, -1, -1, number, 1)
        yield CommitOffsets([(f"g{number}", [(1, CommittedOffset(0, -1, "", 1))])])
    offsets = [(1 + number, CommittedOffset(0, -1, "", 1)) for number in range(THINGS)]
    yield CommitOffsets([(GROUP, offsets)])


def reads() -> Iterator[tuple[Operation, AdminRequest[Any]]]:
    """Every request that only reads."""
    for row in OPERATIONS:
        if row.method == "GET":
            given = {name: PATHS[name] for name in row.in_path}
            given |= {"topic": WIDE} if row.path == "/latest-position" else {}
            yield row, msgspec.convert(given, row.request)


def test_no_request_of_the_table_takes_a_long_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_with: RunWith
) -> None:
    turns, found, refused = Turns(), dict[str, int](), dict[str, str]()

    async def body(nodes: list[Node]) -> None:
        (node,) = nodes
        await node.raft.proposer.propose_all([*crowd()], longer_s=60)
        monkeypatch.setattr(slices.slices(), "now", turns.now)
        for row, request in reads():
            for _ in range(ATTEMPTS):
                with turns:
                    try:
                        await answer_of(node, request, ADMIN)
                    except Exception as error:  # noqa: BLE001 - the table of refusals says what
                        refused[row.path] = repr(error)
                found[row.path] = min(turns.most, found.get(row.path, turns.most))

    run_with(tmp_path, 1, body)
    assert not refused
    assert not {what: most for what, most in found.items() if most > BOUND}
