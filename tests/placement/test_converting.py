"""Another number of copies for a topic: its partitions move to groups that have so many."""

from __future__ import annotations

import pytest

from samelog.placement.changes import PlaceGroups, WantGroup, apply_change
from samelog.placement.converting import change_copies
from samelog.placement.table import PlacementTable
from samelog.placement.tasks import PlacementRefused, TaskKind
from tests.placement.tables import apply, begun, create, states_of, table_of


def convert(table: PlacementTable, copies: int) -> None:
    apply(table, *change_copies(table, states_of(table), sorted(table.partitions), copies))


def goals(table: PlacementTable) -> list[int]:
    """How many copies each partition has when it is where it is wanted."""
    wanted = table.placement.moves
    return [
        table.groups[wanted.get(number, placed.group)].goal
        for number, placed in sorted(table.partitions.items())
    ]


@pytest.mark.parametrize(("before", "after"), [(1, 3), (3, 1), (2, 5)])
def test_all_partitions_move_to_groups_of_so_many_copies(before: int, after: int) -> None:
    table = table_of(5)
    create(table, 6, before)
    convert(table, after)
    assert goals(table) == [after] * 6
    assert all(len(table.groups[each].replicas) == after for each in table.placement.moves.values())
    assert TaskKind.MOVE_PARTITION in {task.kind for task in begun(table)}


def test_what_has_as_many_copies_stays() -> None:
    table = table_of(3)
    create(table, 2, 3)
    assert change_copies(table, states_of(table), sorted(table.partitions), 3) == []
    convert(table, 1)
    assert change_copies(table, states_of(table), sorted(table.partitions), 1) == []


def test_who_thinks_again_has_what_has_not_moved_stay() -> None:
    table = table_of(3)
    create(table, 2, 3)
    numbers = sorted(table.partitions)
    convert(table, 1)
    back = change_copies(table, states_of(table), numbers, 3)
    assert back == [WantGroup(number, None) for number in numbers]
    apply(table, *back)
    assert goals(table) == [3, 3]


def test_who_thinks_again_waits_for_what_is_being_moved() -> None:
    table = table_of(3)
    create(table, 2, 3)
    convert(table, 1)
    assert begun(table)
    with pytest.raises(PlacementRefused, match="being moved"):
        change_copies(table, states_of(table), sorted(table.partitions), 3)
    assert change_copies(table, states_of(table), sorted(table.partitions), 1) == []


def test_what_is_in_group_0_has_as_many_copies_as_there_are_members() -> None:
    table = table_of(3)
    table.own = {7, 8}
    assert change_copies(table, states_of(table), [7, 8], 3) == []
    new, *wanted = change_copies(table, states_of(table), [7, 8], 1)
    assert isinstance(new, PlaceGroups)
    apply(table, new)
    for change in wanted:
        apply_change(table.placement, change, may_leave=table.own)
    table.follow(table.placement)
    assert set(table.placement.moves) == {7, 8}
    assert {table.groups[each].copies for each in table.placement.moves.values()} == {1}
    back = change_copies(table, states_of(table), [7, 8], 3)
    assert back == [WantGroup(7, None), WantGroup(8, None)], "they have not moved yet"


@pytest.mark.parametrize("copies", [0, 8])
def test_impossible_numbers_are_refused(copies: int) -> None:
    table = table_of(3)
    create(table, 2, 3)
    with pytest.raises(PlacementRefused):
        convert(table, copies)
