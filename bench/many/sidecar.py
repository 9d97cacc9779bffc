"""A publisher sidecar under measurement: its process, connections, descriptors and memory, and to
how many nodes its sessions are connected.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil

from bench.many.metrics import scrape
from bench.meter import Meter, own_group
from samelog.cli.local_cluster import HOST, free_ports

CONNECTED = "samelog_sidecar_session_connected_nodes"
POLL_S = 0.2
STOP_S = 20.0


class Sidecar:
    """One process; a context manager that stops it."""

    def __init__(self, directory: str, sessions: str, config: str) -> None:
        """`sessions`: the directory of the sessions; `config`: client.toml."""
        self._log = Path(directory, "sidecar.log")
        self._http = f"{HOST}:{free_ports(1)[0]}"
        self._words = ["--dir", sessions, "--config", config, "--http", self._http]
        self._process: subprocess.Popen[bytes] | None = None
        self.meter = Meter(self.pids)

    def __enter__(self) -> Sidecar:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def pids(self) -> list[int]:
        """Its process."""
        return [] if self._process is None else [self._process.pid]

    def start(self) -> None:
        """Start it."""
        command = [sys.executable, "-m", "samelog", "sidecar", "publisher", *self._words]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        own_group(self._process.pid)

    def stop(self) -> None:
        """Stop it cleanly; by force when it does not end in time."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def connected(self) -> int:
        """To how many nodes its sessions are connected, in all; 0 while it does not answer."""
        return int(scrape(self._http).get(CONNECTED, 0))

    def wait_connected(self, wanted: int, timeout_s: float) -> float:
        """Wait until so many connections of sessions are there, at most so long; return the share
        that is.
        """
        deadline = time.monotonic() + timeout_s
        while (there := self.connected()) < wanted and time.monotonic() < deadline:
            time.sleep(POLL_S)
        return min(1.0, there / wanted)

    def wait_below(self, wanted: int) -> None:
        """Wait until fewer are there: the sidecar has noticed that a node stopped."""
        deadline = time.monotonic() + STOP_S
        while self.connected() >= wanted and time.monotonic() < deadline:
            time.sleep(POLL_S)

    def figures(self) -> dict[str, float]:
        """What it holds now."""
        pid = self.pids()[0]
        return {
            "sidecar_connections": float(sockets(pid)),
            "sidecar_descriptors": float(len(os.listdir(f"/proc/{pid}/fd"))),
            "sidecar_rss_mb": psutil.Process(pid).memory_info().rss / 1e6,
        }


def sockets(pid: int) -> int:
    """The sockets of a process."""
    names = (link_of(entry) for entry in Path(f"/proc/{pid}/fd").iterdir())
    return sum(name.startswith("socket:") for name in names)


def link_of(entry: Path) -> str:
    """The target of a descriptor; empty if it was closed meanwhile."""
    try:
        return os.readlink(entry)
    except OSError:
        return ""
