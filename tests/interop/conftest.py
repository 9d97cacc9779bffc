"""Fixtures of the programs that are run beside a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from samelog.admin.client import ask
from samelog.admin.requests import GetUpgrade
from samelog.cli.local_cluster import LocalCluster
from samelog.sequencer.levels import SUPPORTED
from tests.e2e.harness import World, wait_for


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """Three nodes that know of everything that this version has."""
    with LocalCluster(str(tmp_path / "cluster")) as cluster:
        cluster.prepare()
        cluster.start()
        config = cluster.client_config()
        wait_for(lambda: ask(config, GetUpgrade()).level == SUPPORTED, "the newest feature level")
        yield World(cluster, tmp_path)
