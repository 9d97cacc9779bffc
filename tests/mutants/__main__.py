"""Command line: python -m tests.mutants [--seeds 6000] [--only name].

Hunts every planted bug and prints the list of docs/reliability.md; the exit code says whether all
were found. `make docs` sorts that list, and adds the bugs that tests find.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial

from tests.mutants.catalogue import rows
from tests.mutants.hunting import hunted
from tests.simulation.parallel import in_order


def main() -> int:
    """Print an entry for each."""
    parser = argparse.ArgumentParser(description="Bugs that the simulators and tests must find.")
    parser.add_argument("--seeds", type=int, default=6000, help="worlds for each, at most")
    parser.add_argument("--only", default="", help="part of a name")
    parser.add_argument("--jobs", type=int, default=0, help="bugs at a time; 0: all processors")
    arguments = parser.parse_args()
    wanted = [row for row in rows() if arguments.only in row.name]
    hunt = partial(hunted, seeds=range(1, arguments.seeds + 1))
    survivors = []
    for row, (seeds, is_found) in zip(wanted, in_order(hunt, wanted, arguments.jobs), strict=True):
        print(row.entry(seeds), flush=True)
        if not is_found:
            survivors.append(row.name)
    if survivors:
        print(f"not found: {', '.join(survivors)}", file=sys.stderr)
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
