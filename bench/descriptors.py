"""What many written partitions cost a node that may open few files: 5,000 partitions with records
on one node under `ulimit -n 1024`.

A Kafka producer writes one record to each partition, so that every one has files, and then writes
to all of them again in rounds, in which files are closed and opened. Then it writes single records
to partitions in random order, each when the one before is acknowledged. At last the node is started
again under the same limit. Every record must be acknowledged, and the node never opens more files
than it may; the kernel's own record of its limit is checked.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import resource
import subprocess
import sys
import tempfile
import time
from statistics import quantiles

import psutil
from confluent_kafka import KafkaError, Producer

from samelog.admin.client import ask
from samelog.admin.requests import CreateTopic
from samelog.cli.local_cluster import ClusterOptions, LocalCluster

PARTITIONS_OF_A_TOPIC = 500
AT_ONCE = 250
"""Records under way: each first one creates the files of its partition."""
FLUSH_S = 600.0
SINGLE_RECORDS = 500
LIVE_S = 600.0
SEED = 1
ROW_OF_PARTITION = re.compile(r"t\d+ +\d+ ")


class Writes:
    """Writes records to partitions of the node, and watches how many files it has open."""

    def __init__(self, cluster: LocalCluster, partitions: int) -> None:
        self._cluster, self._partitions = cluster, partitions
        self.most_files = 0
        config = cluster.client_config()
        self._producer = Producer(
            {
                "bootstrap.servers": config.kafka_bootstrap,
                "linger.ms": 0,
                "request.timeout.ms": 120_000,
                "log_level": 0,
            }
        )

    @property
    def node(self) -> psutil.Process:
        """The node's process."""
        (node,) = self._cluster.nodes
        if node.pid is None:
            raise RuntimeError("the node has ended")
        return psutil.Process(node.pid)

    def to_all(self) -> float:
        """Write a record to each partition; the seconds until all are acknowledged."""
        began = time.perf_counter()
        for start in range(0, self._partitions, AT_ONCE):
            self._write(range(start, min(start + AT_ONCE, self._partitions)))
        return time.perf_counter() - began

    def singly(self) -> list[float]:
        """Write single records; the milliseconds until each is acknowledged."""
        chance, found = random.Random(SEED), []
        for _ in range(SINGLE_RECORDS):
            began = time.perf_counter()
            self._write([chance.randrange(self._partitions)])
            found.append((time.perf_counter() - began) * 1000)
        return found

    def _write(self, numbers: range | list[int]) -> None:
        failed: list[KafkaError] = []

        def delivered(error: KafkaError | None, _: object) -> None:
            if error is not None:
                failed.append(error)

        for number in numbers:
            topic, partition = divmod(number, PARTITIONS_OF_A_TOPIC)
            self._producer.produce(
                f"t{topic}", b"x" * 100, partition=partition, on_delivery=delivered
            )
        left = self._producer.flush(FLUSH_S)
        if left or failed:
            raise RuntimeError(
                f"{left} records are not acknowledged, {len(failed)} failed: {failed[:1]}"
            )
        self.most_files = max(self.most_files, self.node.num_fds())


def check_limit(node: psutil.Process, descriptors: int) -> None:
    """Raise RuntimeError unless the kernel lets the node open this many files and no more."""
    found = resource.prlimit(node.pid, resource.RLIMIT_NOFILE)
    if found != (descriptors, descriptors):
        raise RuntimeError(f"the node may open {found} files, not {descriptors}")


def measure(cluster: LocalCluster, options: argparse.Namespace) -> dict[str, float]:
    """Create the topics, write to all partitions, and start the node again."""
    config = cluster.client_config()
    for topic in range(options.partitions // PARTITIONS_OF_A_TOPIC):
        ask(config, CreateTopic(f"t{topic}", PARTITIONS_OF_A_TOPIC, {}))
    writes = Writes(cluster, options.partitions)
    check_limit(writes.node, options.descriptors)
    found: dict[str, float] = {
        "partitions": options.partitions,
        "descriptors_limit": options.descriptors,
        "first_s": round(writes.to_all(), 1),
    }
    say(found)
    found["round_s"] = round(min(writes.to_all() for _ in range(options.rounds)), 1)
    found |= percentiles(writes.singly(), "single")
    found["node_mb"] = round(writes.node.memory_info().rss / 1e6)
    say(found)
    tell(cluster, "status")
    tell(cluster, "doctor")
    found |= restart(cluster, writes, options.descriptors)
    if writes.most_files > options.descriptors:
        raise RuntimeError(f"the node has opened {writes.most_files} files")
    return found | {"descriptors_most": writes.most_files}


def restart(cluster: LocalCluster, writes: Writes, descriptors: int) -> dict[str, float]:
    """Stop the node and start it with the partitions there; until it is Live, and what then."""
    (node,) = cluster.nodes
    node.stop()
    began = time.perf_counter()
    node.start()
    cluster.wait_live(LIVE_S)
    ready_s = time.perf_counter() - began
    check_limit(writes.node, descriptors)
    found = {"ready_s": round(ready_s, 1)} | percentiles(writes.singly(), "restarted")
    return found | {"restarted_mb": round(writes.node.memory_info().rss / 1e6)}


def percentiles(times_ms: list[float], name: str) -> dict[str, float]:
    """The median and the 99th percentile."""
    cuts = quantiles(times_ms, n=100)
    return {f"{name}_p50_ms": round(cuts[49], 1), f"{name}_p99_ms": round(cuts[98], 1)}


def tell(cluster: LocalCluster, command: str) -> None:
    """Print what a command of samelog says of the node, without rows of single partitions."""
    words = [sys.executable, "-m", "samelog", command, "--config", cluster.client_file]
    ended = subprocess.run(words, capture_output=True, text=True, check=False)
    lines = [line for line in ended.stdout.splitlines() if not ROW_OF_PARTITION.match(line)]
    sys.stderr.write(f"samelog {command}: exit status {ended.returncode}\n")
    sys.stderr.write("".join(f"  {line}\n" for line in lines))


def say(found: dict[str, float]) -> None:
    """Print what is known so far."""
    sys.stderr.write("  ".join(f"{value:g} {name}" for name, value in found.items()) + "\n")
    sys.stderr.flush()


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
