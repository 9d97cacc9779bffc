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
    GroupPlacement,
    GroupRow,
    GroupRows,
    NodeInfo,
    NodeState,
    PlacementStatus,
    SessionInfo,
    Status,
    TopicInfo,
    Topics,
    TransactionInfo,
    TransactionRows,
)
from samelog.admin.mirror_answers import MirrorInfo, MirrorRows
from samelog.admin.mirror_requests import ListMirrors
from samelog.admin.placement_requests import GetPlacement, ListTasks
from samelog.admin.requests import AdminRequest, GetStatus, ListGroups, ListTransactions
from samelog.admin.site_answers import SiteInfo, SiteRows
from samelog.admin.site_requests import ListSites
from samelog.admin.task_answers import TaskInfo, TaskRows
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
        case ListSites():
            return SiteRows((SiteInfo("fra", True, 0, ()), SiteInfo("nyc", False, 0, ())), ())
        case ListMirrors():
            return MirrorRows("c", (mirror("eu.flights", -1), mirror("eu.fares", 9)))
        case ListTransactions():
            return TransactionRows((TransactionInfo("tx-1", "Ongoing", 1, 0, 60_000, 5),))
        case GetPlacement():
            groups = (GroupPlacement(number, "rt-0", ("rt-0",), 1, {}) for number in (0, 3, 12))
            return PlacementStatus(tuple(groups), ())
        case ListTasks():
            task = TaskInfo(7, "fill", 3, "rt-0", None, "running", "", "", 1)
            return TaskRows(are_paused=False, running=(task,), waiting=(), ended=())
        case ListGroups():
            return GroupRows((GroupRow("billing", "Empty", "", "", 0, 0, 0),))
        case _:
            return Topics(tuple(TopicInfo(n, "id", 1, {}) for n in ("flights", "fares", "audit")))


def mirror(topic: str, promoted_ms: int) -> MirrorInfo:
    """One, or what was one."""
    names = topic, "id", "there", topic, "log", ("there",)
    return MirrorInfo(*names, True, 1, promoted_ms, (), {}, 0, (), 0)


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
        (("schema", "show", "f"), ["fares", "flights"]),
        (("schema", "set", "a"), ["audit"]),
        (("publish", "--topic", "t", "--session", ""), ["feed"]),
        (("sidecar", "subscriber", "--topic", "a"), ["audit"]),
        (("site", "promote", "n"), ["nyc"]),
        (("site", "remove", ""), ["fra", "nyc"]),
        (("site", "add", ""), []),
        (("mirror", "promote", "eu"), ["eu.flights"]),
        (("transaction", "abort", ""), ["tx-1"]),
        (("recover", "group", ""), ["12", "3"]),
        (("recover", "group", "3", "--from", ""), ["rt-0"]),
        (("tasks", "cancel", ""), ["7"]),
        (("node", "transfer", "--from", ""), ["rt-0"]),
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


def test_the_current_context_counts(cluster: FakeCluster, tmp_path: Path) -> None:
    """In a process of its own: it lets the context count by a variable."""
    before = {name: text for name, text in os.environ.items() if name != "SAMELOG_CONFIG"}
    environment = before | {"XDG_CONFIG_HOME": str(tmp_path)}
    program = "from samelog.cli.main import main; main(prog_name='samelog')"
    command = [sys.executable, "-c", program]
    add = ["context", "add", "here", cluster.client_file]
    subprocess.run([*command, *add], env=environment, check=True)
    line = {"COMP_WORDS": "samelog topic describe f", "COMP_CWORD": "3"}
    ended = subprocess.run(
        command,
        env=environment | {VARIABLE: "bash_complete"} | line,
        capture_output=True,
        text=True,
        check=True,
    )
    assert ended.stdout.split() == ["plain,fares", "plain,flights"]


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


LINES = {
    "bash": (
        "COMP_WORDS=(samelog topic desc) COMP_CWORD=2",
        "_samelog_completion samelog",
        'echo "${COMPREPLY[*]}"',
    ),
    "zsh": ("words=(samelog topic desc) CURRENT=3", "_samelog_completion"),
    "fish": ("complete --do-complete 'samelog topic desc'",),
}
BEFORE = {
    "zsh": (
        "compdef() { }",
        "_describe() { print -l ${completions_with_descriptions%%:*} }",
        "compadd() { print -l $completions }",
    )
}
"""What a shell has when somebody types, and this one has not."""


@pytest.mark.parametrize("shell", SHELLS)
def test_a_shell_completes_by_its_script(shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell}")
    script = CliRunner().invoke(main, ["completion", shell]).stdout
    lines = (*BEFORE.get(shell, ()), script, *LINES[shell])
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    ended = subprocess.run(
        [shell, "-c", "\n".join(lines)],
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ended.stdout.split()[:1] == ["describe"], ended.stderr
