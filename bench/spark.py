"""Spark reading a merged log: rows per second from a local copy and from the nodes, what the Python
side of that costs, decoding of JSON, writing to nodes, and what a micro-batch costs beside Spark's
own floor. Beside Spark's own Kafka source and sink: bench/spark_kafka.py.

The source feeds Spark's `noop` sink, on two local cores. Every rate is the best of some runs after
one to warm up: starting Java and Python is not what is measured.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import psutil
from pyspark.sql import SparkSession
from pyspark.sql.datasource import CaseInsensitiveDict

from samelog import Publisher
from samelog.admin.client import ask
from samelog.admin.requests import CreateTopic
from samelog.cli.local_cluster import LocalCluster
from samelog.format import _kernels as kernels
from samelog.spark.source.data_source import SamelogDataSource
from samelog.store.disk.files import OsFileSystem
from samelog.store.merged.log import MergedLog

RUNS = 3
BATCH_BYTES = 64 << 10
SMALL_BATCHES = 30
JSON_SCHEMA = "carrier STRING, origin STRING, delay DOUBLE, flight BIGINT"


def binary_values(count: int) -> list[bytes]:
    """Values of 100 bytes."""
    return [b"%020d" % number + bytes(80) for number in range(count)]


def json_values(count: int) -> list[bytes]:
    """Objects of four members, about 70 bytes."""
    text = '{"carrier": "UA", "origin": "EWR", "delay": %d.5, "flight": %d}'
    return [(text % (number % 300, number)).encode() for number in range(count)]


def write_log(directory: str, topic: str, values: list[bytes], *, partitions: int = 2) -> None:
    """Merged logs that hold the values, as a subscriber's copy would."""
    share = len(values) // partitions
    for partition in range(partitions):
        path = os.path.join(directory, f"{topic}-{partition}")
        log = MergedLog.open(OsFileSystem(), path, topic=topic, topic_id="id", partition=partition)
        data = kernels.build_batches(
            values[partition * share : (partition + 1) * share],
            timestamps=1,
            batch_bytes=BATCH_BYTES,
            max_record_bytes=1 << 20,
        )
        log.append(bytearray(data), base_offset=0, leader_epoch=1)
        log.mark_durable(log.next_offset)
        log.save_marks()
        log.close()


def best(run: Callable[[], object], rows: int) -> int:
    """Rows per second."""
    run()
    seconds = []
    for _ in range(RUNS):
        started = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - started)
    return round(rows / min(seconds))


def to_noop(spark: SparkSession, told: dict[str, str]) -> None:
    """Read everything."""
    frame = spark.read.format("samelog").options(**told).load()
    frame.write.format("noop").mode("overwrite").save()


def python_cpu(told: dict[str, str]) -> float:
    """Microseconds of processor time per row of what an executor's Python does."""
    made = SamelogDataSource(CaseInsensitiveDict(told))
    schema: Any = made.schema()
    reader = made.reader(schema)
    tasks = reader.partitions()

    def run() -> int:
        batches: Any = (batch for task in tasks for batch in reader.read(task))
        return sum(batch.num_rows for batch in batches)

    rows = run()
    started = time.process_time()
    run()
    return round((time.process_time() - started) / rows * 1e6, 3)


def batch_ms(spark: SparkSession, source: str, told: dict[str, str], directory: str) -> float:
    """How long a micro-batch of 100 rows takes, the median of some."""
    frame = spark.readStream.format(source).options(**told).load()
    checkpoint = tempfile.mkdtemp(dir=directory)
    writer = frame.writeStream.format("noop").option("checkpointLocation", checkpoint)
    query = writer.trigger(processingTime="0 seconds").start()
    try:
        while (query.lastProgress or {"batchId": 0})["batchId"] < SMALL_BATCHES:
            time.sleep(0.1)
        progress = [each for each in query.recentProgress if each["numInputRows"] == 100]
    finally:
        query.stop()
    return float(median(each["durationMs"]["triggerExecution"] for each in progress[5:]))


def local(spark: SparkSession, directory: str, rows: int) -> dict[str, object]:
    """From a local copy."""
    write_log(directory, "plain", binary_values(rows))
    write_log(directory, "json", json_values(rows))
    plain = {"directory": directory, "subscribe": "plain"}
    typed = {"directory": directory, "subscribe": "json", "valueFormat": "json"}
    small = {**plain, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "100"}
    floor = batch_ms(spark, "rate-micro-batch", {"rowsPerBatch": "100"}, directory)
    return {
        "local_rows_per_s": best(lambda: to_noop(spark, plain), rows),
        "local_python_us_per_row": python_cpu(plain),
        "json_rows_per_s": best(
            lambda: to_noop(spark, {**typed, "valueSchema": JSON_SCHEMA}), rows
        ),
        "batch_ms": batch_ms(spark, "samelog", small, directory),
        "batch_floor_ms": floor,
    }


def remote(spark: SparkSession, directory: str, rows: int) -> dict[str, object]:
    """From three nodes and to them, over mutual TLS."""
    with LocalCluster(os.path.join(directory, "cluster")) as cluster:
        cluster.start()
        told = {"config": cluster.client_file, "subscribe": "far", "minPartitions": "2"}
        with Publisher(
            "far", session="bench", directory=f"{directory}/p", config=cluster.client_file
        ) as publisher:
            publisher.append_many(binary_values(rows))
            publisher.wait_merged(timeout=600)
        found: dict[str, object] = {
            "remote_rows_per_s": best(lambda: to_noop(spark, told), rows),
            "remote_python_us_per_row": python_cpu(told),
        }
        return found | sink(spark, directory, cluster, rows)


def sink(
    spark: SparkSession, directory: str, cluster: LocalCluster, rows: int
) -> dict[str, object]:
    """From a local copy to three nodes: a batch query of two tasks, until it is published."""
    write_log(directory, "sunk", binary_values(rows))
    ask(cluster.client_config(), CreateTopic("sunk", 2, {}))
    reader = spark.read.format("samelog").option("directory", directory)
    frame = reader.option("subscribe", "sunk").load().select("value", "partition")

    def write() -> None:
        writer = frame.write.format("samelog").option("config", cluster.client_file)
        writer.option("topic", "sunk").mode("append").save()

    before = nodes_cpu_s(cluster)
    rate = best(write, rows)
    spent = nodes_cpu_s(cluster) - before
    return {
        "sink_rows_per_s": rate,
        "sink_nodes_us_per_row": round(spent / (rows * (RUNS + 1)) * 1e6, 2),
    }


def nodes_cpu_s(cluster: LocalCluster) -> float:
    """Processor time of all nodes, which here is taken from what Spark has."""
    times = [psutil.Process(node.pid).cpu_times() for node in cluster.nodes]
    return float(sum(each.user + each.system for each in times))


def start(jars: list[str]) -> SparkSession:
    """Two local cores."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    if jars:
        builder = builder.config("spark.jars", ",".join(jars))
    return (
        builder.config("spark.driver.memory", "2g").config("spark.log.level", "ERROR").getOrCreate()
    )


def main() -> None:
    """Measure, and print a line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000)
    rows = parser.parse_args().rows
    spark = start([])
    with tempfile.TemporaryDirectory() as directory:
        found = local(spark, directory, rows) | remote(spark, directory, rows // 2)
    print(json.dumps({"rows": rows, **found}))
    spark.stop()


if __name__ == "__main__":
    main()
