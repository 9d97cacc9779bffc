"""Catching up: a follower that comes back, and a learner that is new, copy gigabytes that are not
archived while records come in; beside it, in the same run, a plain copy.

Records come at 30 % of the median rate at which the bulk was published. The plain copy sends one
node's files over one TLS connection in the simplest loop and writes them to a file, with one
fdatasync at the end, while records come in likewise. The time that a process takes to start counts
for neither.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import socket
import ssl
import statistics
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from bench.plain import HOST, connect_to, context_of
from samelog import Publisher
from samelog.admin.client import ask
from samelog.admin.requests import AddNode
from samelog.cli.local_cluster import ClusterOptions, LocalCluster, LocalNode
from samelog.config.pki.authority import CertificateRole, create_authority, issue
from tests.e2e.harness import World, wait_for

TOPIC = "catch-up"
SIZE = 1000
CHUNK_RECORDS = 2048
SEGMENT_BYTES = 256 << 20
BUDGET_BYTES = 64 << 20
INGEST_SHARE = 0.3
PACE_S = 0.02
LOOK_S = 0.001
QUIET_S = 15.0
TIMEOUT_S = 1200.0
PIECE_BYTES = 1 << 20


class Ingest(NamedTuple):
    """What publishing was like for a while."""

    mb_per_s: float
    ack_p99_ms: float


Records = Callable[[], dict[str, Any]]
"""Makes the arguments of `append_many`."""


def unkeyed(count: int) -> Records:
    """The same record so many times."""
    values = [os.urandom(SIZE)] * count
    return lambda: {"values": values}


class Paced(threading.Thread):
    """Publishes pieces of so many bytes at a fixed rate, open loop: acknowledgements count from
    when records were due.
    """

    def __init__(self, publisher: Publisher, make: Records, piece_bytes: int) -> None:
        super().__init__(daemon=True)
        self._publisher, self._make, self._piece_bytes = publisher, make, piece_bytes
        self._ends = threading.Event()
        self._waiting: deque[tuple[float, object]] = deque()
        self._acknowledged: list[tuple[float, float]] = []
        """(when, how long it took) of each piece."""

    def run(self) -> None:
        """Append until told to end; look for acknowledgements meanwhile."""
        due = time.monotonic()
        while not self._ends.wait(LOOK_S):
            self._look()
            if time.monotonic() >= due:
                self._publisher.append_many(**self._make())
                self._publisher.flush()
                place = next(iter(self._publisher.positions.appended.values()))
                self._waiting.append((due, place))
                due += PACE_S

    def _look(self) -> None:
        now = time.monotonic()
        reached = next(iter(self._publisher.positions.acknowledged.values()), None)
        while reached is not None and self._waiting and self._waiting[0][1] <= reached:  # type: ignore[operator]
            due, _ = self._waiting.popleft()
            self._acknowledged.append((now, now - due))

    def during(self, work: Callable[[], object]) -> Ingest:
        """What publishing is like while something else goes on."""
        begin, before = time.monotonic(), len(self._acknowledged)
        work()
        seconds = time.monotonic() - begin
        taken = [took for _, took in self._acknowledged[before:]]
        late = [time.monotonic() - due for due, _ in list(self._waiting)]
        ordered = sorted(taken + late)
        rate = len(taken) * self._piece_bytes / seconds / 1e6
        return Ingest(rate, 1000 * ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))])

    def end(self) -> None:
        """Append no more."""
        self._ends.set()
        self.join(TIMEOUT_S)
        self._publisher.wait_merged(TIMEOUT_S)
        self._publisher.close()


def piece_of(mb_per_s: float, size: int) -> int:
    """How many records of a size one piece has, at the share of a bulk's rate."""
    return max(1, int(INGEST_SHARE * mb_per_s * 1e6 * PACE_S / size))


def publish_bulk(world: World, megabytes: int) -> float:
    """Publish so much as fast as the cluster takes it: the median MB/s of its seconds."""
    values = [os.urandom(SIZE) for _ in range(CHUNK_RECORDS)]
    rates, left, piece, begin = [], megabytes * 1_000_000, 0, time.monotonic()
    with world.publisher("bulk", TOPIC, batch_bytes=65536, budget_bytes=BUDGET_BYTES) as publisher:
        while left > 0:
            publisher.append_many(values)
            left -= CHUNK_RECORDS * SIZE
            piece += CHUNK_RECORDS * SIZE
            if time.monotonic() >= begin + 1:
                rates.append(piece / (time.monotonic() - begin) / 1e6)
                piece, begin = 0, time.monotonic()
        publisher.wait_merged(TIMEOUT_S)
    return statistics.median(rates or [piece / (time.monotonic() - begin) / 1e6])


def end_of(world: World, node: LocalNode) -> int:
    """The offset behind a node's last record; -1 if it does not answer."""
    status = world.status(node)
    partitions = () if status is None else status.partitions
    return max((each.end_offset for each in partitions if each.topic == TOPIC), default=-1)


