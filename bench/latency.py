"""Append to subscriber latency, open loop: records are due at fixed times, and latency counts from
when they were due.

Publisher, three nodes and subscriber are processes of their own on this machine; time is the
machine's monotonic clock.
"""

from __future__ import annotations

import argparse
import json
import os
import struct
import tempfile
import time

from bench.machine import percentile
from bench.processes import Clock, Program, options, ready, stand_by
from samelog import Publisher, Subscriber
from samelog.cli.local_cluster import ClusterOptions, LocalCluster
from samelog.config.tables.node import Fsync

PROGRAM = "bench.latency"
TOPIC = "latency"
STAMP = struct.Struct(">q")
WARM_UP_S = 2.0


def publish(given: argparse.Namespace) -> None:
    """Append `rate` records a second, unbatched, each stamped with the time it was due."""
    padding = bytes(given.size - STAMP.size)
    with Publisher(
        given.topic, session=given.topic, directory=given.dir, config=given.config
    ) as publisher:
        publisher.append(b"start")
        publisher.wait_merged(timeout=60)
        stand_by()
        clock, begun = Clock(), time.monotonic_ns()
        for number in range(given.records):
            due = begun + number * 1_000_000_000 // given.rate
            wait = due - time.monotonic_ns()
            if wait > 0:
                time.sleep(wait / 1e9)
            publisher.append(STAMP.pack(due) + padding)
        publisher.wait_merged(timeout=60)
        clock.found()


def subscribe(given: argparse.Namespace) -> None:
    """The latency in milliseconds of every record but the first one."""
    found: list[float] = []
    with Subscriber(
        given.topic, directory=given.dir, config=given.config, start="earliest"
    ) as subscriber:
        records = iter(subscriber)
        next(records)
        ready()
        clock = Clock()
        for record in records:
            due = STAMP.unpack_from(record.value or b"")[0]
            found.append((time.monotonic_ns() - due) / 1e6)
            if len(found) == given.records:
                break
        clock.found(ms=found)


def measure(fsync: Fsync, *, rate: int, seconds: float, size: int) -> dict[str, float | str]:
    """One run: percentiles in milliseconds."""
    with (
        tempfile.TemporaryDirectory() as directory,
        LocalCluster(os.path.join(directory, "c"), ClusterOptions(fsync=fsync)) as cluster,
    ):
        cluster.start()
        records = int(rate * (seconds + WARM_UP_S))
        told = {"config": cluster.client_file, "rate": rate, "size": size, "records": records}
        with (
            Program(PROGRAM, ["subscribe", *options({**told, "dir": f"{directory}/s"})]) as r,
            Program(PROGRAM, ["publish", *options({**told, "dir": f"{directory}/p"})]) as w,
        ):
            w.wait_ready()
            r.wait_ready()
            w.go()
            taken = r.result()["ms"][int(rate * WARM_UP_S) :]
            w.result()
    return {"fsync": fsync.value, "rate": rate, "size": size, **percentiles(taken)}


def percentiles(taken: list[float]) -> dict[str, float]:
    """Of latencies in milliseconds."""
    shares = {"p50_ms": 0.5, "p99_ms": 0.99, "p999_ms": 0.999}
    return {name: percentile(taken, at) for name, at in shares.items()} | {"max_ms": max(taken)}


def main() -> None:
    """`run` measures; `publish` and `subscribe` are its processes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("role", choices=["run", "publish", "subscribe"], nargs="?", default="run")
    parser.add_argument("--config")
    parser.add_argument("--dir")
    parser.add_argument("--topic", default=TOPIC)
    parser.add_argument("--rate", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--size", type=int, default=100)
    parser.add_argument("--records", type=int, default=0)
    parser.add_argument("--fsync", choices=["always", "interval"], action="append")
    given = parser.parse_args()
    if given.role == "publish":
        publish(given)
    elif given.role == "subscribe":
        subscribe(given)
    else:
        for mode in given.fsync or ["always", "interval"]:
            row = measure(Fsync(mode), rate=given.rate, seconds=given.seconds, size=given.size)
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
