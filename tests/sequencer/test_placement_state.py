"""Changes of the table of placement in the replicated state: done or refused, never by half."""

from __future__ import annotations

from typing import Any

import pytest

from samelog.placement.changes import (
    AllowTasks,
    AnyChange,
    ConfirmGroup,
    DrainMember,
    DropGroup,
    PartitionMoved,
    PauseTasks,
    PlaceGroups,
    PreferLeader,
    ReachMembers,
    StartTask,
    TopicsDropped,
    TurnTask,
    WantGroup,
    WantMembers,
)
from samelog.placement.tasks import PlacementTask, TaskKind, TaskState
from samelog.placement.values import NewGroup, PlacedReplica
from samelog.sequencer.state.command_base import Rejection
from samelog.sequencer.state.commands import decode_commands, encode_commands
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.tables.members import Member, SetMembers
from samelog.sequencer.state.tables.placement import ChangePlacement

MOVE = PlacementTask(1, TaskKind.DRAIN, 1, gets=3, loses=0, replica=4, reason="n0 is drained")


@pytest.fixture
def machine() -> StateMachine:
    """Four members, and a group of three."""
    machine = StateMachine()
    machine.state.members.by_number = {
        number: Member(
            number, f"n{number}", f"n{number}:1", f"samelog://node/n{number}", voter=True
        )
        for number in range(4)
    }
    apply(machine, PlaceGroups(1, (NewGroup(3, (0, 1, 2), 0),)))
    return machine


def apply(machine: StateMachine, *changes: AnyChange, since: int = -1) -> Any:
    """As it comes from the log."""
    (command,) = decode_commands(encode_commands([ChangePlacement(since, list(changes))]))
    return machine.apply(command)


def refusal(machine: StateMachine, *changes: AnyChange, since: int = -1) -> str:
    before = machine.encode()
    outcome = apply(machine, *changes, since=since)
    assert isinstance(outcome, Rejection)
    assert machine.encode() == before
    return outcome.code


def members(machine: StateMachine) -> list[int]:
    """Of the group, by the table."""
    return list(machine.state.placement.groups[1].members)


def test_every_change_is_the_same_behind_the_log() -> None:
    replica = PlacedReplica(1, 2, votes=False, is_whole=False, made_at=7)
    changes: list[AnyChange] = [
        StartTask(MOVE),
        TurnTask(1, TaskState.CANCELLING, "why", declines=True),
        PauseTasks(are_paused=True),
        AllowTasks((TaskKind.BALANCE,), 5),
        PlaceGroups(1, (NewGroup(1, (0,), 0, is_pinned=True),)),
        DropGroup(1),
        ConfirmGroup(1, 2, (replica,)),
        WantMembers(1, (1, 2)),
        ReachMembers(1),
        PreferLeader(1, 2),
        WantGroup(1, None),
        PartitionMoved(1),
        DrainMember(1, is_draining=True),
        TopicsDropped(1, 7),
    ]
    command = ChangePlacement(3, changes)
    assert decode_commands(encode_commands([command])) == [command]


def test_what_was_planned_from_another_table_is_refused(machine: StateMachine) -> None:
    version = machine.state.placement.version
    assert refusal(machine, PauseTasks(are_paused=True), since=version - 1) == "PLACEMENT_MOVED"
    assert not isinstance(apply(machine, PauseTasks(are_paused=True), since=version), Rejection)
    assert machine.state.placement.are_paused


def test_a_task_has_its_group_alone(machine: StateMachine) -> None:
    apply(machine, StartTask(MOVE))
    placement = machine.state.placement
    assert placement.groups[1].replicas[-1] == PlacedReplica(
        3, 4, votes=False, is_whole=False, made_at=placement.version
    )
    assert placement.groups[1].preferred == 3, "who loses its replica shall not lead on"
    again = PlacementTask(2, TaskKind.BALANCE, 1, gets=3, loses=1, replica=5)
    assert refusal(machine, StartTask(again)) == "OCCUPIED"
    assert refusal(machine, DropGroup(1)) == "IN_USE"


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (StartTask(PlacementTask(9, TaskKind.FILL, 1, gets=3, replica=4)), "OVERTAKEN"),
        (StartTask(PlacementTask(1, TaskKind.FILL, 1, gets=3, replica=9)), "OVERTAKEN"),
        (StartTask(PlacementTask(1, TaskKind.FILL, 1, gets=2, replica=4)), "OVERTAKEN"),
        (StartTask(PlacementTask(1, TaskKind.FILL, 8, gets=3, replica=4)), "UNKNOWN_GROUP"),
        (TurnTask(1, TaskState.DONE), "UNKNOWN_TASK"),
        (PlaceGroups(7, ()), "OVERTAKEN"),
        (DropGroup(7), "UNKNOWN_GROUP"),
        (ConfirmGroup(7, 1, ()), "UNKNOWN_GROUP"),
        (ConfirmGroup(1, -1, ()), "OVERTAKEN"),
        (PreferLeader(1, 3), "NO_VOTER"),
        (WantGroup(1, 1), "UNKNOWN_PARTITION"),
        (PartitionMoved(1), "UNKNOWN_TASK"),
    ],
)
def test_what_does_not_hold_changes_nothing(
    machine: StateMachine, change: AnyChange, code: str
) -> None:
    assert refusal(machine, change) == code


def test_what_is_refused_stops_nothing_else(machine: StateMachine) -> None:
    outcome = apply(machine, DropGroup(7), DrainMember(2, is_draining=True))
    assert not isinstance(outcome, Rejection)
    assert machine.state.placement.draining == [2]
    assert isinstance(apply(machine, DropGroup(7)), Rejection), "nothing is changed"


def test_who_is_removed_is_drained_no_more(machine: StateMachine) -> None:
    apply(machine, DrainMember(2, is_draining=True), DrainMember(3, is_draining=True))
    rest = [each for each in machine.state.members.by_number.values() if each.number != 3]
    machine.apply(SetMembers(rest))
    assert machine.state.placement.draining == [2]


def test_what_a_cancelled_task_made_is_gone_when_the_group_says_so(machine: StateMachine) -> None:
    apply(machine, StartTask(MOVE))
    old = machine.state.placement.groups[1].replicas[:3]
    apply(machine, ConfirmGroup(1, 1, old))
    assert members(machine) == [0, 1, 2, 3], "the group may not know yet"
    apply(machine, TurnTask(1, TaskState.CANCELLING, declines=True))
    apply(machine, ConfirmGroup(1, 2, old))
    assert members(machine) == [0, 1, 2]
    apply(machine, TurnTask(1, TaskState.CANCELLED))
    placement = machine.state.placement
    assert (placement.tasks, placement.declined) == ({}, [(TaskKind.DRAIN, 1)])
    apply(machine, AllowTasks((TaskKind.DRAIN,)))
    assert machine.state.placement.declined == []


def test_a_snapshot_has_all_of_it(machine: StateMachine) -> None:
    apply(machine, StartTask(MOVE), DrainMember(0, is_draining=True), WantMembers(1, (1, 2, 3)))
    again = StateMachine.decode(machine.encode())
    assert again.state.placement == machine.state.placement
