"""Command line: python -m tests.mutants [--seeds 2500] [--only name].

Hunts every planted bug and prints the table of docs/reliability.md; the exit code says whether all
were found.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from functools import partial

from tests.cluster_sim import mutants as clusters
from tests.mutants.catalogue import Row, rows
from tests.sim import mutants as groups
from tests.simulation.parallel import in_order

HEAD = "| rule | planted bug | what it does | found by | seeds |\n|---|---|---|---|--:|"


def main() -> int:
    """Print a line for each."""
    parser = argparse.ArgumentParser(description="Bugs that the simulators and tests must find.")
    parser.add_argument("--seeds", type=int, default=2500, help="worlds for each, at most")
    parser.add_argument("--only", default="", help="part of a name")
    parser.add_argument("--jobs", type=int, default=0, help="bugs at a time; 0: all processors")
    arguments = parser.parse_args()
    wanted = [row for row in rows() if arguments.only in row.name]
    hunt = partial(_hunted, seeds=range(1, arguments.seeds + 1))
    survivors = []
    print(HEAD)
    for row, (seeds, is_found) in zip(wanted, in_order(hunt, wanted, arguments.jobs), strict=True):
        print(row.line(seeds), flush=True)
        if not is_found:
            survivors.append(row.name)
    if survivors:
        print(f"not found: {', '.join(survivors)}", file=sys.stderr)
    return 1 if survivors else 0


def _hunted(row: Row, *, seeds: range) -> tuple[int | None, bool]:
    """How many worlds it took, and whether it was found."""
    if row.found_by in ("groups", "clusters"):
        simulator = groups if row.found_by == "groups" else clusters
        count, found = simulator.hunted(row.name, seeds=seeds)
        return count, bool(found)
    command = [sys.executable, "-m", "tests.mutants.planting", row.name]
    return None, subprocess.run(command, stdout=subprocess.DEVNULL, check=False).returncode == 0


if __name__ == "__main__":
    sys.exit(main())
