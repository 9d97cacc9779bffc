"""Burners of scripts/loaded.sh end with its command, and with the script."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from tests.e2e.harness import wait_for

SCRIPT = Path(__file__).resolve().parent.parent / "scripts" / "loaded.sh"


def children(pid: int) -> list[int]:
    """The children of a process; none if it has ended."""
    try:
        found = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    except FileNotFoundError:
        return []
    return [int(child) for child in found.split()]


def computes(pid: int) -> bool:
    """Return whether a process exists and is no zombie: this process may inherit burners."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def run(command: str) -> subprocess.Popen[str]:
    options = ["--nice", "19", "--burners", "2"]
    return subprocess.Popen(
        ["sh", SCRIPT, *options, "sh", "-c", command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("end", [None, signal.SIGTERM, signal.SIGKILL])
def test_burners_run_beside_the_command_and_end_with_it(end: signal.Signals | None) -> None:
    with run("echo started; read line; exit 7") as script:
        assert script.stdout is not None
        assert script.stdin is not None
        assert script.stdout.readline() == "started\n"
        burners = children(script.pid)[:2]
        assert len(burners) == 2
        assert len(children(script.pid)) == 3
        if end is None:
            script.stdin.close()
            assert script.wait() == 7
        else:
            script.stdin.close()
            script.send_signal(end)
            script.wait()
        wait_for(lambda: not any(map(computes, burners)), "burners end")


def test_a_command_is_needed() -> None:
    ended = subprocess.run(["sh", SCRIPT], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr[:6]) == (2, "usage:")
