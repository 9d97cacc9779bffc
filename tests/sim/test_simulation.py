"""A slice of the simulated worlds, and the proof that they bite. More: `python -m tests.sim`."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

from tests.sim.mutants import MUTANTS
from tests.sim.run import first_failure, run_seed

SHOWS_IN = {
    "change_many_voters": 42,
    "changes_side_by_side": 9,
    "commit_older_terms": 82,
    "commit_what_is_missing": 12,
    "count_learners": 2,
    "count_the_removed_leader": 54,
    "count_the_untrusted": 20,
    "forget_members_of_snapshots": 29,
    "forget_vote_on_disk": 30,
    "ignore_unknown_leaders": 2,
    "keep_replaced_membership": 14,
    "match_without_previous_term": 4,
    "read_before_noop": 3,
    "read_without_proof": 26,
    "save_entries_out_of_order": 21,
    "silence_the_removed": 72,
    "stale_rounds": 555,
    "vote_twice": 30,
    "votes_of_the_wiped": 20,
}
"""Worlds in which mutants are known to show. Only saves time: more are searched if that changed."""


@pytest.mark.parametrize("first", range(1, 601, 50))
def test_worlds_hold(first: int) -> None:
    results = [run_seed(seed) for seed in range(first, first + 50)]
    assert sum(result.committed for result in results) > 0


def test_a_seed_is_one_world() -> None:
    assert run_seed(7) == run_seed(7)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_planted_bugs_are_found(mutant: Callable[[], AbstractContextManager[None]]) -> None:
    hint = SHOWS_IN.get(mutant.__name__, 1)
    assert first_failure(mutant, itertools.chain([hint], range(1, 600))) is not None


@pytest.mark.campaign
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("first", range(10_000, 12_000, 100))
def test_many_worlds_hold(first: int) -> None:
    for seed in range(first, first + 100):
        run_seed(seed)
