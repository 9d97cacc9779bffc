"""Fixtures of the programs that are run beside a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from samelog.cli.local_cluster import LocalCluster
from tests.e2e.harness import World
from tests.interop.run import wait_newest


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """Three nodes that know of everything that this version has."""
    with LocalCluster(str(tmp_path / "cluster")) as cluster:
        cluster.prepare()
        cluster.start()
        wait_newest(cluster)
        yield World(cluster, tmp_path)
