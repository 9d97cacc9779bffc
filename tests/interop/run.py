"""Runs one program against the cluster, and does what it asks for.

A program prints an object of JSON a line: first {"client", "version"}, then {"feature", "ok",
"why"} for each feature, and {"ask"} where somebody has to act on the cluster; it is answered with a
line.

Invariant: when a program has ended, however it did, all nodes run.
"""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from samelog.admin.client import ask
from samelog.admin.requests import GetUpgrade
from samelog.cli.local_cluster import LocalCluster, LocalNode
from samelog.sequencer.levels import SUPPORTED
from tests.e2e.harness import wait_for
from tests.interop.results import Client
from tests.kafka.secure import KINDS, PASSWORD, USERS, Secure

BUILT = Path(__file__).resolve().parent.parent.parent / "build" / "interop"
DEADLINE_S = 600.0
JAVA = ("java-4.3.1", "java-3.9.2")
CLIENTS = (*JAVA, "go")


def wait_newest(cluster: LocalCluster) -> None:
    """Until a cluster that has just started has the newest feature level."""
    config = cluster.client_config()
    wait_for(lambda: ask(config, GetUpgrade()).level == SUPPORTED, "the newest feature level")


def command_of(name: str) -> Sequence[str]:
    """What runs a program that was built."""
    directory = BUILT / name
    if name in JAVA:
        path = f"{directory}/classes:{directory}/lib/*"
        quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
        return ("java", quiet, "-cp", path, "interop.Main")
    return (str(directory / "interop"),)


class Runner:
    """One program's run."""

    def __init__(self, secure: Secure, name: str) -> None:
        self.client = Client(name)
        self._secure, self._name = secure, name
        self._down: list[LocalNode] = []

    def run(self) -> Client:
        """To its end, or until it has taken too long."""
        command = [*command_of(self._name), str(self._settings())]
        log = self._secure.world.directory / f"{self._name}.log"
        with log.open("wb") as errors, _started(command, errors) as process:
            deadline = threading.Timer(DEADLINE_S, process.kill)
            deadline.start()
            try:
                self._listen(process)
            finally:
                deadline.cancel()
                process.kill()
                self._start_again()
        if process.returncode != 0:
            tail = " ".join(log.read_text(errors="replace").splitlines()[-3:])
            self.client.failed["the program"] = f"ended with {process.returncode}: {tail}"
        return self.client

    def _settings(self) -> Path:
        """What the program is told, a property a line."""
        secure, path = self._secure, self._secure.world.directory
        cluster = secure.world.cluster
        files = secure.certificate("client-local")
        certificate, key = (Path(files[f"ssl_{name}_location"]) for name in ("certificate", "key"))
        identity = path / "identity.pem"
        identity.write_text(key.read_text() + certificate.read_text(), encoding="ascii")
        told = {kind: secure.bootstrap(kind) for kind in KINDS} | {
            "run": self._name,
            "plaintext": cluster.client_config().kafka_bootstrap,
            "cluster": cluster.options.cluster,
            "authority": secure.authority,
            "identity": str(identity),
            "user": USERS[0],
            "password": PASSWORD,
        }
        file = path / f"{self._name}.properties"
        text = "".join(f"{name}={value}\n" for name, value in told.items())
        file.write_text(text, encoding="utf-8")
        return file

    def _listen(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        assert process.stdin is not None
        for line in process.stdout:
            said = json.loads(line)
            if "ask" in said:
                self._act(said["ask"])
                process.stdin.write("done\n")
                process.stdin.flush()
            else:
                self.client.take(said)
        process.wait()

    def _act(self, wish: str) -> None:
        if wish == "kill the leader":
            leader = self._secure.world.leader()
            leader.kill()
            self._down.append(leader)
        else:
            self._start_again()

    def _start_again(self) -> None:
        while self._down:
            node = self._down.pop()
            node.start()
            self._secure.world.wait_live(node)


def _started(command: Sequence[str], errors: IO[bytes]) -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=errors, text=True)
