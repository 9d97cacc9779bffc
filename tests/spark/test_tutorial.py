"""docs/spark-tutorial.md is true."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.e2e.harness import World
from tests.spark import pages


@pytest.mark.timeout(400)
def test_the_tutorial_is_true(spark: SparkSession, world: World, tmp_path: Path) -> None:
    pages.run("spark-tutorial.md", world.cluster.directory, str(tmp_path))
