"""Command line: python -m tests.sim --seeds 200 [--start S] | --seed N | --mutants."""

from __future__ import annotations

import argparse
import sys
import traceback
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from tests.sim.mutants import MUTANTS, hunted
from tests.sim.options import from_seed
from tests.sim.run import Result, SimulationFailed, outcome, run_world
from tests.sim.world import World
from tests.simulation.many import run_many, seeds_of
from tests.simulation.parallel import in_order


def main() -> int:
    """Run the asked for worlds; the exit code says whether all went well."""
    arguments = _arguments()
    if arguments.mutants:
        return _hunt_mutants(arguments)
    if arguments.seed is not None:
        return _run_one(arguments)
    return run_many(outcome, arguments, _sums)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Simulated Raft groups under faults.")
    parser.add_argument("--seeds", type=int, default=100, help="how many worlds")
    parser.add_argument("--start", type=int, default=1, help="the first seed")
    parser.add_argument("--seed", type=int, help="just this world")
    parser.add_argument("--trace", action="store_true", help="show everything that happens")
    parser.add_argument("--skip", default="", help="numbers of faults to leave out: 3,17")
    parser.add_argument("--jobs", type=int, default=0, help="worlds at a time; 0: all processors")
    parser.add_argument("--keep-going", action="store_true", help="do not stop at a failure")
    parser.add_argument("--no-shrink", action="store_true", help="report a failure as it is")
    parser.add_argument("--mutants", action="store_true", help="find a world for each planted bug")
    return parser.parse_args()


def _run_one(arguments: argparse.Namespace) -> int:
    skip = frozenset(int(number) for number in arguments.skip.split(",") if number)
    world = World(replace(from_seed(arguments.seed), skip=skip), is_verbose=arguments.trace)
    try:
        result = run_world(world)
    except SimulationFailed as failure:
        traceback.print_exception(failure.reason)
        print(failure)
        return 1
    if arguments.trace:
        print("\n".join(world.trace.lines))
    print(f"{world.options}\n{result}")
    return 0


def _sums(results: Sequence[Result]) -> str:
    return (
        f"{sum(result.events for result in results):,} events, "
        f"{sum(result.committed for result in results):,} entries committed, "
        f"{sum(result.elections for result in results):,} elections, "
        f"{sum(result.reads for result in results):,} reads"
    )


def _hunt_mutants(arguments: argparse.Namespace) -> int:
    """Print the first world that shows each mutant; the exit code says whether all were caught."""
    names = [mutant.__name__ for mutant in MUTANTS]
    survivors = 0
    run = partial(hunted, seeds=seeds_of(arguments))
    for name, (seeds, found) in zip(names, in_order(run, names, arguments.jobs), strict=True):
        survivors += not found
        print(f"{name:34} {seeds:4} seeds  {found or 'SURVIVES'}", flush=True)
    print(f"{len(names) - survivors} of {len(names)} caught")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
