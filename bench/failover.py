"""Time from SIGKILL of the leader until another node leads, and until a record published then is
merged.

Each round kills the leader of a running three-node cluster under a light load, waits, and starts
the node again.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import threading
import time

from samelog import Publisher
from samelog.admin.client import node_status
from samelog.admin.errors import AdminError
from samelog.cli.local_cluster import LocalCluster, LocalNode

LOAD_PER_S = 200
POLL_S = 0.01


def leader_of(cluster: LocalCluster, without: LocalNode | None = None) -> LocalNode:
    """The leader that a running node names, `without` not counting."""
    while True:
        for node in cluster.nodes:
            if node is without or node.pid is None:
                continue
            try:
                name = node_status(cluster.client_config(), node.address).leader
            except AdminError:
                continue
            found = next((n for n in cluster.nodes if n.name == name), None)
            if found is not None and found is not without and found.pid is not None:
                return found
        time.sleep(POLL_S)


def one_round(cluster: LocalCluster, publisher: Publisher) -> tuple[float, float]:
    """(seconds to a new leader, seconds until a record appended at the kill is merged)."""
    victim = leader_of(cluster)
    victim.kill()
    killed = time.monotonic()
    publisher.append(b"after the kill")
    leader_of(cluster, without=victim)
    elected = time.monotonic() - killed
    publisher.wait_merged(timeout=30)
    merged = time.monotonic() - killed
    victim.start()
    cluster.wait_live()
    return elected, merged


def keep_load(publisher: Publisher, stop: threading.Event) -> None:
    """A light load, so that the cluster is busy when the leader dies."""
    while not stop.wait(1 / LOAD_PER_S):
        publisher.append(b"load")


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
        stop = threading.Event()
        with Publisher(
            "failover", session="f", directory=f"{directory}/p", config=cluster.client_file
        ) as publisher:
            load = threading.Thread(target=keep_load, args=(publisher, stop))
            load.start()
            rounds = [one_round(cluster, publisher) for _ in range(options.rounds)]
            stop.set()
            load.join()
    elected, merged = zip(*rounds, strict=True)
    row = {
        "rounds": options.rounds,
        "leader_median_s": statistics.median(elected),
        "leader_max_s": max(elected),
        "merged_median_s": statistics.median(merged),
        "merged_max_s": max(merged),
    }
    print(json.dumps(row))


if __name__ == "__main__":
    main()
