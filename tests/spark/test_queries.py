"""The source inside Spark: sessions, executors, checkpoints, failures and a killed driver.

What needs no session is tested elsewhere: each query here takes seconds. All that needs one is in
this file, so that a run of all tests starts a single one.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from samelog.admin.client import ask
from samelog.admin.requests import CreateTopic
from samelog.archiver.copies.targets import open_target
from samelog.spark import register
from samelog.spark.lag import Lag, LagListener
from samelog.spark.payload.payload import kafka_schema
from tests.archiver.test_copying import COPIED, copy_typed
from tests.e2e import harness
from tests.e2e.commands import samelog
from tests.e2e.harness import World, wait_for
from tests.spark.cluster import config, publish
from tests.spark.driver import copy
from tests.spark.queries import Injected, Query
from tests.subscriber.merged import Growing, numbers

pytestmark = pytest.mark.timeout(400)  # the first one also starts the session


def test_columns_and_records_are_those_of_the_kafka_source(
    spark: SparkSession, tmp_path: Path
) -> None:
    log = Growing(tmp_path)
    log.append(b"one", b"two", timestamp=[1_700_000_000_123, 1_700_000_000_124])
    reader = spark.read.format("samelog").option("directory", str(tmp_path))
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
    register(spark)  # which does no harm where Spark has found the source itself
    reader = spark.read.format("samelog").option("directory", str(tmp_path))
    with pytest.raises(Exception, match="TopicNotFound: there is no topic no-such: check the name"):
        reader.option("subscribe", "no-such").load().count()


def test_spark_brings_a_configuration_with_its_certificate_to_every_task(
    spark: SparkSession, world: World, tmp_path: Path
) -> None:
    publish(world, "brought", 0, 100)
    cluster, file = world.cluster, tmp_path / "ewr.toml"
    options = [f"--node={node.name}={node.address}" for node in cluster.nodes]
    options += ["--cluster", cluster.client_config().cluster, "--out", str(file)]
    ended = samelog("pki", "enrol", "client", "ewr", "--dir", f"{cluster.directory}/pki", *options)
    assert ended.returncode == 0, ended.stderr
    spark.sparkContext.addFile(str(file))
    reader = spark.read.format("samelog").option("config", "ewr.toml")
    frame = reader.options(subscribe="brought", minPartitions="2", minRecordsPerTask="1").load()
    assert frame.rdd.getNumPartitions() == 2
    assert sorted(bytes(row.value) for row in frame.collect()) == sorted(numbers(0, 100))


def test_failures_of_the_sink_lose_and_repeat_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """In batch 0, and in the middle; the log grows in between, and the start is a moving latest."""
    log = Growing(tmp_path)
    log.count(0, 10)
    lags: list[Lag] = []
    spark.streams.addListener(LagListener(lags.append))
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
    wait_for(lambda: {lag.total for lag in lags} >= {60, 0}, "what Spark reports")


def test_copies_as_parquet_are_a_table(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "target").mkdir()
    copy_typed(tmp_path, open_target(str(tmp_path / "target")))
    frame = spark.read.parquet(str(tmp_path / "target" / COPIED.directory / "parquet"))
    assert frame.drop("fields").schema == kafka_schema(include_headers=True)
    found = frame.orderBy("offset").selectExpr("offset", "value", "fields.price AS price").collect()
    assert [(row.offset, row.price) for row in found] == [(0, 1.5), (1, None), (2, None), (3, None)]
    assert [row.value and bytes(row.value) for row in found][1:3] == [b"not JSON", None]


def test_typed_columns_in_spark(spark: SparkSession, tmp_path: Path) -> None:
    Growing(tmp_path).append(b'{"name": "a", "size": 1}', b"bad")
    told = {"directory": str(tmp_path), "subscribe": "t", "valueFormat": "json"}
    reader = spark.read.format("samelog").options(**told)
    frame = reader.option("valueSchema", "name STRING, size BIGINT").load()
    assert frame.columns[:4] == ["name", "size", "key", "topic"]
    found = frame.select("name", "size", "offset", "_corrupt").orderBy("offset").collect()
    assert [tuple(row) for row in found] == [("a", 1, 0, None), (None, None, 1, bytearray(b"bad"))]


def test_filters_of_a_query_reach_the_source(spark: SparkSession, tmp_path: Path) -> None:
    Growing(tmp_path).count(0, 100)
    Growing(tmp_path, partition=1).count(0, 100)
    told = {"directory": str(tmp_path), "subscribe": "t", "pushdown": "true"}
    source = spark.read.format("samelog").options(**told, maxRecordsPerPartition="5").load()
    frame = source.where("partition = 1 AND offset >= 90 AND timestamp > '1970-01-01 00:00:00'")
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        assert frame.rdd.getNumPartitions() == 2
        assert sorted(bytes(row.value) for row in frame.collect()) == numbers(90, 100)
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


@pytest.mark.usefixtures("starts_java")
@pytest.mark.campaign  # the sink's killed driver reads with this source, too
@pytest.mark.timeout(600)
def test_a_killed_driver_goes_on_from_its_checkpoint(
    world: World, tmp_path: Path, spark: SparkSession
) -> None:
    """Its executors are processes of their own, which read from the nodes. It is killed with them
    after some batches, wherever it is; another driver goes on.
    """
    ask(world.cluster.client_config(), CreateTopic("far", 2, {}))
    for partition in range(2):
        publish(world, "far", 0, 200, partition=partition)
    output, checkpoint = str(tmp_path / "output"), str(tmp_path / "checkpoint")
    command = [sys.executable, "-m", "tests.spark.driver", config(world), "far", output, checkpoint]
    with subprocess.Popen(command, start_new_session=True) as driver:
        try:
            commits = Path(checkpoint, "commits")
            harness.wait_for((commits / "1").exists, "two batches", 300)
        finally:
            os.killpg(driver.pid, signal.SIGKILL)
    assert len(list(commits.glob("[0-9]*"))) < 8
    publish(world, "far", 200, 250, partition=1)
    query = copy(spark, config(world), "far", output=output, at=checkpoint)
    try:
        query.processAllAvailable()
    finally:
        query.stop()
    rows = spark.read.json(output).orderBy("partition", "offset").collect()
    wanted = [(p, o, v) for p in range(2) for o, v in enumerate(numbers(0, 200 + 50 * p))]
    assert [(row.partition, row.offset, row.value.encode()) for row in rows] == wanted
