"""What a shell completes: commands, options, and names that the cluster has now."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner

from samelog.admin.answers import (
    AdminAnswer,
    GroupRow,
    GroupRows,
    NodeInfo,
    NodeState,
    SessionInfo,
    Status,
    TopicInfo,
    Topics,
)
from samelog.admin.requests import AdminRequest, GetStatus, ListGroups
from samelog.cli.commands.shell.completion import SHELLS, VARIABLE
from samelog.cli.contexts import Contexts, write_contexts
from samelog.cli.main import SUBCOMMANDS, main
from tests.cli.fake_nodes import FakeCluster


def completed(*words: str) -> list[str]:
    """What is offered for the last word."""
    *before, last = words
    shell = ShellComplete(main, {}, "samelog", VARIABLE)
    return [item.value for item in shell.get_completions(list(before), last)]


def answer(request: AdminRequest[Any]) -> AdminAnswer:
    match request:
        case GetStatus():
            node = NodeInfo("rt-0", "h:1", NodeState.LIVE, "", 1, 1)
            session = SessionInfo("feed", "i", 0, is_open=True, unmerged_bytes=0)
            return Status("c", "rt-0", None, 1, 1, (node,), (), (session,))
        case ListGroups():
            return GroupRows((GroupRow("billing", "Empty", "", "", 0, 0, 0),))
        case _:
            return Topics(tuple(TopicInfo(n, "id", 1, {}) for n in ("flights", "fares", "audit")))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeCluster]:
    with FakeCluster(tmp_path_factory.mktemp("fake"), 1) as made:
        made.nodes[0].answer = answer
        yield made


def test_commands_and_options() -> None:
    assert completed("to") == ["topic", "top"]
    assert completed("topic", "de") == ["delete", "describe"]
    assert "--grep" in completed("peek", "--g")
    assert set(completed("")) == set(SUBCOMMANDS)


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (("topic", "describe", "f"), ["fares", "flights"]),
        (("peek", ""), ["audit", "fares", "flights"]),
        (("publish", "--topic", "fl"), ["flights"]),
        (("subscribe", "--topic", "a"), ["audit"]),
        (("restore", "a"), ["audit"]),
        (("log-history", "a"), ["audit"]),
        (("group", "describe", ""), ["billing"]),
        (("group", "reset", "billing", "--topic", "fa"), ["fares"]),
        (("node", "maintenance", ""), ["rt-0"]),
        (("node", "replace", "rt"), ["rt-0"]),
        (("session", "retire", ""), ["feed"]),
        (("topic", "create", ""), []),
    ],
)
def test_names_of_the_cluster(
    cluster: FakeCluster,
    words: tuple[str, ...],
    names: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SAMELOG_CONFIG", cluster.client_file)
    assert completed(*words) == names


def test_config_on_the_line_counts_too(cluster: FakeCluster) -> None:
    assert completed("topic", "describe", "--config", cluster.client_file, "au") == ["audit"]


def test_where_nobody_answers_there_are_no_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAMELOG_CONFIG", "/nowhere/client.toml")
    assert completed("topic", "describe", "") == []


def test_contexts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("SAMELOG_CONFIG", "")
    write_contexts(Contexts({"prod": "/p", "test": "/t"}, "prod"))
    assert completed("context", "use", "t") == ["test"]
    assert completed("--context", "p") == ["prod"]


@pytest.mark.parametrize("shell", SHELLS)
def test_each_shell_gets_a_script(shell: str) -> None:
    result = CliRunner().invoke(main, ["completion", shell])
    assert result.exit_code == 0
    assert VARIABLE in result.stdout
    found = shutil.which(shell)
    if found is not None:
        subprocess.run([found, "-n"], input=result.stdout, text=True, check=True)


def test_bash_completes_by_the_script() -> None:
    script = CliRunner().invoke(main, ["completion", "bash"]).stdout
    place = Path(sys.executable).parent
    lines = (
        script,
        "COMP_WORDS=(samelog topic desc) COMP_CWORD=2",
        "_samelog_completion samelog",
        'echo "${COMPREPLY[*]}"',
    )
    path = f"{place}{os.pathsep}{os.environ['PATH']}"
    ended = subprocess.run(
        ["bash", "-c", "\n".join(lines)],
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ended.stdout.split() == ["describe"], ended.stderr
