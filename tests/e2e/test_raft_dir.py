"""A real node, whose Raft files are moved to a directory of their own and back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from samelog.cli.local_cluster import ClusterOptions, LocalCluster
from tests.e2e.commands import as_json, samelog
from tests.e2e.harness import World
from tests.patience import PATIENCE_S

COUNT = 20


@pytest.mark.usefixtures("starts_nodes")
def test_a_node_goes_on_with_raft_files_on_another_disk(tmp_path: Path) -> None:
    with LocalCluster(str(tmp_path / "cluster"), ClusterOptions(nodes=1)) as cluster:
        cluster.prepare()
        cluster.start()
        world = World(cluster, tmp_path)
        (node,) = cluster.nodes
        file, home = Path(node.config_file), tmp_path / "raft-disk"
        before = file.read_text()
        _publish(world, "before")
        node.stop()
        file.write_text(before.replace("[node]\n", f"[node]\nraft_dir = {json.dumps(str(home))}\n"))
        refused = samelog("node", "--config", node.config_file)
        assert refused.returncode != 0
        assert "samelog recover move-raft" in refused.stderr
        asked = samelog("recover", "move-raft", "--config", node.config_file)
        assert (asked.returncode, str(home) in asked.stderr) == (1, True)
        move = ("recover", "move-raft", "--config", node.config_file, "--confirm", "local")
        moved = as_json(*move)
        assert moved["directory"] == str(home)
        node.start()
        world.wait_live(node)
        _publish(world, "moved")
        node.kill()
        node.start()
        world.wait_live(node)
        assert (home / "raft" / "0").is_dir()
        assert not Path(node.data, "raft").exists()
        node.stop()
        file.write_text(before)
        as_json(*move)
        node.start()
        world.wait_live(node)
        _publish(world, "back")
        assert len(world.read(3 * COUNT)) == 3 * COUNT


def _publish(world: World, session: str) -> None:
    with world.publisher(session) as publisher:
        publisher.append_many([b"%d" % number for number in range(COUNT)])
        publisher.wait_merged(PATIENCE_S)
