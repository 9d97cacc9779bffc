"""What a record costs in calls of Python code may only fall: tests/ratchet.toml has the figures.

Counted on one version of Python, since others inline other calls; on the rest the figures are only
printed. A feature that must raise a count says so in tests/ratchet.toml.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
COUNTED_VERSION = (3, 11)
MANY_RUNS = 25
"""On a busy machine more turns of the event loop are taken for the same record, but not always."""


def counted(runs: int) -> dict[str, Any]:
    """What each way costs, in a process of its own."""
    command = [sys.executable, "-m", "tests.hops", "--json", "--runs", str(runs)]
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def raised(hops: dict[str, Any], recorded: dict[str, Any]) -> list[str]:
    """The ways that cost more than is recorded."""
    return [
        f"{way}: {hops[way][kind]} {kind} calls, recorded are {limit}"
        for way, limits in recorded.items()
        for kind, limit in limits.items()
        if hops[way][kind] > limit
    ]


@pytest.mark.usefixtures("starts_nodes")
def test_a_record_costs_no_more_calls_than_before() -> None:
    recorded = tomllib.loads((ROOT / "tests" / "ratchet.toml").read_text("utf-8"))["hops"]
    hops = counted(5)
    if sys.version_info[:2] != COUNTED_VERSION:
        pytest.skip(f"counted on Python 3.11; here: { {w: h['python'] for w, h in hops.items()} }")
    if raised(hops, recorded):
        hops = counted(MANY_RUNS)
    assert not raised(hops, recorded), raised(hops, recorded)
