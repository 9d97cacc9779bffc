"""Running worlds and telling what went wrong, with everything needed to see it again."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass

from tests.sim.options import Options, from_seed
from tests.sim.world import World


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

    def __init__(self, options: Options, now: float, reason: BaseException) -> None:
        self.summary = f"seed {options.seed} at {now:.4f} s: {type(reason).__name__}: {reason}"
        again = f"again: python -m tests.sim --seed {options.seed}"
        super().__init__(f"{self.summary}\n{options}\n{again}")
        self.reason = reason


def run_seed(seed: int) -> Result:
    """Run one world. Raises SimulationFailed."""
    options = from_seed(seed)
    world = World(options)
    try:
        world.run()
    except Exception as error:
        raise SimulationFailed(options, world.now, error) from error
    checker = world.checker
    return Result(
        seed, world.now, world.events, checker.committed_index, checker.elections, checker.reads
    )


def first_failure(
    mutant: Callable[[], AbstractContextManager[None]], seeds: Iterable[int]
) -> SimulationFailed | None:
    """The first of these worlds in which a planted bug shows; None if it survives all."""
    with mutant():
        for seed in seeds:
            try:
                run_seed(seed)
            except SimulationFailed as failure:
                return failure
    return None
