"""Runs one world, and says how to run it again.

Invariant: a failure names everything that is needed to see it again.
"""

from __future__ import annotations

import subprocess
from dataclasses import dataclass, replace
from pathlib import Path

from tests.cluster_sim.options import Options, from_seed
from tests.cluster_sim.violation import Violation
from tests.cluster_sim.world import World


@dataclass(frozen=True, slots=True)
class Result:
    """What a world came to."""

    seed: int
    simulated_s: float
    steps: int
    records: int
    acknowledged: int
    elections: int
    digest: str


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
            f"{lines}\n{self.summary}\n{self.options}\ncommit {_commit()}\n{again(self.options)}"
        )


def again(options: Options) -> str:
    """The command that runs this world."""
    seed = options.seed
    parts = [f"python -m tests.cluster_sim --seed {seed} --trace"]
    if options.skip:
        parts.append(f"--skip {','.join(map(str, sorted(options.skip)))}")
    if options.safety_s != from_seed(seed).safety_s:
        parts.append(f"--safety {options.safety_s}")
    return "again: " + " ".join(parts)


def _commit() -> str:
    command = ["git", "describe", "--always", "--dirty"]
    try:
        found = subprocess.run(
            command, cwd=Path(__file__).parent, capture_output=True, text=True, check=False
        )
    except OSError:
        return "unknown"
    return found.stdout.strip() or "unknown"


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
        world.checker.elections,
        world.trace.digest,
    )


def run_seed(seed: int) -> Result:
    """Run the world of a seed. Raises SimulationFailed."""
    return run_options(from_seed(seed))


def shrink(failure: SimulationFailed, *, tries: int = 60) -> SimulationFailed:
    """Leave faults out, as long as the same rule is broken: the smallest failure found."""
    best = failure
    size = max(1, len(best.planned) // 2)
    while tries > 0:
        left = [number for number in best.planned if number not in best.options.skip]
        for start in range(0, len(left), size):
            tries -= 1
            smaller = _without(best, left[start : start + size])
            if smaller is not None:
                best = smaller
                break
            if tries <= 0:
                break
        else:
            if size == 1:
                return best
            size = max(1, size // 2)
    return best


def _without(failure: SimulationFailed, numbers: list[int]) -> SimulationFailed | None:
    """The failure without some more faults; None if it is none then, or another one."""
    options = replace(failure.options, skip=failure.options.skip | set(numbers))
    try:
        run_options(options)
    except SimulationFailed as smaller:
        return smaller if smaller.rule == failure.rule else None
    return None
