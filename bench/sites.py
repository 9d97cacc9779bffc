"""Acknowledgements at the first site, without a second one, with one that is 80 ms away, and while
the line to it is cut: the second site shall cost them nothing.

There are two clusters, one without a second site. They are measured in turn, for a few seconds
each, because a machine's pace changes within a minute.

Three nodes vote in one network, two read in a network namespace of their own, across a slow line
(`bench.slow_line`). They and the line run only when nobody else wants the processor, as they would
be other machines. Without the right to make namespaces all of them are in one network, and only the
line's process is cut.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import confluent_kafka
from msgspec import UNSET

from bench.machine import percentile
from bench.processes import READY
from samelog.admin.client import ask
from samelog.admin.requests import AddNode, CreateTopic
from samelog.admin.site_requests import CreateSite, ListSites
from samelog.cli.local_cluster import LocalCluster, LocalNode, free_ports
from samelog.config.load import load_node
from samelog.config.schema.render import to_toml
from samelog.config.tables.kafka import KafkaConfig
from samelog.config.tables.node import NodePlaces, PeerConfig
from samelog.config.values import Address

NAMESPACE, VETH = "samelog-nyc", ("samelog-lon0", "samelog-nyc0")
LOCAL, NEAR, FAR = "127.0.0.1", "10.77.0.1", "10.77.0.2"
FAR_NODES = 2
LOW_PRIORITY = ["chrt", "--idle", "0"] if shutil.which("chrt") else []
"""Of what would be on other machines, and of the line."""
MEMORY = "/dev/shm" if os.path.isdir("/dev/shm") else None
"""Where the far site's data is: its disks are others."""
TARGETS = {"p50": 1.05, "p99": 1.2}
WARM_UP_S = 1.0
PIECE_S = 5.0
PATIENCE_S = 120.0
SIZE = 100


class Network:
    """Where the far site is. `prefix`: what runs a program there."""

    def __init__(self, *, is_apart: bool) -> None:
        self.near, self.far = (NEAR, FAR) if is_apart else (LOCAL, LOCAL)
        self.prefix = ["ip", "netns", "exec", NAMESPACE] if is_apart else []
        self._is_apart = is_apart

    def cut(self, line: subprocess.Popen[str], *, is_whole: bool) -> None:
        """Cut the line, or mend it."""
        if self._is_apart:
            _run("ip", "link", "set", VETH[0], "up" if is_whole else "down")
        else:
            line.send_signal(signal.SIGUSR2 if is_whole else signal.SIGUSR1)


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)


@contextmanager
def network() -> Iterator[Network]:
    """A namespace, if this process may make one; says so if not."""
    with ExitStack() as stack:
        try:
            _run("ip", "netns", "add", NAMESPACE)
            stack.callback(_run, "ip", "netns", "del", NAMESPACE)
            _run("ip", "link", "add", VETH[0], "type", "veth", "peer", "name", VETH[1])
            stack.callback(_run, "ip", "link", "del", VETH[0])
            _run("ip", "link", "set", VETH[1], "netns", NAMESPACE)
            _run("ip", "addr", "add", f"{NEAR}/24", "dev", VETH[0])
            _run("ip", "link", "set", VETH[0], "up")
            _run("ip", "-n", NAMESPACE, "addr", "add", f"{FAR}/24", "dev", VETH[1])
            for device in ("lo", VETH[1]):
                _run("ip", "-n", NAMESPACE, "link", "set", device, "up")
        except (OSError, subprocess.CalledProcessError) as error:
            why = getattr(error, "stderr", None) or error
            sys.stderr.write(
                f"SKIPPED: network namespaces; the line is cut by its process: {why}\n"
            )
            stack.close()
            yield Network(is_apart=False)
            return
        yield Network(is_apart=True)


