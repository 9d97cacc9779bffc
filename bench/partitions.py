"""What idle partitions cost: the nodes' processor time for an acknowledged write of one record to
another partition, its time until the answer, a node's processor time when nothing happens, and its
memory for each partition.

For each number of idle partitions a cluster of three nodes runs, all of them at once; they are
written to in turn, so that whatever else the machine does meets all alike.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack

import psutil

from bench.kafka.systems import create, plaintext
from bench.kafka_requests import PRODUCE, TOPIC, VERSIONS, leader_of, produce_tree
from samelog.cli.local_cluster import ClusterOptions, LocalCluster
from tests.kafka.wire import Wire, request, response

IDLE = (0, 300, 1_000, 2_000)
PARTITIONS_OF_A_TOPIC = 500
WARM_UP = 100
SETTLE_S = 10.0
"""Until what was made is in a snapshot, and nobody looks at it any more."""


class Written:
    """One cluster with so many idle partitions, and what writing to it has cost so far."""

    def __init__(self, directory: str, idle: int) -> None:
        self.idle = idle
        self.cluster = LocalCluster(directory, ClusterOptions())
        self.create_s = 0.0
        self.times_s: list[float] = []
        self.cpu_s = 0.0
        self.idle_cpu_percent = 0.0

    def start(self) -> None:
        """Start it, and make the topics."""
        self.cluster.start()
        create(plaintext(self.cluster), TOPIC)
        begin = time.perf_counter()
        for first in range(0, self.idle, PARTITIONS_OF_A_TOPIC):
            count = min(PARTITIONS_OF_A_TOPIC, self.idle - first)
            command = [sys.executable, "-m", "samelog", "topic", "create", f"idle-{first}"]
            command += ["--partitions", str(count), "--config", self.cluster.client_file]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        self.create_s = time.perf_counter() - begin
        kafka = leader_of(self.cluster).kafka
        if kafka is None:
            raise RuntimeError("the node has no Kafka listener")
        self._wire = Wire((kafka.host, kafka.port))
        self._frame = request(PRODUCE, VERSIONS[PRODUCE], produce_tree())
        self._ask(WARM_UP)

    def _ask(self, writes: int) -> list[float]:
        """One record after the other, each once the one before is acknowledged."""
        times, answer = [], b""
        for _ in range(writes):
            begin = time.perf_counter()
            self._wire.send(self._frame)
            answer = self._wire.receive()
            times.append(time.perf_counter() - begin)
        part = response(PRODUCE, VERSIONS[PRODUCE], answer).responses[0].partition_responses[0]
        if part.error_code:
            raise RuntimeError(f"a record was answered {part.error_code!r}")
        return times

    def _nodes(self) -> list[psutil.Process]:
        return [psutil.Process(node.pid) for node in self.cluster.nodes]

    def _cpu_s(self) -> float:
        """Of all nodes, since they were started."""
        return sum(sum(process.cpu_times()[:2]) for process in self._nodes())

    def write(self, writes: int) -> None:
        """So many more."""
        before = self._cpu_s()
        self.times_s += self._ask(writes)
        self.cpu_s += self._cpu_s() - before

    def begin_idling(self) -> None:
        """Nothing is asked of it from now on."""
        self._idle_since = time.perf_counter(), self._cpu_s()

    def end_idling(self) -> None:
        """What a node has spent on it."""
        at, cpu_s = self._idle_since
        spent = (self._cpu_s() - cpu_s) / len(self.cluster.nodes)
        self.idle_cpu_percent = 100 * spent / (time.perf_counter() - at)

    def bytes_of_a_node(self) -> float:
        """The memory that is its own, on average."""
        own = [float(each.memory_full_info().uss) for each in self._nodes()]
        return sum(own) / len(own)


def row(written: Written, none: Written) -> dict[str, float]:
    """The figures of one cluster; `none`: the one without idle partitions."""
    times = sorted(written.times_s)
    cpu_ms = 1000 * written.cpu_s / len(times)
    more = written.bytes_of_a_node() - none.bytes_of_a_node()
    return {
        "idle_partitions": written.idle,
        "cpu_ms_per_write": round(cpu_ms, 2),
        "of_none": round(cpu_ms / (1000 * none.cpu_s / len(none.times_s)), 2),
        "p50_ms": round(1000 * times[len(times) // 2], 1),
        "p99_ms": round(1000 * times[len(times) * 99 // 100], 1),
        "idle_node_cpu_percent": round(written.idle_cpu_percent, 2),
        "bytes_per_partition": round(more / written.idle) if written.idle else 0,
        "create_s": round(written.create_s, 1),
    }


def main() -> None:
    """Print a line for each number of idle partitions."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--writes", type=int, default=100, help="in each round")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--idle", type=int, nargs="*", default=IDLE, help="partitions, 0 first")
    parser.add_argument("--idle-seconds", type=float, default=20.0)
    parser.add_argument("--json", action="store_true", help="one object for each line")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory, ExitStack() as stack:
        all_written = [Written(os.path.join(directory, str(n)), n) for n in options.idle]
        for written in all_written:
            stack.enter_context(written.cluster)
            written.start()
        time.sleep(SETTLE_S)
        for each in [written for _ in range(options.rounds) for written in all_written]:
            each.write(options.writes)
        time.sleep(SETTLE_S)
        for written in all_written:
            written.begin_idling()
        time.sleep(options.idle_seconds)
        for written in all_written:
            written.end_idling()
        for written in all_written:
            found = row(written, all_written[0])
            words = (f"{value:g} {name}" for name, value in found.items())
            print(json.dumps(found) if options.json else "  ".join(words), flush=True)


if __name__ == "__main__":
    main()
