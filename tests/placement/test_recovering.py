"""A group whose majority is lost for ever, as the table of placement has it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec import structs

from samelog.placement import operations
from samelog.placement.changes import ConfirmGroup, RecoverGroup, StartTask, apply_change
from samelog.placement.table import PlacementTable
from samelog.placement.tasks import PlacementRefused, PlacementTask, TaskKind, TaskState
from samelog.placement.values import NumbersLeftOut, Placement
from samelog.sequencer.data_groups.leftovers import Leftovers, leftovers
from samelog.sequencer.data_groups.seats import FORMAT_VERSION, ReplicaRecord, is_overtaken
from tests.placement.tables import apply, table_of

GROUP = 1


def silent(table: PlacementTable, *members: int) -> PlacementTable:
    for number in members:
        table.put_member(replace(table.members[number], silent_since_ms=0))
    return table


def refusal(table: PlacementTable, name: str, group: int = GROUP) -> str:
    with pytest.raises(PlacementRefused) as caught:
        operations.recover(table, name, group)
    return caught.value.code


def test_only_what_has_lost_its_majority_goes_on_with_one() -> None:
    table = table_of(4, [1, 2, 3])
    assert refusal(table, "n1") == "HAS_MAJORITY"
    assert refusal(silent(table, 2), "n1") == "HAS_MAJORITY"
    silent(table, 3)
    assert operations.recover(table, "n1", GROUP) == [RecoverGroup(GROUP, 1)]
    assert refusal(table, "n2") == "SILENT"
    assert refusal(table, "n4") == "NO_REPLICA"
    assert refusal(table, "n1", 9) == "UNKNOWN_GROUP"
    assert refusal(table, "n9") == "UNKNOWN_MEMBER"


def test_who_counts_for_nothing_is_no_part_of_a_majority() -> None:
    """Of three replicas one is lost, and one may have forgotten: nobody can let that one in."""
    table = silent(table_of(4, [1, 2, 3]), 3)
    assert operations.recover(table, "n1", GROUP, ["n2"]) == [RecoverGroup(GROUP, 1)]
    assert operations.recover(table, "n2", GROUP, ["n2"]) == [RecoverGroup(GROUP, 2)]
    with pytest.raises(PlacementRefused, match="a majority"):
        operations.recover(table, "n1", GROUP, ["n3"])


def test_the_replicas_of_others_are_none_any_more() -> None:
    table = table_of(4, [1, 2, 3])
    before = table.groups[GROUP]
    apply(table, RecoverGroup(GROUP, 2))
    group = table.groups[GROUP]
    assert group.replicas == (before.replica_of(2),)
    assert (group.preferred, group.copies) == (2, 3)
    assert group.is_recovering
    assert group.is_to_go_on_with(2)
    assert not group.is_to_go_on_with(1)
    with pytest.raises(PlacementRefused, match="no replica"):
        apply_change(table.placement, RecoverGroup(GROUP, 1))


def test_a_task_that_changes_the_group_ends_and_none_begins_before_it_goes_on() -> None:
    table = table_of(4, [1, 2, 3])
    running = PlacementTask(1, TaskKind.REPLACE, GROUP, gets=4, loses=3, replica=4)
    apply(table, StartTask(running), RecoverGroup(GROUP, 1))
    assert [each.state for each in table.placement.ended] == [TaskState.CANCELLED]
    fill = PlacementTask(2, TaskKind.FILL, GROUP, gets=2, replica=5)
    with pytest.raises(PlacementRefused, match="has yet to go on alone"):
        apply_change(table.placement, StartTask(fill))
    group = table.groups[GROUP]
    apply(table, ConfirmGroup(GROUP, group.recovered, group.replicas))
    assert not table.groups[GROUP].is_recovering
    apply(table, StartTask(fill))
    assert [each.votes for each in table.groups[GROUP].replicas] == [True, False]


def test_a_replica_that_is_new_does_not_go_on_alone() -> None:
    table = table_of(4, [1, 2, 3])
    apply(table, RecoverGroup(GROUP, 1))
    group = table.groups[GROUP]
    learner = structs.replace(group.replicas[0], member=2, replica=9, votes=False)
    with_more = structs.replace(group, replicas=(*group.replicas, learner))
    assert with_more.is_to_go_on_with(1)
    assert not with_more.is_to_go_on_with(2)


def test_the_lost_replicas_confirm_nothing_any_more() -> None:
    table = table_of(4, [1, 2, 3])
    before = table.groups[GROUP].replicas
    apply(table, RecoverGroup(GROUP, 2))
    with pytest.raises(PlacementRefused, match="newer configuration"):
        apply_change(table.placement, ConfirmGroup(GROUP, 5, before))
    apply(table, RecoverGroup(GROUP, 2))
    assert table.groups[GROUP].recovered == 2000, "asked again it is another life"


def test_what_a_recovered_table_may_have_forgotten_is_unknown_and_not_gone() -> None:
    table = Placement(next_group=3, next_replica=7)
    table.next_group = table.skipped.leave_out("group", table.next_group, 10)
    table.next_replica = table.skipped.leave_out("replica", table.next_replica, 10)
    assert (table.next_group, table.next_replica) == (13, 17)
    assert leftovers(table, [1, 4, 20]) == Leftovers(gone=(1,), unknown=(4, 20))
    group = table_of(4, [1, 2, 3]).groups[GROUP]
    for number, is_known in ((6, True), (8, False), (18, False)):
        record = ReplicaRecord(FORMAT_VERSION, number, 0)
        assert is_overtaken(record, group, 4, table) is is_known
    assert not NumbersLeftOut().has_given("group", 3, 3)
