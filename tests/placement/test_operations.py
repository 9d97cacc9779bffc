"""What operators ask for, and what they are told where it cannot be."""

from __future__ import annotations

from dataclasses import replace

import pytest

from samelog.placement import operations, reassigning
from samelog.placement.changes import (
    DrainMember,
    PlaceGroups,
    WantGroup,
    WantMembers,
)
from samelog.placement.guards import refuse_removal
from samelog.placement.table import PlacementTable
from samelog.placement.tasks import PlacementRefused, TaskKind, TaskState
from samelog.placement.topics import place_by_hand
from samelog.placement.values import NewGroup
from tests.placement.tables import apply, begun, create, put, states_of, table_of


def refusal(table: PlacementTable, name: str) -> PlacementRefused:
    with pytest.raises(PlacementRefused) as caught:
        operations.drain(table, states_of(table), name)
    return caught.value


def test_who_is_drained_has_to_leave_enough_members() -> None:
    table = table_of(4, [1, 2, 3], [2, 3, 4])
    apply(table, *operations.drain(table, states_of(table), "n1"))
    found = refusal(table, "n4")
    assert found.code == "NO_MEMBER"
    assert found.message == "without n4, groups 1, 2 would have too few members: n2, n3"
    assert "samelog node add" in found.remedy
    assert operations.drain(table, states_of(table), "n1") == []
    assert operations.stop_draining(table, "n1") == [DrainMember(1, is_draining=False)]
    assert operations.stop_draining(table, "n2") == []


def test_the_only_copy_is_not_given_up() -> None:
    table = table_of(3, [1], [2, 3])
    table.put_member(replace(table.members[1], silent_since_ms=0))
    found = refusal(table, "n1")
    assert (found.code, found.message) == (
        "LAST_COPY",
        "n1 has the only copy of group 1, and cannot be reached",
    )
    with pytest.raises(PlacementRefused, match="n1 has the only copy of group 1") as caught:
        operations.check_removal(table, "n1")
    assert caught.value.remedy == "start n1, and drain it; if it is lost, delete the topics"
    with pytest.raises(PlacementRefused, match="n2 has replicas of group 2"):
        operations.check_removal(table, "n2")


def test_who_has_the_only_copy_does_not_begin_anew_unless_it_lost_it() -> None:
    table = table_of(3, [1], [2, 3])
    with pytest.raises(
        PlacementRefused, match="forgotten nothing, and has the only copy of group 1"
    ):
        operations.check_readmission(table, "n1", has_all=True)
    operations.check_readmission(table, "n1", has_all=False)
    operations.check_readmission(table, "n2", has_all=True)
    table.put_member(replace(table.members[1], silent_since_ms=0))
    operations.check_readmission(table, "n1", has_all=True)  # nobody knows what it has now


def test_who_is_unknown_is_told_who_is_known() -> None:
    table = table_of(2)
    assert refusal(table, "n9").remedy == "there are n1, n2"
    operations.check_removal(table, "n2")
    with pytest.raises(PlacementRefused, match="no task 5"):
        operations.cancel(table, 5)


def test_tasks_are_paused_resumed_and_cancelled() -> None:
    table = table_of(4, [1, 2, 3])
    apply(table, *operations.drain(table, states_of(table), "n1"))
    [task] = begun(table)
    apply(table, *operations.pause(table, task.number))
    assert operations.pause(table, task.number) == []
    assert table.placement.tasks[task.number].state is TaskState.PAUSED
    apply(table, *operations.resume(table, task.number))
    assert operations.resume(table, task.number) == []
    apply(table, *operations.cancel(table, task.number))
    assert operations.cancel(table, task.number) == []
    with pytest.raises(PlacementRefused, match="being cancelled and cannot be paused"):
        operations.pause(table, task.number)


def test_a_group_is_reassigned_whole_and_its_partitions_one_by_one() -> None:
    table = table_of(5)
    put(table, place_by_hand(table, [[1, 2], [1, 2], [2, 3]]), "t")
    assert reassigning.reassign(table, {3: [4, 5]}) == [WantMembers(2, (4, 5))]
    assert reassigning.reassign(table, {1: [4, 5], 2: [4, 5]}) == [WantMembers(1, (4, 5))]
    new = NewGroup(2, (4, 5), 4, is_pinned=True)
    assert reassigning.reassign(table, {1: [4, 5]}) == [PlaceGroups(3, (new,)), WantGroup(1, 3)]
    assert reassigning.reassign(table, {1: [2, 3]}) == [WantGroup(1, 2)]
    apply(table, *reassigning.reassign(table, {1: [4, 5]}))
    assert reassigning.reassign(table, {1: [1, 2]}) == [WantGroup(1, None)]
    assert reassigning.stop_reassigning(table, 1) == [WantGroup(1, None)]
    with pytest.raises(PlacementRefused, match="partition 2 is not being reassigned"):
        reassigning.stop_reassigning(table, 2)


def test_a_plan_of_a_hundred_partitions_makes_a_group_for_each_list() -> None:
    table = table_of(6)
    create(table, 100, 3)
    wanted = {number: [number % 6 + 1, (number + 1) % 6 + 1] for number in range(1, 101)}
    apply(table, *reassigning.reassign(table, wanted))
    assert len(table.placement.moves) == 100
    assert len([each for each in table.groups.values() if each.is_pinned]) == 6
    kinds = {task.kind for task in begun(table)}
    assert kinds == {TaskKind.MOVE_PARTITION}


@pytest.mark.parametrize(
    ("wanted", "why"),
    [
        ({9: [1]}, "there is no partition 9"),
        ({1: [7]}, "no member has the number 7"),
        ({1: [2]}, "n2 is being drained"),
    ],
)
def test_reassignments_that_cannot_be_are_refused(wanted: dict[int, list[int]], why: str) -> None:
    table = table_of(3)
    create(table, 1, 1)
    apply(table, DrainMember(2, is_draining=True))
    with pytest.raises(PlacementRefused, match=why):
        reassigning.reassign(table, wanted)


@pytest.mark.parametrize(
    ("healthy", "member", "why"),
    [
        ([1, 2, 3, 4], 1, ""),
        ([2, 3, 4], 1, ""),
        ([1, 2, 3], 1, "would have 2 whole copies, and needs 3"),
        ([1, 2], 3, "no majority"),
        ([1], 2, "would have 1 whole copies, and needs 2"),
        ([1], 1, "the only copy"),
        ([], 1, "the only copy"),
        ([1, 2], 9, ""),
    ],
)
def test_a_replica_may_go_only_when_enough_are_left(
    healthy: list[int], member: int, why: str
) -> None:
    group = table_of(4, [1, 2, 3, 4]).groups[1]
    found = refuse_removal(group, member, healthy, 3)
    assert why in found
    assert bool(why) == bool(found)
