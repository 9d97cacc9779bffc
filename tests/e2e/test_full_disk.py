"""A node whose disk is full stops taking in, says so, and leaves the cluster at work."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from samelog.cli.local_cluster import LocalCluster
from tests.e2e.harness import World, wait_for
from tests.patience import PATIENCE_S

DISK_MIB = 64


def mount(path: Path) -> bool:
    """Mount a small file system; False where that is not allowed."""
    path.mkdir()
    options = ["-t", "tmpfs", "-o", f"size={DISK_MIB}m", "tmpfs", str(path)]
    return os.geteuid() == 0 and subprocess.run(["mount", *options], check=False).returncode == 0


@pytest.fixture
def small_disk(tmp_path: Path, starts_nodes: None) -> Iterator[World]:
    """A cluster whose last node has a small disk."""
    with LocalCluster(str(tmp_path / "cluster")) as cluster:
        cluster.prepare()
        data = Path(cluster.nodes[2].data)
        if not mount(data):
            pytest.skip("mounting a small file system needs root")
        try:
            cluster.start()
            yield World(cluster, tmp_path)
            cluster.stop()
        finally:
            subprocess.run(["umount", "-l", str(data)], check=True)


def test_the_others_go_on_and_nothing_is_lost(small_disk: World) -> None:
    full = small_disk.cluster.nodes[2]
    value = bytes(1_000)
    count = 2 * DISK_MIB * 1_000
    with small_disk.publisher("a") as publisher:
        for _ in range(count // 1_000):
            publisher.append_many([value] * 1_000)
        publisher.wait_merged(timeout=PATIENCE_S)

    def says_so() -> bool:
        status = small_disk.status(full)
        if status is None:
            return False
        detail = next(info.detail for info in status.nodes if info.name == full.name)
        return "intake stopped" in detail

    wait_for(says_so, "the full node says so")
    assert full.pid is not None

    def have_all() -> bool:
        known = [small_disk.status(node) for node in small_disk.cluster.nodes[:2]]
        return all(each is not None and each.partitions[0].end_offset == count for each in known)

    wait_for(have_all, "the others have everything")


def test_a_disk_that_something_else_fills_costs_the_node_its_part_only_while_it_is_full(
    small_disk: World,
) -> None:
    full, log = small_disk.cluster.nodes[2], Path(small_disk.cluster.nodes[2].log_file)
    process, filler, count = full.pid, Path(full.data, "filler"), 0
    with small_disk.publisher("a") as publisher:

        def waits_for_room() -> bool:
            nonlocal count
            publisher.append_many([b"v"] * 100)
            publisher.wait_merged(timeout=PATIENCE_S)
            count += 100
            return "takes no part until there is room" in log.read_text()

        assert not waits_for_room()
        with filler.open("wb", buffering=0) as file, suppress(OSError):
            while True:
                file.write(bytes(4_096))
        wait_for(waits_for_room, "the reserved part of Raft's log is used")
        filler.unlink()

        def has_all() -> bool:
            status = small_disk.status(full)
            return status is not None and status.partitions[0].end_offset == count

        wait_for(has_all, "the full node has everything")
    assert full.pid == process
