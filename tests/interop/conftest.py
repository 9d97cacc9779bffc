"""Fixtures of the programs that are run beside a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from samelog.cli.local_cluster import ClusterOptions, LocalCluster
from tests.e2e.harness import World
from tests.interop.run import wait_newest


@contextmanager
def running(path: Path, nodes: int) -> Iterator[World]:
    """Nodes that know of everything that this version has."""
    with LocalCluster(str(path / "cluster"), ClusterOptions(nodes=nodes)) as cluster:
        cluster.prepare()
        cluster.start()
        wait_newest(cluster)
        yield World(cluster, path)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """Three of them."""
    with running(tmp_path, 3) as found:
        yield found


@pytest.fixture
def wide(tmp_path: Path) -> Iterator[World]:
    """Five: what has three replicas is in data groups."""
    with running(tmp_path, 5) as found:
        yield found
