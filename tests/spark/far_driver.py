"""A driver whose executors are processes of their own, and what a user sees there, as a line of
JSON. What executors cannot see is taken away when the driver has planned.

python -m tests.spark.far_driver CLIENT.TOML TOPIC DIRECTORY
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable

from pyspark import RDD
from pyspark.sql import DataFrame, Row, SparkSession

from samelog.spark import register
from tests.spark.conftest import start_session

FAR = {"spark.executor.memory": "512m", "spark.task.maxFailures": "1"}


def frame(spark: SparkSession, topic: str, **options: str) -> DataFrame:
    """A batch query, in two tasks."""
    reader = spark.read.format("samelog").options(subscribe=topic, minPartitions="2", **options)
    return reader.load()


def said(run: Callable[[], object]) -> str:
    """The error that a user gets; nothing if there is none."""
    try:
        run()
    except Exception as error:  # noqa: BLE001 - whatever Spark makes of it
        return str(error)
    return ""


def without(path: str, planned: RDD[Row]) -> str:
    """What tasks say that were planned when there was something that is gone now."""
    os.rename(path, f"{path}.elsewhere")
    try:
        return said(planned.count)
    finally:
        os.rename(f"{path}.elsewhere", path)


def planned(table: DataFrame) -> RDD[Row]:
    """A query whose tasks are settled."""
    tasks: RDD[Row] = table.rdd
    tasks.getNumPartitions()
    return tasks


def main(config: str, topic: str, directory: str) -> dict[str, object]:
    """All of it, in one session."""
    spark = start_session("local-cluster[2,1,1024]", **FAR)
    told: dict[str, object] = {}
    told["broken sibling"] = said(lambda: frame(spark, topic, config=config))
    register(spark)
    local = planned(frame(spark, topic, directory=directory))
    told["no directory"] = without(directory, local)
    either = planned(frame(spark, topic, directory=directory, config=config))
    os.rename(directory, f"{directory}.elsewhere")
    told["no certificate"] = without(config, either)
    told["from nodes"] = either.count()
    spark.stop()
    return told


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(*sys.argv[1:4])) + "\n")
