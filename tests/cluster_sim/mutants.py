"""Planted bugs: each breaks one rule, and the simulator must notice every one of them.

A mutant that survives means that a check is missing, or that the worlds are too kind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager

from tests.cluster_sim.run import SimulationFailed, run_seed

Mutant = Callable[[], AbstractContextManager[None]]

MUTANTS: tuple[Mutant, ...] = ()


def hunt(mutant: Mutant, seeds: Iterable[int]) -> tuple[int, SimulationFailed | None]:
    """How many worlds were needed, and the failure in the last one; None if it survives all."""
    count = 0
    with mutant():
        for seed in seeds:
            count += 1
            try:
                run_seed(seed)
            except SimulationFailed as failure:
                return count, failure
    return count, None
