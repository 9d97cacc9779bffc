"""Runs one world, and says how to run it again.

Invariant: a failure names everything that is needed to see it again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tests.cluster_sim.cut_leaders import cutting
from tests.cluster_sim.forgetting import forgetting
from tests.cluster_sim.kinds import of_kind
from tests.cluster_sim.options import Options, converting, from_seed, many_groups
from tests.cluster_sim.recreation import recreating, recreating_in_groups
from tests.cluster_sim.rot import rotting
from tests.cluster_sim.shared_connections import sharing
from tests.cluster_sim.stalled_groups import stalling
from tests.cluster_sim.task_deaths import Phase
from tests.cluster_sim.violation import Violation
from tests.cluster_sim.world import World
from tests.simulation.commit import commit
from tests.simulation.shrink import shrink


@dataclass(frozen=True, slots=True)
class Result:
    """What a world came to."""

    seed: int
    simulated_s: float
    steps: int
    records: int
    acknowledged: int
    faults: int
    elections: int
    digest: str
    died_in: frozenset[Phase] = frozenset()
    """Phases of tasks in which a leader of group 0 died of it."""
    converted: int = 0
    """Partitions of group 0 that came to data groups."""
    default_groups: int = 0
    """Default groups that were proposed."""
    splits: int = 0
    """Moves that even out partitions, where an operator sets default numbers of copies."""


class SimulationFailed(Exception):
    """A world broke a promise, or the product failed in it."""

    def __init__(self, world: World, reason: Exception) -> None:
        self.options = world.options
        self.reason = reason
        self.rule = reason.rule if isinstance(reason, Violation) else type(reason).__name__
        self.planned = [fault.number for fault in world.faults.planned]
        self.at_s = world.loop.time()
        self.summary = f"seed {self.options.seed} at {self.at_s:.3f} s: {reason}"
        lines = "\n".join(world.trace.lines)
        super().__init__(
            f"{lines}\n{self.summary}\n{self.options}\ncommit {commit()}\n{again(self.options)}"
        )

    def left(self) -> list[int]:
        """The numbers of the faults that were not left out."""
        return [number for number in self.planned if number not in self.options.skip]


def again(options: Options) -> str:
    """The command that runs this world."""
    seed = options.seed
    parts = [f"python -m tests.cluster_sim --seed {seed} --trace"]
    if options.skip:
        parts.append(f"--skip {','.join(map(str, sorted(options.skip)))}")
    made = from_seed
    if options.has_many_groups:
        made = converting if options.converts else many_groups
        parts.append("--converting" if options.converts else "--groups")
    if options.kind:
        parts.append(f"--kind {options.kind}")
    if options.recreates:
        made = recreating_in_groups if options.converts else recreating
        parts.append("--recreating")
    if options.rots:
        made = rotting
        parts.append("--rotting")
    if options.shares:
        made = sharing
        parts.append("--sharing")
    if options.cuts_leaders:
        made = cutting
        parts.append("--cutting")
    if options.stalls_groups:
        made = stalling
        parts.append("--stalling")
    if options.forgets:
        made = forgetting
        parts.append("--forgetting")
    if options.safety_s != made(seed).safety_s:
        parts.append(f"--safety {options.safety_s}")
    return "again: " + " ".join(parts)


def run_options(options: Options, *, is_verbose: bool = False) -> Result:
    """Run one world. Raises SimulationFailed."""
    return run_world(World(options, is_verbose=is_verbose))


def run_world(world: World) -> Result:
    """Run a world that was made. Raises SimulationFailed."""
    try:
        world.run()
    except Exception as error:
        raise SimulationFailed(world, error) from error
    return Result(
        world.options.seed,
        world.loop.time(),
        world.loop.steps,
        len(world.history.published),
        len(world.history.acknowledged),
        len(world.faults.planned),
        world.checker.elections,
        world.trace.digest,
        frozenset(world.data_groups.deaths.died_in),
        world.checker.groups.converted,
        world.data_groups.default_groups,
        world.data_groups.splits,
    )


def run_seed(seed: int) -> Result:
    """Run the world of a seed. Raises SimulationFailed."""
    return run_options(from_seed(seed))


def shrunk(failure: SimulationFailed) -> SimulationFailed:
    """The smallest failure of the same rule that was found."""
    return shrink(failure, _without)


def _without(failure: SimulationFailed, numbers: list[int]) -> SimulationFailed | None:
    options = replace(failure.options, skip=failure.options.skip | set(numbers))
    try:
        run_options(options)
    except SimulationFailed as smaller:
        return smaller
    return None


def outcome(seed: int, *, shrinks: bool) -> Result | str:
    """How the world of a seed went, or what there is to say of its failure."""
    return _outcome(from_seed(seed), shrinks=shrinks)


def outcome_of_groups(seed: int, *, shrinks: bool) -> Result | str:
    """As outcome, of the world of many groups."""
    return _outcome(many_groups(seed), shrinks=shrinks)


def outcome_of_converting(seed: int, *, shrinks: bool) -> Result | str:
    """As outcome, of the world of groups that topics move into."""
    return _outcome(converting(seed), shrinks=shrinks)


def outcome_of_recreating(seed: int, *, shrinks: bool) -> Result | str:
    """As outcome, of the world whose topics are created again."""
    return _outcome(recreating(seed), shrinks=shrinks)


def outcome_of_recreating_in_groups(seed: int, *, shrinks: bool) -> Result | str:
    """As outcome, of the world whose topics are created again on their way into groups."""
    return _outcome(recreating_in_groups(seed), shrinks=shrinks)


def outcome_of_kind(kind: str, seed: int, *, converts: bool, shrinks: bool) -> Result | str:
    """As outcome, of the world of groups whose topics are of a kind."""
    made = converting if converts else many_groups
    return _outcome(of_kind(made(seed), kind), shrinks=shrinks)


def outcome_of_rotting(seed: int, *, shrinks: bool) -> Result | str:
    """As outcome, of the world whose publishers' files rot."""
    return _outcome(rotting(seed), shrinks=shrinks)


def _outcome(options: Options, *, shrinks: bool) -> Result | str:
    try:
        return run_options(options)
    except SimulationFailed as failure:
        return str(shrunk(failure)) if shrinks else failure.summary


def outcome_of_cutting(seed: int, *, shrinks: bool) -> Result | str:
    """As outcome, of the world whose leaders of data groups lose group 0."""
    return _outcome(cutting(seed), shrinks=shrinks)


def outcome_of_stalling(seed: int, *, shrinks: bool) -> Result | str:
    """As outcome, of the world whose data groups have no majority for long."""
    return _outcome(stalling(seed), shrinks=shrinks)


def outcome_of_forgetting(seed: int, *, shrinks: bool) -> Result | str:
    """As outcome, of the world in which group 0 forgets transactions."""
    return _outcome(forgetting(seed), shrinks=shrinks)


def outcome_of_sharing(seed: int, *, shrinks: bool) -> Result | str:
    """As outcome, of the world whose sessions share connections."""
    return _outcome(sharing(seed), shrinks=shrinks)
