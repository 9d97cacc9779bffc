"""New topics: as far apart as can be, evenly, and refused where it cannot be."""

from __future__ import annotations

from collections import Counter
from contextlib import nullcontext
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samelog.placement.changes import PreferLeader
from samelog.placement.domains import Domains
from samelog.placement.planner import PlacementPlanner
from samelog.placement.tasks import PlacementRefused
from samelog.placement.topics import place_by_hand, place_topic
from tests.placement.tables import LIMITS, apply, create, held, put, states_of, table_of


def test_a_small_cluster_has_one_group() -> None:
    table = table_of(3)
    placed = create(table, 8, 3)
    assert set(placed.groups) == {1}
    assert create(table, 4, 3, "u").new_groups == ()
    assert held(table) == [1, 1, 1]


@given(
    members=st.integers(1, 12),
    topics=st.lists(st.tuples(st.integers(1, 90), st.integers(1, 7)), max_size=6),
)
def test_no_member_has_two_groups_more_than_another(
    members: int, topics: list[tuple[int, int]]
) -> None:
    table = table_of(members)
    for number, (partitions, copies) in enumerate(topics):
        placed = create(table, partitions, copies, f"t{number}")
        assert len(placed.groups) == partitions
        assert max(held(table)) - min(held(table)) <= 1
        counts = Counter(placed.groups).values()
        assert max(counts) - min(counts) <= 1
        of_kind = [each for each in table.groups.values() if each.copies == copies]
        assert len(counts) == min(partitions, len(of_kind))
    for group in table.groups.values():
        assert len(set(group.members)) == min(group.copies, members)


def test_leaders_are_evened_out_without_moving_anything() -> None:
    table = table_of(5)
    create(table, 200, 3)
    planned = PlacementPlanner(table, LIMITS).look(0)
    assert {type(each) for each in planned.changes} == {PreferLeader}
    apply(table, *planned.changes)
    led = Counter(each.preferred for each in table.groups.values())
    assert max(led.values()) - min(led.values()) <= 1


def test_copies_are_in_different_racks_and_then_sites() -> None:
    table = table_of(9, racks=["lon/1", "lon/2", "ams/1"])
    create(table, 100, 3)
    for group in table.groups.values():
        assert len({table.members[each].rack for each in group.members}) == 3
    table = table_of(8, racks=["lon/1", "lon/2", "ams/1", "ams/2"])
    create(table, 100, 2)
    for group in table.groups.values():
        assert len({table.members[each].rack.split("/")[0] for each in group.members}) == 2


def test_what_is_shared_in_a_wider_domain_counts_more() -> None:
    table = table_of(3, racks=["a/1", "a/2", "b/1"])
    domains = Domains(table)
    near, far = [each.number for each in table.members.values() if each.rack[0] == "a"], 2
    assert domains.shared(near[0], [near[1]]) > domains.shared(near[0], [far])


def test_more_copies_than_members_are_on_all_of_them() -> None:
    table = table_of(2)
    create(table, 1, 5)
    assert [(each.copies, each.members) for each in table.groups.values()] == [(5, (1, 2))]


def test_who_is_away_gets_a_new_group_only_as_a_minority() -> None:
    table = table_of(3)
    table.put_member(replace(table.members[3], silent_since_ms=0))
    placed = place_topic(table, states_of(table), LIMITS, 1, 3)
    assert sorted(placed.new_groups[0].members) == [1, 2, 3]
    table.put_member(replace(table.members[2], silent_since_ms=0))
    placed = place_topic(table, states_of(table), LIMITS, 1, 3)
    assert placed.new_groups[0].members == (1,)
    table.put_member(replace(table.members[1], silent_since_ms=0))
    with pytest.raises(PlacementRefused, match="no member is in service"):
        place_topic(table, states_of(table), LIMITS, 1, 3)


@pytest.mark.parametrize("copies", [0, -1, 8])
def test_impossible_numbers_of_copies_are_refused(copies: int) -> None:
    table = table_of(9)
    with pytest.raises(PlacementRefused, match="there can be 1 to 7 copies"):
        place_topic(table, states_of(table), LIMITS, 1, copies)


def test_assignments_by_hand_have_groups_of_their_own() -> None:
    table = table_of(4)
    create(table, 3, 2)
    placed = place_by_hand(table, [[4, 2], [4, 2], [1, 3]])
    put(table, placed, "by-hand")
    first, second, third = (table.groups[each] for each in placed.groups)
    assert first is second
    assert (first.members, first.preferred, first.is_pinned) == ((4, 2), 4, True)
    assert third.members == (1, 3)
    again = place_topic(table, states_of(table), LIMITS, 6, 2)
    assert not {first.number, third.number} & set(again.groups)


@pytest.mark.parametrize(("away", "is_refused"), [(1, False), (2, True), (3, True)])
def test_a_list_of_members_needs_a_majority_that_may_begin(away: int, is_refused: bool) -> None:
    """One of two that is away would keep the group from ever beginning, if it comes back empty."""
    table = table_of(4)
    for number in range(1, away + 1):
        table.put_member(replace(table.members[number], silent_since_ms=0))
    with pytest.raises(PlacementRefused, match="is away") if is_refused else nullcontext():
        place_by_hand(table, [[1, 2, 3]])
    with pytest.raises(PlacementRefused, match="n1 is away"):
        place_by_hand(table, [[1, 4]])


@pytest.mark.parametrize(
    ("lists", "why"),
    [
        ([[1, 9]], "no member has the number 9"),
        ([[1, 1]], "named twice"),
        ([[]], "there can be 1 to 7"),
        ([[1, 2], [1]], "all equally long"),
        ([], "every partition needs"),
    ],
)
def test_assignments_that_cannot_be_are_refused(lists: list[list[int]], why: str) -> None:
    with pytest.raises(PlacementRefused, match=why):
        place_by_hand(table_of(3), lists)
