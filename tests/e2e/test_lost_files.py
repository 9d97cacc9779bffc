"""Files that somebody removes, and disks that go, under running nodes."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from samelog.cli.local_cluster import ClusterOptions, LocalCluster, LocalNode
from tests.e2e.harness import World, wait_for
from tests.patience import PATIENCE_S

RECORD = b"x" * 30_000


def publish(world: World, count: int, session: str = "p") -> None:
    with world.publisher(session) as publisher:
        for _ in range(count):
            publisher.append(RECORD)
            publisher.wait_merged(PATIENCE_S)


@pytest.mark.usefixtures("starts_nodes")
def test_a_removed_file_comes_back_and_leaves_an_event(tmp_path: Path) -> None:
    with LocalCluster(str(tmp_path / "cluster"), ClusterOptions(segment_bytes=1 << 16)) as cluster:
        cluster.start()
        world = World(cluster, tmp_path)
        publish(world, 8)
        world.wait_offset(8)
        node = cluster.nodes[0]
        place = Path(node.data, "merged", "t-0")
        gone = sorted(place.glob("*.log"))[1]
        before = gone.read_bytes()
        gone.unlink()
        wait_for(lambda: gone.exists() and gone.read_bytes() == before, "the file is back")

        def says_so() -> bool:
            status = world.status(cluster.nodes[1])
            return status is not None and any(
                each.kind == "file-lost" and str(gone) in each.text for each in status.events
            )

        wait_for(says_so, "an event, at every node")
        assert "a segment's file is lost" in Path(node.log_file).read_text()
        publish(world, 2, "q")
        world.wait_offset(10)
        world.assert_identical()


def move(data: Path) -> Callable[[], None]:
    """The directory goes by another name."""
    aside = data.with_name("moved")
    data.rename(aside)
    return lambda: (None, aside.rename(data))[0]


def remove_under_a_mount(data: Path) -> Callable[[], None]:
    """The mount is taken away, lazily, so that open files still work."""
    again = ["mount", "--bind", str(data.with_name("disk")), str(data)]
    subprocess.run(["umount", "-l", str(data)], check=True)
    return lambda: (None, subprocess.run(again, check=True))[0]


@pytest.mark.usefixtures("starts_nodes")
@pytest.mark.parametrize("way", [move, remove_under_a_mount])
def test_a_node_whose_disk_goes_ends_and_says_so(
    tmp_path: Path, way: Callable[[Path], Callable[[], None]]
) -> None:
    """The others go on; when the disk is back the node goes on where it was."""
    with LocalCluster(str(tmp_path / "cluster")) as cluster:
        cluster.prepare()
        node = cluster.nodes[2]
        data = Path(node.data)
        if way is remove_under_a_mount:
            disk = data.with_name("disk")
            for each in (data, disk):
                each.mkdir(mode=0o700)
            bind = ["mount", "--bind", str(disk), str(data)]
            if os.geteuid() != 0 or subprocess.run(bind, check=False).returncode:
                pytest.skip("mounting needs root")
        try:
            cluster.start()
            world = World(cluster, tmp_path)
            publish(world, 5)
            world.wait_offset(5)
            bring_back = way(data)
            publish(world, 5, "q")
            wait_for(lambda: node.exit_code() is not None, "the node ends")
            assert_ended_well(node, data)
            bring_back()
            node.start()
            world.wait_live(node)
            world.wait_offset(10)
            world.assert_identical()
        finally:
            cluster.stop()
            if way is remove_under_a_mount:
                subprocess.run(["umount", "-l", str(data)], check=False)


def assert_ended_well(node: LocalNode, data: Path) -> None:
    """One clear message, an exit code, and nothing written where the disk was."""
    assert node.exit_code() == 1
    log = Path(node.log_file).read_text()
    assert "is not there any more: moved, or unmounted?" in log
    assert "Traceback" not in log
    assert not data.exists() or list(data.iterdir()) == []
