"""The mathematics of majorities against a naive version of itself."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samelog.consensus.quorum import Tally, majority, reached, tally

VOTERS = st.integers(1, 7).map(lambda size: tuple(range(size)))


@given(st.lists(st.integers(0, 20), min_size=1, max_size=7))
def test_reached_is_the_highest_value_that_enough_voters_have(values: list[int]) -> None:
    naive = max(
        value
        for value in values
        if sum(other >= value for other in values) >= majority(len(values))
    )
    assert reached(values) == naive


@given(VOTERS, st.dictionaries(st.integers(0, 9), st.booleans()))
def test_tally_asks_what_the_open_votes_can_still_change(
    voters: tuple[int, ...], votes: dict[int, bool]
) -> None:
    open_voters = [voter for voter in voters if voter not in votes]
    outcomes = set()
    for rest in itertools.product((True, False), repeat=len(open_voters)):
        final = votes | dict(zip(open_voters, rest, strict=True))
        outcomes.add(sum(final[voter] for voter in voters) * 2 > len(voters))
    now = sum(votes.get(voter, False) for voter in voters) * 2 > len(voters)
    expected = Tally.WON if now else Tally.PENDING if True in outcomes else Tally.LOST
    assert tally(votes, voters) is expected


@pytest.mark.parametrize("size", range(1, 8))
def test_two_majorities_meet(size: int) -> None:
    assert 2 * majority(size) > size
    assert 2 * (majority(size) - 1) <= size


@pytest.mark.parametrize(
    ("votes", "doubtful", "expected"),
    [
        ({0: True, 1: True}, {1}, Tally.PENDING),
        ({0: True, 1: True, 2: False}, {1}, Tally.LOST),
        ({0: True, 1: True, 2: True}, {1}, Tally.WON),
        ({0: True, 1: True, 2: True}, {0, 1, 2}, Tally.WON),
        ({0: True, 1: True}, {0, 1}, Tally.PENDING),
        ({0: True, 1: False}, {0}, Tally.LOST),
        ({0: True, 1: True}, {2}, Tally.WON),
    ],
)
def test_doubtful_votes_count_only_among_the_votes_of_all(
    votes: dict[int, bool], doubtful: set[int], expected: Tally
) -> None:
    assert tally(votes, (0, 1, 2), doubtful) is expected
