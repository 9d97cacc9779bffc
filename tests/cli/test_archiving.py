"""`samelog archive plan` and `samelog log-history` in a cluster with data groups."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from msgspec import UNSET

from samelog.admin.answers import (
    ArchivePlan,
    CopyProgress,
    LogFile,
    LogHistoryPage,
    PartitionPlacement,
    PlacementStatus,
    PlannedArchive,
)
from samelog.admin.placement_requests import GetPlacement
from samelog.admin.requests import AdminRequest, LogHistory, PlanArchive
from samelog.cli.main import main
from samelog.http.routes import HttpProblem
from tests.cli.fake_nodes import Answer, FakeCluster


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[FakeCluster]:
    with FakeCluster(tmp_path) as started:
        yield started


def run(cluster: FakeCluster, *command: str) -> str:
    result = CliRunner().invoke(main, [*command, "--config", cluster.client_file])
    assert result.exit_code == 0, result.output
    return result.output


def planned(topic: str) -> tuple[PlannedArchive, ...]:
    return (PlannedArchive(topic, 0, 0, 10, 1, 500, "time"),)


def test_the_plan_is_of_all_groups_whoever_leads_them(cluster: FakeCluster) -> None:
    plans = {
        0: ArchivePlan("{}", "", planned("b"), ("b-0",), data_groups=2),
        1: ArchivePlan("{}", "", planned("c"), (), CopyProgress(problem="no room")),
        2: ArchivePlan("{}", "", planned("a"), ("a-0",)),
    }
    for number, node in enumerate(cluster.nodes):
        node.answer = lambda request, own=number: (  # type: ignore[misc]
            plans[own]
            if own or not getattr(request, "data_groups", False)
            else ArchivePlan("{}", "", ())
        )
    found = json.loads(run(cluster, "archive", "plan", "--json"))
    assert [each["topic"] for each in found["planned"]] == ["a", "b", "c"]
    assert found["held"] == ["b-0", "a-0"]
    said = run(cluster, "archive", "plan")
    assert "not archived, as it is not copied: no room" in said
    cluster.nodes[1].answer = lambda request: HttpProblem(HTTPStatus.FORBIDDEN, "no")
    said = run(cluster, "archive", "plan")
    assert "data groups that are led there are not shown" in said


def test_without_data_groups_one_node_is_asked(cluster: FakeCluster) -> None:
    cluster.nodes[0].answer = lambda request: ArchivePlan("{}", "", planned("b"))
    run(cluster, "archive", "plan")
    assert [node.asked for node in cluster.nodes] == [[PlanArchive()], [], []]


def file(topic: str, partition: int, first: int) -> LogFile:
    return LogFile(topic, partition, first, first + 10, -1, -1, 100, -1, -1, "", "")


def history(request: AdminRequest[Any], own: tuple[LogFile, ...]) -> Answer:
    """A node with group 0's `a` and `c`, and these of `b`, whose partitions are placed."""
    if isinstance(request, GetPlacement):
        places = [("a", 0, 0), ("b", 0, 3), ("b", 1, 4), ("c", 0, 0)]
        return PlacementStatus((), tuple(PartitionPlacement(*each, None, ()) for each in places))
    assert isinstance(request, LogHistory)
    if request.topic is UNSET:
        return LogHistoryPage((file("a", 0, 0), file("c", 0, 0)), more=False)
    found = [each for each in own if each.partition == request.partition]
    if not found:
        return HttpProblem(HTTPStatus.SERVICE_UNAVAILABLE, "other nodes have it")
    left = tuple(each for each in found if each.first_offset >= request.from_offset)
    return LogHistoryPage(left[:1], more=len(left) > 1)


def test_files_are_asked_of_who_has_them_and_come_in_order(cluster: FakeCluster) -> None:
    held = ((), (file("b", 1, 0),), (file("b", 0, 0), file("b", 0, 10)))
    for node, own in zip(cluster.nodes, held, strict=True):
        node.answer = lambda request, own=own: history(request, own)  # type: ignore[misc]
    lines = run(cluster, "log-history", "--json").splitlines()
    found = [json.loads(line) for line in lines]
    places = [(each["topic"], each["partition"], each["first_offset"]) for each in found]
    assert places == [("a", 0, 0), ("b", 0, 0), ("b", 0, 10), ("b", 1, 0), ("c", 0, 0)]
    lines = run(cluster, "log-history", "b", "--partition", "1", "--json").splitlines()
    assert [json.loads(line)["partition"] for line in lines] == [1]
