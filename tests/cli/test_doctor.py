"""`samelog doctor`: what it finds of this host and of files, and how it judges."""

from __future__ import annotations

import dataclasses
import json
import shutil
import socket
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from samelog.admin.answers import Resources, Status
from samelog.admin.client import all_statuses
from samelog.admin.errors import AdminError
from samelog.admin.views import Access, GrantRow
from samelog.cli.doctor import host
from samelog.cli.doctor.cluster import check_cluster, check_grants
from samelog.cli.doctor.findings import (
    Diagnosis,
    Soundness,
    judge_alike,
    judge_clock,
    judge_difference,
    judge_disk,
    judge_expiry,
    judge_levels,
    judge_open_files,
    judge_packages,
    judge_partitions,
    judge_resources,
    judge_site,
    judge_syncs,
    judge_watchers,
)
from samelog.cli.doctor.host import (
    check_one,
    check_peer,
    check_port,
    check_sharing,
    days_left,
    nearest,
    time_syncs,
)
from samelog.cli.local_cluster import ClusterOptions, LocalCluster
from samelog.cli.main import main
from samelog.config.load import load_node
from samelog.config.tables.node import NodeConfig, NodePlaces
from samelog.config.values import Address
from samelog.http import application
from samelog.http.routes import problem_of
from samelog.runtime.network import transport
from samelog.wire.errors import FaultCode
from tests.cli.fake_nodes import FakeCluster
from tests.runtime.peers import ReservedForPeers

OK, WARNING, FAILED = Soundness.OK, Soundness.WARNING, Soundness.FAILED
GB = 10**9


@pytest.mark.parametrize(
    ("finding", "verdict"),
    [
        (judge_syncs("n", [0.001, 0.002, 5.0]), OK),
        (judge_syncs("n", [0.02, 0.02, 0.02]), WARNING),
        (judge_syncs("n", [0.2, 0.2, 0.001]), FAILED),
        (judge_clock("n", is_synchronised=True), OK),
        (judge_clock("n", is_synchronised=False), WARNING),
        (judge_clock("n", is_synchronised=None), WARNING),
        (judge_difference("n", -2), OK),
        (judge_difference("n", 3), WARNING),
        (judge_expiry("n", 14), OK),
        (judge_expiry("n", 13), WARNING),
        (judge_expiry("n", 1), FAILED),
        (judge_expiry("n", -1), FAILED),
        (judge_open_files("n", 1 << 20), OK),
        (judge_open_files("n", 1024), WARNING),
        (judge_watchers("n", 128), OK),
        (judge_watchers("n", 12), WARNING),
        (judge_levels({"a": 3, "b": 3}, 3, ()), OK),
        (judge_levels({"a": 3, "b": 0}, 3, ()), OK),
        (judge_levels({"a": 1}, 0, ()), OK),
        (judge_levels({"a": 3, "b": 2}, 2, ()), WARNING),
        (judge_levels({"a": 3, "b": 3}, 2, ("c is away",)), WARNING),
        (judge_packages("n", ()), OK),
        (judge_packages("n", ("sqlglot",)), WARNING),
        (judge_partitions((), 3), OK),
        (judge_partitions(("t-0 on a: its disk fails",), 3), FAILED),
        (judge_site("nyc", 60_000), OK),
        (judge_site("nyc", 60_001), WARNING),
        (judge_site("nyc", -1), WARNING),
        (judge_alike("grants", {"a": [1], "b": [1]}, "mend"), OK),
        (judge_alike("grants", {"a": [1], "b": [2], "c": [1]}, "mend"), FAILED),
    ],
)
def test_judgements(finding: Diagnosis, verdict: Soundness) -> None:
    assert finding.verdict is verdict
    assert bool(finding.remedy) == (verdict is not OK)


USES = Resources(100, 160, 256, 10**9, 2 * 10**9, 20, 1000)


@pytest.mark.parametrize(
    ("uses", "verdicts"),
    [
        (USES, [OK, OK, OK]),
        (replace(USES, descriptors=129), [WARNING, OK, OK]),
        (replace(USES, descriptors=160), [FAILED, OK, OK]),
        (replace(USES, resident_bytes=17 * 10**8), [OK, WARNING, OK]),
        (replace(USES, threads=801), [OK, OK, WARNING]),
        (replace(USES, threads=801, threads_max=0), [OK, OK, OK]),
    ],
)
def test_limits_that_are_close_are_warned_of(uses: Resources, verdicts: list[Soundness]) -> None:
    found = judge_resources("n", uses)
    assert [each.verdict for each in found] == verdicts
    assert all(bool(each.remedy) == (each.verdict is not OK) for each in found)


def test_a_disk_has_to_be_larger_than_the_archives_limit() -> None:
    assert [each.verdict for each in judge_disk("n", 100 * GB, 50 * GB, None)] == [OK]
    assert [each.verdict for each in judge_disk("n", 100 * GB, 50 * GB, 90 * GB)] == [OK, OK]
    assert [each.verdict for each in judge_disk("n", 100 * GB, 50 * GB, 100 * GB)] == [OK, FAILED]
    assert [each.verdict for each in judge_disk("n", 100 * GB, 5 * GB, None)] == [WARNING]


def test_the_nodes_that_differ_are_named() -> None:
    found = judge_alike("grants", {"a": 1, "b": 2, "c": 1}, "mend")
    assert found.said == "b differ from a"


def test_measuring_a_disk_leaves_nothing_behind(tmp_path: Path) -> None:
    assert all(seconds > 0 for seconds in time_syncs(str(tmp_path)))
    assert list(tmp_path.iterdir()) == []
    assert nearest(str(tmp_path / "not" / "yet")) == str(tmp_path)


