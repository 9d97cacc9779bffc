"""Command line: python -m tests.sim --seeds 200 [--start S] | --seed N | --mutants."""

from __future__ import annotations

import argparse
import sys
import time
import traceback

from tests.sim.mutants import MUTANTS
from tests.sim.run import SimulationFailed, first_failure, run_seed


def hunt_mutants(start: int, seeds: int) -> int:
    """Print the first world that shows each mutant; the exit code says whether all were caught."""
    survivors = 0
    for mutant in MUTANTS:
        failure = first_failure(mutant, range(start, start + seeds))
        survivors += failure is None
        print(
            f"{mutant.__name__:30} {'SURVIVES' if failure is None else failure.summary}", flush=True
        )
    return 1 if survivors else 0


def main() -> int:
    """Run the asked for worlds; the exit code says whether all went well."""
    parser = argparse.ArgumentParser(description="Simulated Raft groups under faults.")
    parser.add_argument("--seeds", type=int, default=100, help="how many worlds")
    parser.add_argument("--start", type=int, default=1, help="the first seed")
    parser.add_argument("--seed", type=int, help="just this world")
    parser.add_argument("--mutants", action="store_true", help="find a world for each planted bug")
    arguments = parser.parse_args()
    if arguments.mutants:
        return hunt_mutants(arguments.start, arguments.seeds)
    if arguments.seed is not None:
        seeds = range(arguments.seed, arguments.seed + 1)
    else:
        seeds = range(arguments.start, arguments.start + arguments.seeds)
    begin = time.perf_counter()
    results = []
    for seed in seeds:
        try:
            results.append(run_seed(seed))
        except SimulationFailed as failure:
            if arguments.seed is not None:
                traceback.print_exception(failure.reason)
            print(failure, file=sys.stderr)
            return 1
    elapsed = time.perf_counter() - begin
    simulated = sum(result.simulated_s for result in results)
    print(
        f"{len(results)} worlds, {simulated:,.0f} simulated s in {elapsed:.1f} s, "
        f"{sum(result.events for result in results):,} events, "
        f"{sum(result.committed for result in results):,} entries committed, "
        f"{sum(result.elections for result in results):,} elections, "
        f"{sum(result.reads for result in results):,} reads"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
