"""Partitions leave group 0 for a data group: what it keeps of them, and what the table says."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from samelog.config.authorisation import NODE_PREFIX
from samelog.placement.changes import PartitionMoved, PlaceGroups, StartTask, TurnTask, WantGroup
from samelog.placement.planner import PlacementPlanner
from samelog.placement.steps import next_step
from samelog.placement.table import PlacementTable
from samelog.placement.tasks import Action, PartitionMove, PlacementTask, TaskKind, TaskState
from samelog.placement.values import (
    EPOCHS_PER_MOVE,
    METADATA,
    NewGroup,
    PlacedPartition,
    PlacedReplica,
)
from samelog.sequencer.state.command_base import Rejection
from samelog.sequencer.state.instructions import Merge, Range
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.tables.epochs import EpochsTable
from samelog.sequencer.state.tables.placement import ChangePlacement
from samelog.sequencer.state.tables.sessions import (
    CloseRun,
    OpenInputCommand,
    OpenRunCommand,
)
from samelog.sequencer.state.tables.topics import CreateTopicCommand, DeleteTopicCommand
from samelog.sequencer.state.tables.transfers import PassPartition
from samelog.sequencer.state.units.moves import Carried, carry
from samelog.sequencer.state.units.stubs import may_leave
from tests.placement.tables import LIMITS, states_of, table_of

TOPIC, TARGET = "a" * 32, 1
MOVING, STAYING = 1, 2
EPOCH_BASE, RESET_BASE = 7, 1 << 20


class Cluster:
    """The state of group 0: a topic of two partitions, a group to move to, and a session."""

    def __init__(self) -> None:
        self.machine = StateMachine()
        self.state = self.machine.state
        self.do(CreateTopicCommand(TOPIC, "t", 2, {}, 1))
        self.change(PlaceGroups(1, (NewGroup(1, (1,), 1),)))
        self.state.epochs = EpochsTable(RESET_BASE, 3, {MOVING: EPOCH_BASE})
        for name, identity in (("p", "i"), ("node:n1", NODE_PREFIX + "n1")):
            self.do(OpenRunCommand(name, name, identity, 0, f"{name}-0", None, None))
            self.do(OpenInputCommand(name, TOPIC, 0))
        self.do(OpenInputCommand("p", TOPIC, 1))
        self.merge(MOVING, 5)

    def do(self, command: Any) -> Any:
        return self.machine.apply(command)

    def change(self, *changes: Any) -> Any:
        return self.do(ChangePlacement(-1, list(changes)))

    def merge(self, partition: int, size: int) -> Any:
        entry = self.machine.state.sessions.input_of("p", partition)
        known = self.state.partitions.by_number[partition]
        assert entry is not None
        part = Range(entry.number, entry.run, 0, entry.byte, entry.byte + size, size, 1, 0)
        return self.do(Merge(partition, known.next_offset, 1, 1, False, [part]))

    def moves(self) -> None:
        """A task begins, and the partition is sealed."""
        task = PlacementTask(1, TaskKind.MOVE_PARTITION, METADATA, partition=MOVING, target=TARGET)
        self.change(WantGroup(MOVING, TARGET), StartTask(task))
        self.step(Action.HOLD_PARTITION)
        self.step(Action.SEAL_PARTITION)

    def step(self, action: Action) -> Any:
        return self.do(PassPartition(1, action, MOVING, b""))


def moved() -> Cluster:
    """Its partition is open in the group, and not here any more."""
    cluster = Cluster()
    cluster.moves()
    cluster.change(PartitionMoved(1))
    cluster.step(Action.DROP_PARTITION)
    cluster.change(TurnTask(1, TaskState.DONE))
    return cluster


def test_what_has_left_is_as_what_was_made_in_a_data_group() -> None:
    cluster = moved()
    state, table = cluster.state, cluster.state.placement
    base = RESET_BASE + EPOCH_BASE + EPOCHS_PER_MOVE
    assert table.partitions == {MOVING: PlacedPartition(MOVING, TOPIC, 0, TARGET, base, 3)}
    assert (table.moves, table.tasks) == ({}, {})
    assert (state.epochs.by_partition, state.transfers.left) == ({}, [])
    assert state.topics.by_id[TOPIC].is_placed
    assert state.partitions.by_number[MOVING].next_offset == 0
    assert table.group_of(STAYING) == METADATA
    assert not isinstance(cluster.merge(STAYING, 3), Rejection), "the other one goes on here"


def test_the_group_learns_of_the_same_leader_epochs() -> None:
    cluster = Cluster()
    told = msgspec.msgpack.decode(carry(cluster.state, MOVING, is_sealed=True), type=Carried)
    group = EpochsTable()
    group.import_(MOVING, told.tables["epochs"])
    assert group.base_of(MOVING) == RESET_BASE + EPOCH_BASE + EPOCHS_PER_MOVE


def test_the_table_names_nothing_before_it_is_open_elsewhere() -> None:
    cluster = Cluster()
    cluster.moves()
    assert cluster.state.placement.group_of(MOVING) == METADATA
    assert not cluster.state.topics.by_id[TOPIC].is_placed
    assert isinstance(cluster.merge(MOVING, 1), Rejection), "it is sealed"


def test_a_run_ends_once_the_group_has_ended_its_part() -> None:
    """Group 0 knows who wrote to a partition that has left it, by the same number as before."""
    cluster = Cluster()
    before = cluster.machine.state.sessions.input_of("p", MOVING)
    cluster.moves()
    cluster.change(PartitionMoved(1))
    cluster.step(Action.DROP_PARTITION)
    entry = cluster.machine.state.sessions.input_of("p", MOVING)
    assert entry is not None
    assert before is not None
    assert entry.number == before.number
    assert cluster.machine.state.sessions.input_of("node:n1", MOVING) is None, (
        "nodes have another session there"
    )
    cluster.do(CloseRun("p", "p-0", 1, [(MOVING, 0, 12)]))
    [run] = cluster.state.sessions.by_name["p"].runs
    assert (entry.number, 0, 12) in run.ends


def test_where_a_closed_run_ended_stays_known() -> None:
    cluster = Cluster()
    cluster.do(CloseRun("p", "p-0", 1))
    [run] = cluster.state.sessions.by_name["p"].runs
    ends = list(run.ends)
    cluster.moves()
    cluster.change(PartitionMoved(1))
    cluster.step(Action.DROP_PARTITION)
    assert run.ends == ends
    assert all(number in cluster.state.sessions.inputs for number, *_ in ends)


def test_only_group_0_lets_partitions_leave() -> None:
    cluster = Cluster()
    assert not isinstance(cluster.change(WantGroup(MOVING, TARGET)), Rejection)
    cluster.state.placement.own = [PlacedReplica(1, 1)]
    assert not may_leave(cluster.state), "of a data group"


def test_a_deleted_topic_is_wanted_nowhere() -> None:
    cluster = Cluster()
    cluster.change(WantGroup(MOVING, TARGET))
    cluster.do(DeleteTopicCommand(TOPIC))
    assert cluster.state.placement.moves == {}


# --- what the leader of group 0 asks for ----------------------------------------------------------


def leaving_table() -> PlacementTable:
    """Three members, one group, and partitions 7 and 8 of group 0, which are to go there."""
    table = table_of(3, (1,))
    table.own = {7, 8}
    table.placement.moves.update({7: 1, 8: 1})
    table.placement.version += 1
    table.follow(table.placement)
    return table


def test_partitions_leave_one_by_one() -> None:
    table = leaving_table()
    planner = PlacementPlanner(table, LIMITS)
    [start] = planner.look(0).changes
    assert isinstance(start, StartTask)
    task = start.task
    assert (task.kind, task.group, task.partition, task.target) == (
        TaskKind.MOVE_PARTITION,
        METADATA,
        7,
        1,
    )
    table.placement.tasks[1] = task
    table.placement.version += 1
    planned = planner.look(1)
    assert planned.changes == []
    assert [(each.action, each.group) for each in planned.orders] == [
        (Action.HOLD_PARTITION, METADATA)
    ]


@pytest.mark.parametrize(
    ("moved_so_far", "action", "group"),
    [
        (PartitionMove(), Action.HOLD_PARTITION, METADATA),
        (PartitionMove(is_held=True), Action.COPY_PARTITION, 1),
        (PartitionMove(is_held=True, is_copied=True), Action.SEAL_PARTITION, METADATA),
        (PartitionMove(is_copied=True, is_sealed=True), Action.OPEN_PARTITION, 1),
    ],
)
def test_group_0_is_asked_as_any_other(
    moved_so_far: PartitionMove, action: Action, group: int
) -> None:
    table = leaving_table()
    task = PlacementTask(1, TaskKind.MOVE_PARTITION, METADATA, partition=7, target=1)
    step = next_step(table, states_of(table), task, moved_so_far)
    assert step.order is not None
    assert (step.order.action, step.order.group) == (action, group)
    table.own = ()
    gone = next_step(table, states_of(table), task, moved_so_far)
    assert gone.change == TurnTask(1, TaskState.CANCELLED, "the partition is gone")


def test_one_that_is_cancelled_is_first_forbidden_to_be_sealed() -> None:
    table = leaving_table()
    task = PlacementTask(1, TaskKind.MOVE_PARTITION, METADATA, partition=7, target=1)
    task = replace(task, state=TaskState.CANCELLING)
    step = next_step(table, states_of(table), task, PartitionMove(has_files=True))
    assert step.order is not None
    assert (step.order.action, step.order.group) == (Action.FORBID_SEAL, METADATA)
