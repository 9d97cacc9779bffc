"""`samelog node drain --wait` and `samelog tasks wait`: until nothing is left to be done."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from samelog.admin.answers import GroupPlacement, PlacementStatus
from samelog.admin.placement_requests import DrainHost, DrainNode, GetPlacement
from samelog.admin.requests import AdminRequest
from samelog.admin.task_answers import Drained, TaskInfo, TaskRows
from samelog.cli.main import main
from tests.cli.fake_nodes import Answer, FakeCluster

NOTHING = Drained(are_paused=False, running=(), waiting=(), ended=(), nodes={})
N0_MOVES = replace(NOTHING, nodes={"n0": "moves 3 replicas to others"})


def placed(groups: int) -> PlacementStatus:
    """n0 has group 0 as everybody has, and so many data groups."""
    found = [GroupPlacement(number, "n1", ("n0", "n1"), 2, {}) for number in range(groups + 1)]
    return PlacementStatus((*found, GroupPlacement(9, "n1", ("n1", "n2"), 2, {})), ())


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[FakeCluster]:
    with FakeCluster(tmp_path) as started:
        yield started


def test_a_node_is_waited_for_until_it_has_no_replica(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[float, float | None, str]] = []

    @contextmanager
    def waiting(label: str) -> Iterator[Callable[..., None]]:
        yield lambda *progress: told.append(progress)

    left = [3, 1, 0]

    def answer(request: AdminRequest[Any]) -> Answer:
        return placed(left.pop(0)) if isinstance(request, GetPlacement) else N0_MOVES

    cluster.nodes[0].answer = answer
    monkeypatch.setattr("samelog.cli.commands.placing.tasks.waiting", waiting)
    command = ["node", "drain", "n0", "--config", cluster.client_file]
    result = CliRunner().invoke(main, [*command, "--wait", "60"])
    assert (result.exit_code, left) == (0, []), result.output
    assert cluster.nodes[0].asked[0] == DrainNode("n0")
    assert [each[:2] for each in told] == [(0, 3), (2, 3)]
    assert CliRunner().invoke(main, [*command, "--wait", "60", "--end"]).exit_code == 2


def test_a_host_is_waited_for_until_none_of_its_nodes_has_a_replica(cluster: FakeCluster) -> None:
    effects = {"n0": "is drained already, and still moves 1 replica to others", "n2": "moves none"}
    left = [1, 0]

    def answer(request: AdminRequest[Any]) -> Answer:
        match request:
            case DrainHost("a"):
                return replace(NOTHING, nodes=effects)
            case GetPlacement():
                return PlacementStatus(tuple(placed(left.pop(0)).groups[:-1]), ())
            case _:
                return NOTHING

    cluster.nodes[0].answer = answer
    command = ["node", "drain", "--host", "a", "--wait", "60", "--config", cluster.client_file]
    result = CliRunner().invoke(main, command)
    assert (result.exit_code, left) == (0, []), result.output
    assert "n0 is drained already, and still moves 1 replica to others\nn2 " in result.stderr


@pytest.mark.parametrize("words", [[], ["n0", "--host", "a"]])
def test_a_node_or_a_host_is_named(cluster: FakeCluster, words: list[str]) -> None:
    for command in (["drain"], ["maintenance", "--end"]):
        asked = ["node", *command, *words, "--config", cluster.client_file]
        result = CliRunner().invoke(main, asked)
        assert result.exit_code == 2
        assert "NAME or --host HOST" in result.stderr


def test_who_still_has_replicas_in_the_end_is_said(cluster: FakeCluster) -> None:
    cluster.nodes[0].answer = lambda request: (
        placed(2) if isinstance(request, GetPlacement) else N0_MOVES
    )
    command = ["node", "drain", "n0", "--wait", "0.01", "--config", cluster.client_file]
    result = CliRunner().invoke(main, command)
    assert result.exit_code == 1
    assert "n0 has 2 replicas after 0.01 s" in result.stderr


def tasks(*numbers: int) -> TaskRows:
    """The first runs, the others wait."""
    rows = [
        TaskInfo(number, "fill", number, "n0", None, "running", "", "history 43 %", 1)
        for number in numbers
    ]
    return TaskRows(are_paused=False, running=tuple(rows[:1]), waiting=tuple(rows[1:]), ended=())


def test_tasks_are_waited_for_until_none_is_left(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And are shown meanwhile."""
    told: list[tuple[float, float | None, str]] = []

    @contextmanager
    def waiting(label: str) -> Iterator[Callable[..., None]]:
        yield lambda *progress: told.append(progress)

    left = [tasks(3, 4), tasks(4), NOTHING, NOTHING]
    cluster.nodes[0].answer = lambda request: left.pop(0) if len(left) > 1 else left[0]
    monkeypatch.setattr("samelog.cli.commands.placing.tasks.waiting", waiting)
    monkeypatch.setattr("samelog.cli.commands.placing.tasks.QUIET_S", 0.5)
    result = CliRunner().invoke(main, ["tasks", "wait", "--config", cluster.client_file])
    assert result.exit_code == 0, result.output
    assert told == [
        (0, 2, "fill of group 3: history 43 %"),
        (1, 2, "fill of group 4: history 43 %"),
    ]


def test_what_is_left_in_the_end_is_said(cluster: FakeCluster) -> None:
    cluster.nodes[0].answer = lambda request: tasks(3)
    command = ["tasks", "wait", "--timeout", "0", "--config", cluster.client_file]
    result = CliRunner().invoke(main, command)
    assert result.exit_code == 1
    assert "1 left after 0 s: fill of group 3: history 43 %" in result.stderr


BLOCKED = TaskInfo(
    -1, "fill", 2, None, None, "blocked", "1 of 2 copies", "no member is in service", -1
)


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (TaskRows(False, (), (BLOCKED,), ()), "fill of group 2: no member is in service"),
        (
            TaskRows(True, (replace(tasks(3).running[0], state="paused"),), (), ()),
            "fill of group 3: history 43 %",
        ),
    ],
)
def test_waiting_ends_with_the_reason_when_only_blocked_tasks_are_left(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, found: TaskRows, reason: str
) -> None:
    cluster.nodes[0].answer = lambda request: found
    monkeypatch.setattr("samelog.cli.commands.placing.tasks.BLOCKED_S", 0.3)
    result = CliRunner().invoke(main, ["tasks", "wait", "--config", cluster.client_file])
    assert result.exit_code == 1
    assert f"1 left, and blocked: {reason}" in result.stderr
