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
import subprocess
import sys
import tempfile
import time

from samelog import Publisher, Subscriber
from samelog.cli.local_cluster import ClusterOptions, LocalCluster
from samelog.config.tables.node import Fsync

TOPIC = "latency"
STAMP = struct.Struct(">q")
WARM_UP_S = 2.0


def publish(config: str, directory: str, *, rate: int, seconds: float, size: int) -> None:
    """Append `rate` records a second, unbatched, each stamped with the time it was due."""
    padding = bytes(size - STAMP.size)
    with Publisher(TOPIC, session="latency", directory=directory, config=config) as publisher:
        started = time.monotonic_ns()
        for number in range(int(rate * seconds)):
            due = started + number * 1_000_000_000 // rate
            wait = due - time.monotonic_ns()
            if wait > 0:
                time.sleep(wait / 1e9)
            publisher.append(STAMP.pack(due) + padding)
        publisher.wait_merged(timeout=60)


def subscribe(config: str, directory: str, *, expect: int) -> None:
    """Print, as JSON, the latency in microseconds of every record."""
    latencies: list[float] = []
    with Subscriber(TOPIC, directory=directory, config=config, start="earliest") as subscriber:
        for record in subscriber:
            due = STAMP.unpack_from(record.value or b"")[0]
            latencies.append((time.monotonic_ns() - due) / 1000)
            if len(latencies) == expect:
                break
    json.dump(latencies, sys.stdout)


def measure(fsync: Fsync, *, rate: int, seconds: float, size: int) -> dict[str, float | str]:
    """One run: percentiles in milliseconds."""
    with (
        tempfile.TemporaryDirectory() as directory,
        LocalCluster(os.path.join(directory, "c"), ClusterOptions(fsync=fsync)) as cluster,
    ):
        cluster.start()
        total = int(rate * (seconds + WARM_UP_S))
        shared = ["--config", cluster.client_file]
        reader = _spawn("subscribe", *shared, "--dir", f"{directory}/s", "--expect", str(total))
        options = [
            "--rate",
            str(rate),
            "--seconds",
            str(seconds + WARM_UP_S),
            "--size",
            str(size),
        ]
        writer = _spawn("publish", *shared, "--dir", f"{directory}/p", *options)
        output, _ = reader.communicate(timeout=seconds + 120)
        writer.wait(timeout=60)
    latencies = sorted(json.loads(output)[int(rate * WARM_UP_S) :])
    return {
        "fsync": fsync.value,
        "rate": rate,
        "size": size,
        "p50_ms": _percentile(latencies, 0.5),
        "p99_ms": _percentile(latencies, 0.99),
        "p999_ms": _percentile(latencies, 0.999),
        "max_ms": latencies[-1] / 1000,
    }


def _spawn(role: str, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "bench.latency", role, *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def _percentile(ordered: list[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] / 1000


def main() -> None:
    """`run` measures; `publish` and `subscribe` are its processes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("role", choices=["run", "publish", "subscribe"], nargs="?", default="run")
    parser.add_argument("--config")
    parser.add_argument("--dir")
    parser.add_argument("--rate", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--size", type=int, default=100)
    parser.add_argument("--expect", type=int, default=0)
    parser.add_argument("--fsync", choices=["always", "interval"], action="append")
    options = parser.parse_args()
    if options.role == "publish":
        publish(
            options.config,
            options.dir,
            rate=options.rate,
            seconds=options.seconds,
            size=options.size,
        )
    elif options.role == "subscribe":
        subscribe(options.config, options.dir, expect=options.expect)
    else:
        for mode in options.fsync or ["always", "interval"]:
            row = measure(
                Fsync(mode), rate=options.rate, seconds=options.seconds, size=options.size
            )
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
