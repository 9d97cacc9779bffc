"""Small requests per second of one node of a three-node cluster, from raw sockets: Produce (also
with batches of 16 KiB), Fetch and ListOffsets; many connections, each with a few requests under
way, in a process of its own.

All processes share this machine's cores, so each figure comes with what the node's own process
spent: requests per second of its CPU time are what it would answer with a core to itself.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import struct
import tempfile
import time
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import uvloop

from bench.kafka.systems import create, plaintext
from bench.machine import cpu_s
from samelog.cli.local_cluster import ClusterOptions, LocalCluster, LocalNode
from samelog.config.tables.node import Fsync
from samelog.kafka.codec.error_codes import ErrorCode
from tests.kafka.batches import batch
from tests.kafka.wire import FETCH, Wire, fetch_tree, metadata, request, response

PRODUCE, LIST_OFFSETS = 0, 2
VERSIONS = {PRODUCE: 9, FETCH: 12, LIST_OFFSETS: 7}
TOPIC = "requests"
WARM_UP_S = 1.0
KNOWN_S = 10.0
"""So long a broker may take to hear of a topic that was just created."""
LATEST = -1
RECORD = b"x" * 100
RECORDS_OF_16_KIB = (16 << 10) // (len(RECORD) + 8)
"""With what a record of a batch has besides its value."""


def produce_tree(count: int = 1) -> dict[str, Any]:
    """One batch of so many records."""
    partition = {"index": 0, "records": batch(*[RECORD] * count)}
    return {
        "transactional_id": None,
        "acks": -1,
        "timeout_ms": 30_000,
        "topic_data": [{"name": TOPIC, "topic_id": None, "partition_data": [partition]}],
    }


def list_offsets_tree() -> dict[str, Any]:
    """The end of the partition."""
    partition = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": LATEST}
    topics = [{"name": TOPIC, "partitions": [partition]}]
    return {"replica_id": -1, "isolation_level": 0, "topics": topics}


ASKED: dict[str, tuple[int, Callable[[], Mapping[str, Any]]]] = {
    "produce": (PRODUCE, produce_tree),
    "produce 16 KiB": (PRODUCE, lambda: produce_tree(RECORDS_OF_16_KIB)),
    "fetch": (FETCH, lambda: fetch_tree(TOPIC, 0, max_bytes=200)),
    "list offsets": (LIST_OFFSETS, list_offsets_tree),
}
"""The request that is sent again and again, by its name."""


class Load(NamedTuple):
    """How it is asked. `depth`: requests under way on each connection."""

    seconds: float
    connections: int
    depth: int


class Asker(asyncio.Protocol):
    """One connection; sends the next request for each answer."""

    def __init__(self, frame: bytes, depth: int) -> None:
        self._frame, self._depth = frame, depth
        self._rest = b""
        self.answered = 0
        self.transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the first ones."""
        self.transport = transport
        self.transport.write(self._frame * self._depth)

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
            self.transport.write(self._frame * count)


async def ask(address: tuple[str, int], frame: bytes, load: Load, pipe: Connection) -> None:
    """Ask for so many seconds, and send how many were answered, and in how many seconds."""
    loop = asyncio.get_running_loop()
    askers = [
        (await loop.create_connection(lambda: Asker(frame, load.depth), *address))[1]
        for _ in range(load.connections)
    ]
    await asyncio.sleep(WARM_UP_S)
    pipe.send("warm")
    before, begin = sum(each.answered for each in askers), time.perf_counter()
    await asyncio.sleep(load.seconds)
    pipe.send((sum(each.answered for each in askers) - before, time.perf_counter() - begin))
    for each in askers:
        each.transport.abort()


def asking(address: tuple[str, int], frame: bytes, load: Load, pipe: Connection) -> None:
    """The process that asks."""
    uvloop.run(ask(address, frame, load, pipe))


def check(address: tuple[str, int], name: str) -> bytes:
    """The request's frame, which the node answers without an error."""
    key, tree = ASKED[name]
    frame, deadline = request(key, VERSIONS[key], tree()), time.monotonic() + KNOWN_S
    while (code := _answered(address, key, frame)) == ErrorCode.unknown_topic_or_partition:
        if time.monotonic() > deadline:
            break
        time.sleep(0.1)
    if code:
        raise RuntimeError(f"{name} was answered {code!r}")
    return frame


def _answered(address: tuple[str, int], key: int, frame: bytes) -> ErrorCode:
    with Wire(address) as wire:
        wire.send(frame)
        answer = response(key, VERSIONS[key], wire.receive())
    asked = (answer.responses if key != LIST_OFFSETS else answer.topics)[0]
    part = (asked.partition_responses if key == PRODUCE else asked.partitions)[0]
    return ErrorCode(part.error_code)


def measure(address: tuple[str, int], pid: int, name: str, load: Load) -> dict[str, object]:
    """Requests per second of the wall clock, and of the node's CPU time."""
    frame = check(address, name)
    ours, theirs = multiprocessing.Pipe()
    asker = multiprocessing.Process(target=asking, args=(address, frame, load, theirs))
    asker.start()
    ours.recv()
    spent = cpu_s([pid])
    answered, seconds = ours.recv()
    cpu = cpu_s([pid]) - spent
    asker.join()
    return {
        "what": f"{name} requests",
        "connections": load.connections,
        "depth": load.depth,
        "per_s": round(answered / seconds),
        "node_cpu_percent": round(100 * cpu / seconds),
        "per_s_of_node_cpu": round(answered / cpu),
    }


def leader_of(cluster: LocalCluster) -> LocalNode:
    """The node that leads the topic's partition."""
    first = cluster.nodes[0].kafka
    if first is None:
        raise RuntimeError("the node has no Kafka listener")
    with Wire((first.host, first.port)) as wire:
        found = metadata(wire, TOPIC)
    leader = found.topics[0].partitions[0].leader_id
    port = next(each.port for each in found.brokers if each.node_id == leader)
    return next(each for each in cluster.nodes if each.kafka and each.kafka.port == port)


def main() -> None:
    """Print each figure as one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--fsync", choices=["always", "interval"], default="always")
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--depth", type=int, default=5, help="requests under way on each")
    given = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as directory,
        LocalCluster(
            os.path.join(directory, "c"), ClusterOptions(fsync=Fsync(given.fsync))
        ) as cluster,
    ):
        cluster.start()
        create(plaintext(cluster), TOPIC)
        leader = leader_of(cluster)
        if leader.kafka is None or leader.pid is None:
            raise RuntimeError("the leader has no Kafka listener")
        address = (leader.kafka.host, leader.kafka.port)
        load = Load(given.seconds, given.connections, given.depth)
        for name in ASKED:
            print(json.dumps(measure(address, leader.pid, name, load)), flush=True)


if __name__ == "__main__":
    main()
