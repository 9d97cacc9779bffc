"""The nodes that `samelog up` makes: their names, ports, hosts, and which of them vote."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from samelog.cli.local_cluster import ClusterError, ClusterOptions, LocalCluster
from samelog.cli.main import main
from samelog.config.load import load_node
from samelog.config.tables.node import NodePlaces

BASE = 7101


def prepared(directory: Path, nodes: int, members: int = 1) -> LocalCluster:
    options = ClusterOptions(nodes=nodes, members=members, base_port=BASE)
    cluster = LocalCluster(str(directory), options)
    cluster.prepare()
    return cluster


def test_members_share_hosts_and_the_first_of_each_votes(tmp_path: Path) -> None:
    cluster = prepared(tmp_path, 6, 2)
    assert [(each.name, each.host, each.joins) for each in cluster.nodes] == [
        ("rt-sequencer-0", "host-0", False),
        ("rt-sequencer-1", "host-0", True),
        ("rt-sequencer-2", "host-1", False),
        ("rt-sequencer-3", "host-1", True),
        ("rt-sequencer-4", "host-2", False),
        ("rt-sequencer-5", "host-2", True),
    ]
    ports = [
        (e.address.port, e.kafka and e.kafka.port, e.http and e.http.port) for e in cluster.nodes
    ]
    assert ports == [(BASE + n, BASE + 6 + n, BASE + 12 + n) for n in range(6)]
    for node in cluster.nodes:
        config = load_node(node.config_file)
        assert config.place.host == node.host
        assert [peer.name for peer in config.peers] == [f"rt-sequencer-{n}" for n in (0, 2, 4)]
        assert config.advertise == node.address


def test_one_member_on_each_host_names_none(tmp_path: Path) -> None:
    cluster = prepared(tmp_path, 3)
    assert [(each.name, each.host, each.joins) for each in cluster.nodes] == [
        (f"rt-sequencer-{number}", "", False) for number in range(3)
    ]
    assert load_node(cluster.nodes[0].config_file).place == NodePlaces()


@pytest.mark.parametrize(
    ("nodes", "members", "voters"),
    [(1, 1, [0]), (2, 1, [0]), (4, 2, [0]), (4, 1, [0, 1, 2]), (9, 1, list(range(7)))],
)
def test_a_cluster_begins_with_an_odd_number_of_voters(
    tmp_path: Path, nodes: int, members: int, voters: list[int]
) -> None:
    cluster = prepared(tmp_path, nodes, members)
    assert [number for number, node in enumerate(cluster.nodes) if not node.joins] == voters


def test_a_directory_is_continued_with_the_same_hosts_only(tmp_path: Path) -> None:
    before = prepared(tmp_path, 4, 2).nodes
    again = prepared(tmp_path, 4, 2).nodes
    assert [vars(each) for each in again] == [vars(each) for each in before]
    with pytest.raises(ClusterError, match="rt-sequencer-3 on host-1: choose another directory"):
        prepared(tmp_path, 4)
    with pytest.raises(ClusterError, match="sequencer-3, not 6: choose another directory"):
        prepared(tmp_path, 6, 2)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--nodes", "3"], "--nodes has been removed; use --hosts"),
        (["--hosts", "33", "--members", "2"], "a cluster has at most 64 nodes, not 66"),
        (["--hosts", "0"], "0 is not in the range 1<=x<=64"),
    ],
)
def test_what_cannot_be_is_refused(tmp_path: Path, options: list[str], said: str) -> None:
    result = CliRunner().invoke(main, ["up", "--dir", str(tmp_path / "up"), *options])
    assert (result.exit_code, said in result.stderr) == (2, True), result.stderr
    assert not (tmp_path / "up").exists()
