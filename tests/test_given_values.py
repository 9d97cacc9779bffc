"""Numbers and choices that an application, a command line, a query or an HTTP client gives: what no
message, file or request can hold is refused at once, with the name of the argument.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import click
import msgspec
import pytest
from click.testing import CliRunner

from samelog import Publisher, Subscriber, log_history
from samelog.admin.table import OPERATIONS
from samelog.cli.commands.group import _end_or_offset
from samelog.cli.commands.subscribe import parse_from
from samelog.cli.main import main
from samelog.cli.numbers import GAP_S, TIME_S, Real
from samelog.config.tables.client import OnFull
from samelog.format.arguments import check_choice, check_integer, parse_digits, shown
from samelog.format.numbers import OFFSETS
from samelog.spark.errors import BadOption
from samelog.spark.options import parse_options
from samelog.spark.sink import parse_sink_options
from tests.cli.test_confirmation import commands
from tests.replicator.test_known_nodes import CONFIG as NOWHERE

HUGE = (1 << 63, (1 << 64) - 1, 1 << 64, 10**20, 10**22, 10**5000)
HUGE_TEXTS = (*map(str, HUGE[:-1]), "9" * 5000, "²")
TOPIC = "flights"


# --- the Python API -------------------------------------------------------------------------------


def _subscriber(path: Path, **options: Any) -> None:
    with Subscriber(TOPIC, directory=path / "copies", **options):
        pass


def _publisher(path: Path, **options: Any) -> None:
    with Publisher(TOPIC, session="s", directory=path, **options):
        pass


def _appending(path: Path, *values: Any, **options: Any) -> None:
    ids = {"dedup_id": "d"} if {"id", "ids", "first_id"} & options.keys() else {}
    with Publisher(TOPIC, session="s", directory=path, partitions=2, **ids) as publisher:  # type: ignore[arg-type]
        many = {"timestamps", "ids", "first_id", "keys"} & options.keys() or values
        if many:
            publisher.append_many(values or [b"v"], **options)
        else:
            publisher.append(b"v", **options)


def _history(path: Path, **options: Any) -> None:
    next(iter(log_history(NOWHERE, **options)))


def _whole(name: str) -> Callable[[Any], dict[str, Any]]:
    return lambda number: {name: number}


NUMBERS: list[tuple[Callable[..., None], Callable[[Any], dict[str, Any]]]] = [
    (_subscriber, _whole("start")),
    (_subscriber, lambda number: {"start": {0: number}}),
    (_subscriber, lambda number: {"start": {number: 0}}),
    (_subscriber, lambda number: {"partitions": [0, number]}),
    (_subscriber, _whole("version")),
    (_subscriber, lambda number: {"group": "g", "rebalance_timeout_s": number, "config": NOWHERE}),
    (_publisher, _whole("partitions")),
    (_publisher, _whole("linger_ms")),
    (_publisher, _whole("batch_bytes")),
    (_publisher, _whole("max_record_bytes")),
    (_publisher, _whole("budget_bytes")),
    (_publisher, _whole("roll_bytes")),
    (_appending, _whole("partition")),
    (_appending, _whole("timestamp")),
    (_appending, lambda number: {"id": number, "partition": 0}),
    (_appending, lambda number: {"timestamps": [number]}),
    (_appending, lambda number: {"ids": [number], "partition": 0}),
    (_appending, lambda number: {"first_id": number, "partition": 0}),
    (_history, _whole("partition")),
]


@pytest.mark.parametrize("row", range(len(NUMBERS)))
def test_the_api_refuses_numbers_beyond_the_wire(tmp_path: Path, row: int) -> None:
    call, options = NUMBERS[row]
    for number in HUGE:
        with pytest.raises(ValueError, match=r"must be|not one of|not fit|is not an id"):
            call(tmp_path, **options(number))


@pytest.mark.parametrize("row", range(len(NUMBERS)))
def test_the_api_refuses_what_is_no_number(tmp_path: Path, row: int) -> None:
    call, options = NUMBERS[row]
    for wrong in ("0", b"0", (1,)):
        with pytest.raises((TypeError, ValueError)) as refused:
            call(tmp_path, **options(wrong))
        for words in ("not supported between", "has no attribute", "cannot be interpreted"):
            assert words not in str(refused.value)


def test_offsets_of_other_integer_types_are_integers(tmp_path: Path) -> None:
    numpy = pytest.importorskip("numpy")
    _subscriber(tmp_path, start=numpy.int64(3), partitions=[numpy.int32(0)])
    _appending(tmp_path, partition=numpy.int64(1))
    assert (tmp_path / "s" / f"{TOPIC}-1").is_dir()


CHOICES: list[tuple[Callable[..., None], str, str]] = [
    (_publisher, "on_full", "block, raise"),
    (_publisher, "on_recreate", "hold, continue, discard"),
    (_publisher, "compression", "none, gzip, snappy, lz4, zstd"),
    (_subscriber, "auto_offset_reset", "earliest, latest, error"),
    (_subscriber, "isolation", "read_uncommitted, read_committed"),
    (_subscriber, "corrupt", "raise, skip"),
]


@pytest.mark.parametrize(("call", "name", "allowed"), CHOICES)
@pytest.mark.parametrize("given", ["x", 5])
def test_choices_name_the_argument_and_what_is_allowed(
    tmp_path: Path, call: Callable[..., None], name: str, allowed: str, given: object
) -> None:
    with pytest.raises(ValueError, match=f"^{name}: {given!r} is not one of {allowed}$"):
        call(tmp_path, **{name: given})


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"start": 1.5}, "start is 1.5; it must be 'earliest', 'latest', 'stored', an offset, a d"),
        ({"start": {"0": 1}}, "a partition in start is '0'; it must be a whole number"),
        ({"start": {0: "1"}}, "start of partition 0 is '1'; it must be a whole number"),
        ({"start": True}, "start is True; it must be 'earliest'"),
        ({"start": [3]}, r"start is \[3\]; it must be"),
        ({"partitions": ["0"]}, "a number in partitions is '0'; it must be a whole number"),
    ],
)
def test_starts_of_other_types_are_refused(
    tmp_path: Path, given: dict[str, Any], said: str
) -> None:
    with pytest.raises(TypeError, match=said):
        _subscriber(tmp_path, **given)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"headers": [("a", 1)]}, "the header 'a' must be bytes or None, not int"),
        ({"headers": {"a": "b"}}, "the header 'a' is a str; encode it: value.encode()"),
        ({"headers": [(b"a", b"b")]}, "the name of a header is a str, not bytes"),
        ({"headers": ["a"]}, "a header is a pair of a name and bytes, not 'a'"),
        ({"headers": 5}, "headers are pairs of a name and bytes, not int"),
        ({"headers": [("a", 1)], "id": 3}, "the header 'a' must be bytes or None, not int"),
        ({"partition": 1.5}, "partition is 1.5; it must be a whole number"),
        ({"partition": True}, "partition is True; it must be a whole number"),
    ],
)
def test_records_of_wrong_types_say_which_part(
    tmp_path: Path, given: dict[str, Any], said: str
) -> None:
    with pytest.raises(TypeError) as refused:
        _appending(tmp_path, **given)
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("values", "given", "said"),
    [
        ([b"a", "b"], {}, "record 1: the value is a str; encode it: value.encode()"),
        ([b"a", b"b"], {"keys": [b"k", 3]}, "record 1: the key must be bytes or None, not int"),
        ([b"a", b"b"], {"headers": [None, [("h", 1)]]}, "record 1: the header 'h' must be bytes"),
        ([b"a"], {"headers": [["h"]]}, "record 0: a header is a pair of a name and bytes"),
    ],
)
def test_one_of_many_records_is_named(
    tmp_path: Path, values: list[Any], given: dict[str, Any], said: str
) -> None:
    with pytest.raises(TypeError) as refused:
        _appending(tmp_path, *values, **given)
    assert said in str(refused.value)


# --- the command line -----------------------------------------------------------------------------


def test_every_number_of_a_command_is_bounded() -> None:
    count = 0
    for path, command in commands():
        for each in command.params:
            kind = each.type
            where = path, each.name
            if kind.name.startswith("integer"):
                count += 1
                assert isinstance(kind, click.IntRange), where
                assert kind.max in OFFSETS, where
                assert kind.min is not None, where
                assert abs(kind.min) in OFFSETS, where
            if kind.name.startswith("float"):
                assert isinstance(kind, Real), where
    assert count > 40


@pytest.mark.parametrize(("kind", "most"), [(TIME_S, "1e9"), (GAP_S, "inf")])
def test_seconds_are_numbers_that_timers_take(kind: Real, most: str) -> None:
    assert kind.convert(most, None, None) == float(most)
    for wrong in ("nan", "-1", *(["inf", "1e300"] if most != "inf" else [])):
        with pytest.raises(click.BadParameter):
            kind.convert(wrong, None, None)


@pytest.mark.parametrize(
    ("words", "option"),
    [
        ("subscribe --from NUMBER --topic t --no-follow", "--from"),
        ("subscribe --partition NUMBER --topic t --no-follow", "--partition"),
        ("replay serve --from NUMBER --topic t", "--from"),
        ("peek t --offset NUMBER", "--offset"),
        ("topic create t --partitions NUMBER", "--partitions"),
        ("tasks cancel NUMBER", "NUMBER"),
    ],
)
def test_commands_refuse_numbers_beyond_the_wire(words: str, option: str) -> None:
    for number in HUGE_TEXTS:
        given = [number if word == "NUMBER" else word for word in words.split()]
        done = CliRunner().invoke(main, given)
        assert done.exit_code == 2
        assert f"Invalid value for '{option}'" in done.output


def test_groups_are_not_reset_to_numbers_beyond_the_wire() -> None:
    for number in HUGE_TEXTS:
        with pytest.raises(click.BadParameter, match="neither earliest nor latest nor an offset"):
            _end_or_offset(number)


def test_the_last_offset_is_one() -> None:
    context = click.Context(main)
    assert parse_from(context, main.params[0], str(OFFSETS[-1])) == OFFSETS[-1]


# --- queries --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "told",
    [
        {"assign": '{"a": [9223372036854775808]}'},
        {"startingOffsets": '{"a": {"0": 9223372036854775808}}'},
        {"startingOffsets": '{"a": {"0": 1e400}}'},
        {"endingOffsets": '{"a": {"0": 100000000000000000000}}'},
        {"startingOffsets": "[" * 100_000},
        {"startingTimestamp": "9223372036854775808"},
        {"startingTimestamp": "9" * 5000},
        {"startingOffsetsByTimestamp": '{"a": {"0": 9223372036854775808}}'},
        {"maxOffsetsPerTrigger": "9223372036854775808"},
        {"fetchTimeoutMs": "2147483648"},
        {"localWaitMs": "100000000000000000000"},
        {"maxTriggerDelay": "9" * 5000 + "s"},
    ],
    ids=shown,
)
def test_queries_refuse_numbers_beyond_the_wire(told: dict[str, str]) -> None:
    chosen = {} if "assign" in told else {"subscribe": "a"}
    with pytest.raises(BadOption):
        parse_options({**chosen, **told})


@pytest.mark.parametrize("number", ["9223372036854775808", "9" * 5000, "²"], ids=shown)
def test_sinks_refuse_numbers_beyond_the_wire(number: str) -> None:
    with pytest.raises(BadOption, match="batchId"):
        parse_sink_options({"topic": "a", "batchId": number})


# --- HTTP -----------------------------------------------------------------------------------------


def _integers(kind: Any) -> bool:
    return kind is int or any(map(_integers, get_args(kind)) if get_origin(kind) else ())


HTTP_NUMBERS = [
    pytest.param(name, kind, id=f"{operation.request.__name__}-{name}")
    for operation in OPERATIONS
    for name, kind in get_type_hints(operation.request, include_extras=True).items()
    if name in operation.request.__struct_fields__ and _integers(kind)
]


@pytest.mark.parametrize(("field", "kind"), HTTP_NUMBERS)
def test_http_refuses_numbers_beyond_the_wire(field: str, kind: Any) -> None:
    request_type = msgspec.defstruct("One", [(field, kind)])
    for number in HUGE[:-1]:
        for given, strict in ((number, True), (str(number), False)):
            with pytest.raises(msgspec.ValidationError, match=field):
                msgspec.convert({field: given}, request_type, strict=strict)


# --- the checks -----------------------------------------------------------------------------------


def test_checks_return_what_they_checked() -> None:
    assert check_choice("on_full", OnFull.RAISE, OnFull) is OnFull.RAISE
    assert check_integer("offset", OFFSETS[-1], OFFSETS) == OFFSETS[-1]
    assert parse_digits("007", OFFSETS) == 7
    assert parse_digits("-1", OFFSETS) is parse_digits("٣", OFFSETS) is None
    assert len(shown("x" * 1000)) == len(shown(list(range(1000)))) == 80
