"""Disaster commands with exactly what a disaster leaves: one node, its node.toml, nothing else."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from samelog import Publisher
from samelog.cli.local_cluster import ClusterOptions, LocalCluster, LocalNode
from tests.e2e.commands import as_json, samelog
from tests.e2e.harness import World, wait_for
from tests.patience import PATIENCE_S

COUNT = 20
CONFIRM = ("--confirm", "local")
pytestmark = pytest.mark.usefixtures("starts_nodes")


def publish(world: World, session: str, config: str) -> None:
    directory = str(world.directory / "publishers")
    with Publisher("t", session=session, config=config, directory=directory) as publisher:
        publisher.append_many([b"%s %d" % (session.encode(), n) for n in range(COUNT)])
        publisher.wait_merged(PATIENCE_S)


def lose(world: World, *nodes: LocalNode) -> None:
    """These nodes are gone, and every configuration but the survivors' own."""
    for node in nodes:
        node.kill()
        shutil.rmtree(node.data)
        Path(node.config_file).unlink()
    Path(world.cluster.client_file).unlink()


def end_offset(file: str) -> int:
    [partition] = as_json("topic", "describe", "t", "--config", file)["partitions"]
    return int(partition["end_offset"])


def test_one_node_goes_on_with_its_directory_and_node_toml_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with LocalCluster(str(tmp_path / "cluster")) as cluster:
        cluster.start()
        world = World(cluster, tmp_path)
        publish(world, "before", cluster.client_file)
        world.wait_offset(COUNT)
        left, *lost = cluster.nodes
        file = world.only(left)
        lose(world, *lost)
        left.kill()
        options = ("--config", left.config_file)
        monkeypatch.setenv("SAMELOG_CONFIG", str(tmp_path / "nothing.toml"))
        for kind in ("majority-lost", "soft-reset"):
            looked = samelog("recover", kind, *options)
            assert looked.returncode == 1
            assert f"t-0: next offset {COUNT}" in looked.stderr
            assert "add: --confirm local" in looked.stderr
            assert as_json("recover", kind, *options, *CONFIRM)["done"]
            left.start()
            world.wait_live(left)
            wait_for(lambda: end_offset(file) == COUNT, "nothing is lost")
            left.stop()
        text = Path(left.config_file).read_text()
        home = tmp_path / "raft-disk"
        moved = text.replace("[node]\n", f"[node]\nraft_dir = {json.dumps(str(home))}\n")
        Path(left.config_file).write_text(moved)
        assert as_json("recover", "move-raft", *options, *CONFIRM)["directory"] == str(home)
        left.start()
        world.wait_live(left)
        publish(world, "after", file)
        assert end_offset(file) == 2 * COUNT


def test_a_majority_is_repaired_by_way_of_one_node(tmp_path: Path) -> None:
    with LocalCluster(str(tmp_path / "cluster"), ClusterOptions(nodes=3)) as cluster:
        cluster.start()
        world = World(cluster, tmp_path)
        publish(world, "before", cluster.client_file)
        left, lost = world.followers()
        file = world.only(left)
        lose(world, lost)
        known = ("--config", file)
        readmitted = as_json("recover", "node", lost.name, "--confirm", lost.name, *known)
        assert readmitted["name"] == lost.name
        wait = ("--wait", "1")
        soft = as_json("cluster", "reset", "--soft", *CONFIRM, *wait, *known)
        assert str(lost.address) in " ".join(soft["not_yet"])
        hard = as_json("cluster", "reset", "--hard", *CONFIRM, *wait, *known)
        assert set(hard["logs"]) == {"t"}
        publish(world, "after", file)
        wait_for(lambda: end_offset(file) == COUNT, "the topic restarted at offset 0")
