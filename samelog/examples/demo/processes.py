"""The processes of the demo: a cluster (`samelog up`), publishers and subscribers.

Invariant: after `Cluster.stop` and `Child.end` nothing that was started here runs.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import urllib.request
from dataclasses import dataclass
from typing import Any

STATUS_TIMEOUT_S = 2.0
LOCAL = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""Asks nodes on this machine, whatever proxy the environment names."""


class DemoFailed(Exception):
    """The demo could not be brought to its end; the message says which part did not do what."""


@dataclass(frozen=True, slots=True)
class DemoNode:
    """A node of the cluster: its directory, and where it answers HTTP."""

    directory: str
    http: str

    @property
    def name(self) -> str:
        """As the cluster knows it."""
        return os.path.basename(self.directory)

    @property
    def merged(self) -> str:
        """Where its merged logs are."""
        return os.path.join(self.directory, "data", "merged")

    def status(self) -> dict[str, Any] | None:
        """The cluster as this node sees it (docs/rest.md, `Status`); None: it does not answer."""
        try:
            with LOCAL.open(f"http://{self.http}/status", timeout=STATUS_TIMEOUT_S) as answer:
                found: dict[str, Any] = json.load(answer)
        except (OSError, ValueError):
            return None
        return found

    def is_ready(self) -> bool:
        """Whether it says that it is Live."""
        try:
            with LOCAL.open(f"http://{self.http}/readyz", timeout=STATUS_TIMEOUT_S):
                return True
        except OSError:
            return False

    def signal(self, number: signal.Signals) -> None:
        """Send its process a signal; `samelog up` starts another one if that ends it."""
        with open(os.path.join(self.directory, "node.pid"), encoding="ascii") as file:
            os.kill(int(file.read()), number)


class Cluster:
    """`samelog up`, in a process of its own."""

    def __init__(self, directory: str, log_file: str) -> None:
        self.nodes: tuple[DemoNode, ...] = ()
        self.client_file = ""
        self._directory = directory
        self._log_file = log_file
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start three nodes, and wait until they are Live. Raises DemoFailed."""
        command = [sys.executable, "-m", "samelog", "up", "--dir", self._directory, "--json"]
        with open(self._log_file, "ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log
            )
        announced = self._announcement(self._process)
        self.client_file = announced["client"]
        self.nodes = tuple(
            DemoNode(os.path.join(self._directory, f"rt-sequencer-{number}"), http)
            for number, http in enumerate(announced["http"])
        )

    def _announcement(self, process: subprocess.Popen[bytes]) -> dict[str, Any]:
        """The one JSON document that `samelog up` prints, over several lines, when all are Live."""
        text = b""
        for line in process.stdout or ():
            text += line
            if line == b"}\n":
                found: dict[str, Any] = json.loads(text)
                return found
        raise DemoFailed(f"the cluster did not start, see {self._log_file}")

    def stop(self) -> None:
        """Stop every node cleanly."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait()


class Child:
    """A process that reports JSON lines on stdout."""

    def __init__(self, title: str, module: str, log_file: str, **options: object) -> None:
        self.title = title
        self.last: dict[str, Any] = {}
        self._log_file = log_file
        arguments = [part for key, value in options.items() for part in (f"--{key}", str(value))]
        with open(log_file, "ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
            )
        self._reports: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in self._process.stdout or ():
            self._reports.put(json.loads(line))

    def newest(self) -> dict[str, Any]:
        """The newest report. Raises DemoFailed when the process ended without being done."""
        ended = self._process.poll()
        while not self._reports.empty():
            self.last = self._reports.get()
        if ended not in (None, 0):
            raise DemoFailed(f"{self.title} ended with exit code {ended}, see {self._log_file}")
        return self.last

    @property
    def done(self) -> bool:
        """Whether it has finished its work."""
        return bool(self.newest().get("done"))

    def end(self) -> None:
        """Stop the process if it still runs."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
