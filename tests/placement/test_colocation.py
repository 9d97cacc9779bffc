"""Topics that share the group of another one: where that can be, and that they stay there."""

from __future__ import annotations

from dataclasses import replace

import pytest

from samelog.placement.changes import WantGroup
from samelog.placement.colocation import are_kept, home_of, keep_together, let_go
from samelog.placement.reassigning import reassign
from samelog.placement.table import PlacementTable
from samelog.placement.tasks import PlacementRefused
from samelog.placement.values import METADATA, Placement
from samelog.sequencer.admin.placement import PlacementPlan
from samelog.sequencer.state.command_base import Rejection
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.tables.members import Member, MembersTable
from samelog.sequencer.state.tables.placement import ChangePlacement, PlaceTopic
from samelog.sequencer.state.tables.topics import CreateTopicCommand, DeleteTopicCommand
from samelog.sequencer.state.types import State
from tests.placement.tables import add_groups, apply, put_partitions, table_of


def home(table: PlacementTable, *partitions: int) -> int:
    return home_of(table.placement, table, "orders", partitions)


def test_the_home_of_a_topic_is_its_only_group() -> None:
    table = table_of(3, (1, 2, 3), (2, 3))
    put_partitions(table, "t", [1, 1, 2])
    assert home(table, 1, 2) == 1
    assert home(table, 77) == METADATA
    with pytest.raises(PlacementRefused, match="are in groups 1, 2"):
        home(table, 1, 3)


def test_a_topic_that_moves_or_has_no_majority_has_no_home() -> None:
    table = table_of(3, (1, 2, 3), (2, 3))
    put_partitions(table, "t", [1, 2])
    apply(table, WantGroup(1, 2))
    with pytest.raises(PlacementRefused, match="is being moved"):
        home(table, 1)
    table.put_member(replace(table.members[3], silent_since_ms=0))
    with pytest.raises(PlacementRefused, match="has no majority"):
        home(table, 2)


def test_they_are_reassigned_with_their_group_only() -> None:
    table = table_of(3, (1, 2), (2, 3))
    put_partitions(table, "a", [1])
    put_partitions(table, "b", [1])
    keep_together(table.placement, "b", "a")
    with pytest.raises(PlacementRefused, match="they move together only"):
        reassign(table, {1: [2, 3]})
    apply(table, *reassign(table, {1: [2, 3], 2: [2, 3]}))
    assert table.groups[1].wanted == (2, 3)


def test_who_is_left_alone_is_free_again() -> None:
    placement = Placement()
    keep_together(placement, "b", "a")
    keep_together(placement, "c", "b")
    assert placement.together == {"a": "a", "b": "a", "c": "a"}
    let_go(placement, ["a"])
    assert are_kept(placement, "b")
    assert are_kept(placement, "c")
    let_go(placement, ["c"])
    assert not are_kept(placement, "b")


@pytest.fixture
def machine() -> StateMachine:
    """Group 0 of three members, and a data group of them."""
    known = {number: Member(number, f"n{number}", "", "", voter=True) for number in (1, 2, 3)}
    made = StateMachine(State(members=MembersTable(by_number=known)))
    table = table_of(3)
    table.placement = made.state.placement
    add_groups(table, (1, 2, 3), (1, 2))
    made.apply(PlaceTopic(table.placement.version, "o" * 32, "orders", {}, 0, [], [1]))
    return made


def beside(name: str, other: str, partitions: int = 2) -> CreateTopicCommand:
    return CreateTopicCommand(name * 32, name, partitions, {}, 0, other * 32)


def plan(machine: StateMachine) -> PlacementPlan:
    return PlacementPlan(machine.state, lambda _: True, 0)


def groups(machine: StateMachine, name: str) -> set[int]:
    topic = machine.state.topics.named(name)
    assert topic is not None
    return {machine.state.placement.group_of(each) for each in topic.partition_numbers}


def test_a_topic_and_its_later_partitions_go_where_the_other_one_is(machine: StateMachine) -> None:
    machine.apply(plan(machine).topic_beside(beside("f", "o")))
    assert groups(machine, "f") == {1}
    for name in ("orders", "f"):
        topic = machine.state.topics.named(name)
        assert topic is not None
        machine.apply(plan(machine).partitions(topic, 5))
        assert groups(machine, name) == {1}, "the other group has fewer partitions"
        with pytest.raises(PlacementRefused, match="name no members"):
            plan(machine).partitions(topic, 6, by_hand=[[1, 2, 3]])
    assert are_kept(machine.state.placement, "o" * 32)
    machine.apply(DeleteTopicCommand("f" * 32))
    assert not are_kept(machine.state.placement, "o" * 32)


def test_in_group_0_too(machine: StateMachine) -> None:
    machine.apply(CreateTopicCommand("e" * 32, "everywhere", 1, {}, 0))
    machine.apply(plan(machine).topic_beside(beside("f", "e")))
    assert groups(machine, "f") == {METADATA}
    assert are_kept(machine.state.placement, "e" * 32)


def test_what_was_planned_from_an_older_table_is_rejected(machine: StateMachine) -> None:
    planned = plan(machine).topic_beside(beside("f", "o"))
    number = machine.state.topics.by_id["o" * 32].partition_numbers[0]
    machine.apply(ChangePlacement(-1, [WantGroup(number, 2)]))
    outcome = machine.apply(planned)
    assert isinstance(outcome, Rejection)
    assert outcome.code == "PLACEMENT_MOVED"
    machine.apply(DeleteTopicCommand("o" * 32))
    assert machine.apply(planned).code == "UNKNOWN_TOPIC"
    assert machine.state.topics.named("f") is None