def test_ports_are_free_taken_or_not_of_this_host() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        address = Address("127.0.0.1", server.getsockname()[1])
        taken, reached = check_port("n", address), check_peer("n", "m", address)
    assert (taken.verdict, "listens" in taken.said) == (OK, True)
    assert reached.verdict is OK
    assert check_peer("n", "m", address).verdict is WARNING
    assert "free" in check_port("n", Address("127.0.0.1", 0)).said
    assert check_port("n", Address("192.0.2.1", 7000)).verdict is FAILED


def test_days_are_counted_to_the_end_of_a_certificate() -> None:
    ends = SimpleNamespace(not_valid_after_utc=datetime.now(UTC) + timedelta(days=3))
    assert days_left(ends) == pytest.approx(3, abs=0.01)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> LocalCluster:
    """Files of two nodes that do not run."""
    cluster = LocalCluster(str(tmp_path_factory.mktemp("cluster")))
    cluster.prepare()
    return cluster


def verdicts(config: NodeConfig) -> dict[str, Soundness]:
    return {each.subject: each.verdict for each in check_one(config)}


def test_a_node_that_does_not_run_yet(made: LocalCluster) -> None:
    found = verdicts(load_node(made.nodes[0].config_file))
    assert (found["files"], found["certificate"], found["disk"] in Soundness) == (OK, OK, True)
    assert found[f"port {made.nodes[0].address.port}"] is OK
    assert (found["certificate authority"], found["filters"]) == (OK, OK)
    assert found["peer rt-sequencer-1"] is WARNING


def test_files_that_cannot_be_used_and_grants_that_differ_have_failed(
    made: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "time_syncs", lambda directory: [0.001])
    copy = tmp_path / "node.toml"
    shutil.copyfile(made.nodes[1].config_file, copy)
    text = copy.read_text().replace("node-rt-sequencer-1.pem", "node-rt-sequencer-0.pem")
    copy.write_text(text + '\n[[grants]]\nidentity = "samelog://admin/x"\nadmin = true\n')
    files = [made.nodes[0].config_file, str(copy)]
    result = CliRunner().invoke(main, ["doctor", *files, "--config", "", "--json"])
    assert result.exit_code == 1, result.output
    found = json.loads(result.stdout)
    failed = {(each["of"], each["subject"]) for each in found["findings"] if each["remedy"]}
    assert {("rt-sequencer-1", "files"), ("nodes", "grants")} <= failed
    assert found["failed"] == 2


def test_nodes_that_share_a_disk_are_to_share_their_limits(tmp_path: Path) -> None:
    cluster = LocalCluster(str(tmp_path), ClusterOptions(nodes=4, members=2))
    cluster.prepare()
    configs = [load_node(node.config_file) for node in cluster.nodes]
    found = {each.of: each for each in check_sharing(configs)}
    assert {of: each.verdict for of, each in found.items()} == {
        "host host-0": OK,
        "host host-1": OK,
    }
    alone = [dataclasses.replace(each, place=NodePlaces(host="a")) for each in configs[:2]]
    (warned,) = check_sharing(alone)
    assert warned.verdict is WARNING
    assert "rt-sequencer-0, rt-sequencer-1 share a disk, and members_on_host is 1" in warned.said
    assert "set [node] members_on_host = 2 in each" in warned.remedy
    assert [*check_sharing(alone[:1])] == []
    own = [dataclasses.replace(each, place=NodePlaces()) for each in configs]
    assert [*check_sharing(own)] == [], "each is on a host of its own, by its own word"


def test_what_to_do_is_said_below_the_table(made: LocalCluster) -> None:
    result = CliRunner().invoke(main, ["doctor", made.nodes[0].config_file, "--config", ""])
    assert "rt-sequencer-0, peer rt-sequencer-1: start that node" in result.stdout


def test_an_administrator_learns_that_clients_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The figures are the nodes' own, and told while no client has a descriptor left."""
    with FakeCluster(tmp_path) as fake:
        for node in fake.nodes:
            uses = replace(USES, descriptors=160) if node.name == "n1" else USES
            status = Status("fake", node.name, "n1", 3, 7, (), (), (), resources=uses)
            node.answer = lambda request, status=status: status  # type: ignore[misc]
        for listener in (transport, application):
            monkeypatch.setattr(listener, "descriptors", lambda: ReservedForPeers(256))
        found = {
            (each.of, each.verdict)
            for each in check_cluster(fake.config)
            if each.subject == "descriptors"
        }
        assert found == {("n0", OK), ("n1", FAILED), ("n2", OK)}
        monkeypatch.setattr(fake.nodes[0], "may_change", lambda identity: False)
        refused, *answered = all_statuses(fake.config)
        assert isinstance(refused, AdminError)
        assert all(isinstance(each, Status) for each in answered)


def test_grants_that_nodes_have_in_force_are_compared(tmp_path: Path) -> None:
    def access(topic: str) -> Access:
        return Access((GrantRow("samelog://subscriber/*", False, (), (), (), (topic,), ()),), ())

    with FakeCluster(tmp_path) as fake:
        for node in fake.nodes:
            node.answer = lambda request: access("a")
        assert [each.verdict for each in check_grants(fake.config)] == [OK]
        fake.nodes[2].answer = lambda request: access("b")
        (found,) = check_grants(fake.config)
        assert (found.verdict, found.said) == (FAILED, "n2 differ from n0")
        for node in fake.nodes:
            node.answer = lambda request: problem_of(FaultCode.NOT_AUTHORISED, "not you")
        assert check_grants(fake.config) == []
