"""A subscriber that wants few rows of a busy topic: what its line carries, and what publishers
notice of it.

Rows of about 100 bytes of JSON are published as fast as it goes, then at 30 % of that rate: first
for a while alone, then while a subscriber in a process of its own has nodes evaluate a condition
that one row of a hundred meets. Its line is counted by a relay between it and the nodes, TLS and
answers included, from its first row on. `line_share` is what came over it for each byte of the
values of the rows that passed; `ingest_share` what publishers kept of their rate.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import tempfile
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from bench.catch_up import TIMEOUT_S, Ingest, Paced, Records, piece_of
from bench.machine import settled
from bench.processes import Clock, Program, options, ready
from samelog import Subscriber
from samelog.admin.client import ask
from samelog.admin.requests import CreateTopic, SetSchema
from samelog.cli.local_cluster import ClusterOptions, LocalCluster
from samelog.config.load import load_client
from samelog.config.values import Address
from samelog.runtime.loop import LoopThread
from tests.e2e.harness import World

PROGRAM = "bench.filters"
TOPIC = "filters"
SYMBOLS = 100
WHERE = "symbol = 'S7'"
CHUNK_RECORDS = 4096
BUDGET_BYTES = 64 << 20
PIECE_BYTES = 64 << 10
POOL = 100_000
SCHEMA = {
    "format": "json",
    "columns": [
        {"name": "symbol", "type": "string", "nullable": False},
        {"name": "price", "type": "float64"},
        {"name": "size", "type": "int64"},
        {"name": "venue", "type": "string"},
    ],
}


def row(number: int) -> bytes:
    """The value of one row, of about 100 bytes, of which half do not compress."""
    found = {"symbol": f"S{number % SYMBOLS}", "price": number / 7, "size": number}
    return msgspec.json.encode({**found, "venue": random.randbytes(18).hex()})


def rows(count: int) -> Records:
    """So many rows, others than a moment before."""
    values = [row(number) for number in range(max(POOL, 2 * count))]

    def made() -> dict[str, Any]:
        start = random.randrange(len(values) - count)
        return {"values": values[start : start + count]}

    return made


class Relay:
    """Passes connections on to a node, and counts what comes back."""

    def __init__(self) -> None:
        self.bytes = 0
        self._thread = LoopThread("bench-relay")
        self._servers: list[asyncio.Server] = []
        self._tasks: set[asyncio.Task[None]] = set()

    def listen(self, node: Address) -> int:
        """The port that stands for a node."""
        return self._thread.run(self._listen(node))

    async def _listen(self, node: Address) -> int:
        async def passed_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            there = await asyncio.open_connection(node.host, node.port)
            self._spawn(reader, there[1], 0)
            self._spawn(there[0], writer, 1)

        server = await asyncio.start_server(passed_on, "127.0.0.1", 0)
        self._servers.append(server)
        port: int = server.sockets[0].getsockname()[1]
        return port

    def _spawn(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, each: int) -> None:
        task = asyncio.get_running_loop().create_task(self._pass_on(source, sink, each))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _pass_on(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, each: int
    ) -> None:
        try:
            while data := await source.read(PIECE_BYTES):
                self.bytes += each * len(data)
                sink.write(data)
                await sink.drain()
        except OSError:
            return
        finally:
            sink.close()


def subscribe(given: argparse.Namespace) -> None:
    """Ready with the first row; then count rows, and the bytes of their values, for a while."""
    config = load_client(given.config)
    nodes = tuple(Address("127.0.0.1", int(port)) for port in given.ports.split(","))
    with Subscriber(
        TOPIC,
        directory=given.dir,
        config=replace(config, nodes=nodes),
        start="latest",
        where=WHERE,
    ) as subscriber:
        while not subscriber.rows(timeout=1.0):
            pass
        ready()
        clock, count, size, lag = Clock(), 0, 0, 0
        end = time.monotonic() + given.seconds
        while time.monotonic() < end:
            for each in subscriber.rows(10_000, timeout=0.5):
                count, size = count + 1, size + len(msgspec.json.encode(each.values))
                lag = max(lag, int(time.time() * 1000) - each.timestamp)
        clock.found(rows=count, bytes=size, most_lag_ms=lag)


def publish_bulk(world: World, seconds: float) -> float:
    """As fast as the cluster takes it: MB/s of values."""
    made, count, begin = rows(CHUNK_RECORDS), 0, time.monotonic()
    with world.publisher("bulk", TOPIC, batch_bytes=65536, budget_bytes=BUDGET_BYTES) as publisher:
        while time.monotonic() < begin + seconds:
            publisher.append_many(**made())
            count += CHUNK_RECORDS
        publisher.wait_merged(TIMEOUT_S)
    return count * len(row(CHUNK_RECORDS)) / (time.monotonic() - begin) / 1e6


def measure(world: World, seconds: float) -> dict[str, object]:
    """All figures."""
    config = world.cluster.client_config()
    ask(config, CreateTopic(TOPIC, 1, {}))
    ask(config, SetSchema(TOPIC, json.dumps(SCHEMA), 0))
    bulk = publish_bulk(world, seconds)
    settled()
    size = len(row(CHUNK_RECORDS))
    count = piece_of(bulk, size)
    publisher = world.publisher("paced", TOPIC, batch_bytes=65536)
    paced = Paced(publisher, rows(count), count * size)
    paced.start()
    paced.during(lambda: time.sleep(2.0))
    quiet = paced.during(lambda: time.sleep(seconds))
    relay = Relay()
    told = {
        "config": world.cluster.client_file,
        "dir": str(world.directory / "s"),
        "seconds": seconds,
        "ports": ",".join(str(relay.listen(address)) for address in config.nodes),
    }
    with Program(PROGRAM, ["subscribe", *options(told)]) as subscriber:
        subscriber.wait_ready()
        before = relay.bytes
        found: list[Mapping[str, float]] = []
        busy = paced.during(lambda: found.append(subscriber.result()))
        line = relay.bytes - before
    paced.end()
    return figures(bulk, quiet, busy, found[0], line)


def figures(
    bulk: float, quiet: Ingest, busy: Ingest, found: Mapping[str, float], line: int
) -> dict[str, object]:
    """What is printed."""
    return {
        "bulk_mb_per_s": round(bulk, 1),
        "paced_mb_per_s": round(quiet.mb_per_s, 1),
        "rows": found["rows"],
        "row_bytes": found["bytes"],
        "line_bytes": line,
        "line_share": round(line / found["bytes"], 2),
        "most_lag_ms": found["most_lag_ms"],
        "ingest_share": round(busy.mb_per_s / quiet.mb_per_s, 3),
        "ack_p99_ms": round(busy.ack_p99_ms, 1),
        "quiet_ack_p99_ms": round(quiet.ack_p99_ms, 1),
        "subscriber_cpu_s": round(found["cpu_s"], 1),
    }


def main() -> None:
    """`run` measures; `subscribe` is its process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("role", choices=["run", "subscribe"], nargs="?", default="run")
    parser.add_argument("--seconds", type=float, default=15.0, help="of each part")
    parser.add_argument("--config")
    parser.add_argument("--dir")
    parser.add_argument("--ports", help="where the relay stands for the nodes")
    given = parser.parse_args()
    if given.role == "subscribe":
        subscribe(given)
        return
    with (
        tempfile.TemporaryDirectory() as directory,
        LocalCluster(os.path.join(directory, "c"), ClusterOptions()) as cluster,
    ):
        cluster.start()
        print(json.dumps(measure(World(cluster, Path(directory)), given.seconds)), flush=True)


if __name__ == "__main__":
    main()
