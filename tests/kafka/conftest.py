"""A cluster for all tests of one file: they use topics of their own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from shiplog.cli.local_cluster import LocalCluster
from tests.e2e.harness import World


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Three nodes."""
    path = tmp_path_factory.mktemp("kafka")
    with LocalCluster(str(path / "cluster")) as cluster:
        cluster.start()
        yield World(cluster, path)
