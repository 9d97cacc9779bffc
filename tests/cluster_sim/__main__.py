"""Command line: python -m tests.cluster_sim --seeds 100 [--start S] | --seed N | --mutants."""

from __future__ import annotations

import argparse
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from tests.cluster_sim.cut_leaders import cutting
from tests.cluster_sim.forgetting import forgetting
from tests.cluster_sim.kinds import KINDS_OF_TOPICS, of_kind
from tests.cluster_sim.mutants import MUTANTS, hunted
from tests.cluster_sim.options import Options, converting, from_seed, many_groups
from tests.cluster_sim.recreation import recreating, recreating_in_groups
from tests.cluster_sim.rot import rotting
from tests.cluster_sim.run import (
    Result,
    SimulationFailed,
    outcome,
    outcome_of_converting,
    outcome_of_cutting,
    outcome_of_forgetting,
    outcome_of_groups,
    outcome_of_kind,
    outcome_of_recreating,
    outcome_of_recreating_in_groups,
    outcome_of_rotting,
    outcome_of_sharing,
    outcome_of_stalling,
    run_world,
)
from tests.cluster_sim.shared_connections import sharing
from tests.cluster_sim.stalled_groups import stalling
from tests.cluster_sim.task_deaths import Phase
from tests.cluster_sim.world import World
from tests.simulation.many import run_many, seeds_of
from tests.simulation.parallel import in_order


def main() -> int:
    """Run the asked for worlds; the exit code says whether all went well."""
    arguments = _arguments()
    if arguments.mutants:
        return _hunt_mutants(arguments)
    made, judged = _kind(arguments)
    if arguments.seed is not None:
        return _run_one(_changed(made(arguments.seed), arguments), arguments)
    return run_many(judged, arguments, _sums)


def _kind(
    arguments: argparse.Namespace,
) -> tuple[Callable[[int], Options], Callable[..., Any]]:
    """What makes a world of a seed, and what runs it."""
    if arguments.kind:
        made = converting if arguments.converting else many_groups
        return (
            lambda seed: of_kind(made(seed), arguments.kind),
            partial(outcome_of_kind, arguments.kind, converts=arguments.converting),
        )
    if arguments.sharing:
        return sharing, outcome_of_sharing
    if arguments.rotting:
        return rotting, outcome_of_rotting
    if arguments.cutting:
        return cutting, outcome_of_cutting
    if arguments.stalling:
        return stalling, outcome_of_stalling
    if arguments.forgetting:
        return forgetting, outcome_of_forgetting
    if arguments.recreating and arguments.converting:
        return recreating_in_groups, outcome_of_recreating_in_groups
    if arguments.recreating:
        return recreating, outcome_of_recreating
    if arguments.converting:
        return converting, outcome_of_converting
    return (many_groups, outcome_of_groups) if arguments.groups else (from_seed, outcome)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Simulated clusters under faults.")
    parser.add_argument("--seeds", type=int, default=50, help="how many worlds")
    parser.add_argument("--start", type=int, default=1, help="the first seed")
    parser.add_argument("--seed", type=int, help="just this world")
    parser.add_argument("--trace", action="store_true", help="show everything that happens")
    parser.add_argument("--groups", action="store_true", help="worlds of many data groups")
    parser.add_argument("--converting", action="store_true", help="... that topics move into")
    parser.add_argument("--kind", choices=KINDS_OF_TOPICS, help="... of topics, in data groups")
    parser.add_argument("--recreating", action="store_true", help="topics are created again")
    parser.add_argument("--rotting", action="store_true", help="publishers' files rot")
    parser.add_argument("--sharing", action="store_true", help="sessions share connections")
    parser.add_argument("--cutting", action="store_true", help="leaders of groups lose group 0")
    parser.add_argument("--stalling", action="store_true", help="groups have no majority for long")
    parser.add_argument("--forgetting", action="store_true", help="group 0 forgets transactions")
    parser.add_argument("--skip", default="", help="numbers of faults to leave out: 3,17")
    parser.add_argument("--safety", type=float, help="seconds until everything is healed")
    parser.add_argument("--jobs", type=int, default=0, help="worlds at a time; 0: all processors")
    parser.add_argument("--keep-going", action="store_true", help="do not stop at a failure")
    parser.add_argument("--no-shrink", action="store_true", help="report a failure as it is")
    parser.add_argument("--mutants", action="store_true", help="find a world for each planted bug")
    parser.add_argument("--only", default="", help="mutants whose names hold this")
    return parser.parse_args()


def _changed(options: Options, arguments: argparse.Namespace) -> Options:
    if arguments.skip:
        numbers = frozenset(int(number) for number in arguments.skip.split(","))
        options = replace(options, skip=numbers)
    if arguments.safety is not None:
        options = replace(options, safety_s=arguments.safety)
    return options


def _run_one(options: Options, arguments: argparse.Namespace) -> int:
    world = World(options, is_verbose=arguments.trace)
    try:
        result = run_world(world)
    except SimulationFailed as failure:
        traceback.print_exception(failure.reason)
        print(failure)
        return 1
    if arguments.trace:
        print("\n".join(world.trace.lines))
    print(f"{options}\n{result}")
    return 0


def _sums(results: Sequence[Result]) -> str:
    return (
        f"{sum(result.steps for result in results):,} steps, "
        f"{sum(result.records for result in results):,} records published, "
        f"{sum(result.acknowledged for result in results):,} acknowledged, "
        f"{sum(result.faults for result in results):,} faults, "
        f"{sum(result.elections for result in results):,} elections, leaders died in "
        f"{len(set[Phase]().union(*(result.died_in for result in results)))} phases of tasks, "
        f"{sum(result.converted for result in results)} partitions left group 0, "
        f"{sum(result.default_groups for result in results)} default groups and "
        f"{sum(result.splits for result in results)} splits were proposed"
    )


def _hunt_mutants(arguments: argparse.Namespace) -> int:
    """Print the first world that shows each mutant; the exit code says whether all were caught."""
    wanted = [mutant.__name__ for mutant in MUTANTS if arguments.only in mutant.__name__]
    survivors = 0
    run = partial(hunted, seeds=seeds_of(arguments))
    for name, (seeds, found) in zip(wanted, in_order(run, wanted, arguments.jobs), strict=True):
        survivors += not found
        print(f"{name:34} {seeds:4} seeds  {found or 'SURVIVES'}", flush=True)
    print(f"{len(wanted) - survivors} of {len(wanted)} caught")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
