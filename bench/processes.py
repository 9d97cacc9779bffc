"""Client programs of benchmarks, each a process of its own: it says when it is ready, works once it
is told to go, and prints what it found as JSON.

Invariant: the time that a process takes to start, connect and warm up counts for nothing; its own
clock and its own processor time begin with the work.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from bench.meter import own_group

READY = "ready"
PATIENCE_S = 600.0


class Failed(Exception):
    """A client program ended without a result."""


# --- in the program -------------------------------------------------------------------------------


def ready() -> None:
    """Say so."""
    print(READY, flush=True)


def stand_by() -> None:
    """Say so, and wait until told to go."""
    ready()
    sys.stdin.readline()


class Clock:
    """Runs from here on."""

    def __init__(self) -> None:
        self._began, self._cpu_s = time.monotonic(), time.process_time()

    def found(self, **more: object) -> None:
        """Print the result: when the work began and ended, its processor time, and more."""
        times = {"began": self._began, "ended": time.monotonic()}
        spent = time.process_time() - self._cpu_s
        print(json.dumps({**times, "cpu_s": spent, **more}), flush=True)


# --- beside the program ---------------------------------------------------------------------------


class Program:
    """One such process, in a scheduling group of its own; a context manager that ends it."""

    def __init__(self, module: str, arguments: Sequence[str]) -> None:
        command = [sys.executable, "-m", module, *arguments]
        self._name = f"{module} {arguments[0]}"
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        own_group(self._process.pid)
        self._is_ready = False
        self._found: Mapping[str, Any] | None = None

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.communicate()

    @property
    def pid(self) -> int:
        """Its number."""
        return self._process.pid

    def wait_ready(self) -> None:
        """Until it says so. Raises Failed."""
        if not self._is_ready and self._line().strip() != READY:
            raise Failed(f"{self._name} did not get ready")
        self._is_ready = True

    def go(self) -> None:
        """Tell it."""
        if self._process.stdin is not None:
            self._process.stdin.write("\n")
            self._process.stdin.flush()

    def result(self) -> Mapping[str, Any]:
        """What it found. Raises Failed."""
        if self._found is None:
            line = self._line()
            if self._process.wait() or not line:
                raise Failed(f"{self._name} ended with exit code {self._process.returncode}")
            self._found = json.loads(line)
        return self._found or {}

    def _line(self) -> str:
        """The next one; the process ends when it takes too long."""
        if self._process.stdout is None:
            return ""
        watch = threading.Timer(PATIENCE_S, self._process.kill)
        watch.start()
        try:
            return self._process.stdout.readline()
        finally:
            watch.cancel()


def options(found: Mapping[str, object]) -> list[str]:
    """As a command line."""
    return [word for name, value in found.items() for word in (f"--{name}", str(value))]


def alone(module: str, arguments: Sequence[str]) -> Mapping[str, Any]:
    """What a program finds that works by itself. Raises Failed."""
    with Program(module, arguments) as program:
        program.wait_ready()
        program.go()
        return program.result()
