"""The source inside Spark: sessions, executors, checkpoints, failures and a killed driver.

What needs no session is tested in test_batch and test_stream: each query here takes seconds.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from shiplog.spark.columns import kafka_schema
from tests.spark.driver import copy
from tests.spark.queries import Injected, Query
from tests.subscriber.merged import Growing, numbers, wait_for

pytestmark = pytest.mark.timeout(400)  # the first one also starts the session


def test_columns_and_records_are_those_of_the_kafka_source(
    spark: SparkSession, tmp_path: Path
) -> None:
    log = Growing(tmp_path)
    log.append(b"one", b"two", timestamp=[1_700_000_000_123, 1_700_000_000_124])
    reader = spark.read.format("shiplog").option("directory", str(tmp_path))
    frame = reader.option("subscribe", "t").option("includeHeaders", "true").load()
    assert frame.schema == kafka_schema(include_headers=True)
    milliseconds = "CAST(CAST(timestamp AS DOUBLE) * 1000 AS LONG) AS ms"
    rows = frame.orderBy("offset").selectExpr("*", milliseconds).collect()
    assert [(r.key, bytes(r.value), r.topic, r.partition, r.offset, r.headers) for r in rows] == [
        (None, b"one", "t", 0, 0, []),
        (None, b"two", "t", 0, 1, []),
    ]
    assert [(r.timestampType, r.ms) for r in rows] == [(0, 1700000000123), (0, 1700000000124)]


def test_an_error_reaches_the_user_with_its_text(spark: SparkSession, tmp_path: Path) -> None:
    Growing(tmp_path)
    reader = spark.read.format("shiplog").option("directory", str(tmp_path))
    with pytest.raises(Exception, match="UnknownTopic: there is no topic no-such: check the name"):
        reader.option("subscribe", "no-such").load().count()


def test_failures_of_the_sink_lose_and_repeat_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """In batch 0, and in the middle; the log grows in between, and the start is a moving latest."""
    log = Growing(tmp_path)
    log.count(0, 10)
    query = Query(
        spark, tmp_path / "checkpoint", directory=tmp_path, subscribe="t", maxOffsetsPerTrigger=40
    )
    with pytest.raises(Exception, match=Injected.__name__):
        query.run(fail_in=lambda batch: batch == 0)
    log.count(10, 110)
    with pytest.raises(Exception, match=Injected.__name__):
        query.run(fail_in=lambda batch: batch == 2)
    log.count(110, 120)
    query.run()
    assert [row[2] for row in query.records] == numbers(10, 120)
    assert query.sizes == [40, 40, 40, 30]


def test_a_killed_driver_goes_on_from_its_checkpoint(spark: SparkSession, tmp_path: Path) -> None:
    """The driver is killed after some batches, wherever it is; another one goes on."""
    log = Growing(tmp_path)
    log.count(0, 1000)
    output, checkpoint = str(tmp_path / "output"), str(tmp_path / "checkpoint")
    command = [sys.executable, "-m", "tests.spark.driver", str(tmp_path), output, checkpoint]
    with subprocess.Popen(command, start_new_session=True) as driver:
        try:
            commits = Path(checkpoint, "commits")
            wait_for(lambda: len(list(commits.glob("[0-9]"))) >= 3, "three batches", 200)
        finally:
            os.killpg(driver.pid, signal.SIGKILL)
    assert len(list(commits.glob("[0-9]*"))) < 15
    log.count(1000, 1100)
    query = copy(spark, str(tmp_path), output, checkpoint)
    try:
        query.processAllAvailable()
    finally:
        query.stop()
    rows = spark.read.json(output).orderBy("offset").collect()
    assert [(row.offset, row.value.encode()) for row in rows] == list(enumerate(numbers(0, 1100)))
