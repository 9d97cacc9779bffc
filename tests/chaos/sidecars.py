"""Sidecar processes: they ship what programs write beside them, and copy what programs read.

Invariant: a sidecar that was killed or paused is started or resumed again by `Field.heal`.
"""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

from samelog.cli.local_cluster import Process
from tests.chaos import programs


class SidecarProcess:
    """One sidecar, over all its lives."""

    def __init__(self, kind: str, config: Path, directory: Path, *options: str) -> None:
        """`kind`: publisher or subscriber; `config` need not be there yet."""
        self.name = f"{kind}-sidecar"
        self._log = config.with_name(f"{self.name}.log")
        self._command = ["samelog", "sidecar", kind]
        self._command += ["--config", str(config), "--dir", str(directory), *options]
        self._process: Process | None = None

    @property
    def is_running(self) -> bool:
        """Whether the process lives, if only stopped."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Begin a life."""
        with self._log.open("ab") as log:
            self._process = programs.start(self._command, log)

    def kill(self) -> None:
        """End the life with SIGKILL, also one that is stopped."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def pause(self) -> None:
        """Stop the process where it is."""
        if self._process is not None and self.is_running:
            self._process.send_signal(signal.SIGSTOP)

    def heal(self) -> None:
        """Let it go on, or start it again."""
        if self._process is not None and self.is_running:
            self._process.send_signal(signal.SIGCONT)
        else:
            self.start()

    def stop(self, timeout_s: float) -> None:
        """End it cleanly. Raises subprocess.TimeoutExpired, CalledProcessError."""
        if self._process is None:
            return
        self._process.terminate()
        code = self._process.wait(timeout_s)
        if code != 0:
            raise subprocess.CalledProcessError(code, self._command)
