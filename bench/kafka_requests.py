"""Small requests per second of one node of a cluster, from raw sockets: many
connections, each with a few requests under way, in a process of its own.

produce         one record of 100 bytes, acks=all
produce-16k     one batch of 16 KiB, acks=all
round-trip      as produce, one request at a time: how long each takes
fetch           one that finds a record
latest          ListOffsets of the end
earliest        ListOffsets of the beginning
metadata        of one topic

All processes share this machine's cores, so each figure comes with what the node's own process
spent: requests per second of its CPU time are what it would answer with a core to itself.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import statistics
import struct
import tempfile
import time
from collections.abc import Iterable, Mapping
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import psutil
import uvloop

from bench.kafka import bootstrap, create
from samelog.cli.local_cluster import ClusterOptions, LocalCluster, LocalNode
from samelog.config.tables.node import Fsync
from tests.kafka.batches import batch
from tests.kafka.wire import FETCH, METADATA, Wire, fetch_tree, metadata, request, response

PRODUCE, LIST_OFFSETS = 0, 2
VERSIONS = {PRODUCE: 9, FETCH: 12, LIST_OFFSETS: 7, METADATA: 9}
TOPIC = "requests"
WARM_UP_S = 1.0


def produce_tree(*values: bytes) -> dict[str, Any]:
    """One batch; of one record of 100 bytes, if nothing is said."""
    partition = {"index": 0, "records": batch(*values or (b"x" * 100,))}
    return {
        "transactional_id": None,
        "acks": -1,
        "timeout": 30_000,
        "topic_data": [{"name": TOPIC, "topic_id": None, "partition_data": [partition]}],
    }


def offsets_tree(timestamp: int) -> dict[str, Any]:
    """ListOffsets of one partition."""
    partition = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": timestamp}
    topics = [{"name": TOPIC, "partitions": [partition]}]
    return {"replica_id": -1, "isolation_level": 0, "topics": topics}


METADATA_TREE = {
    "topics": [{"name": TOPIC, "topic_id": None}],
    "allow_auto_topic_creation": False,
    "include_topic_authorized_operations": False,
    "include_cluster_authorized_operations": False,
}
SMALL = produce_tree()
REQUESTS: dict[str, tuple[int, Mapping[str, Any]]] = {
    "produce": (PRODUCE, SMALL),
    "produce-16k": (PRODUCE, produce_tree(*[b"x" * 100] * 150)),
    "round-trip": (PRODUCE, SMALL),
    "fetch": (FETCH, fetch_tree(TOPIC, 0, max_bytes=200)),
    "latest": (LIST_OFFSETS, offsets_tree(-1)),
    "earliest": (LIST_OFFSETS, offsets_tree(-2)),
    "metadata": (METADATA, METADATA_TREE),
}
"""The key and the tree of the request that is sent again and again."""


class Asker(asyncio.Protocol):
    """One connection; sends the next request for each answer."""

    def __init__(self, frame: bytes, depth: int) -> None:
        self._frame, self._depth = frame, depth
        self._rest = b""
        self._sent_at = 0.0
        self.answered = 0
        self.took_s: list[float] = []
        """From a request to its answer, where there is one at a time."""
        self.transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the first ones."""
        self.transport = transport
        self._send(self._depth)

    def _send(self, count: int) -> None:
        self._sent_at = time.perf_counter()
        self.transport.write(self._frame * count)

    def data_received(self, data: bytes) -> None:
        """Count answers."""
        data = self._rest + data if self._rest else data
        at, count = 0, 0
        while at + 4 <= len(data):
            (size,) = struct.unpack_from(">i", data, at)
            if at + 4 + size > len(data):
                break
            at, count = at + 4 + size, count + 1
        self._rest = data[at:]
        self.answered += count
        if count:
            self.took_s.append(time.perf_counter() - self._sent_at)
            self._send(count)


class Asked(NamedTuple):
    """What came of asking for a while."""

    answered: int
    seconds: float
    took_s: list[float]


