"""Ids of clusters: which one is of before a promotion."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from samelog.placement.cluster_ids import ends, parse_cluster_id, promoted_id, root_of

FIRST, ONE, OTHER = "0123456789abcdef", "a" * 16, "b" * 16
IDS = st.text("0123456789abcdef", min_size=16, max_size=16)


@given(IDS, st.lists(IDS, max_size=12))
def test_each_promotion_ends_all_ids_of_before(root: str, promotions: list[str]) -> None:
    known = [root]
    for each in promotions:
        known.append(promoted_id(known[-1], each))
    for older, newer in pairwise(known):
        assert ends(newer, older)
        assert not ends(older, newer)
    assert ends(known[-1], root) is bool(promotions)
    assert {root_of(each) for each in known} == {root}
    assert parse_cluster_id(known[-1]).promotions == len(promotions)
    assert len(known[-1]) <= 64, "as the wire has it"


def test_two_promotions_beside_each_other_are_two_clusters() -> None:
    first, second = promoted_id(FIRST, ONE), promoted_id(FIRST, OTHER)
    assert not ends(first, second)
    assert not ends(second, first)
    assert ends(promoted_id(first, OTHER), second), "there were more of them there"


def test_other_clusters_end_nothing() -> None:
    for other in ("", "-", OTHER, "lkc-1-x"):
        assert not ends(promoted_id(FIRST, ONE), other)
        assert not ends(other, FIRST)
    assert root_of("MkU3OEVBNTcwNTJENDM2Qk") == "MkU3OEVBNTcwNTJENDM2Qk", "Kafka's"
