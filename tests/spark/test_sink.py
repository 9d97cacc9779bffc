"""Queries that write, into a real cluster: every row once, whole batches, whatever fails."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession, functions

from samelog.admin.client import ask
from samelog.admin.errors import AdminError
from samelog.admin.requests import CreateTopic, SetSchema
from samelog.format import _kernels as kernels
from samelog.format.compression import Codec
from samelog.spark.errors import BadOption
from samelog.wire.errors import FaultCode
from tests.e2e.harness import World, wait_for
from tests.patience import PATIENCE_S
from tests.spark.local import source
from tests.subscriber.merged import numbers
from tests.typed.known import schema_text

PARTITIONS = 2
TIMEOUT_S = 100
ROWS_AT_ONCE = "spark.sql.execution.arrow.maxRecordsPerBatch"


def create(world: World, *topics: str) -> None:
    for topic in topics:
        body = CreateTopic(topic, PARTITIONS, {})
        ask(world.cluster.client_config(), body)


def publish(world: World, topic: str, start: int, stop: int) -> None:
    """Publish the numbers [start, stop), and wait until every node has merged them."""
    with world.publisher(f"in-{topic}-{start}", topic, partitions=PARTITIONS) as publisher:
        for number in range(start, stop):
            publisher.append(numbers(number, number + 1)[0], partition=number % PARTITIONS)
        publisher.wait_merged(timeout=PATIENCE_S)
    for partition in range(PARTITIONS):
        world.wait_offset(stop // PARTITIONS, topic, partition)


def table(spark: SparkSession, world: World, topic: str, **options: Any) -> DataFrame:
    reader = spark.read.format("samelog").option("config", world.cluster.client_file)
    return reader.options(subscribe=topic, readMode="remote", **options).load()


def written(spark: SparkSession, world: World, topic: str) -> list[bytes]:
    return sorted(bytes(row.value) for row in table(spark, world, topic).select("value").collect())


def count(world: World, topic: str) -> int:
    """How many records a topic has."""
    status = world.status(world.cluster.nodes[0])
    partitions = () if status is None else status.partitions
    return sum(each.end_offset for each in partitions if each.topic == topic)


def wait_written(spark: SparkSession, world: World, topic: str, wanted: list[bytes]) -> None:
    """A commit is there when nodes have executed it."""
    wait_for(lambda: len(written(spark, world, topic)) >= len(wanted), "records")
    assert written(spark, world, topic) == sorted(wanted)


def copy(
    spark: SparkSession, world: World, topics: tuple[str, str], checkpoint: Path, **options: Any
) -> None:
    """Run a query that copies one topic into another, to the end of what there is now."""
    stream = spark.readStream.format("samelog").option("config", world.cluster.client_file)
    frame = stream.options(
        subscribe=topics[0],
        readMode="remote",
        startingOffsets="earliest",
        maxOffsetsPerTrigger=options.pop("at_once", 50),
    ).load()
    mapped = options.pop("map", lambda frame: frame)(frame).select("key", "value")
    writer = mapped.writeStream.format("samelog").option("config", world.cluster.client_file)
    writer = writer.options(topic=topics[1], checkpointLocation=str(checkpoint), **options)
    query = writer.trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(TIMEOUT_S)
    finally:
        query.stop()


def test_a_stream_is_written_once_though_its_batches_come_again(
    spark: SparkSession, world: World, tmp_path: Path
) -> None:
    create(world, "sink-in", "sink-out")
    publish(world, "sink-in", 0, 100)
    copy(spark, world, ("sink-in", "sink-out"), tmp_path / "c")
    wait_written(spark, world, "sink-out", numbers(0, 100))
    commits = tmp_path / "c" / "commits"
    newest = max(int(name) for name in os.listdir(commits) if name.isdigit())
    for name in (str(newest), f".{newest}.crc"):  # as if the driver had died before it wrote them
        (commits / name).unlink()
    publish(world, "sink-in", 100, 150)
    copy(spark, world, ("sink-in", "sink-out"), tmp_path / "c")
    wait_written(spark, world, "sink-out", numbers(0, 150))


def test_batches_span_data_groups(spark: SparkSession, world: World, tmp_path: Path) -> None:
    """The sink's partitions have two copies on three nodes each; a node dies meanwhile."""
    create(world, "span-in")
    ask(world.cluster.client_config(), CreateTopic("span-out", 4, {}, 2))
    publish(world, "span-in", 0, 200)
    copy(spark, world, ("span-in", "span-out"), tmp_path / "c")
    wait_written(spark, world, "span-out", numbers(0, 200))
    commits = tmp_path / "c" / "commits"
    newest = max(int(name) for name in os.listdir(commits) if name.isdigit())
    for name in (str(newest), f".{newest}.crc"):  # as if the driver had died before it wrote them
        (commits / name).unlink()
    leader = world.leader()
    leader.kill()
    leader.start()
    copy(spark, world, ("span-in", "span-out"), tmp_path / "c")
    world.wait_live(leader)
    wait_written(spark, world, "span-out", numbers(0, 200))


@pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas")
def test_a_task_that_fails_leaves_nothing(
    spark: SparkSession, world: World, tmp_path: Path
) -> None:
    create(world, "fail-in", "fail-out")
    publish(world, "fail-in", 0, 600)
    marker = str(tmp_path / "fail")
    Path(marker).touch()

    @functions.udf("binary", useArrow=False)
    def breaking(value: bytes) -> bytes:
        if int(value) > 500 and Path(marker).exists():
            raise RuntimeError("injected")
        return value

    def broken(frame: DataFrame) -> DataFrame:
        return frame.select("key", breaking("value").alias("value"))

    spark.conf.set(ROWS_AT_ONCE, 10)  # so that some are staged before one fails
    options = {"map": broken, "at_once": 600}
    try:
        for _ in range(2):
            with pytest.raises(StreamingQueryException, match="injected"):
                copy(spark, world, ("fail-in", "fail-out"), tmp_path / "c", **options)
    finally:
        spark.conf.unset(ROWS_AT_ONCE)
    assert written(spark, world, "fail-out") == []
    Path(marker).unlink()
    copy(spark, world, ("fail-in", "fail-out"), tmp_path / "c", **options)
    wait_written(spark, world, "fail-out", numbers(0, 600))


def test_a_query_that_begins_anew_under_the_same_name_is_told(
    spark: SparkSession, world: World, tmp_path: Path
) -> None:
    create(world, "again-in", "again-out")
    publish(world, "again-in", 0, 20)
    topics = ("again-in", "again-out")
    copy(spark, world, topics, tmp_path / "c", sinkId="again")
    shutil.rmtree(tmp_path / "c")
    with pytest.raises(StreamingQueryException, match="has published batches up to"):
        copy(spark, world, topics, tmp_path / "c", sinkId="again")
    wait_written(spark, world, "again-out", numbers(0, 20))


@pytest.mark.smoke
def test_a_batch_query_writes_all_columns(spark: SparkSession, world: World) -> None:
    create(world, "columns", "columns-other")
    rows = spark.sql(
        "SELECT 'k' AS key, CAST(id AS STRING) AS value, CAST(id % 2 AS INT) AS partition, "
        "IF(id < 6, 'columns', 'columns-other') AS topic, timestamp_millis(id) AS timestamp, "
        "array(struct('h' AS key, CAST('v' AS BINARY) AS value)) AS headers FROM range(10)"
    )
    writer = rows.write.format("samelog").option("config", world.cluster.client_file)
    writer.option("sinkId", "columns").mode("append").save()
    writer.option("sinkId", "columns").mode("append").save()  # once is enough
    wait_written(spark, world, "columns", [b"%d" % number for number in range(6)])
    found = table(spark, world, "columns", includeHeaders=True).orderBy("value").collect()
    for number, row in enumerate(found):
        assert (bytes(row.key), row.partition, row.timestamp.timestamp()) == (
            b"k",
            number % 2,
            number / 1000,
        )
        assert [(entry.key, bytes(entry.value)) for entry in row.headers] == [("h", b"v")]
    wait_written(spark, world, "columns-other", [b"%d" % number for number in range(6, 10)])


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "ZSTD"])
def test_a_query_compresses_what_it_writes(spark: SparkSession, world: World, codec: str) -> None:
    topic = f"sink-{codec}"
    create(world, topic)
    values = [b"a line of text, again and again: %05d" % number for number in range(5000)]
    rows = [(value, 0) for value in values]
    frame = spark.createDataFrame(rows, "value binary, partition int")
    writer = frame.write.format("samelog").option("config", world.cluster.client_file)
    writer.options(topic=topic, compression=codec).mode("append").save()
    wait_written(spark, world, topic, values)
    world.wait_offset(len(values), topic)
    stored = world.merged_bytes(world.cluster.nodes[0], topic)
    assert len(stored) < sum(map(len, values)) / 2
    batches = kernels.batch_headers(stored, 0, len(stored))
    assert {header[3] & 7 for header in batches} == {Codec[codec.upper()].value}


