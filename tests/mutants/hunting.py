"""Hunts one planted bug; in a module of its own, so that other processes can be told to do it."""

from __future__ import annotations

import subprocess
import sys

from tests.cluster_sim import mutants as clusters
from tests.mutants.catalogue import Row
from tests.sim import mutants as groups


def hunted(row: Row, *, seeds: range) -> tuple[int | None, bool]:
    """How many worlds it took, and whether it was found."""
    if row.is_simulated:
        simulator = groups if row.found_by == "groups" else clusters
        count, found = simulator.hunted(row.name, seeds=seeds)
        return count, bool(found)
    command = [sys.executable, "-m", "tests.mutants.planting", row.name]
    return None, subprocess.run(command, stdout=subprocess.DEVNULL, check=False).returncode == 0
