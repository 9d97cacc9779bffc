"""What a record costs in calls of Python code may only fall: tests/ratchet.toml has the figures.

Counted on one version of Python, since others inline other calls; on the rest the figures are only
printed. A feature that must raise a count says so in tests/ratchet.toml.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.patience import PATIENCE_S

ROOT = Path(__file__).resolve().parent.parent
COUNTED_VERSION = (3, 11)
FEW_RUNS, MANY_RUNS = 5, 25
"""On a busy machine more turns of the event loop are taken for the same record, but not always."""

Counts = dict[str, dict[str, Any]]
"""By way and kind of call."""


def counted(runs: int, *ways: str) -> Counts:
    """Count what each way costs, or these, in a process of its own."""
    command = [sys.executable, "-m", "tests.hops", *ways, "--json", "--runs", str(runs)]
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found: Counts = json.loads(done.stdout.splitlines()[-1])
    return found


def raised(hops: Counts, recorded: Counts) -> dict[str, str]:
    """Return the ways that cost more than is recorded, with the figures."""
    return {
        way: f"{way}: {hops[way][kind]} {kind} calls, recorded are {limit}"
        for way, limits in recorded.items()
        for kind, limit in limits.items()
        if hops[way][kind] > limit
    }


@pytest.mark.usefixtures("starts_nodes")
def test_a_record_costs_no_more_calls_than_before() -> None:
    recorded = tomllib.loads((ROOT / "tests" / "ratchet.toml").read_text("utf-8"))["hops"]
    hops = counted(FEW_RUNS)
    if sys.version_info[:2] != COUNTED_VERSION:
        pytest.skip(f"counted on Python 3.11; here: { {w: h['python'] for w, h in hops.items()} }")
    end = time.monotonic() + PATIENCE_S
    while (ways := raised(hops, recorded)) and time.monotonic() < end:
        for way, counts in counted(MANY_RUNS, *ways).items():
            hops[way] = {kind: min(hops[way][kind], counts[kind]) for kind in recorded[way]}
    assert not ways, [*ways.values()]
