"""Compaction: how fast a log of few keys shrinks, how much memory and disk that takes, and what
publishers notice of it.

Records of random keys are published as fast as it goes, to a topic that nothing makes compact yet.
Then they come at 30 % of that rate: first for a while before anything is compacted, then while it
is. One node has 100 million records of a million keys, three nodes have 20 million; `--share` makes
records, keys and segments fewer or smaller, and leaves their ratio. Processor time is that of all
nodes together, for what they take in meanwhile, too.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import psutil

from bench.catch_up import TIMEOUT_S, Ingest, Paced, Records, piece_of
from bench.machine import settled
from samelog.admin.client import ask
from samelog.admin.requests import AlterTopic, CreateTopic
from samelog.cli.local_cluster import ClusterOptions, LocalCluster, LocalNode
from samelog.format.directory_files import CompactedFile
from samelog.format.file_names import COMPACTED_FILE
from samelog.store.disk.files import OsFileSystem
from samelog.store.disk.json_files import read_json_file
from tests.e2e.harness import World, wait_for

TOPIC = "compaction"
SIZE = 100
CHUNK_RECORDS = 4096
SEGMENT_BYTES = 128 << 20
BUDGET_BYTES = 64 << 20
QUIET_S = 10.0
LOOK_S = 0.1
NEVER, AT_ONCE = {"min.cleanable.dirty.ratio": "1"}, {"min.cleanable.dirty.ratio": "0"}


class Case(NamedTuple):
    """How many nodes, records and keys."""

    nodes: int
    records: int
    keys: int


CASES = (Case(1, 100_000_000, 1_000_000), Case(3, 20_000_000, 1_000_000))


class Watch(threading.Thread):
    """The most memory that any node has, and that the partition's directory takes, meanwhile."""

    def __init__(self, nodes: list[LocalNode]) -> None:
        super().__init__(daemon=True)
        self._nodes = nodes
        self._ends = threading.Event()
        self.memory_bytes = self.disk_bytes = 0

    def run(self) -> None:
        """Look again and again."""
        while not self._ends.wait(LOOK_S):
            self.memory_bytes = max(self.memory_bytes, *map(memory_of, self._nodes))
            self.disk_bytes = max(self.disk_bytes, *map(disk_of, self._nodes))

    def end(self) -> None:
        """Look no more."""
        self._ends.set()
        self.join()


def memory_of(node: LocalNode) -> int:
    """What a node's process holds."""
    return int(psutil.Process(node.pid).memory_info().rss)


def processor_of(nodes: list[LocalNode]) -> float:
    """Seconds of processor time that the nodes' processes have used."""
    times = [psutil.Process(node.pid).cpu_times() for node in nodes]
    return float(sum(each.user + each.system for each in times))


def directory_of(node: LocalNode) -> Path:
    """Of the partition."""
    return Path(node.data, "merged", f"{TOPIC}-0")


def disk_of(node: LocalNode) -> int:
    """What the partition's files take, those of a compaction under way included."""
    found = 0
    for folder, _, names in os.walk(directory_of(node)):
        for name in names:
            with suppress(FileNotFoundError):  # it went meanwhile
                found += Path(folder, name).stat().st_blocks * 512
    return found


def compactions_of(node: LocalNode) -> int:
    """How many a node has carried out."""
    path = str(directory_of(node) / COMPACTED_FILE)
    known = read_json_file(OsFileSystem(), path, CompactedFile)
    return 0 if known is None else known.number


def keyed(count: int, keys: int) -> Records:
    """So many records, each of one of so many keys."""
    chance, values = random.Random(1), [os.urandom(SIZE) for _ in range(count)]

    return lambda: {
        "values": values,
        "keys": [b"key-%012d" % chance.randrange(keys) for _ in values],
    }


def publish_bulk(world: World, case: Case) -> float:
    """All of it, as fast as the cluster takes it: MB/s."""
    made, begin = keyed(CHUNK_RECORDS, case.keys), time.monotonic()
    with world.publisher("bulk", TOPIC, batch_bytes=65536, budget_bytes=BUDGET_BYTES) as publisher:
        for _ in range(0, case.records, CHUNK_RECORDS):
            publisher.append_many(**made())
        publisher.wait_merged(TIMEOUT_S)
    return case.records * SIZE / (time.monotonic() - begin) / 1e6


