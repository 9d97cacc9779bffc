"""A cluster for all tests of one file: they use topics of their own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from shiplog.cli.local_cluster import LocalCluster
from shiplog.config.load import load_node
from shiplog.config.render import render_node
from tests.e2e.harness import World


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Three nodes, each in a rack of its own, called like it."""
    path = tmp_path_factory.mktemp("kafka")
    with LocalCluster(str(path / "cluster")) as cluster:
        cluster.prepare()
        for node in cluster.nodes:
            config = load_node(node.config_file)
            placed = replace(config, kafka=replace(config.kafka, rack=config.name))
            Path(node.config_file).write_text(render_node(placed), encoding="utf-8")
        cluster.start()
        yield World(cluster, path)