class World:
    """One round: a cluster, and the far site once it is added, with its data in `directory`."""

    def __init__(self, directory: str, there: Network, cluster: LocalCluster) -> None:
        self._far_directory = directory
        self._there = there
        self._cluster = cluster
        self._processes: list[subprocess.Popen[str]] = []
        self.line: subprocess.Popen[str] | None = None

    def add_site(self, delay_ms: float) -> None:
        """Two nodes that read, across a line of that length."""
        client, lon = self._cluster.client_config(), [*self._cluster.nodes]
        ask(client, CreateSite("lon"))
        ask(client, CreateSite("nyc", votes=False))
        nodes = [self._cluster.join() for _ in range(FAR_NODES)]
        self._cluster.nodes[:] = lon
        ports = free_ports(len(lon) + len(nodes))
        ways = [f"{self._there.near}:{p}={n.address}" for p, n in zip(ports, lon, strict=False)]
        ways += [
            f"{LOCAL}:{port}={self._there.far}:{node.address.port}"
            for port, node in zip(ports[len(lon) :], nodes, strict=True)
        ]
        self.line = self._start_line(delay_ms, ways)
        for node in nodes:
            self._configure(node, lon, nodes, ports)
            self._start(node)
        for port, node in zip(ports[len(lon) :], nodes, strict=True):
            ask(client, AddNode(node.name, f"{LOCAL}:{port}", promote=False))
        self._wait_for_lag(lambda known: 0 <= known < 1000, "the far site has everything")

    def _start_line(self, delay_ms: float, ways: list[str]) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "bench.slow_line", "--delay-ms", str(delay_ms / 2), *ways]
        line = subprocess.Popen([*LOW_PRIORITY, *command], stdout=subprocess.PIPE, text=True)
        self._processes.append(line)
        if line.stdout is None or line.stdout.readline().strip() != READY:
            raise RuntimeError("the line did not get ready")
        return line

    def _configure(
        self, node: LocalNode, lon: list[LocalNode], nodes: list[LocalNode], ports: list[int]
    ) -> None:
        """It reaches the first site across the line, and the others of its own directly."""
        near, far = self._there.near, self._there.far
        known = load_node(node.config_file)
        across = zip(lon, ports, strict=False)
        peers = [PeerConfig(name=n.name, address=Address(near, port)) for n, port in across]
        mates = [PeerConfig(name=n.name, address=Address(far, n.address.port)) for n in nodes]
        here = Address(far, node.address.port)
        changed = replace(
            known,
            data=os.path.join(self._far_directory, node.name),
            place=NodePlaces(site="nyc"),
            peers=(*peers, *mates),
            listen=here,
            advertise=here,
            kafka=KafkaConfig(),
            http=None,
        )
        Path(node.config_file).write_text(to_toml(changed), encoding="utf-8")

    def _start(self, node: LocalNode) -> None:
        command = [*self._there.prefix, *LOW_PRIORITY, sys.executable, "-m", "samelog", "node"]
        with open(node.log_file, "a", encoding="utf-8") as log:
            run = subprocess.Popen(
                [*command, "--config", node.config_file], stdout=log, stderr=log, text=True
            )
        self._processes.append(run)

    def cut(self, *, is_whole: bool) -> None:
        """Cut the line, and wait until the first site knows; or mend it."""
        if self.line is not None:
            self._there.cut(self.line, is_whole=is_whole)
        if is_whole:
            self._wait_for_lag(lambda known: 0 <= known < 1000, "the far site has caught up")
        else:
            self._wait_for_lag(lambda known: known < 0, "nobody says how far the far site is")

    def _wait_for_lag(self, holds: Any, what: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            rows = ask(self._cluster.client_config(), ListSites()).sites
            nyc = next(each for each in rows if each.name == "nyc")
            if len(nyc.members) == FAR_NODES and holds(nyc.lag_ms):
                return
            time.sleep(0.2)
        raise RuntimeError(f"not within {PATIENCE_S:g} s: {what}")

    def close(self) -> None:
        """End what was started."""
        for process in reversed(self._processes):
            process.kill()
            process.wait()


def acknowledged(bootstrap: str, tls: dict[str, str], *, rate: int, seconds: float) -> list[float]:
    """Milliseconds from when a record was due until a majority had it; open loop."""
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0, **tls}
    )
    found: list[float] = []
    failures: list[str] = []

    def noted(due: float) -> Any:
        def on_delivery(error: Any, _message: Any) -> None:
            failures.extend([str(error)] if error else [])
            found.append((time.monotonic() - due) * 1000)

        return on_delivery

    warm_up, count = int(rate * WARM_UP_S), int(rate * (WARM_UP_S + seconds))
    begun = time.monotonic()
    for number in range(count):
        due = begun + number / rate
        while (left := due - time.monotonic()) > 0:
            producer.poll(left)
        producer.produce("t", bytes(SIZE), on_delivery=noted(due))
        producer.poll(0)
    if producer.flush(PATIENCE_S) or failures:
        raise RuntimeError(f"not acknowledged: {failures[:1]}")
    return found[warm_up:]


