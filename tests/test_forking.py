"""Forks of tests end with the process that started them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.harness import wait_for
from tests.interrupted import STARTED

ROOT = Path(__file__).resolve().parent.parent


def processes_with(variable: str) -> list[int]:
    """The processes that have this in their environment."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if variable.encode() in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
        except OSError:  # it has ended, or belongs to another user
            continue
    return found


def attend_to_interrupts() -> None:
    """Undo what the shell does to a command in the background: it ignores interrupts."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.usefixtures("starts_nodes")
@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGKILL])
@pytest.mark.parametrize("workers", [[], ["-n", "1"]], ids=["one process", "a worker"])
def test_an_interrupted_run_leaves_no_process(
    tmp_path: Path, workers: list[str], end: signal.Signals
) -> None:
    """Ctrl-C signals the whole group of the terminal; forks are in sessions of their own."""
    started = tmp_path / "started"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *workers]
    with (tmp_path / "output").open("wb") as output:
        run = subprocess.Popen(
            [*command, "tests/interrupted.py"],
            cwd=ROOT,
            env={**os.environ, STARTED: str(started)},
            stdout=output,
            stderr=output,
            start_new_session=True,
            preexec_fn=attend_to_interrupts,  # noqa: PLW1509  # this process has one thread here
        )
    variable = f"{STARTED}={started}"
    try:
        wait_for(lambda: started.exists() or run.poll() is not None, "the fork runs")
        assert started.exists(), (tmp_path / "output").read_text()
        assert len(processes_with(variable)) > 2
        os.killpg(run.pid, end)
        wait_for(lambda: not processes_with(variable), "all have ended")
    finally:
        for pid in processes_with(variable):
            os.kill(pid, signal.SIGKILL)
        run.wait()
