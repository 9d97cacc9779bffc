"""`samelog cluster upgrade`: what is said of the feature level, and how it is raised."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from samelog.admin.answers import AdminAnswer, LevelRaised, MemberLevel, UpgradeStatus
from samelog.admin.requests import AdminRequest, FinalizeUpgrade, GetUpgrade
from samelog.cli.main import main
from samelog.http.routes import problem_of
from samelog.wire.errors import FaultCode
from tests.cli.fake_nodes import FakeCluster

MEMBERS = (MemberLevel("n0", 2), MemberLevel("n1", 2), MemberLevel("n2", 1))
WAITS = UpgradeStatus(1, 2, MEMBERS, {2: "Transactions."}, ("n2 supports level 1, not 2",))
MAY = UpgradeStatus(1, 2, MEMBERS[:2], {2: "Transactions."}, ())


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[FakeCluster]:
    with FakeCluster(tmp_path, 1) as started:
        yield started


def says(cluster: FakeCluster, status: UpgradeStatus, raised: AdminAnswer | Exception) -> None:
    def answer(request: AdminRequest[object]) -> AdminAnswer | Exception:
        return status if isinstance(request, GetUpgrade) else raised

    cluster.nodes[0].answer = answer


def run(cluster: FakeCluster, *arguments: str) -> Result:
    arguments = ("cluster", "upgrade", *arguments, "--config", cluster.client_file)
    return CliRunner().invoke(main, arguments)


def test_the_status_says_who_keeps_the_cluster_from_the_newest_level(cluster: FakeCluster) -> None:
    says(cluster, WAITS, LevelRaised(2, 1))
    result = run(cluster, "--status")
    assert result.exit_code == 1
    assert "n2 supports level 1, not 2" in result.stderr
    assert "level 2: Transactions." in result.stdout
    says(cluster, MAY, LevelRaised(2, 1))
    result = run(cluster, "--status", "--json")
    assert (result.exit_code, json.loads(result.stdout)["waits_for"]) == (0, [])
    asked = cluster.nodes[0].asked
    assert [type(each) for each in asked] == [GetUpgrade] * 2  # looking raises nothing


def test_finalizing_says_what_the_level_is(cluster: FakeCluster) -> None:
    says(cluster, MAY, LevelRaised(2, 1))
    result = run(cluster, "--finalize")
    assert (result.exit_code, "the feature level is 2; it was 1" in result.stderr) == (0, True)
    assert [type(each) for each in cluster.nodes[0].asked] == [FinalizeUpgrade]
    says(cluster, MAY, LevelRaised(2, 2))
    assert json.loads(run(cluster, "--finalize", "--json").stdout) == {"level": 2, "since": 2}


def test_a_refusal_is_the_message_and_the_exit_code(cluster: FakeCluster) -> None:
    text = "n2 supports level 1, not 2"
    says(cluster, WAITS, problem_of(FaultCode.CHANGE_PENDING, text))
    result = run(cluster, "--finalize")
    assert result.exit_code == 1
    assert text in result.stderr


def test_it_has_to_be_said_which(cluster: FakeCluster) -> None:
    assert run(cluster).exit_code == 2
    assert cluster.nodes[0].asked == []
