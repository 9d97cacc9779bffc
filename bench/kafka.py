"""confluent-kafka (librdkafka) against a three-node cluster, everything on this machine: producing
with acks=all and linger.ms=5, consuming it again, the round trip of single records, and what idle
connections cost.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import tempfile
import time

import psutil
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from samelog.cli.local_cluster import ClusterOptions, LocalCluster
from samelog.config.tables.node import Fsync

POLL_EVERY = 1_000
ROUND_TRIPS = 500
ROUND_TRIP_PAUSE_S = 0.01
IDLE_S = 5.0


def bootstrap(cluster: LocalCluster) -> str:
    """Where Kafka clients begin."""
    return ",".join(str(node.kafka) for node in cluster.nodes)


def create(servers: str, topic: str) -> None:
    """A topic of one partition."""
    admin = AdminClient({"bootstrap.servers": servers})
    for future in admin.create_topics([NewTopic(topic, 1)]).values():
        future.result(30)


def produce(servers: str, topic: str, *, size: int, megabytes: int) -> dict[str, object]:
    """MB/s of values and records/s until the last acknowledgement."""
    producer = Producer({"bootstrap.servers": servers, "acks": "all", "linger.ms": 5})
    count, value = megabytes * 1_000_000 // size, b"x" * size
    begin = time.perf_counter()
    for number in range(count):
        while True:
            try:
                producer.produce(topic, value)
                break
            except BufferError:
                producer.poll(0.1)
        if number % POLL_EVERY == 0:
            producer.poll(0)
    left = producer.flush(300)
    seconds = time.perf_counter() - begin
    if left:
        raise RuntimeError(f"{left} records were not acknowledged within 300 s")
    return {
        "what": "produce",
        "size": size,
        "mb_per_s": round(megabytes / seconds, 1),
        "records_per_s": round(count / seconds),
    }


def consume(servers: str, topic: str, *, size: int, megabytes: int) -> dict[str, object]:
    """MB/s of values from the first to the last record."""
    count = megabytes * 1_000_000 // size
    consumer = Consumer(
        {"bootstrap.servers": servers, "group.id": topic, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    received, begin = 0, 0.0
    while received < count:
        records = consumer.consume(10_000, timeout=1.0)
        begin = begin or (time.perf_counter() if records else 0.0)
        received += len(records)
    seconds = time.perf_counter() - begin
    consumer.close()
    return {
        "what": "consume",
        "size": size,
        "mb_per_s": round(megabytes / seconds, 1),
        "records_per_s": round(count / seconds),
    }


def round_trips(servers: str, topic: str) -> dict[str, object]:
    """Milliseconds from produce to acknowledgement, one record at a time."""
    producer = Producer({"bootstrap.servers": servers, "acks": "all", "linger.ms": 0})
    times = []
    for _ in range(ROUND_TRIPS):
        begin = time.perf_counter()
        producer.produce(topic, b"x")
        producer.flush(30)
        times.append(1000 * (time.perf_counter() - begin))
        time.sleep(ROUND_TRIP_PAUSE_S)
    ranked = statistics.quantiles(times, n=100)
    return {"what": "round trip", "p50_ms": round(ranked[49], 2), "p99_ms": round(ranked[98], 2)}


def idle_connections(cluster: LocalCluster, count: int) -> dict[str, object]:
    """Memory and CPU that connections cost a node that say nothing."""
    node = cluster.nodes[0]
    if node.kafka is None or node.pid is None:
        raise RuntimeError("the node has no Kafka listener")
    process = psutil.Process(node.pid)
    before = process.memory_info().rss
    sockets = [socket.create_connection((node.kafka.host, node.kafka.port)) for _ in range(count)]
    time.sleep(1)
    spent = sum(process.cpu_times()[:2])
    time.sleep(IDLE_S)
    cpu = (sum(process.cpu_times()[:2]) - spent) / IDLE_S
    row = {
        "what": "idle connections",
        "count": count,
        "rss_mb": round((process.memory_info().rss - before) / 1e6, 1),
        "node_cpu_percent": round(100 * cpu, 1),
    }
    for each in sockets:
        each.close()
    return row


def main() -> None:
    """Print each figure as one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=200)
    parser.add_argument("--fsync", choices=["always", "interval"], default="always")
    parser.add_argument("--connections", type=int, default=2_000)
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as directory,
        LocalCluster(
            os.path.join(directory, "c"), ClusterOptions(fsync=Fsync(options.fsync))
        ) as cluster,
    ):
        cluster.start()
        servers = bootstrap(cluster)
        for size in (1000, 100):
            topic = f"size-{size}"
            create(servers, topic)
            for measure in (produce, consume):
                row = measure(servers, topic, size=size, megabytes=options.megabytes)
                print(json.dumps(row), flush=True)
        create(servers, "round-trips")
        print(json.dumps(round_trips(servers, "round-trips")), flush=True)
        print(json.dumps(idle_connections(cluster, options.connections)), flush=True)


if __name__ == "__main__":
    main()
