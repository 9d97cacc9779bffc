"""What a hostile client costs another one: zstd bombs, or the longest requests of every API of
Kafka's protocol, samelog's own and HTTP, as fast as they go, to each of three nodes.

The other client produces single records to the leader, open loop at a fixed rate, each time counted
from when it was due. Quiet and hostile rounds alternate. The hostile client keeps a few batches
under way on each connection and connects again whenever it is closed. Both are processes of their
own, from addresses of their own.

Requests (`--kind requests` for all protocols, or `kafka`, `native`, `http`) are pipelined 64 deep
on two connections of each protocol to each node; each has as many elements as a node takes.

Every node, the hostile process and the other client have a scheduling group each, with equal
shares: on a host of few processors the hostile process takes no more of them than any other.
`--kind busy` sends nothing, but computes on two processors in that group: its ratio is the price of
a busy host, not of requests.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.synchronize import Event
from typing import Any, NamedTuple
from urllib.request import urlopen

from bench.kafka.systems import create, plaintext
from bench.kafka_requests import PRODUCE, TOPIC, leader_of
from bench.meter import own_group
from samelog.cli.local_cluster import LocalCluster
from samelog.config.tables.client import ClientConfig
from samelog.format.compression import Codec
from tests.hostile_clients import PROTOCOLS, WorstFrames, send_all, stranger
from tests.kafka.batches import batch, packed
from tests.kafka.hostile_client import answered
from tests.kafka.test_producing import produce_tree
from tests.kafka.wire import Wire, request

BOMB_BYTES = 200 << 20
UNDER_WAY = 15
BEGIN_S = 60.0
BAD_HOST = "127.0.0.2"
VERSION = 9
SETTLE_S = 3.0
Address = tuple[str, int]


def bombs(address: Address, frame: bytes, sent: list[int]) -> None:
    """Send them until the process ends."""
    while True:
        try:
            with socket.create_connection(address, 10, source_address=(BAD_HOST, 0)) as bad:
                bad.sendall(frame * UNDER_WAY)
                sent[0] += UNDER_WAY
                while answered(bad):
                    bad.sendall(frame)
                    sent[0] += 1
        except OSError:
            continue


def protocols_of(kind: str) -> Sequence[str]:
    """The protocols of a kind of hostile client."""
    return {"requests": PROTOCOLS, "bombs": (), "busy": ()}.get(kind, (kind,))


class Hostility(NamedTuple):
    """What is sent: a kind, and its frames."""

    kind: str
    worst: WorstFrames


def be_hostile(
    addresses: list[Address], config: ClientConfig, what: Hostility, go: Event, counts: Any
) -> None:
    """The hostile process: threads for each node; a round lasts as long as the process."""
    os.setsid()
    own_group(os.getpid())
    sent = [0]
    bomb = packed(Codec.ZSTD, bytes(BOMB_BYTES)) if what.kind == "bombs" else b""
    frame = request(PRODUCE, VERSION, produce_tree(TOPIC, bomb))
    go.wait()
    if what.kind == "busy":
        counts.value = 1
        parent = os.getpid()
        if os.fork():
            parent = os.getppid()
        while os.getppid() == parent:
            pass
        os._exit(0)
    if what.kind != "bombs":
        send_all(config, protocols_of(what.kind), sent, what.worst)
        addresses = []
    for address in addresses:
        threading.Thread(target=bombs, args=(address, frame, sent), daemon=True).start()
    while True:
        counts.value = sent[0]
        time.sleep(0.05)


def produce_paced(address: Address, rate: int, seconds: float) -> list[float]:
    """Milliseconds from when each record was due to its answer; one connection, pipelined."""
    frame = request(PRODUCE, VERSION, produce_tree(TOPIC, batch(b"x" * 100)))
    with Wire(address) as wire:
        begun = time.monotonic()
        due = [begun + number / rate for number in range(int(rate * seconds))]

        def send() -> None:
            for at in due:
                time.sleep(max(0.0, at - time.monotonic()))
                wire.send(frame)

        threading.Thread(target=send, daemon=True).start()
        times = []
        for at in due:
            wire.receive()
            times.append(1000 * (time.monotonic() - at))
    return times


def elections(cluster: LocalCluster) -> int:
    """Elections that any node has seen, by its metrics."""
    found = 0
    for node in cluster.nodes:
        with urlopen(f"http://{node.http}/metrics", timeout=30) as answer:
            text = answer.read().decode()
        lines = [x for x in text.splitlines() if x.startswith("samelog_raft_elections_total ")]
        found = max(found, int(float(lines[0].split()[1])))
    return found


def percentile(times: list[float], share: float) -> float:
    """Of all rounds together."""
    ordered = sorted(times)
    return round(ordered[min(len(ordered) - 1, int(len(ordered) * share))], 1)


def measure(cluster: LocalCluster, options: argparse.Namespace) -> dict[str, float]:
    """Alternate quiet and hostile rounds."""
    addresses = [(node.kafka.host, node.kafka.port) for node in cluster.nodes if node.kafka]
    leader = leader_of(cluster).kafka
    if leader is None:
        raise RuntimeError("the leader has no Kafka listener")
    address = (leader.host, leader.port)
    produce_paced(address, options.rate, SETTLE_S)
    quiet: list[float] = []
    hostile: list[float] = []
    what = Hostility(options.kind, WorstFrames.of(protocols_of(options.kind)))
    if "http" in protocols_of(options.kind):
        stranger(cluster.client_config())  # nodes look at their files again when it is issued
    before, sent = elections(cluster), 0
    for _ in range(options.rounds):
        go, counts = multiprocessing.Event(), multiprocessing.Value("q")
        bad = multiprocessing.Process(
            target=be_hostile,
            args=(addresses, cluster.client_config(), what, go, counts),
            daemon=True,
        )
        bad.start()
        quiet += produce_paced(address, options.rate, options.seconds)
        go.set()
        begun = time.monotonic()
        while not counts.value and time.monotonic() < begun + BEGIN_S:
            time.sleep(0.05)
        time.sleep(1.0)
        hostile += produce_paced(address, options.rate, options.seconds)
        if not counts.value:
            raise RuntimeError("the hostile client has sent nothing")
        sent += counts.value
        bad.kill()
        bad.join()
    found = {
        "quiet_p50_ms": percentile(quiet, 0.5),
        "quiet_p99_ms": percentile(quiet, 0.99),
        "hostile_p50_ms": percentile(hostile, 0.5),
        "hostile_p99_ms": percentile(hostile, 0.99),
        "hostile_max_ms": round(max(hostile), 1),
        "sent": sent,
        "elections": elections(cluster) - before,
    }
    return found | {"p99_ratio": round(found["hostile_p99_ms"] / found["quiet_p99_ms"], 2)}


def main() -> None:
    """Print the figures of all rounds together."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=6.0, help="of each half of a round")
    parser.add_argument(
        "--kind", choices=("bombs", "busy", "requests", *PROTOCOLS), default="bombs"
    )
    parser.add_argument("--rate", type=int, default=100, help="records per second")
    parser.add_argument("--json", action="store_true", help="as one object")
    options = parser.parse_args()
    with suppress(PermissionError):  # the shell has begun a session for it
        os.setsid()
        own_group(os.getpid())
    with (
        tempfile.TemporaryDirectory() as directory,
        LocalCluster(os.path.join(directory, "c")) as cluster,
    ):
        cluster.start()
        for pid in (node.pid for node in cluster.nodes if node.pid is not None):
            own_group(pid)
        create(plaintext(cluster), TOPIC)
        found = measure(cluster, options)
    words = "  ".join(f"{value:g} {name}" for name, value in found.items())
    sys.stdout.write((json.dumps(found) if options.json else words) + "\n")


if __name__ == "__main__":
    main()
