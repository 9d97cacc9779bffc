"""What many written partitions cost a node that may open few files: 5,000 partitions with records
on one node under `ulimit -n 1024`.

A Kafka producer writes one record to each partition, so that every one has files, and then writes
to all of them again in rounds, in which files are closed and opened. Every record must be
acknowledged, and the node never opens more files than it may.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import tempfile
import time

import psutil
from confluent_kafka import KafkaError, Producer

from samelog.admin.client import ask
from samelog.admin.requests import CreateTopic
from samelog.cli.local_cluster import ClusterOptions, LocalCluster

PARTITIONS_OF_A_TOPIC = 500
AT_ONCE = 250
"""Records under way: each first one creates the files of its partition."""
FLUSH_S = 600.0


def write_all(producer: Producer, partitions: int) -> float:
    """Write a record to each partition; the seconds until all are acknowledged."""
    failed: list[KafkaError] = []

    def delivered(error: KafkaError | None, _: object) -> None:
        if error is not None:
            failed.append(error)

    began = time.perf_counter()
    for number in range(partitions):
        topic, partition = divmod(number, PARTITIONS_OF_A_TOPIC)
        producer.produce(f"t{topic}", b"x" * 100, partition=partition, on_delivery=delivered)
        if number % AT_ONCE == AT_ONCE - 1:
            producer.flush(FLUSH_S)
    left = producer.flush(FLUSH_S)
    if left or failed:
        raise RuntimeError(
            f"{left} records are not acknowledged, {len(failed)} failed: {failed[:1]}"
        )
    return time.perf_counter() - began


def measure(cluster: LocalCluster, options: argparse.Namespace) -> dict[str, float]:
    """Create the topics, and write to all partitions."""
    config = cluster.client_config()
    for topic in range(options.partitions // PARTITIONS_OF_A_TOPIC):
        ask(config, CreateTopic(f"t{topic}", PARTITIONS_OF_A_TOPIC, {}))
    (node,) = cluster.nodes
    process = psutil.Process(node.pid)
    producer = Producer(
        {"bootstrap.servers": config.kafka_bootstrap, "linger.ms": 5, "request.timeout.ms": 120_000}
    )
    first_s = write_all(producer, options.partitions)
    opened = [process.num_fds()]
    rounds = []
    for _ in range(options.rounds):
        rounds.append(write_all(producer, options.partitions))
        opened.append(process.num_fds())
    if process.pid != node.pid or not process.is_running():
        raise RuntimeError("the node has ended")
    if max(opened) > options.descriptors:
        raise RuntimeError(f"the node has opened {max(opened)} files")
    return {
        "partitions": options.partitions,
        "descriptors_limit": options.descriptors,
        "descriptors_most": max(opened),
        "first_s": round(first_s, 1),
        "round_s": round(min(rounds), 1),
        "node_mb": round(process.memory_info().rss / 1e6),
    }


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=int, default=5_000)
    parser.add_argument("--descriptors", type=int, default=1_024)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--json", action="store_true", help="as one object")
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as directory,
        LocalCluster(os.path.join(directory, "c"), ClusterOptions(nodes=1)) as cluster,
    ):
        resource.setrlimit(resource.RLIMIT_NOFILE, (options.descriptors, options.descriptors))
        cluster.start()
        found = measure(cluster, options)
    words = "  ".join(f"{value:g} {name}" for name, value in found.items())
    sys.stdout.write((json.dumps(found) if options.json else words) + "\n")


if __name__ == "__main__":
    main()
