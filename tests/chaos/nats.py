"""The same power loss for NATS JetStream and for samelog: how many acknowledged records are gone.

Run as `python -m tests.chaos nats [--runs 5] [--seconds 8]`. Both systems: three nodes, each with
an ext4 of its own on a loop device, three copies, 1,500 records a second of about 300 bytes; then
the power goes (EXT4_IOC_SHUTDOWN without log flush), all processes are killed, disks are mounted
again, everything is started, and what was acknowledged is looked for. Needs Debian's nats-server;
prints an object a line.

Invariant: both systems meet the same fault, injected by the same code.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from samelog.cli.local_cluster import free_ports
from tests.chaos.faults.disks import Disks, LoopDisk, loop_disks, need_loop
from tests.chaos.field import Field
from tests.chaos.nats_client import Client, NatsError
from tests.chaos.nodes import wait
from tests.chaos.registry import Expect, Scenario
from tests.chaos.run import Row, run_scenario

NODES = 3
RATE = 1500
SLICE_S = 0.01
RECORD_BYTES = 300
DISK_MIB = 256
START_S = 30.0
STREAM = "S"
SYNC_SETTINGS = ("default", "always")
CASES = {
    "kill -9 of all, disks intact": 0,
    "power loss of the leader": 1,
    "power loss of all": NODES,
}


def need_server() -> str | None:
    """Why there can be no comparison; None if there can."""
    if shutil.which("nats-server") is None:
        return "needs nats-server, Debian's package of that name"
    return need_loop()


class Server:
    """One nats-server and its disk."""

    def __init__(self, directory: Path, number: int, ports: list[int], sync: str) -> None:
        self.name = f"n{number}"
        self.port = ports[number]
        self.disk = LoopDisk(directory / f"disk{number}", DISK_MIB)
        self.disk.mount()
        self._config = directory / f"n{number}.conf"
        self._log = directory / f"n{number}.log"
        self._process: subprocess.Popen[bytes] | None = None
        routes = ", ".join(f"nats://127.0.0.1:{port}" for port in ports[NODES:])
        interval = f", sync_interval: {sync}" if sync != "default" else ""
        self._config.write_text(
            f"port: {self.port}\nserver_name: {self.name}\n"
            f'jetstream {{ store_dir: "{self.disk.path}/js"{interval} }}\n'
            f"cluster {{ name: c, listen: 127.0.0.1:{ports[NODES + number]}, "
            f"routes: [{routes}] }}\n",
            encoding="utf-8",
        )

    def refused(self) -> str:
        """What the server says about its configuration; empty if it takes it."""
        command = ["nats-server", "-t", "-c", str(self._config)]
        known = subprocess.run(command, check=False, capture_output=True, text=True)
        return "" if known.returncode == 0 else known.stderr.strip().rpartition(": ")[2]

    def start(self) -> None:
        """Start the process."""
        with self._log.open("ab") as log:
            command = ["nice", "-n", "10", "nats-server", "-c", str(self._config)]
            self._process = subprocess.Popen(command, stdout=log, stderr=log)

    def kill(self) -> None:
        """SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()


def _connect(server: Server) -> Client:
    deadline = time.monotonic() + START_S
    while True:
        try:
            return Client(server.port)
        except OSError:
            if time.monotonic() > deadline:
                raise
            wait(0.1)


def _until_answered(server: Server, subject: str, body: dict[str, object]) -> str:
    """Ask until JetStream agrees; the last refusal, empty if there was none."""
    deadline = time.monotonic() + START_S
    reason = ""
    while time.monotonic() < deadline:
        client = _connect(server)
        try:
            client.ask(subject, dict(body))
            return ""
        except (NatsError, OSError) as error:
            reason = str(error)
        finally:
            client.close()
        wait(0.5)
    return reason


def _publish(client: Client, stop: threading.Event) -> None:
    """At a rate, with many outstanding, until told to stop or the connection breaks."""
    began = time.monotonic()
    number = 0
    try:
        while not stop.wait(SLICE_S):
            while number < (time.monotonic() - began) * RATE:
                number += 1
                client.publish("s", number, f"{number} ".encode().ljust(RECORD_BYTES, b"."))
    except OSError:
        return