async def ask(address: tuple[str, int], frame: bytes, options: Any, pipe: Connection) -> None:
    """Ask for so many seconds, and send what came of it."""
    loop = asyncio.get_running_loop()
    askers = [
        (await loop.create_connection(lambda: Asker(frame, options.depth), *address))[1]
        for _ in range(options.connections)
    ]
    await asyncio.sleep(WARM_UP_S)
    pipe.send("warm")
    before, begin = sum(each.answered for each in askers), time.perf_counter()
    for each in askers:
        each.took_s.clear()
    await asyncio.sleep(options.seconds)
    seconds = time.perf_counter() - begin
    took_s = [took for each in askers for took in each.took_s]
    pipe.send(Asked(sum(each.answered for each in askers) - before, seconds, took_s))
    for each in askers:
        each.transport.abort()


def asking(address: tuple[str, int], frame: bytes, options: Any, pipe: Connection) -> None:
    """The process that asks."""
    uvloop.run(ask(address, frame, options, pipe))


def check(what: str, address: tuple[str, int]) -> bytes:
    """The request's frame, which is asked once, and has to be answered without an error."""
    key, tree = REQUESTS[what]
    frame = request(key, VERSIONS[key], tree)
    with Wire(address) as wire:
        wire.send(frame)
        answer = response(key, VERSIONS[key], wire.receive())
    topics = answer.responses if key in (PRODUCE, FETCH) else answer.topics
    part = (topics[0].partition_responses if key == PRODUCE else topics[0].partitions)[0]
    if part.error_code:
        raise RuntimeError(f"{what} was answered {part.error_code!r}")
    return frame


def cpu_s(pids: Iterable[int | None]) -> list[float]:
    """Of each process, so far."""
    return [sum(psutil.Process(pid).cpu_times()[:2]) for pid in pids if pid is not None]


def measure(what: str, cluster: LocalCluster, options: Any) -> dict[str, object]:
    """Requests per second of the wall clock and of the asked node's CPU time; what all nodes
    spend on one; and how long one takes.
    """
    node = leader_of(cluster)
    if node.kafka is None:
        raise RuntimeError("the node has no Kafka listener")
    if what == "round-trip":
        options = argparse.Namespace(**vars(options) | {"connections": 1, "depth": 1})
    address = (node.kafka.host, node.kafka.port)
    frame = check(what, address)
    pids = [node.pid, *(each.pid for each in cluster.nodes if each is not node)]
    ours, theirs = multiprocessing.Pipe()
    asker = multiprocessing.Process(target=asking, args=(address, frame, options, theirs))
    asker.start()
    ours.recv()
    before = cpu_s(pids)
    asked = ours.recv()
    spent = [after - then for after, then in zip(cpu_s(pids), before, strict=True)]
    asker.join()
    return {
        "what": what,
        "connections": options.connections,
        "depth": options.depth,
        "per_s": round(asked.answered / asked.seconds),
        "p50_ms": round(1000 * statistics.median(asked.took_s), 2) if options.depth == 1 else None,
        "node_cpu_percent": round(100 * spent[0] / asked.seconds),
        "per_s_of_node_cpu": round(asked.answered / spent[0]),
        "all_nodes_cpu_us": round(1e6 * sum(spent) / asked.answered),
    }


def first_address(cluster: LocalCluster) -> tuple[str, int]:
    """Where the first node serves Kafka clients."""
    first = cluster.nodes[0].kafka
    if first is None:
        raise RuntimeError("the node has no Kafka listener")
    return first.host, first.port


def leader_of(cluster: LocalCluster) -> LocalNode:
    """The node that leads the topic's partition."""
    with Wire(first_address(cluster)) as wire:
        found = metadata(wire, TOPIC)
    leader = found.topics[0].partitions[0].leader_id
    port = next(each.port for each in found.brokers if each.node_id == leader)
    return next(each for each in cluster.nodes if each.kafka and each.kafka.port == port)


def main() -> None:
    """Print each figure as one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="*", help=f"of {', '.join(REQUESTS)}; else all")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--nodes", type=int, default=3, help="1: nothing is sent to peers")
    parser.add_argument("--fsync", choices=["always", "interval"], default="always")
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--depth", type=int, default=5, help="requests under way on each")
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as directory,
        LocalCluster(
            os.path.join(directory, "c"),
            ClusterOptions(nodes=options.nodes, fsync=Fsync(options.fsync)),
        ) as cluster,
    ):
        cluster.start()
        create(bootstrap(cluster), TOPIC)
        check("produce", first_address(cluster))
        for what in options.what or REQUESTS:
            print(json.dumps(measure(what, cluster, options)), flush=True)


if __name__ == "__main__":
    main()
