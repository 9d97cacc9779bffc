"""End-to-end throughput: one publisher, three nodes, one subscriber, each a process, mutual TLS,
fsync as configured.

The clock runs from the first append until the subscriber has been handed the last record. Beside
it, in the same run, the plain limit (bench/plain.py): the same bytes through as many TLS
connections and file writes in the simplest loop.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

import psutil

from bench import plain
from samelog import Publisher, Subscriber
from samelog.cli.local_cluster import ClusterOptions, LocalCluster
from samelog.config.tables.node import Fsync

TOPIC = "throughput"
CHUNK_BYTES = 1 << 20
START = "start"


def publish(config: str, directory: str, *, records: int, size: int) -> None:
    """Append all records in chunks of about 1 MiB, in batches of 64 KiB."""
    values = [bytes([number % 256]) * size for number in range(max(1, CHUNK_BYTES // size))]
    with Publisher(
        TOPIC, session="throughput", directory=directory, config=config, batch_bytes=65536
    ) as publisher:
        publisher.append(START.encode())
        publisher.wait_merged(timeout=60)
        print(time.monotonic(), flush=True)
        left = records
        while left > 0:
            publisher.append_many(values[:left])
            left -= len(values)
        publisher.wait_merged(timeout=600)


def subscribe(config: str, directory: str, *, expect: int) -> None:
    """Print the time at which the last record was handed out."""
    received = 0
    with Subscriber(TOPIC, directory=directory, config=config, start="earliest") as subscriber:
        while received < expect:
            received += len(subscriber.batch(max_records=50_000, timeout=1.0))
    print(time.monotonic(), flush=True)


def measure(fsync: Fsync, *, megabytes: int, size: int) -> dict[str, float | str]:
    """One run: MB/s of values, records/s, peak memory of the nodes, and the share of the plain
    limit.
    """
    records = megabytes * 1_000_000 // size
    with (
        tempfile.TemporaryDirectory() as directory,
        LocalCluster(os.path.join(directory, "c"), ClusterOptions(fsync=fsync)) as cluster,
    ):
        cluster.start()
        shared = ["--config", cluster.client_file, "--size", str(size)]
        reader = _spawn(
            "subscribe", *shared, "--dir", f"{directory}/s", "--expect", str(records + 1)
        )
        writer = _spawn("publish", *shared, "--dir", f"{directory}/p", "--records", str(records))
        peak = _watch(cluster, reader)
        ended = float(reader.communicate(timeout=60)[0])
        started = float(writer.communicate(timeout=60)[0])
    seconds = ended - started
    limit = plain.measure(megabytes)
    rate = records * size / seconds / 1e6
    return {
        "fsync": fsync.value,
        "size": size,
        "megabytes": megabytes,
        "seconds": seconds,
        "mb_per_s": rate,
        "records_per_s": records / seconds,
        "node_rss_mb": peak / 1e6,
        "plain_mb_per_s": limit,
        "share_of_plain": rate / limit,
    }


def _watch(cluster: LocalCluster, reader: subprocess.Popen[str]) -> int:
    """The largest memory of any node until the subscriber is done, in bytes."""
    peak = 0
    while True:
        for node in cluster.nodes:
            if node.pid is not None:
                peak = max(peak, psutil.Process(node.pid).memory_info().rss)
        try:
            reader.wait(timeout=0.2)
            return peak
        except subprocess.TimeoutExpired:
            continue


def _spawn(role: str, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "bench.throughput", role, *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def main() -> None:
    """`run` measures; `publish` and `subscribe` are its processes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("role", choices=["run", "publish", "subscribe"], nargs="?", default="run")
    parser.add_argument("--config")
    parser.add_argument("--dir")
    parser.add_argument("--megabytes", type=int, default=400)
    parser.add_argument("--size", type=int, action="append")
    parser.add_argument("--records", type=int, default=0)
    parser.add_argument("--expect", type=int, default=0)
    parser.add_argument("--fsync", choices=["always", "interval"], default="always")
    parser.add_argument("--runs", type=int, default=1)
    options = parser.parse_args()
    if options.role == "publish":
        publish(options.config, options.dir, records=options.records, size=options.size[0])
    elif options.role == "subscribe":
        subscribe(options.config, options.dir, expect=options.expect)
    else:
        for _ in range(options.runs):
            for size in options.size or [1000, 100]:
                row = measure(Fsync(options.fsync), megabytes=options.megabytes, size=size)
                print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