def is_done(world: World) -> bool:
    """Whether all nodes have compacted once."""
    return min(map(compactions_of, world.cluster.nodes)) >= 1


def compact(world: World) -> None:
    """Have it compacted, and wait until it is."""
    config = world.cluster.client_config()
    ask(config, AlterTopic(TOPIC, AT_ONCE))
    wait_for(lambda: is_done(world), "compacted", TIMEOUT_S)


def measure(world: World, case: Case) -> dict[str, object]:
    """All figures of one case."""
    config = world.cluster.client_config()
    ask(config, CreateTopic(TOPIC, 1, {"cleanup.policy": "compact", **NEVER}))
    nodes = world.cluster.nodes
    used = processor_of(nodes)
    bulk = publish_bulk(world, case)
    taken_in = processor_of(nodes)
    settled()
    count = piece_of(bulk, SIZE)
    publisher = world.publisher("paced", TOPIC, batch_bytes=65536)
    paced = Paced(publisher, keyed(count, case.keys), count * SIZE)
    paced.start()
    quiet = paced.during(lambda: time.sleep(QUIET_S))
    before, resting = max(map(disk_of, nodes)), max(map(memory_of, nodes))
    watch, begin, began = Watch(nodes), time.monotonic(), processor_of(nodes)
    watch.start()
    busy = paced.during(lambda: compact(world))
    seconds, ended = time.monotonic() - begin, processor_of(nodes)
    watch.end()
    paced.end()
    figures = {**case._asdict(), "bulk_mb_per_s": round(bulk, 1), "seconds": round(seconds, 1)}
    processor = {"bulk_cpu_s": round(taken_in - used, 1), "cpu_s": round(ended - began, 1)}
    sizes = _sizes(watch, before, resting, nodes)
    return {**figures, **processor, **sizes, **_ingest(quiet, busy)}


def _sizes(watch: Watch, before: int, resting: int, nodes: list[LocalNode]) -> dict[str, object]:
    wait_for(lambda: not any(map(_is_compacting, nodes)), "cleared", TIMEOUT_S)
    return {
        "disk_mb_before": round(before / 1e6),
        "disk_mb_peak": round(watch.disk_bytes / 1e6),
        "disk_mb_behind": round(max(map(disk_of, nodes)) / 1e6),
        "memory_mb_before": round(resting / 1e6),
        "memory_mb_peak": round(watch.memory_bytes / 1e6),
    }


def _is_compacting(node: LocalNode) -> bool:
    return bool(list(directory_of(node).glob("compacting.*")))


def _ingest(quiet: Ingest, busy: Ingest) -> dict[str, object]:
    return {
        "ingest_mb_per_s": round(busy.mb_per_s, 1),
        "ingest_share": round(busy.mb_per_s / quiet.mb_per_s, 2),
        "ack_p99_ms": round(busy.ack_p99_ms, 1),
        "quiet_ack_p99_ms": round(quiet.ack_p99_ms, 1),
    }


def main() -> None:
    """Print the figures, a line for each case."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--share", type=float, default=1.0, help="of the records and keys")
    parser.add_argument("--nodes", type=int, choices=(1, 3), help="one of the cases")
    parser.add_argument("--keys", type=int, help="so many, instead of the share of them")
    options = parser.parse_args()
    for case in CASES:
        if options.nodes not in (None, case.nodes):
            continue
        share = options.share
        keys = int(case.keys * share) if options.keys is None else options.keys
        scaled = Case(case.nodes, int(case.records * share), keys)
        with tempfile.TemporaryDirectory() as directory:
            segment_bytes = max(1 << 20, int(SEGMENT_BYTES * share))
            made = ClusterOptions(nodes=case.nodes, segment_bytes=segment_bytes)
            with LocalCluster(os.path.join(directory, "c"), made) as cluster:
                cluster.start()
                print(json.dumps(measure(World(cluster, Path(directory)), scaled)), flush=True)


if __name__ == "__main__":
    main()
