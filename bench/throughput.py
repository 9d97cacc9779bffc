"""End-to-end throughput: one publisher, three nodes, one subscriber, each a process, mutual TLS,
fsync as configured.

The clock runs from the first append of a session that is known to the nodes until the subscriber
has been handed the last record. Beside it, in the same run, the plain limit (bench/plain.py): the
same bytes through as many TLS connections and file writes in the simplest loop.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile

from bench import machine, plain
from bench.processes import Clock, Program, options, ready, stand_by
from samelog import Publisher, Subscriber
from samelog.cli.local_cluster import ClusterOptions, LocalCluster
from samelog.config.tables.node import Fsync

PROGRAM = "bench.throughput"
TOPIC = "throughput"
CHUNK_BYTES = 1 << 20
BATCH_BYTES = 64 << 10
LINGER_MS = 5
START = b"start"


def publish(given: argparse.Namespace) -> None:
    """Append all records: in chunks of about 1 MiB, or each by itself, sharing batches."""
    size = given.size[0]
    values = [bytes([number % 256]) * size for number in range(max(1, CHUNK_BYTES // size))]
    with Publisher(
        given.topic,
        session=given.topic,
        directory=given.dir,
        config=given.config,
        batch_bytes=BATCH_BYTES,
        linger_ms=LINGER_MS if given.single else 0,
    ) as publisher:
        publisher.append(START)
        publisher.wait_merged(timeout=60)
        stand_by()
        clock, left = Clock(), given.records
        while left > 0:
            if given.single:
                for value in values[:left]:
                    publisher.append(value)
            else:
                publisher.append_many(values[:left])
            left -= len(values)
        publisher.wait_merged(timeout=600)
        clock.found()


def subscribe(given: argparse.Namespace) -> None:
    """Ready with the first record, done with the last one."""
    received = 0
    with Subscriber(
        given.topic, directory=given.dir, config=given.config, start="earliest"
    ) as subscriber:
        while not subscriber.batch(max_records=1, timeout=1.0):
            pass
        ready()
        clock = Clock()
        while received < given.records:
            received += len(subscriber.batch(max_records=50_000, timeout=1.0))
        clock.found()


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
        told = {"config": cluster.client_file, "size": size, "records": records}
        with (
            Program(PROGRAM, ["subscribe", *options({**told, "dir": f"{directory}/s"})]) as r,
            Program(PROGRAM, ["publish", *options({**told, "dir": f"{directory}/p"})]) as w,
        ):
            w.wait_ready()
            r.wait_ready()
            machine.settled()
            w.go()
            seconds = -w.result()["began"] + r.result()["ended"]
        peak = max(_peak_bytes(node.pid) for node in cluster.nodes if node.pid)
    machine.settled()
    limit = plain.measure(megabytes).mb_per_s
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


def _peak_bytes(pid: int) -> int:
    """The most memory that a process ever had."""
    with open(f"/proc/{pid}/status", encoding="ascii") as status:
        line = next(line for line in status if line.startswith("VmHWM"))
    return int(line.split()[1]) << 10


def main() -> None:
    """`run` measures; `publish` and `subscribe` are its processes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("role", choices=["run", "publish", "subscribe"], nargs="?", default="run")
    parser.add_argument("--config")
    parser.add_argument("--dir")
    parser.add_argument("--topic", default=TOPIC)
    parser.add_argument("--megabytes", type=int, default=400)
    parser.add_argument("--size", type=int, action="append")
    parser.add_argument("--records", type=int, default=0)
    parser.add_argument("--single", action="store_true", help="append record by record")
    parser.add_argument("--fsync", choices=["always", "interval"], default="always")
    parser.add_argument("--runs", type=int, default=1)
    given = parser.parse_args()
    if given.role == "publish":
        publish(given)
    elif given.role == "subscribe":
        subscribe(given)
    else:
        for _ in range(given.runs):
            for size in given.size or [1000, 100]:
                row = measure(Fsync(given.fsync), megabytes=given.megabytes, size=size)
                print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
