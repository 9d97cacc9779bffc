"""The command's frame: what it lists, how errors look, and what goes to which stream."""

from __future__ import annotations

import json
import pkgutil
import subprocess
import sys
from ast import literal_eval
from dataclasses import dataclass
from enum import Enum, IntEnum
from importlib import import_module
from typing import NamedTuple

import click
import msgspec
import pytest
from click.testing import CliRunner, Result

from samelog import __version__
from samelog.cli import commands
from samelog.cli import main as main_module
from samelog.cli.main import LazyGroup, main
from samelog.cli.output import fail, print_json, print_table, printable, progress, talk
from samelog.config.values import ConfigError
from samelog.wire.errors import FaultCode, ProtocolFault
from samelog.wire.plain import to_json


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


def test_version() -> None:
    result = run("--version")
    assert result.exit_code == 0
    assert result.stdout == f"samelog {__version__}\n"


def test_help_lists_the_subcommands_that_exist_in_order() -> None:
    group = LazyGroup()
    names = group.list_commands(click.Context(group))
    assert "pki" in names
    assert names == list(main_module.SUBCOMMANDS)
    result = run("--help")
    assert result.exit_code == 0
    assert all(f"  {name} " in result.stdout for name in names)
    assert "..." not in result.stdout.partition("Commands:")[2]
    assert max(map(len, result.stdout.splitlines())) <= 80


def test_every_module_of_commands_is_a_subcommand() -> None:
    found = {
        module.name.removeprefix("samelog.cli.commands.")
        for module in pkgutil.walk_packages(commands.__path__, "samelog.cli.commands.")
        if hasattr(import_module(module.name), "command")
    }
    assert {module for module, _ in main_module.SUBCOMMANDS.values()} == {
        name for name in found if not name.startswith("pipeline.")
    }


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (["pek"], "'peek'"),
        (["topics", "list"], "'topic'"),
        (["topic", "lst"], "'list'"),
        (["topic", "list", "--jsn"], "--json"),
    ],
)
def test_a_mistyped_command_is_answered_with_what_may_be_meant(
    arguments: list[str], meant: str
) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert "Did you mean" in result.stderr
    assert meant in result.stderr


def test_groups_say_in_whole_sentences_what_their_commands_do() -> None:
    groups = [name for name in main_module.SUBCOMMANDS if is_group(name)]
    assert len(groups) > 10
    for name in groups:
        listed = run(name, "--help").stdout.partition("Commands:\n")[2]
        assert listed.rstrip().endswith("."), name
        assert "..." not in listed, name


def is_group(name: str) -> bool:
    """Whether a subcommand has subcommands."""
    found = main.get_command(click.Context(main), name)
    return isinstance(found, click.Group)


@pytest.mark.parametrize("arguments", [["nonsense"], ["--nonsense"], ["pki", "nonsense"]])
def test_an_unknown_command_is_a_usage_error(arguments: list[str]) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""


@pytest.mark.parametrize("option", ["--version", "--help"])
def test_the_list_of_commands_loads_click_and_nothing_else(option: str) -> None:
    """It is to take less than 0.2 s of a processor, which is spent on imports."""
    program = (
        "import sys; before = set(sys.modules); from samelog.cli.main import main;"
        f"main(['{option}'], standalone_mode=False);"
        "print([name for name in sys.modules if name not in before and (name.startswith('samelog')"
        " or 'site-packages' in (getattr(sys.modules[name], '__file__', '') or ''))])"
    )
    command = [sys.executable, "-c", program]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    loaded = set(literal_eval(output.splitlines()[-1]))
    ours = {name for name in loaded if name.partition(".")[0] != "click"}
    assert ours == {"samelog", "samelog.cli", "samelog.cli.main"}
    assert loaded > ours


LIGHT = (
    "context",
    "node",
    "topic",
    "group",
    "session",
    "archive",
    "log-history",
    "top",
    "status",
    "peek",
)


@pytest.mark.parametrize("name", LIGHT)
def test_help_of_a_command_that_asks_nodes_loads_nothing_that_asking_takes(name: str) -> None:
    program = (
        "import sys; from samelog.cli.main import main;"
        f"main(['{name}', '--help'], standalone_mode=False);"
        "print(sorted({'asyncio', 'cryptography', 'rich', 'ssl', 'uvloop'} & sys.modules.keys()))"
    )
    command = [sys.executable, "-c", program]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert output.splitlines()[-1] == "[]"


def run_raising(error: Exception) -> Result:
    """What the operator sees of an error inside a subcommand."""
    group = LazyGroup("samelog")

    @click.command()
    def broken() -> None:
        raise error

    class One(LazyGroup):
        def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command:
            return broken

    group = One("samelog")
    return CliRunner().invoke(group, ["broken"])


@pytest.mark.parametrize(
    ("error", "exit_code", "message"),
    [
        (ConfigError("f.toml: bad"), 2, "samelog: f.toml: bad\n"),
        (FileNotFoundError(2, "No such file", "x"), 1, "samelog: x: No such file\n"),
        (ProtocolFault(FaultCode.TIMEOUT, "late", "wait"), 1, "samelog: late; wait\n"),
        (TimeoutError(), 1, "samelog: TimeoutError\n"),
        (ConfigError("a\x1b[31m\nb"), 2, "samelog: a\\x1b[31m\nb\n"),
    ],
)
def test_known_errors_are_one_message(error: Exception, exit_code: int, message: str) -> None:
    result = run_raising(error)
    assert result.exit_code == exit_code
    assert result.stderr == message
    assert result.stdout == ""


def test_a_bug_keeps_its_traceback() -> None:
    result = run_raising(KeyError("x"))
    assert isinstance(result.exception, KeyError)


def test_fail_means_exit_code_1() -> None:
    with pytest.raises(click.ClickException, match="not so") as caught:
        fail("not so")
    assert caught.value.exit_code == 1


class Colour(Enum):
    RED = "red"


class Level(IntEnum):
    HIGH = 3


class Pair(NamedTuple):
    left: int
    right: Colour


@dataclass(frozen=True, slots=True)
class Point:
    x: int


class Shape(msgspec.Struct, array_like=True):
    points: tuple[Point, ...]
    level: Level


def test_values_become_json() -> None:
    shape = Shape(points=(Point(1),), level=Level.HIGH)
    assert to_json(shape) == {"points": [{"x": 1}], "level": "high"}
    assert to_json({1: Pair(1, Colour.RED)}) == {"1": {"left": 1, "right": "red"}}


def test_json_is_all_there_is_on_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    talk("hello")
    print_json({"name": "é"})
    with progress("working", 10) as advance:
        advance(5)
    output = capsys.readouterr()
    assert json.loads(output.out) == {"name": "é"}
    assert output.err == "hello\n"


def test_a_table_for_programs_is_aligned_and_complete(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("name", "state"), [("n0", Level.HIGH), ("a" * 200, "x\ny")], title="nodes")
    title, *lines = capsys.readouterr().out.splitlines()
    assert title == "# nodes"
    assert lines[0] == "NAME" + " " * 198 + "STATE"
    assert lines[1] == "n0" + " " * 200 + "high"
    assert lines[2] == "a" * 200 + "  x\\ny"


def test_a_table_for_humans_takes_texts_as_they_are(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    print_table(("name",), [("[bold]n0\x1b[2J",)])
    assert "[bold]n0\\x1b[2J" in capsys.readouterr().out


def test_text_from_elsewhere_can_not_control_the_terminal() -> None:
    assert printable("a\x1b[2J\r\x9b é\u202e", keep="\n") == "a\\x1b[2J\\r\\x9b é\\u202e"