def _run_nats(servers: list[Server], seconds: float, lose: int) -> dict[str, object]:
    for server in servers:
        server.start()
    stream = {"name": STREAM, "subjects": ["s"], "num_replicas": NODES, "storage": "file"}
    problem = _until_answered(servers[0], f"STREAM.CREATE.{STREAM}", {**stream})
    if problem:
        return {"problem": problem}
    client = _connect(servers[0])
    stop = threading.Event()
    load = threading.Thread(target=_publish, args=(client, stop))
    load.start()
    wait(seconds)
    servers = _leader_first(client, servers)
    for server in servers[:lose]:
        server.disk.lose_power()
    for server in servers:
        server.kill()
    stop.set()
    load.join()
    wait(0.5)
    acknowledged = set(client.acknowledged)
    for server in servers[:lose]:
        server.disk.power_on()
    for server in servers:
        server.start()
    return {"acknowledged": len(acknowledged)} | _count_lost(servers[-1], acknowledged)


def _leader_first(client: Client, servers: list[Server]) -> list[Server]:
    """The power of one is that of the stream's leader."""
    leader = client.ask(f"STREAM.INFO.{STREAM}", {})["cluster"].get("leader")
    return sorted(servers, key=lambda server: server.name != leader)


def _count_lost(server: Server, acknowledged: set[int]) -> dict[str, object]:
    problem = _until_answered(server, f"STREAM.INFO.{STREAM}", {})
    if problem:  # a stream that is said not to exist is lost; one without an answer only waited for
        return {"lost": len(acknowledged) if "not found" in problem else None, "problem": problem}
    wait(3.0)  # so that a stream with a new leader has caught up
    client = _connect(server)
    try:
        held = {int(payload.split()[0]) for payload in client.read_stream(STREAM)}
    except NatsError as error:
        return {"lost": None, "problem": str(error)}
    finally:
        client.close()
    return {"lost": len(acknowledged - held)}


def nats_row(case: str, sync: str, seconds: float) -> dict[str, object]:
    """One run against NATS."""
    directory = Path(tempfile.mkdtemp(prefix="chaos-nats-"))
    ports = free_ports(2 * NODES)
    servers: list[Server] = []
    try:
        servers.extend(Server(directory, number, ports, sync) for number in range(NODES))
        refused = servers[0].refused()
        found = {"problem": refused} if refused else _run_nats(servers, seconds, CASES[case])
    finally:
        for server in servers:
            server.kill()
            server.disk.unmount()
        shutil.rmtree(directory, ignore_errors=True)
    return {"system": "NATS JetStream", "sync": sync, "case": case, **found}


def _samelog_scenario(lose: int, seconds: float) -> Scenario:
    def inject(field: Field) -> None:
        wait(seconds)
        disks = field.tool(Disks)
        leader = field.leader()
        nodes = sorted(field.nodes, key=lambda node: node is not leader)
        for node in nodes[:lose]:
            disks.loop(node.name).lose_power()
        for node in nodes:
            node.kill()
        for node in nodes[:lose]:
            disks.loop(node.name).power_on()
        for node in field.nodes:
            node.start()
        field.wait_live()

    return Scenario(
        name="comparison",
        what="",
        inject=inject,
        prepare=loop_disks,
        needs=(),
        expect=Expect.KEPT,
        seconds=seconds,
    )


def samelog_row(case: str, seconds: float, seed: int) -> dict[str, object]:
    """One run against samelog, its publishers going on as they do."""
    scenario = _samelog_scenario(CASES[case], seconds)
    row: Row = run_scenario(scenario, seed=seed, seconds=None, keep=False)
    found = {"acknowledged": row.acknowledged, "lost": row.lost, "verdict": row.verdict}
    return {"system": "samelog", "sync": "always", "case": case, **found}


def main() -> int:
    """Print a row for each run, the systems in turn."""
    parser = argparse.ArgumentParser(description="Power loss, side by side.")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=8.0)
    options = parser.parse_args()
    reason = need_server()
    if reason is not None:
        sys.stderr.write(f"skipped: {reason}\n")
        return 1
    for run in range(options.runs):
        for case in CASES:
            for sync in SYNC_SETTINGS:
                _print(nats_row(case, sync, options.seconds))
            _print(samelog_row(case, options.seconds, run + 1))
    return 0


def _print(row: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(row) + "\n")
    sys.stdout.flush()
