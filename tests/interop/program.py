"""Programs beside a cluster, most in Java with a small heap; a failure quotes their log.

Invariant: what was started is killed; a program that ended by itself fails whoever waits for it.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

from bench.maven import Unavailable, jars
from tests.e2e.harness import wait_for
from tests.patience import PATIENCE_S

HEAP = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
LOGGED = (
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
)
STOP_S = 60.0


def java(name: str, *arguments: str) -> list[str]:
    """What runs a program of a set of jars; skips the test where they cannot be had."""
    try:
        path = os.pathsep.join(jars(name))
    except Unavailable as error:
        pytest.skip(str(error))
    return ["java", *HEAP, *LOGGED, "-cp", path, *arguments]


class Program:
    """One program that may be started again; a context manager that kills it."""

    def __init__(
        self, directory: Path, name: str, command: Sequence[str], *, user: str | None = None
    ) -> None:
        """`user`: who runs it, if it refuses to be run by who runs the test."""
        self.name = name
        self._user = user
        self._log = directory / f"{name}.log"
        self._command = command
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()
        if error is not None:
            error.add_note(f"{self.name}: {self.last_words()}")

    def start(self) -> None:
        """Start the process."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, cwd=self._directory, stdout=log, stderr=log, user=self._user
            )

    def kill(self) -> None:
        """SIGKILL, as a crash would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def stop(self) -> None:
        """SIGTERM, and wait until it has ended."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(STOP_S)

    def ended(self) -> int:
        """The exit code, once it has ended by itself."""
        assert self._process is not None
        return self._process.wait(STOP_S)

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        """Until `condition` holds, while the program runs."""
        wait_for(lambda: self._running() and condition(), f"{self.name}: {what}", 3 * PATIENCE_S)

    def _running(self) -> bool:
        ended = None if self._process is None else self._process.poll()
        assert ended is None, f"{self.name} ended with {ended}: {self.last_words()}"
        return True

    def last_words(self) -> str:
        """The first errors in its log, and its end."""
        lines = self._log.read_text(errors="replace").splitlines()
        errors = [line for line in lines if " ERROR " in line]
        return "\n".join([*errors[:10], *lines[-25:]])


def properties(file: Path, settings: Mapping[str, object]) -> Path:
    """Written as Java reads them."""
    lines = (f"{name}={value}\n" for name, value in settings.items())
    file.write_text("".join(lines), encoding="utf-8")
    return file
