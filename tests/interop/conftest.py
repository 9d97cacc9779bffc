"""Fixtures of the programs that are run beside a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from bench.maven import OLDER_KAFKA
from samelog.cli.local_cluster import HOST, ClusterOptions, LocalCluster, free_ports
from tests.e2e.harness import World
from tests.interop.program import Program, java, properties
from tests.interop.run import wait_newest
from tests.patience import PATIENCE_S

CLUSTER_ID = "interop-AAAAAAAAAAAAAAA"


@contextmanager
def running(path: Path, nodes: int) -> Iterator[World]:
    """Nodes that know of everything that this version has."""
    with LocalCluster(str(path / "cluster"), ClusterOptions(nodes=nodes)) as cluster:
        cluster.prepare()
        cluster.start()
        wait_newest(cluster)
        yield World(cluster, path)


@pytest.fixture
def world(tmp_path: Path, starts_nodes: None) -> Iterator[World]:
    """Three of them."""
    with running(tmp_path, 3) as found:
        yield found


@pytest.fixture
def wide(tmp_path: Path, starts_nodes: None) -> Iterator[World]:
    """Five: what has three replicas is in data groups."""
    with running(tmp_path, 5) as found:
        yield found


@pytest.fixture
def kafka(tmp_path: Path) -> Iterator[str]:
    """One broker of Apache Kafka."""
    plain, controller = free_ports(2)
    file = properties(tmp_path / "broker.properties", broker(tmp_path, plain, controller))
    words = ("format", "-t", CLUSTER_ID, "-c", str(file))
    tool = java(OLDER_KAFKA, "kafka.tools.StorageTool", *words)
    with Program(tmp_path, "format", tool) as making:
        assert making.ended() == 0
    boot = f"{HOST}:{plain}"
    with Program(tmp_path, "broker", java(OLDER_KAFKA, "kafka.Kafka", str(file))) as program:
        admin = AdminClient({"bootstrap.servers": boot, "log_level": 0})
        program.wait(lambda: bool(admin.list_topics(timeout=PATIENCE_S).brokers), "answers")
        yield boot


def broker(path: Path, plain: int, controller: int) -> dict[str, object]:
    return {
        "process.roles": "broker,controller",
        "node.id": 0,
        "controller.quorum.voters": f"0@{HOST}:{controller}",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://{HOST}:{plain},CONTROLLER://{HOST}:{controller}",
        "log.dirs": path / "kafka",
        "log.retention.ms": -1,  # records that say that they are old stay
        "offsets.topic.num.partitions": 1,
        "offsets.topic.replication.factor": 1,
        "transaction.state.log.num.partitions": 1,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "group.initial.rebalance.delay.ms": 0,
    }
