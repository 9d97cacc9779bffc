"""Commands whose client.toml names some of the nodes: they learn of others, and ask named ones."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from msgspec import structs

from samelog.admin import client as admin_client
from samelog.admin.answers import (
    AdminAnswer,
    GroupDescription,
    GroupInfo,
    GroupPartition,
    GroupPlacement,
    PartitionInfo,
    PlacementStatus,
    Status,
    TopicDescription,
    TopicInfo,
)
from samelog.admin.client import all_nodes, ask, ask_each
from samelog.admin.errors import AdminError
from samelog.admin.placement_requests import GetPlacement, RecoverDataGroup
from samelog.admin.requests import (
    AdminRequest,
    DescribeGroup,
    DescribeTopic,
    GetRaftStatus,
    ListTopics,
    ResetGroup,
)
from samelog.admin.task_answers import TaskRows
from samelog.admin.views import RaftMember, RaftStatus
from samelog.cli.commands.look.status import combine
from samelog.cli.main import main
from samelog.config.schema.render import to_toml
from samelog.config.tables.client import ClientConfig
from samelog.config.values import Address
from samelog.http.routes import HttpProblem, problem_of
from samelog.wire.errors import FaultCode
from tests.cli.fake_nodes import Answer, FakeCluster

FLIGHTS = TopicInfo("flights", "f" * 32, 3, {})


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[FakeCluster]:
    with FakeCluster(tmp_path) as started:
        for node in started.nodes:
            node.answer = partial(answer_of, started, node.name)
        yield started


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin_client, "RETRY_S", 0.01)


def seed(cluster: FakeCluster, *, with_name: bool = True) -> ClientConfig:
    """Of who knows the first node only."""
    config = cluster.config
    return replace(config, nodes=config.nodes[:1], node_names=("n0",) if with_name else ())


def members_of(cluster: FakeCluster, name: str, *, names: tuple[str, ...] = ()) -> RaftStatus:
    members = tuple(
        RaftMember(node.name, number, str(node.address), True, True, -1, "")
        for number, node in enumerate(cluster.nodes)
        if not names or node.name in names
    )
    return RaftStatus("follower", 1, "n1", True, 1, 9, 9, 9, 9, members, name)


def row_of(partition: int, here: bool) -> PartitionInfo:
    """A partition, as its only holder has it or as another node does."""
    end = 100 + partition if here else 0
    sizes = (1, 10 * end, 7, end, end)
    info = PartitionInfo("flights", partition, 0, end, end, *sizes)
    return info if here else structs.replace(info, elsewhere=f"n{partition}")


def offsets_of(partition: int, here: bool) -> GroupPartition:
    end = 100 + partition if here else 0
    elsewhere = "" if here else f"n{partition}"
    lag = end - 90 if here else 0
    return GroupPartition("flights", partition, 0, end, 90, lag, 5, "", elsewhere)


def answer_of(cluster: FakeCluster, name: str, request: AdminRequest[Any]) -> Answer:
    """Partition N is on node N only."""
    number = int(name[1:])
    if isinstance(request, GetRaftStatus):
        return members_of(cluster, name)
    if isinstance(request, DescribeTopic):
        return TopicDescription(FLIGHTS, tuple(row_of(p, p == number) for p in range(3)))
    if isinstance(request, DescribeGroup):
        info = GroupInfo("billing", "Empty", "consumer", "", 0, 1)
        rows = tuple(offsets_of(p, p == number) for p in range(3))
        return GroupDescription(info, (), rows)
    if isinstance(request, ResetGroup):
        if not isinstance(request.partition, int):
            return problem_of(FaultCode.OUT_OF_RANGE, "no node has all of it")
        if request.partition != number:
            return not_here(cluster, request.partition)
        return answer_of(cluster, name, DescribeGroup("billing"))
    return HttpProblem(HTTPStatus.NOT_FOUND, "not in this test")


def not_here(cluster: FakeCluster, number: int) -> HttpProblem:
    there = cluster.nodes[number]
    known = {"leader": there.name, "leader_address": str(there.address)}
    return problem_of(FaultCode.NOT_LEADER, f"it has no copy: ask {there.name}", **known)


def run_json(cluster: FakeCluster, tmp_path: Path, *arguments: str) -> Any:
    file = tmp_path / "seed.toml"
    file.write_text(to_toml(seed(cluster)))
    result = CliRunner().invoke(main, [*arguments, "--json", "--config", str(file)])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.mark.parametrize("with_name", [True, False])
def test_members_are_learnt_from_whoever_is_configured(
    cluster: FakeCluster, *, with_name: bool
) -> None:
    first, *others = all_nodes(seed(cluster, with_name=with_name))
    assert first == (cluster.nodes[0].address, "n0" if with_name else None)
    assert others == [(node.address, node.name) for node in cluster.nodes[1:]]
    answers = ask_each(seed(cluster), DescribeTopic("flights"))
    assert [type(each) for each in answers] == [TopicDescription] * 3


def test_a_configured_node_goes_by_its_configuration(cluster: FakeCluster) -> None:
    """Members may reach it elsewhere, and it may have no name in the configuration."""
    told = members_of(cluster, "n0")
    moved = structs.replace(told.members[0], address="elsewhere:1")
    told = structs.replace(told, members=(moved, *told.members[1:]))
    cluster.nodes[0].answer = lambda request: told
    for with_name in (True, False):
        assert len(all_nodes(seed(cluster, with_name=with_name))) == 3


def test_who_is_told_of_nobody_knows_who_is_configured(cluster: FakeCluster) -> None:
    cluster.nodes[0].answer = lambda request: problem_of(FaultCode.NOT_AUTHORISED, "not you")
    assert all_nodes(seed(cluster)) == [(cluster.nodes[0].address, "n0")]


def test_the_best_informed_says_who_is_a_member(cluster: FakeCluster) -> None:
    older = structs.replace(members_of(cluster, "n1"), commit_index=3)
    newest = members_of(cluster, "n0", names=("n0", "n1"))
    cluster.nodes[0].answer = lambda request: newest
    cluster.nodes[1].answer = lambda request: older
    config = cluster.config
    both = replace(config, nodes=config.nodes[:2], node_names=config.node_names[:2])
    assert [name for _, name in all_nodes(both)] == ["n0", "n1"]


def test_one_node_names_the_next(cluster: FakeCluster) -> None:
    """One that has the partition, which names the leader of its group."""
    answer: AdminAnswer = TopicDescription(FLIGHTS, ())
    cluster.nodes[0].answer = lambda request: not_here(cluster, 2)
    cluster.nodes[2].answer = lambda request: not_here(cluster, 1)
    cluster.nodes[1].answer = lambda request: answer
    assert ask(seed(cluster), DescribeTopic("flights")) == answer


def test_nodes_that_name_each_other_end_it(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admin_client, "TIMEOUT_S", 2.0)
    cluster.nodes[0].answer = lambda request: not_here(cluster, 1)
    cluster.nodes[1].answer = lambda request: not_here(cluster, 0)
    with pytest.raises(AdminError, match="ask n"):
        ask(seed(cluster), ListTopics())


def test_partitions_are_described_by_who_has_them(cluster: FakeCluster, tmp_path: Path) -> None:
    found = run_json(cluster, tmp_path, "topic", "describe", "flights")["partitions"]
    assert [(row["end_offset"], row["elsewhere"]) for row in found] == [
        (100, ""),
        (101, ""),
        (102, ""),
    ]


def test_lag_is_told_by_who_has_the_partitions(cluster: FakeCluster, tmp_path: Path) -> None:
    found = run_json(cluster, tmp_path, "group", "describe", "billing")["partitions"]
    assert [(row["end"], row["lag"]) for row in found] == [(100, 10), (101, 11), (102, 12)]


def test_a_group_is_reset_where_the_partitions_are(cluster: FakeCluster, tmp_path: Path) -> None:
    run_json(cluster, tmp_path, "group", "reset", "billing", "--topic", "flights", "--to", "latest")
    for number, node in enumerate(cluster.nodes):
        assert ResetGroup("billing", "flights", "latest", partition=number) in node.asked


@pytest.mark.parametrize(
    ("to", "again"),
    [("--to=latest", "same command"), ("--shift-by=-5", "--partition for each")],
)
def test_a_reset_that_stops_half_way_says_what_is_done(
    cluster: FakeCluster, tmp_path: Path, to: str, again: str
) -> None:
    def refuse(request: AdminRequest[Any]) -> Answer:
        if isinstance(request, ResetGroup) and request.partition == 2:
            return problem_of(FaultCode.OUT_OF_RANGE, "it cannot be")
        return answer_of(cluster, "n2", request)

    cluster.nodes[2].answer = refuse
    file = tmp_path / "seed.toml"
    file.write_text(to_toml(seed(cluster)))
    given = ["group", "reset", "billing", "--topic", "flights", to, "--config", str(file)]
    result = CliRunner().invoke(main, given)
    assert result.exit_code == 1
    said = " ".join(result.output.split())
    assert "partition 2: it cannot be" in said
    assert "Partitions 0 to 1 of 'flights' are reset, 2 are not" in said
    assert again in said


def test_what_members_lack_is_told_by_who_leads(cluster: FakeCluster, tmp_path: Path) -> None:
    def placed(name: str) -> PlacementStatus:
        groups = (
            GroupPlacement(0, "n0", ("n0", "n1", "n2"), 3, {"n1": 0} if name == "n0" else {}),
            GroupPlacement(1, "n2", ("n1", "n2"), 2, {"n1": 7} if name == "n2" else {}),
            GroupPlacement(2, "n1", ("n1",), 1, {}),
        )
        return PlacementStatus(groups, (), ())

    for node in cluster.nodes:
        before = node.answer

        def answer(
            request: AdminRequest[Any], name: str = node.name, before: Any = before
        ) -> Answer:
            return placed(name) if isinstance(request, GetPlacement) else before(request)

        node.answer = answer
    found = run_json(cluster, tmp_path, "placement")["groups"]
    assert [each["lag"] for each in found] == [{"n1": 0}, {"n1": 7}, {}]
    assert GetPlacement() not in cluster.nodes[1].asked


def test_all_partitions_are_shown(cluster: FakeCluster) -> None:
    """Each as a node has it that has it: the best informed one first."""
    answers = [
        Status("c", f"n{p}", "n1", 1, 9 - p, (), (row_of(p, here=True), row_of(3, here=p == 1)), ())
        for p in range(3)
    ]
    found = combine("c", cluster_nodes(cluster), answers)["partitions"]
    assert [(each["partition"], each["end_offset"]) for each in found] == [
        (0, 100),
        (1, 101),
        (2, 102),
        (3, 0),
    ]


def cluster_nodes(cluster: FakeCluster) -> list[tuple[Address, str | None]]:
    return [(node.address, node.name) for node in cluster.nodes]


def _one_of(known: dict[type, AdminAnswer], request: AdminRequest[Any]) -> Answer:
    return known[type(request)]


def test_everybody_is_asked_for_partitions(cluster: FakeCluster, tmp_path: Path) -> None:
    """A topic is described as the nodes have it that the configuration does not name."""
    for number, node in enumerate(cluster.nodes):
        rows = tuple(row_of(each, here=each == number) for each in range(3))
        topic = TopicDescription(TopicInfo("t", "a" * 32, 3, {}), rows)
        told = members_of(cluster, node.name)
        known: dict[type, AdminAnswer] = {DescribeTopic: topic, GetRaftStatus: told}
        node.answer = partial(_one_of, known)
    file = tmp_path / "seed.toml"
    file.write_text(to_toml(seed(cluster)))
    arguments = ["topic", "describe", "t", "--config", str(file), "--json"]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output
    found = json.loads(result.output)["partitions"]
    assert [each["end_offset"] for each in found] == [100, 101, 102]


def test_who_counts_for_nothing_is_told_when_a_group_is_recovered(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    done = TaskRows(False, (), (), ())
    for node in cluster.nodes:
        newest, suspect = {node.name: (2, 9)}, (node.name,) if node.name != "n1" else ()
        names = ("n0", "n1", "n2")
        group = GroupPlacement(3, None, names, 3, {}, newest=newest, suspect=suspect)
        placement = PlacementStatus((group,), (), ())
        known: dict[type, AdminAnswer] = {GetPlacement: placement, RecoverDataGroup: done}
        node.answer = partial(_one_of, {**known, GetRaftStatus: members_of(cluster, node.name)})
    file = tmp_path / "seed.toml"
    file.write_text(to_toml(seed(cluster)))
    looked = CliRunner().invoke(main, ["recover", "group", "3", "--config", str(file)])
    assert looked.exit_code == 1
    assert "n0: entry 9 of term 2, and counts for nothing" in looked.output
    assert "n1: entry 9 of term 2\n" in looked.output
    found = run_json(cluster, tmp_path, "recover", "group", "3", "--from", "n1", "--confirm", "3")
    assert found["suspect"] == ["n0", "n2"]
    assert RecoverDataGroup(3, "n1", ("n0", "n2"), confirm="3") in cluster.nodes[0].asked
