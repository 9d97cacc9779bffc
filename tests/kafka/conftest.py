"""A cluster for all tests of one file: they use topics of their own."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from samelog.cli.local_cluster import LocalCluster
from samelog.config.load import load_node
from samelog.config.schema.render import to_toml
from tests.e2e.harness import World
from tests.patience import PATIENCE_S


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, starts_nodes: None) -> Iterator[World]:
    """Three nodes, each in a rack of its own, called like it."""
    path = tmp_path_factory.mktemp("kafka")
    with LocalCluster(str(path / "cluster")) as cluster:
        cluster.prepare()
        for node in cluster.nodes:
            config = load_node(node.config_file)
            placed = replace(config, kafka=replace(config.kafka, rack=config.name))
            Path(node.config_file).write_text(to_toml(placed), encoding="utf-8")
        cluster.start()
        yield World(cluster, path)


@pytest.fixture
def boot(world: World) -> str:
    """Where Kafka clients begin."""
    return world.cluster.client_config().kafka_bootstrap


@pytest.fixture
def topic(boot: str) -> str:
    """A topic of the test's own, of one partition."""
    name = f"topic-{uuid.uuid4()}"
    admin = AdminClient({"bootstrap.servers": boot})
    for made in admin.create_topics([NewTopic(name, 1)]).values():
        made.result(PATIENCE_S)
    return name
