"""Running worlds and telling what went wrong, with everything needed to see it again."""

from __future__ import annotations

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
        super().__init__(
            f"seed {options.seed} at {now:.4f} s: {type(reason).__name__}: {reason}\n{options}\n"
            f"again: python -m tests.sim --seed {options.seed}"
        )
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
