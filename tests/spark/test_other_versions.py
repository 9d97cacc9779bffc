"""Pages of docs/ for other versions of PySpark than that of this environment are true, too.

`make spark-versions` gets what they need, and runs this; without it they are skipped, and say so.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench import maven
from samelog.admin.client import ask
from samelog.admin.requests import CreateTopic
from tests.e2e.harness import World
from tests.patience import PATIENCE_S
from tests.spark.pages import DOCS

BUILD = DOCS.parent / "build"
PAGE_S = 350
FLOOR = "4.1.4"


def run(page: str, version: str, jars: str, world: World, scratch: Path) -> None:
    """In a process of its own."""
    installed = BUILD / f"pyspark-{version}"
    if not (installed / "pyspark" / "version.py").exists() or not (maven.JARS / jars).is_dir():
        pytest.skip(f"PySpark {version} or {jars} is not here: make spark-versions")
    command = [sys.executable, "-m", "tests.spark.pages", page, world.cluster.directory]
    done = subprocess.run(
        [*command, str(scratch), *maven.jars(jars)],
        env=os.environ | {"PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        timeout=PAGE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-20_000:]


@pytest.mark.usefixtures("starts_java")
@pytest.mark.timeout(400)
def test_older_versions_read_and_write_with_their_kafka_source(
    world: World, tmp_path: Path
) -> None:
    run("spark-kafka.md", "3.5.1", maven.OLDER_SPARK_KAFKA, world, tmp_path)


@pytest.mark.usefixtures("starts_java")
@pytest.mark.timeout(400)
def test_batches_are_read_and_written_with_4_1_and_streams_refused(world: World) -> None:
    installed = BUILD / f"pyspark-{FLOOR}"
    if not (installed / "pyspark" / "version.py").exists():
        pytest.skip(f"PySpark {FLOOR} is not here: make spark-versions")
    with world.publisher("floor") as publisher:
        publisher.append_many([b"%d" % number for number in range(1000)])
        publisher.wait_merged(PATIENCE_S)
    ask(world.cluster.client_config(), CreateTopic("copied", 1, {}))
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.batch_driver", world.cluster.client_file, "copied"],
        env=os.environ | {"PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        timeout=PAGE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-20_000:]


@pytest.mark.usefixtures("starts_java")
@pytest.mark.timeout(400)
def test_a_stream_fills_a_table_of_iceberg_once(world: World, tmp_path: Path) -> None:
    run("spark-iceberg.md", "4.0.1", maven.SPARK_ICEBERG, world, tmp_path)
