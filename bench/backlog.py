"""A backlog arriving as fast as it can: written while the cluster is down, then shipped; the nodes'
memory is watched.

The files take several times the backlog's size on disk.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time

import psutil

from samelog import Publisher
from samelog.cli.local_cluster import LocalCluster

CHUNK_RECORDS = 4096
TIMEOUT_S = 1800
POLL_S = 0.2


def write_backlog(directory: str, *, gigabytes: float, size: int) -> int:
    """Append to a session that nobody ships; the number of records."""
    values = [bytes(size)] * CHUNK_RECORDS
    chunks = int(gigabytes * 1e9 / (size * CHUNK_RECORDS))
    with Publisher(
        "backlog", session="b", directory=directory, budget_bytes=1 << 40, batch_bytes=65536
    ) as publisher:
        for _ in range(chunks):
            publisher.append_many(values)
    return chunks * CHUNK_RECORDS


def ship(cluster: LocalCluster, directory: str) -> tuple[float, int]:
    """Ship it: seconds until merged, and the largest memory of a node in bytes."""
    peak = 0
    started = time.monotonic()
    with Publisher(
        "backlog",
        session="b",
        directory=directory,
        config=cluster.client_file,
        budget_bytes=1 << 40,
    ) as publisher:
        publisher.append(b"last")
        while time.monotonic() - started < TIMEOUT_S:
            for node in cluster.nodes:
                if node.pid is not None:
                    peak = max(peak, psutil.Process(node.pid).memory_info().rss)
            try:
                publisher.wait_merged(timeout=POLL_S)
                return time.monotonic() - started, peak
            except TimeoutError:
                continue
    raise SystemExit(f"not merged within {TIMEOUT_S} s")


def main() -> None:
    """Print rate and memory as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=5.0)
    parser.add_argument("--size", type=int, default=1000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        publisher = os.path.join(directory, "p")
        records = write_backlog(publisher, gigabytes=options.gigabytes, size=options.size)
        with LocalCluster(os.path.join(directory, "c")) as cluster:
            cluster.start()
            seconds, peak = ship(cluster, publisher)
    print(
        json.dumps(
            {
                "gigabytes": options.gigabytes,
                "seconds": seconds,
                "mb_per_s": records * options.size / seconds / 1e6,
                "node_rss_mb": peak / 1e6,
            }
        )
    )


if __name__ == "__main__":
    main()