def _percentiles(times: list[float]) -> dict[str, float]:
    return {"p50": percentile(sorted(times), 0.5), "p99": percentile(sorted(times), 0.99)}


def beside(alone: str, other: str, *, rate: int, seconds: float) -> list[dict[str, float]]:
    """Percentiles of two clusters, in milliseconds: each is measured for some seconds, in turn."""
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(max(1, round(seconds / PIECE_S))):
        for bootstrap, found in zip((alone, other), times, strict=True):
            found.extend(acknowledged(bootstrap, {}, rate=rate, seconds=min(seconds, PIECE_S)))
    return [_percentiles(found) for found in times]


def measure(
    there: Network, *, delay_ms: float, rate: int, seconds: float, copies: int
) -> dict[str, list[dict[str, float]]]:
    """One round: of each state, what a cluster without a second site has beside one with it."""
    with (
        tempfile.TemporaryDirectory() as directory,
        tempfile.TemporaryDirectory(dir=MEMORY) as far_directory,
        LocalCluster(os.path.join(directory, "alone")) as alone,
        LocalCluster(os.path.join(directory, "sites")) as cluster,
    ):
        for each in (alone, cluster):
            each.start()
            ask(each.client_config(), CreateTopic("t", 1, {}, copies or UNSET))
        both = [each.client_config().kafka_bootstrap or "" for each in (alone, cluster)]
        world = World(far_directory, there, cluster)
        found = {}
        try:
            world.add_site(delay_ms)
            found["far"] = beside(*both, rate=rate, seconds=seconds)
            world.cut(is_whole=False)
            found["cut"] = beside(*both, rate=rate, seconds=seconds)
            world.cut(is_whole=True)
        finally:
            world.close()
    return found


def main() -> int:
    """Measure some rounds, and compare medians: 1 if a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=30.0, help="of each state")
    parser.add_argument("--rate", type=int, default=200, help="records a second")
    parser.add_argument("--delay-ms", type=float, default=80.0, help="round trip")
    parser.add_argument("--copies", type=int, default=0, help="2: in a data group")
    given = parser.parse_args()
    with network() as there:
        paced = {"rate": given.rate, "seconds": given.seconds, "copies": given.copies}
        rounds = [measure(there, delay_ms=given.delay_ms, **paced) for _ in range(given.rounds)]
    shown: dict[str, Any] = {"targets": TARGETS}
    for state in ("far", "cut"):
        alone, other = (
            {each: statistics.median(r[state][who][each] for r in rounds) for each in TARGETS}
            for who in (0, 1)
        )
        ratios = {each: round(other[each] / alone[each], 3) for each in TARGETS}
        shown[state] = {"alone_ms": alone, "ms": other, "ratios": ratios}
    shown["met"] = all(shown[s]["ratios"][e] <= TARGETS[e] for s in ("far", "cut") for e in TARGETS)
    print(json.dumps(shown))
    return 0 if shown["met"] else 1


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        sys.exit(main())
