"""A Spark session, and a cluster: starting either takes seconds, so that tests share them."""

from __future__ import annotations

import os
import shlex
import sys
import tempfile
import warnings
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from samelog.cli.local_cluster import ClusterOptions, LocalCluster
from tests import tiers
from tests.e2e.harness import World
from tests.patience import PATIENCE_S
from tests.spark import worker

CONF = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.log.level": "ERROR",
    # for this process to fetch results, by default 15 s
    "spark.python.authenticate.socketTimeout": f"{PATIENCE_S:.0f}s",
    # for queries of a few rows, compiling them takes most of the time
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.codegen.wholeStage": "false",
}

TIMEOUT_S = 900
"""The first also starts the session; one that is interrupted leaves it unusable for all others."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests with a session get more time."""
    for item in items:
        names = getattr(item, "fixturenames", ())
        if "spark" in names and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(TIMEOUT_S))


@cache
def workers_python() -> str:
    """Return the Python for Spark's workers, which connects in time on a busy machine, too."""
    script = Path(tempfile.mkdtemp(prefix="python"), "python")
    own = f'[ -z "${worker.PORT}" ] || set -- -S {shlex.quote(worker.__file__)} "$@"'
    script.write_text(f'#!/bin/sh\n{own}\nexec {shlex.quote(sys.executable)} "$@"\n')
    script.chmod(0o755)
    return str(script)


def start_session(master: str, **conf: str) -> SparkSession:
    """A session on this machine, which nobody outside it can reach."""
    tiers.require("starts_java")
    os.environ["PYSPARK_PYTHON"] = workers_python()
    builder = SparkSession.builder.master(master).appName("samelog-tests")
    warehouse = {"spark.sql.warehouse.dir": tempfile.mkdtemp(prefix="warehouse")}
    for name, value in {**CONF, **warehouse, **conf}.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


@pytest.fixture(scope="session")
def spark(starts_java: None) -> Iterator[SparkSession]:
    """Two cores of this process's machine."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        session = start_session("local[2]")
        yield session
        session.stop()


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory, starts_nodes: None) -> Iterator[World]:
    """Three nodes for all tests, each of which has topics, groups and sessions of its own."""
    directory = tmp_path_factory.mktemp("world")
    with LocalCluster(str(directory / "cluster"), ClusterOptions(segment_bytes=1 << 16)) as cluster:
        cluster.start()
        yield World(cluster, directory)
