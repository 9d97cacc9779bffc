"""Voters of group 0 are spread over hosts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as some

from samelog.placement.voters import VOTERS_MOST, promotable


def voters_of(hosts: Sequence[str], first: Sequence[int] = ()) -> list[int]:
    """Who votes in the end, if `first` did in the beginning."""
    voters = list(first)
    while found := promotable(voters, set(range(len(hosts))) - {*voters}, hosts.__getitem__):
        voters.append(min(found))
    return voters


@pytest.mark.parametrize(
    ("hosts", "voters"),
    [
        ("a", [0]),
        ("abc", [0, 1, 2]),
        ("abcd", [0, 1, 2, 3]),
        ("aabbcc", [0, 2, 4]),
        ("aaaabc", [0, 4, 5]),
        ("aabbccdd", [0, 2, 4, 6, 1, 3, 5]),
        ("abcdefgh", [0, 1, 2, 3, 4, 5, 6]),
        ("aabb", [0, 2, 1, 3]),
        ("aaa", [0, 1, 2]),
    ],
)
def test_hosts_without_voters_get_theirs_first(hosts: str, voters: list[int]) -> None:
    assert voters_of(hosts) == voters


@given(some.lists(some.sampled_from("abcdefghi"), min_size=1, max_size=20))
def test_no_host_has_half_of_the_voters(hosts: list[str]) -> None:
    voters = voters_of(hosts)
    counts = Counter(hosts[each] for each in voters)
    assert len(voters) <= VOTERS_MOST
    if len({*hosts}) >= 3:
        assert 2 * max(counts.values()) < len(voters)
        assert len(counts) == min(len({*hosts}), VOTERS_MOST)
    else:
        assert len(voters) == min(len(hosts), VOTERS_MOST)


def test_a_host_that_lost_its_voter_gets_another_before_others_get_a_second() -> None:
    hosts = "aabbccdd"
    assert promotable([0, 2, 4], {1, 3, 5, 6, 7}, hosts.__getitem__) == {6, 7}


@given(
    some.lists(some.sampled_from("abcde"), min_size=3, max_size=12),
    some.sets(some.integers(0, 11), min_size=1, max_size=7),
)
def test_a_promotion_never_makes_the_loss_of_a_host_worse(
    hosts: list[str], first: set[int]
) -> None:
    """Whoever votes in the beginning: what one host may cost is no more than before."""
    before = [each for each in first if each < len(hosts)]
    candidates = set(range(len(hosts))) - {*before}
    for each in promotable(before, candidates, hosts.__getitem__):
        counts = Counter(hosts[voter] for voter in (*before, each))
        if len({*hosts}) >= 3 and counts[hosts[each]] > 1:
            assert 2 * counts[hosts[each]] < len(before) + 1
