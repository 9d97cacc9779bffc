"""A task that is cancelled is undone, or ends; nothing is left that nobody knows of."""

from __future__ import annotations

import pytest
from msgspec.structs import replace as changed

from samelog.placement import operations, reassigning
from samelog.placement.changes import (
    ConfirmGroup,
    PartitionMoved,
    TurnTask,
    WantGroup,
)
from samelog.placement.steps import TaskStep, next_step
from samelog.placement.table import PlacementTable
from samelog.placement.tasks import Action, PartitionMove, PlacementTask, TaskKind, TaskState
from samelog.placement.values import PlacedReplica
from tests.placement.tables import apply, begun, create, states_of, table_of


def cancelled(table: PlacementTable, task: PlacementTask) -> PlacementTask:
    apply(table, *operations.cancel(table, task.number))
    return table.placement.tasks[task.number]


def confirm(table: PlacementTable, *replicas: PlacedReplica) -> None:
    apply(table, ConfirmGroup(1, table.groups[1].version + 1, replicas))


def asked(step: TaskStep) -> tuple[Action, int | None] | TaskState:
    """What a step comes to."""
    if step.order is not None:
        return step.order.action, step.order.member
    assert isinstance(step.change, TurnTask)
    return step.change.state


def draining() -> tuple[PlacementTable, PlacementTask]:
    """A member with one group is drained: group 1 goes from member 1 to member 4."""
    table = table_of(4, [2, 1, 3])
    apply(table, *operations.drain(table, states_of(table), "n1"))
    [task] = begun(table)
    return table, task


def test_what_the_group_may_not_know_yet_is_fenced_off() -> None:
    table, task = draining()
    task = cancelled(table, task)
    assert asked(next_step(table, states_of(table), task)) == (Action.REMOVE, 4)
    confirm(table, *table.groups[1].replicas[:3])
    assert asked(next_step(table, states_of(table), task)) == TaskState.CANCELLED


@pytest.mark.parametrize("votes", [False, True])
def test_a_new_replica_is_removed_again(votes: bool) -> None:
    table, task = draining()
    *old, new = table.groups[1].replicas
    confirm(table, *old, changed(new, votes=votes, is_whole=True))
    task = cancelled(table, task)
    assert asked(next_step(table, states_of(table), task)) == (Action.REMOVE, 4)
    confirm(table, *old)
    assert asked(next_step(table, states_of(table), task)) == TaskState.CANCELLED


def test_what_has_taken_the_place_of_another_stays() -> None:
    table, task = draining()
    two, _, three, new = table.groups[1].replicas
    confirm(table, two, three, changed(new, votes=True, is_whole=True))
    task = cancelled(table, task)
    assert asked(next_step(table, states_of(table), task)) == TaskState.DONE


def moving() -> tuple[PlacementTable, PlacementTask]:
    """Partition 1 moves from group 1 to group 2."""
    table = table_of(4)
    create(table, 8, 2)
    apply(table, *reassigning.reassign(table, {1: [3, 4]}))
    task = next(each for each in begun(table) if each.kind is TaskKind.MOVE_PARTITION)
    return table, task


def test_a_move_that_is_cancelled_before_the_seal_forbids_it() -> None:
    table, task = moving()
    states, target = states_of(table), task.target
    task = cancelled(table, task)
    copied = PartitionMove(is_copied=True, has_files=True)
    steps = [
        next_step(table, states, task, copied),
        next_step(table, states, task, changed(copied, is_forbidden=True)),
        next_step(table, states, task, PartitionMove(is_forbidden=True)),
    ]
    orders = [
        None if each.order is None else (each.order.action, each.order.group) for each in steps
    ]
    assert orders == [(Action.FORBID_SEAL, 1), (Action.DROP_PARTITION, target), None]
    assert asked(steps[-1]) == TaskState.CANCELLED


def test_a_move_that_is_cancelled_behind_the_seal_goes_on() -> None:
    table, task = moving()
    states = states_of(table)
    task = cancelled(table, task)
    sealed = PartitionMove(is_copied=True, is_sealed=True, has_files=True)
    assert asked(next_step(table, states, task, sealed)) == (Action.OPEN_PARTITION, None)
    step = next_step(table, states, task, changed(sealed, is_open=True))
    assert step.change == PartitionMoved(task.number)
    apply(table, step.change)
    step = next_step(table, states, task, changed(sealed, is_open=True))
    assert step.order is not None
    assert (step.order.action, step.order.group) == (Action.DROP_PARTITION, 1)
    gone = changed(sealed, is_open=True, is_dropped=True)
    assert asked(next_step(table, states, task, gone)) == TaskState.DONE


def is_moved(table: PlacementTable, task: PlacementTask) -> None:
    """The partition is open in the group that the task moves it to."""
    apply(table, PartitionMoved(task.number), TurnTask(task.number, TaskState.DONE))


def test_where_a_partition_is_wanted_last_counts_though_another_move_ends() -> None:
    table, task = moving()
    apply(table, *reassigning.reassign(table, {1: [2, 4]}))
    newest = table.placement.moves[1]
    assert newest != task.target
    is_moved(table, task)
    assert table.placement.moves == {1: newest}
    [second] = [each for each in begun(table) if each.kind is TaskKind.MOVE_PARTITION]
    assert (second.partition, second.target) == (1, newest)
    is_moved(table, second)
    assert table.placement.moves == {}


def test_a_partition_that_is_wanted_back_comes_back() -> None:
    table, task = moving()
    home = table.partitions[1].group
    apply(table, *reassigning.reassign(table, {1: table.groups[home].in_order}))
    assert task.number in table.placement.tasks
    is_moved(table, task)
    [back] = [each for each in begun(table) if each.kind is TaskKind.MOVE_PARTITION]
    assert (back.partition, back.target) == (1, home)
    is_moved(table, back)
    assert table.placement.moves == {}


def test_who_cancels_a_move_cancels_that_one() -> None:
    table, task = moving()
    apply(table, *reassigning.reassign(table, {1: [2, 4]}))
    newest = table.placement.moves[1]
    cancelled(table, task)
    assert table.placement.moves == {1: newest}
    table, task = moving()
    home = table.partitions[1].group
    apply(table, *reassigning.reassign(table, {1: table.groups[home].in_order}))
    cancelled(table, task)
    assert table.placement.moves == {}, "it is where it is wanted"


def test_who_is_where_it_is_wanted_waits_for_nothing() -> None:
    """A reset waits until nothing moves."""
    table, task = moving()
    home = table.partitions[1].group
    apply(table, WantGroup(1, home))
    assert table.placement.moves == {1: home}, "it is taken away meanwhile"
    apply(table, TurnTask(task.number, TaskState.CANCELLED))
    assert table.placement.moves == {}
    apply(table, WantGroup(1, task.target), WantGroup(1, home))
    assert table.placement.moves == {}