def catch_up(world: World, away: LocalNode, source: LocalNode) -> float:
    """Wait until a node that answers is where another one is: MB/s of what it lacked."""
    began, begin = end_of(world, away), time.monotonic()
    wait_for(
        lambda: 0 <= end_of(world, source) <= end_of(world, away) + CHUNK_RECORDS,
        "the node is at the end of the log",
        TIMEOUT_S,
    )
    copied = (end_of(world, away) - began) * SIZE
    return copied / (time.monotonic() - begin) / 1e6


# --- the plain copy -------------------------------------------------------------------------------


def plain_copy(files: list[Path]) -> float:
    """MB/s of files sent over one TLS connection to another process, written and synced."""
    with tempfile.TemporaryDirectory() as directory:
        pki = os.path.join(directory, "pki")
        authority = create_authority(pki, "plain")
        own = issue(pki, CertificateRole.NODE, "plain", hosts=(HOST,))
        paths = (authority.cert, own.cert, own.key)
        listener = socket.create_server((HOST, 0))
        process = multiprocessing.get_context("spawn").Process(
            target=_write_down, args=(listener, paths, os.path.join(directory, "copy"))
        )
        process.start()
        target = connect_to(paths, int(listener.getsockname()[1]))
        size, begin = 0, time.monotonic()
        for name in files:
            with name.open("rb", buffering=0) as file:
                while data := file.read(PIECE_BYTES):
                    target.sendall(data)
                    size += len(data)
        target.shutdown(socket.SHUT_WR)
        target.recv(1)
        seconds = time.monotonic() - begin
        process.join()
        return size / seconds / 1e6


def _write_down(listener: socket.socket, paths: tuple[str, str, str], name: str) -> None:
    raw, _ = listener.accept()
    buffer = memoryview(bytearray(PIECE_BYTES))
    with (
        context_of(paths, server=True).wrap_socket(raw, server_side=True) as source,
        open(name, "wb", buffering=0) as output,
    ):
        while count := _received(source, buffer):
            output.write(buffer[:count])
        os.fdatasync(output.fileno())


def _received(source: ssl.SSLSocket, buffer: memoryview) -> int:
    try:
        return source.recv_into(buffer)
    except ssl.SSLEOFError:
        return 0


# --- the runs -------------------------------------------------------------------------------------


def row(case: str, copied: list[float], while_copied: Ingest, quiet: Ingest) -> dict[str, object]:
    """`copied`: MB/s of the node, and of the plain copy."""
    return {
        "case": case,
        "mb_per_s": round(copied[0], 1),
        "plain_mb_per_s": round(copied[1], 1),
        "share_of_plain": round(copied[0] / copied[1], 2),
        "ingest_mb_per_s": round(while_copied.mb_per_s, 1),
        "ingest_share": round(while_copied.mb_per_s / quiet.mb_per_s, 2),
        "ack_p99_ms": round(while_copied.ack_p99_ms, 1),
        "quiet_ack_p99_ms": round(quiet.ack_p99_ms, 1),
    }


def compare(
    case: str, world: World, paced: Paced, away: LocalNode, source: LocalNode
) -> dict[str, object]:
    """One node catches up; then all is quiet; then the plain copy."""
    copied: list[float] = []
    away.start()
    wait_for(lambda: end_of(world, away) >= 0, "the node answers", TIMEOUT_S)
    busy = paced.during(lambda: copied.append(catch_up(world, away, source)))
    quiet = paced.during(lambda: time.sleep(QUIET_S))
    directory = Path(source.data, "merged", f"{TOPIC}-0")
    paced.during(lambda: copied.append(plain_copy(sorted(directory.glob("*.log")))))
    return row(case, copied, busy, quiet)


def measure(world: World, megabytes: int) -> list[dict[str, object]]:
    """Both cases."""
    with world.publisher("first", TOPIC) as publisher:
        publisher.append(b"first")
        publisher.wait_merged(TIMEOUT_S)
    away, source = world.followers()
    away.kill()
    bulk = publish_bulk(world, megabytes)
    count = piece_of(bulk, SIZE)
    publisher = world.publisher("paced", TOPIC, batch_bytes=65536)
    paced = Paced(publisher, unkeyed(count), count * SIZE)
    paced.start()
    rows = [compare("follower back", world, paced, away, source)]
    learner = world.cluster.join()
    ask(world.cluster.client_config(), AddNode(learner.name, str(learner.address), promote=False))
    rows.append(compare("learner new", world, paced, learner, source))
    paced.end()
    return [{"megabytes": megabytes, "bulk_mb_per_s": round(bulk, 1), **each} for each in rows]


def main() -> None:
    """Print the figures, a line for each case."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=3000)
    parser.add_argument("--json", action="store_true", help="as JSON")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        cluster_options = ClusterOptions(segment_bytes=SEGMENT_BYTES)
        with LocalCluster(os.path.join(directory, "c"), cluster_options) as cluster:
            cluster.start()
            for each in measure(World(cluster, Path(directory)), options.megabytes):
                line = json.dumps(each) if options.json else "  ".join(map(_pair, each.items()))
                print(line, flush=True)


def _pair(item: tuple[str, object]) -> str:
    return f"{item[0]}={item[1]}"


if __name__ == "__main__":
    main()
