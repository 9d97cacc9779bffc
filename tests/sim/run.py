"""Running worlds and telling what went wrong, with everything needed to see it again."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

from tests.sim.options import Options, from_seed
from tests.sim.world import World
from tests.simulation.commit import commit
from tests.simulation.shrink import shrink

_PARTICULARS = re.compile(r"[\[(].*?[\])]|[0-9]+")


@dataclass(frozen=True, slots=True)
class Result:
    """How a world went."""

    seed: int
    simulated_s: float
    events: int
    committed: int
    elections: int
    reads: int


class SimulationFailed(Exception):
    """A world in which something must not happen, and did."""

    def __init__(self, world: World, reason: Exception) -> None:
        self.options = options = world.options
        self.reason = reason
        self.rule = f"{type(reason).__name__}: {_PARTICULARS.sub('', str(reason))}"
        self.planned = range(1, world.faults + 1)
        name = type(reason).__name__
        self.summary = f"seed {options.seed} at {world.now:.4f} s: {name}: {reason}"
        lines = "\n".join(world.trace.lines)
        super().__init__(f"{lines}\n{self.summary}\n{options}\ncommit {commit()}\n{again(options)}")

    def left(self) -> list[int]:
        """The numbers of the faults that were not left out."""
        return [number for number in self.planned if number not in self.options.skip]


def again(options: Options) -> str:
    """The command that runs this world."""
    skip = f" --skip {','.join(map(str, sorted(options.skip)))}" if options.skip else ""
    return f"again: python -m tests.sim --seed {options.seed} --trace{skip}"


def run_seed(seed: int) -> Result:
    """Run the world of a seed. Raises SimulationFailed."""
    return run_world(World(from_seed(seed)))


def run_world(world: World) -> Result:
    """Run a world that was made. Raises SimulationFailed."""
    try:
        world.run()
    except Exception as error:
        raise SimulationFailed(world, error) from error
    checker = world.checker
    seed = world.options.seed
    return Result(
        seed, world.now, world.events, checker.committed_index, checker.elections, checker.reads
    )


def outcome(seed: int, *, shrinks: bool) -> Result | str:
    """How the world of a seed went, or what there is to say of its failure."""
    try:
        return run_seed(seed)
    except SimulationFailed as failure:
        return str(shrunk(failure)) if shrinks else failure.summary


def shrunk(failure: SimulationFailed) -> SimulationFailed:
    """The smallest failure of the same rule that was found."""
    return shrink(failure, _without)


def _without(failure: SimulationFailed, numbers: list[int]) -> SimulationFailed | None:
    options = replace(failure.options, skip=failure.options.skip | set(numbers))
    try:
        run_world(World(options))
    except SimulationFailed as smaller:
        return smaller
    return None


def first_failure(
    mutant: Callable[[], AbstractContextManager[None]], seeds: Iterable[int]
) -> SimulationFailed | None:
    """What a planted bug does in the first of these worlds in which it shows, and which holds
    without it; None if it survives all.
    """
    for seed in seeds:
        with mutant():
            failure = failure_of(seed)
        if failure is not None and failure_of(seed) is None:
            return failure
    return None


def failure_of(seed: int) -> SimulationFailed | None:
    """What goes wrong in the world of a seed; None if it holds."""
    try:
        run_seed(seed)
    except SimulationFailed as failure:
        return failure
    return None