@pytest.mark.campaign
@pytest.mark.usefixtures("starts_java")
def test_drivers_that_are_killed_write_every_row_once(
    spark: SparkSession, world: World, tmp_path: Path
) -> None:
    create(world, "kill-in", "kill-out")
    publish(world, "kill-in", 0, 96)
    arguments = (world.cluster.client_file, "kill-in", "kill-out", str(tmp_path / "c"))
    command = (sys.executable, "-m", "tests.spark.sink_driver", *arguments)
    driver = subprocess.Popen(command, start_new_session=True)
    try:
        wait_for(lambda: count(world, "kill-out") > 0, "the first records", TIMEOUT_S)
    finally:
        os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()
    assert count(world, "kill-out") < 96
    copy(spark, world, ("kill-in", "kill-out"), tmp_path / "c")
    wait_written(spark, world, "kill-out", numbers(0, 96))


@pytest.mark.parametrize(
    ("schema", "options", "text"),
    [
        ("key binary", {"topic": "t"}, "needs a column value"),
        ("value string", {}, "give the option topic"),
        ("value int", {"topic": "t"}, "value is int; it must be binary or string"),
        ("value string, carrier string", {"topic": "t"}, "column carrier is no part of a record"),
        ("value string", {"topic": "../t"}, "topic"),
        ("value string", {"topic": "t", "sinkId": "Not A Name"}, "sinkId"),
        ("value string", {"topic": "t", "sink": "x"}, "sink is no option"),
        ("value string", {"topic": "t", "compression": "brotli"}, "not one of none, gzip"),
    ],
)
def test_what_cannot_be_written_is_said(
    spark: SparkSession, schema: str, options: dict[str, str], text: str
) -> None:
    columns = spark.createDataFrame([], schema).schema
    with pytest.raises(BadOption, match=text):
        source(**options).streamWriter(columns, False)
    with pytest.raises(BadOption, match="append"):
        source(topic="t").writer(spark.createDataFrame([], "value string").schema, True)


def test_an_unknown_topic_is_said(spark: SparkSession, world: World) -> None:
    rows = spark.createDataFrame([("x",)], "value string")
    writer = rows.write.format("samelog").option("config", world.cluster.client_file)
    with pytest.raises(Exception, match="there is no topic 'nowhere'"):
        writer.option("topic", "nowhere").mode("append").save()


def test_a_topic_that_nodes_check_takes_batches_that_fit(spark: SparkSession, world: World) -> None:
    config = world.cluster.client_config()
    create_checked(world, "sink-checked")
    ask(config, SetSchema("sink-checked", schema_text("a int32"), 0))

    def write(sql: str) -> None:
        writer = spark.sql(sql).write.format("samelog").mode("append")
        writer.options(config=world.cluster.client_file, topic="sink-checked").save()

    write("SELECT to_json(named_struct('a', id)) AS value FROM range(20)")
    good = [b'{"a":%d}' % number for number in range(20)]
    wait_written(spark, world, "sink-checked", good)
    with pytest.raises(Exception, match="column 'a': not int32"):
        write("""SELECT if(id = 7, '{"a":"x"}', '{"a":1}') AS value FROM range(20)""")
    assert written(spark, world, "sink-checked") == sorted(good)


def test_rows_of_a_schema_are_written_and_read(spark: SparkSession, world: World) -> None:
    config = world.cluster.client_config()
    create_checked(world, "sink-typed")
    ask(config, SetSchema("sink-typed", schema_text("a int32", "b string"), 0))

    def write(sql: str) -> None:
        writer = spark.sql(sql).write.format("samelog").mode("append")
        options = {"config": world.cluster.client_file, "topic": "sink-typed"}
        writer.options(**options, valueFormat="schema").save()

    write("SELECT id AS a, concat('b', id) AS b, cast(id AS STRING) AS key FROM range(20)")
    wait_for(lambda: len(written(spark, world, "sink-typed")) == 20, "records")
    found = table(spark, world, "sink-typed", valueFormat="schema").select("a", "b", "key")
    wanted = [(number, f"b{number}", b"%d" % number) for number in range(20)]
    assert sorted(tuple(row) for row in found.collect()) == wanted
    with pytest.raises(Exception, match="column 'a': not int32"):
        write("SELECT 4294967296 AS a, 'b' AS b")
    assert len(written(spark, world, "sink-typed")) == 20


def create_checked(world: World, topic: str) -> None:
    """A topic whose records nodes check, once the cluster has the level for that."""
    settings = {"schema.enforce": "node"}

    def made() -> bool:
        try:
            ask(world.cluster.client_config(), CreateTopic(topic, PARTITIONS, settings))
        except AdminError as error:
            return error.code is FaultCode.ALREADY_EXISTS
        return True

    wait_for(made, "topics may be checked")
