"""Rolling restarts: the longest wait for an acknowledgement while each node of a running cluster is
stopped cleanly (a leader hands over first) and started again, one after another.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import threading
import time

from bench.failover import leader_of
from samelog import Publisher
from samelog.cli.local_cluster import LocalCluster, LocalNode

LOAD_PER_S = 250
POLL_S = 0.002


class Pauses:
    """Appends at a steady rate, and notes when acknowledgements moved."""

    def __init__(self, publisher: Publisher) -> None:
        self._publisher = publisher
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=work) for work in (self._write, self._watch)]
        self._longest = 0.0
        self.appended = 0
        """Records."""

    def __enter__(self) -> Pauses:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def take(self) -> float:
        """Seconds of the longest wait since the last call."""
        longest, self._longest = self._longest, 0.0
        return longest

    def _write(self) -> None:
        while not self._stop.wait(1 / LOAD_PER_S):
            self._publisher.append(b"load")
            self.appended += 1

    def _watch(self) -> None:
        last, moved_at = self._publisher.positions.acknowledged, time.monotonic()
        while not self._stop.wait(POLL_S):
            now, acknowledged = time.monotonic(), self._publisher.positions.acknowledged
            self._longest = max(self._longest, now - moved_at)
            if acknowledged != last:
                last, moved_at = acknowledged, now


def one_round(cluster: LocalCluster, pauses: Pauses) -> list[tuple[str, float]]:
    """(role, longest wait in seconds) of each node's restart."""
    found = []
    for node in cluster.nodes:
        role = "leader" if leader_of(cluster) is node else "follower"
        found.append((role, restart(cluster, node, pauses)))
    return found


def restart(cluster: LocalCluster, node: LocalNode, pauses: Pauses) -> float:
    """Seconds of the longest wait from the node's stop until it is Live again."""
    pauses.take()
    node.stop()
    node.start()
    cluster.wait_live()
    return pauses.take()


def row(role: str, waits: list[float]) -> dict[str, object]:
    """One line of the result."""
    return {
        "restarted": role,
        "restarts": len(waits),
        "median_ms": round(1000 * statistics.median(waits)),
        "max_ms": round(1000 * max(waits)),
    }


def main() -> None:
    """Print medians and maxima as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as directory,
        LocalCluster(os.path.join(directory, "c")) as cluster,
    ):
        cluster.start()
        with (
            Publisher(
                "rolling", session="r", directory=f"{directory}/p", config=cluster.client_file
            ) as publisher,
            Pauses(publisher) as pauses,
        ):
            publisher.wait_merged(timeout=30)
            waits = [wait for _ in range(options.rounds) for wait in one_round(cluster, pauses)]
    for role in ("leader", "follower"):
        of_role = [wait for restarted, wait in waits if restarted == role]
        print(json.dumps(row(role, of_role)))


if __name__ == "__main__":
    main()
