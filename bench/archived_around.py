"""A node that is down while records pass and are archived around it, and its way back: how fast
publishing goes with all nodes, without it, and while it catches up; when it is at the end of the
log again, and when its files are those of the others, to the byte.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import threading
import time
from pathlib import Path

from samelog.cli.local_cluster import ClusterOptions, LocalCluster, LocalNode
from tests.e2e.harness import World, wait_for

TOPIC = "around"
SIZE = 1000
CHUNK_RECORDS = 2048
SEGMENT_BYTES = 16 << 20
POLICY = '{"time": 0, "limit": "128Mi", "disk": 100}'
BUDGET_BYTES = 64 << 20
TIMEOUT_S = 600.0


class Load(threading.Thread):
    """Publishes as fast as its disk budget lets it: no faster than the cluster merges."""

    def __init__(self, world: World) -> None:
        super().__init__(daemon=True)
        self.bytes = 0
        self._publisher = world.publisher("load", TOPIC, budget_bytes=BUDGET_BYTES)
        self._ends = threading.Event()

    def run(self) -> None:
        """Append until told to end."""
        values = [bytes(SIZE)] * CHUNK_RECORDS
        while not self._ends.is_set():
            self._publisher.append_many(values)
            self.bytes += SIZE * CHUNK_RECORDS

    def rate(self, until: threading.Event | float | int) -> tuple[float, float]:
        """(MB/s, seconds) until so many bytes more are published, or the event is set."""
        begin, before = time.monotonic(), self.bytes
        if isinstance(until, threading.Event):
            until.wait(TIMEOUT_S)
        else:
            wait_for(lambda: self.bytes - before >= until, "bytes are published", TIMEOUT_S)
        seconds = time.monotonic() - begin
        return (self.bytes - before) / seconds / 1e6, seconds

    def end(self) -> None:
        """Append no more, and wait until all is merged."""
        self._ends.set()
        self.join(TIMEOUT_S)
        self._publisher.wait_merged(TIMEOUT_S)
        self._publisher.close()


def prepare(cluster: LocalCluster, policy: Path) -> None:
    """Have the nodes archive by the policy, once a second."""
    policy.write_text(POLICY)
    cluster.prepare()
    for node in cluster.nodes:
        file = Path(node.config_file)
        text = file.read_text().replace("interval_s = 10.0", "interval_s = 1.0")
        line = f"policy = {json.dumps(str(policy))}"
        file.write_text(text.replace("[archive]", f"[archive]\n{line}"))


def end_of(world: World, node: LocalNode) -> int:
    """The offset behind a node's last record; -1 if it does not answer."""
    status = world.status(node)
    partitions = () if status is None else status.partitions
    return max((each.end_offset for each in partitions if each.topic == TOPIC), default=-1)


def files(node: LocalNode) -> dict[str, bytes]:
    """A node's merged segments."""
    directory = os.path.join(node.data, "merged", f"{TOPIC}-0")
    names = (name for name in os.listdir(directory) if name.endswith(".log"))
    return {name: Path(directory, name).read_bytes() for name in names}


def catch_up(world: World, away: LocalNode, others: list[LocalNode], back: threading.Event) -> None:
    """Set `back` once the node is where the others are, while records still come."""
    wait_for(
        lambda: 0 <= min(end_of(world, node) for node in others) <= end_of(world, away),
        "the node is at the end of the log",
        TIMEOUT_S,
    )
    back.set()


def measure(world: World, megabytes: int) -> dict[str, object]:
    """All figures."""
    load = Load(world)
    load.start()
    load.rate(64_000_000)  # warm up
    whole, _ = load.rate(megabytes * 100_000)
    away = world.followers()[0]
    others = [node for node in world.cluster.nodes if node is not away]
    away.kill()
    without, _ = load.rate(megabytes * 1_000_000)
    back = threading.Event()
    begin = time.monotonic()
    away.start()
    watcher = threading.Thread(target=catch_up, args=(world, away, others, back), daemon=True)
    watcher.start()
    meanwhile, seconds = load.rate(back)
    load.end()
    wait_for(lambda: files(away) == files(others[0]) == files(others[1]), "same files", TIMEOUT_S)
    return {
        "megabytes": megabytes,
        "mb_per_s_all": round(whole, 1),
        "mb_per_s_without_it": round(without, 1),
        "mb_per_s_catching_up": round(meanwhile, 1),
        "share": round(meanwhile / whole, 2),
        "at_the_end_after_s": round(seconds, 1),
        "same_files_after_s": round(time.monotonic() - begin, 1),
        "records": end_of(world, away),
    }


def main() -> None:
    """Print the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=3000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        cluster_options = ClusterOptions(segment_bytes=SEGMENT_BYTES)
        with LocalCluster(os.path.join(directory, "c"), cluster_options) as cluster:
            prepare(cluster, Path(directory, "policy.json"))
            cluster.start()
            print(json.dumps(measure(World(cluster, Path(directory)), options.megabytes)))


if __name__ == "__main__":
    main()
