"""A slice of the simulated worlds, and the proof that they bite. More: `python -m tests.sim`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace

import pytest

from tests.mutants.catalogue import reported_seeds
from tests.sim.mutants import MUTANTS
from tests.sim.options import from_seed
from tests.sim.run import first_failure, run_seed, run_world
from tests.sim.world import World
from tests.tiers import sampled

WHOLE_SEEDS, CI_SEEDS = 400, 800
SHORT_S = 1.5
"""Of faults, in the worlds behind the first ones: most bugs show as early as that."""


@pytest.mark.usefixtures("simulates")
@pytest.mark.parametrize(
    "first", sampled(range(1, CI_SEEDS + 1, 40), 1, WHOLE_SEEDS + 1, usual=(41, 81, 441))
)
def test_worlds_hold(first: int) -> None:
    seeds = map(from_seed, range(first, first + 40))
    options = [each if first <= WHOLE_SEEDS else replace(each, safety_s=SHORT_S) for each in seeds]
    results = [run_world(World(each)) for each in options]
    assert sum(result.committed for result in results) > 0


@pytest.mark.usefixtures("simulates")
@pytest.mark.parametrize("seed", [51843])
def test_worlds_that_did_not_hold_once(seed: int) -> None:
    run_seed(seed)


@pytest.mark.usefixtures("simulates")
def test_a_seed_is_one_world() -> None:
    assert run_seed(7) == run_seed(7)


@pytest.mark.usefixtures("simulates", "plants_bugs")
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_planted_bugs_are_found(mutant: Callable[[], AbstractContextManager[None]]) -> None:
    """In the world in which the report says that they were found."""
    assert first_failure(mutant, [reported_seeds()[mutant.__name__]]) is not None


@pytest.mark.usefixtures("simulates")
@pytest.mark.campaign
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("first", range(10_000, 12_000, 100))
def test_many_worlds_hold(first: int) -> None:
    for seed in range(first, first + 100):
        run_seed(seed)
