"""The proof that the simulated worlds bite: planted bugs show. All: `--mutants`."""

from __future__ import annotations

import pytest

from tests.cluster_sim.mutants import FOCUS, MUTANTS, Mutant, hunt
from tests.cluster_sim.mutants_durability import forget_votes, names_are_not_synced
from tests.cluster_sim.mutants_ordering import (
    acknowledge_what_is_durable,
    plan_what_the_leader_lacks,
    take_any_place,
)

ENOUGH_SEEDS = 60


@pytest.mark.usefixtures("simulates", "plants_bugs")
@pytest.mark.parametrize(
    ("mutant", "rule"),
    [
        (forget_votes, "promises stay"),
        (names_are_not_synced, "durable before commit"),
        (plan_what_the_leader_lacks, "leaders plan what they hold"),
        (take_any_place, "once and in order"),
        (acknowledge_what_is_durable, "acknowledged is committed"),
    ],
)
def test_some_planted_bugs_show_at_once(mutant: Mutant, rule: str) -> None:
    _, failure = hunt(mutant, range(1, 4))
    assert failure is not None
    assert failure.rule == rule


@pytest.mark.usefixtures("simulates", "plants_bugs")
@pytest.mark.campaign
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_every_planted_bug_shows(mutant: Mutant) -> None:
    seeds, failure = hunt(mutant, range(1, ENOUGH_SEEDS + 1))
    assert failure is not None, f"{mutant.__name__} survives {seeds} worlds"


def test_worlds_are_made_for_mutants_that_exist() -> None:
    assert set(FOCUS) <= {mutant.__name__ for mutant in MUTANTS}


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_every_bug_can_be_planted(mutant: Mutant) -> None:
    """What is replaced has the name it had when the bug was written."""
    with mutant():
        pass
