"""Members that share a host: one copy of each group at most, and goals that count hosts."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from samelog.placement import operations
from samelog.placement.planner import PlacementPlanner
from samelog.placement.table import PlacedMember, PlacementTable
from samelog.placement.tasks import PlacementRefused, TaskKind
from tests.placement.tables import LIMITS, add_groups, apply, begun, create, states_of, table_of

LATER_MS = LIMITS.replace_after_ms + 1


def hosts_of(table: PlacementTable, members: tuple[int, ...]) -> list[str]:
    return [table.host_of(each) for each in members]


def silence(table: PlacementTable, *members: int) -> None:
    for each in members:
        table.put_member(replace(table.members[each], silent_since_ms=0))


@given(
    sizes=st.lists(st.integers(1, 3), min_size=1, max_size=5),
    topics=st.lists(st.tuples(st.integers(1, 60), st.integers(1, 6)), min_size=1, max_size=4),
)
def test_a_host_has_one_copy_of_a_group_at_most(
    sizes: list[int], topics: list[tuple[int, int]]
) -> None:
    names = [f"h{place}" for place, size in enumerate(sizes) for _ in range(size)]
    table = table_of(len(names), hosts=names[-1:] + names[:-1])
    for number, (partitions, copies) in enumerate(topics):
        create(table, partitions, copies, f"t{number}")
    for group in table.groups.values():
        there = hosts_of(table, group.members)
        assert len(set(there)) == len(there) == min(group.copies, len(sizes)), group
    assert {task.kind for task in begun(table)} <= {TaskKind.BALANCE, TaskKind.SPLIT}


def test_goals_count_hosts_and_the_next_host_gets_what_is_missing() -> None:
    table = table_of(4, hosts=("b", "a"))
    create(table, 1, 3)
    assert sorted(hosts_of(table, table.groups[1].members)) == ["a", "b"]
    planner = PlacementPlanner(table, LIMITS)
    planner.look(0)
    assert planner.needs == [], "no task, and no obstacle"
    table.put_member(PlacedMember(5, "n5", host="a"))
    assert not [task for task in begun(table) if task.kind is TaskKind.FILL], "no host is new"
    table.put_member(PlacedMember(6, "n6", host="c"))
    (task,) = (task for task in begun(table) if task.kind is TaskKind.FILL)
    assert (task.group, task.gets) == (1, 6)


def test_what_is_lost_is_replaced_on_its_own_host_or_one_that_has_no_copy() -> None:
    table = table_of(7, (1, 2, 3), hosts=("d", "a", "b", "c", "a", "b", "c"))
    silence(table, 1)
    (task,) = begun(table, LATER_MS)
    assert (task.kind, task.loses, task.gets) == (TaskKind.REPLACE, 1, 4), "n4 is on its host"
    table = table_of(7, (1, 2, 3), hosts=("d", "a", "b", "c", "a", "b", "c"))
    silence(table, 1, 4)
    (task,) = begun(table, LATER_MS)
    assert (task.loses, task.gets) == (1, 7), "the other members of b and c are no choice"
    planner = PlacementPlanner(table_of_three_hosts(), LIMITS)
    planner.look(LATER_MS)
    (need,) = (each for each in planner.needs if each.obstacle)
    assert need.obstacle == "no host is in service that has no copy of group 1"


def table_of_three_hosts() -> PlacementTable:
    """Host a is lost, with both of its members; b and c have four more members."""
    names = ("c", "a", "b", "c", "a", "b", "c", "b")
    table = table_of(8, (1, 2, 3), (2, 3), hosts=names)
    silence(table, 1, 4)
    table.put_member(PlacedMember(9, "n9", host="d", maintenance_until_ms=1 << 62))
    return table


def test_each_host_counts_once_when_many_are_silent() -> None:
    """Six of nine members are of one host of four: that is no third of the hosts."""
    names = ("d", "a", "a", "a", "a", "a", "a", "b", "c")
    table = table_of(9, (1, 7), (2, 8), (3, 7), (4, 8), (5, 7), (6, 8), hosts=names)
    silence(table, *range(1, 7))
    assert states_of(table, LATER_MS).must_be_replaced(1)
    alone = table_of(9, (1, 7), (2, 8), (3, 7), (4, 8), (5, 7), (6, 8))
    silence(alone, *range(1, 7))
    assert not states_of(alone, LATER_MS).must_be_replaced(1)


def test_one_silent_member_on_each_host_is_many() -> None:
    table = table_of(6, (1, 2, 3), (4, 5, 6), hosts=("c", "a", "b"))
    silence(table, 1, 2, 3)
    assert not states_of(table, LATER_MS).must_be_replaced(1)


def test_copies_that_share_a_host_go_apart() -> None:
    table = table_of(3, (1, 2))
    table.put_member(replace(table.members[1], host="a"))
    table.put_member(replace(table.members[2], host="a"))
    (task,) = begun(table)
    assert (task.kind, task.gets) == (TaskKind.SPREAD, 3)


def test_a_host_is_drained_only_if_others_are_left() -> None:
    table = table_of(4, (1, 2), (3, 4), hosts=("b", "a"))
    apply(table, *operations.drain(table, states_of(table), "n1"))
    with pytest.raises(PlacementRefused, match="would have too few members"):
        operations.drain(table, states_of(table), "n3")
    table.put_member(PlacedMember(5, "n5", host="c"))
    apply(table, *operations.drain(table, states_of(table), "n3"))


def three_hosts(*groups: tuple[int, ...]) -> PlacementTable:
    """n1 and n4 are on host a, n2 and n5 on b, n3 and n6 on c."""
    return table_of(6, *groups, hosts=("c", "a", "b"))


def test_a_host_is_drained_as_a_whole() -> None:
    """One member after the other, the first could give its copies to the second."""
    table = three_hosts((1, 2), (4, 3))
    assert operations.effects(table, ("n1", "n4"), ends=False) == {
        "n1": "moves 1 replica to others",
        "n4": "moves 1 replica to others",
    }
    apply(table, *operations.drain(table, states_of(table), "n1", "n4"))
    assert {task.loses: host_of(table, task.gets) for task in begun(table)} == {1: "c", 4: "b"}


def host_of(table: PlacementTable, member: int | None) -> str:
    assert member is not None
    return table.host_of(member)


def test_no_member_of_a_host_is_drained_if_one_has_nowhere_to_go() -> None:
    table = three_hosts((1, 2, 3), (4, 2))
    with pytest.raises(PlacementRefused, match="without n1, n4, group 1 would have too few"):
        operations.drain(table, states_of(table), "n1", "n4")
    assert operations.drain(table, states_of(table), "n1"), "n4 can take what n1 has"


def test_of_a_host_that_is_partly_drained_the_rest_is() -> None:
    table = three_hosts((1, 2), (4, 2))
    apply(table, *operations.drain(table, states_of(table), "n1"))
    assert operations.effects(table, ("n1", "n4"), ends=False) == {
        "n1": "is drained already, and still moves 1 replica to others",
        "n4": "moves 1 replica to others",
    }
    apply(table, *operations.drain(table, states_of(table), "n1", "n4"))
    assert set(table.placement.draining) == {1, 4}
    assert operations.drain(table, states_of(table), "n1", "n4") == []


def test_a_host_is_drained_that_has_a_dead_member() -> None:
    """What the dead one has is made elsewhere at once, what the other one has moves."""
    table = table_of(8, (1, 2, 3), (5, 2, 3), hosts=("d", "a", "b", "c"))
    silence(table, 1)
    assert operations.effects(table, ("n1", "n5"), ends=False) == {
        "n1": "cannot be reached: 1 replica of it is made elsewhere",
        "n5": "moves 1 replica to others",
    }
    apply(table, *operations.drain(table, states_of(table), "n1", "n5"))
    kinds = {task.loses: (task.kind, host_of(table, task.gets)) for task in begun(table)}
    assert kinds == {1: (TaskKind.REPLACE, "d"), 5: (TaskKind.DRAIN, "d")}


def test_a_host_with_the_only_copy_on_a_dead_member_is_not_drained() -> None:
    table = three_hosts((1,), (4, 2))
    silence(table, 1)
    with pytest.raises(PlacementRefused, match="n1 has the only copy of group 1, and cannot be"):
        operations.drain(table, states_of(table), "n1", "n4")


def test_the_end_of_draining_a_host_is_for_each_member_that_was_drained() -> None:
    table = three_hosts((1, 2), (4, 2))
    apply(table, *operations.drain(table, states_of(table), "n1"))
    assert operations.effects(table, ("n1", "n4"), ends=True) == {
        "n1": "may have replicas again",
        "n4": "was not drained",
    }
    apply(table, *operations.stop_draining(table, "n1", "n4"))
    assert not table.placement.draining
    assert {task.kind for task in begun(table)} <= {TaskKind.BALANCE}


def test_a_lost_copy_on_named_members_may_share_a_host() -> None:
    table = table_of(4, (1, 2, 4), hosts=("a", "b", "a", "a"))
    table.placement.groups[1] = structs.replace(table.groups[1], is_pinned=True)
    table.placement.version += 1
    silence(table, 1)
    apply(table, *operations.drain(table, states_of(table, LATER_MS), "n1"))
    (task,) = begun(table, LATER_MS)
    assert (task.loses, task.gets) == (1, 3), "else n1 could never be removed"


def test_an_operator_may_name_two_members_of_a_host() -> None:
    table = table_of(3, hosts=("b", "a", "a"))  # n3 is on b
    add_groups(table, (1, 2))
    assert states_of(table).copies_of(structs.replace(table.groups[1], is_pinned=True)) == 2
    assert states_of(table).copies_of(table.groups[1]) == 2, "n3 is on another host"
