"""Real clusters for end-to-end tests: node processes, certificates, sockets and files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from samelog.cli.local_cluster import ClusterOptions, LocalCluster
from samelog.config.tables.kafka import GroupLimits, KafkaConfig
from tests.e2e.harness import World


@pytest.fixture
def world(tmp_path: Path, starts_nodes: None) -> Iterator[World]:
    """Three nodes of a fresh cluster."""
    with LocalCluster(str(tmp_path / "cluster")) as cluster:
        cluster.start()
        yield World(cluster, tmp_path)


@pytest.fixture
def single(tmp_path: Path, starts_nodes: None) -> Iterator[World]:
    """A cluster of one node."""
    with LocalCluster(str(tmp_path / "cluster"), ClusterOptions(nodes=1)) as cluster:
        cluster.start()
        yield World(cluster, tmp_path)


@pytest.fixture
def brief(tmp_path: Path, starts_nodes: None) -> Iterator[World]:
    """A cluster that waits for members shortly."""
    limits = GroupLimits(initial_rebalance_delay_ms=0, consumer_session_timeout_ms=3000)
    options = ClusterOptions(kafka=KafkaConfig(groups=limits))
    with LocalCluster(str(tmp_path / "cluster"), options) as cluster:
        cluster.start()
        yield World(cluster, tmp_path)
