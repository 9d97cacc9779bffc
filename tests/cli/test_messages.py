"""What commands say when an argument, a library or a standard file is missing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner

from samelog import Subscriber
from samelog.cli.conditions import RowCondition
from samelog.cli.errors import operator_error
from samelog.cli.main import main
from samelog.config.tables.client import ClientConfig
from samelog.config.tables.shared import TlsFiles
from samelog.config.values import Address
from samelog.format.arrow import ArrowMissing
from samelog.typed.types import parse_type
from tests.cli.test_confirmation import commands
from tests.patience import PATIENCE_S

NO_CONFIG = {"SAMELOG_CONFIG": "", "XDG_CONFIG_HOME": "/nonexistent"}


def test_a_missing_configuration_is_answered_with_every_way_to_give_one() -> None:
    for path, command in commands():
        config = next((each for each in command.params if "--config" in each.opts), None)
        if config is None or not config.envvar or not config.required:
            continue
        shown = CliRunner().invoke(main, [*path, "--help"], env=NO_CONFIG).output
        place = shown[shown.index("--config") :]
        assert "[required]" not in place.split("  -", 1)[0], path
        assert "SAMELOG_CONFIG" in place
    found = CliRunner().invoke(main, ["topic", "list"], env=NO_CONFIG)
    assert found.exit_code == 2
    for way in ("--config FILE", "SAMELOG_CONFIG=FILE", "samelog context add", "samelog up"):
        assert way in found.output


@pytest.mark.parametrize(
    ("words", "file"),
    [
        ("mirror run", "mirror.toml"),
        ("mirror status", "mirror.toml"),
        ("mirror skip t/0 --to 1", "mirror.toml"),
        ("recover majority-lost", "node.toml"),
        ("recover soft-reset", "node.toml"),
        ("recover move-raft", "node.toml"),
    ],
)
def test_a_missing_file_is_named(words: str, file: str) -> None:
    found = CliRunner().invoke(main, words.split(), env=NO_CONFIG)
    assert found.exit_code == 2
    assert "Missing option '--config'. Name the " in found.output
    assert f"{file} " in found.output.partition("Missing option")[2]
    assert "by --config FILE" in found.output


@pytest.mark.parametrize("missing", ["pyarrow", "sqlglot"])
def test_a_condition_names_the_extra_that_has_all_it_needs(
    missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [each for each in sys.modules if each.partition(".")[0] == missing]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, missing, None)
    files = TlsFiles(ca="ca", cert="cert", key="key")
    nowhere = ClientConfig(nodes=(Address("127.0.0.1", 1),), cluster="c", tls=files)
    if missing == "sqlglot":
        monkeypatch.setattr("samelog.cli.conditions.topic_schemas", _no_schema)
    with pytest.raises(ArrowMissing, match="the extra 'typed'"):
        RowCondition(nowhere, "t", 0, "a > 1")


def _no_schema(*_: object) -> object:
    from samelog.admin.answers import SchemaPage

    return SchemaPage("t", "", 0, (), more=False)


def test_an_unknown_start_is_answered_with_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="'earliest', 'latest', 'stored', an offset") as error:
        Subscriber("t", directory=str(tmp_path), start="newest")
    assert "NamedStart" not in str(error.value)


def test_an_unknown_type_is_answered_with_those_there_are() -> None:
    with pytest.raises(ValueError, match=r"'integer' is not .* int64, .* timestamp\[ms, UTC\]"):
        parse_type("integer")


def test_a_system_error_names_its_file() -> None:
    told = operator_error(FileNotFoundError(2, "No such file or directory", "/proc/x"))
    assert told is not None
    assert told.message == "/proc/x: No such file or directory"


CLOSED = (
    (["config", "schema", "client"], ">&-", 1, "standard output is closed"),
    (["--version"], ">&-", 1, "standard output is closed"),
    (["config", "check", "/nonexistent"], ">&- 2>&-", 2, ""),
    (["config", "schema", "nonsense"], "2>&-", 2, ""),
    (["config", "schema", "client"], "2>&- <&-", 0, ""),
)


@pytest.mark.parametrize(("arguments", "closed", "code", "message"), CLOSED)
def test_a_closed_standard_file_is_one_message(
    arguments: list[str], closed: str, code: int, message: str
) -> None:
    line = f'exec "$@" {closed}'
    command = ["sh", "-c", line, "sh", sys.executable, "-m", "samelog", *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == code
    assert "Traceback" not in ended.stderr
    assert message in ended.stderr


INTERRUPTING = """
import os, signal, sys
class Interrupter:
    def find_spec(self, name, path=None, target=None):
        if name == {when!r}:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupter())
sys.argv = ["samelog", "topic", "list"]
import runpy
runpy.run_module("samelog", run_name="__main__")
"""


def test_the_console_script_handles_interrupts_before_it_imports_commands() -> None:
    pyproject = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))
    assert pyproject["project"]["scripts"] == {"samelog": "samelog.__main__:main"}


@pytest.mark.parametrize(
    "when",
    [
        "samelog.cli",
        "samelog.cli.main",
        "click",
        "click.core",
        "samelog.cli.commands.topic",
        "samelog.config.tables.client",
    ],
)
def test_an_interrupt_during_the_start_leaves_no_traceback(when: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", INTERRUPTING.format(when=when)],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
        env={**os.environ, **NO_CONFIG},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert ended.returncode == 130
    assert ended.stderr == ""
