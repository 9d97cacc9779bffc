"""Runs with bytes in data groups: where they begin there, and when they are over."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from samelog.format.positions import SessionPosition
from samelog.format.steps import finished
from samelog.placement.tasks import PlacementTask, TaskKind
from samelog.placement.values import NewGroup
from samelog.sequencer.data_groups import ending
from samelog.sequencer.data_groups.ending import (
    ALL_S,
    UnsettledRuns,
    closed,
    closed_parts,
    come_in_between,
    comes_first,
    end_run,
    groups_of,
    named_ends,
    overtaken,
    parts_to_come,
)
from samelog.sequencer.raft.closing import AWAITED_S, CHECKED, HELD_UP_S, UNKNOWN, RunCloser
from samelog.sequencer.raft.views import NodeView
from samelog.sequencer.state.command_base import Rejection
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.tables.members import Member
from samelog.sequencer.state.tables.placement import OpenPartition, PlaceTopic
from samelog.sequencer.state.tables.session_index import SessionIndex
from samelog.sequencer.state.tables.sessions import (
    PARTS_MOST,
    RUNS_REMEMBERED,
    CloseRun,
    Expire,
    OpenInputCommand,
    OpenPlacedInput,
    OpenRunCommand,
    RetireSessionCommand,
)
from samelog.sequencer.state.tables.stages import StagedPart, StagedUnit
from samelog.sequencer.state.tables.topics import CreateTopicCommand, DeleteTopicCommand
from samelog.sequencer.state.two_phase import TwoPhase
from samelog.sequencer.state.types import State

SESSION, TOPIC = "s", "t" * 32
END = (0, 400)


def group_0() -> StateMachine:
    """One session with an open run, and a topic with a partition in each of two data groups."""
    machine = StateMachine()
    machine.state.members.by_number[0] = Member(0, "a", "a:1", "x", voter=True)
    groups = [NewGroup(1, (0,), 0), NewGroup(1, (0,), 0)]
    machine.apply(PlaceTopic(0, TOPIC, "t", {}, 1, groups, [1, 2]))
    open_run(machine, 0)
    for partition in range(2):
        machine.apply(OpenInputCommand(SESSION, TOPIC, partition))
    return machine


def open_run(machine: StateMachine, number: int) -> Any:
    """Its id is its number."""
    return machine.apply(OpenRunCommand(SESSION, "d", "i", number, str(number), None, None))


def data_group() -> StateMachine:
    """With the first of these partitions."""
    machine = StateMachine()
    machine.apply(OpenPartition(1, TOPIC, "t", {}, 1, [1, 2]))
    return machine


def begin(machine: StateMachine, number: int, stage: str | None = None, *, after: int = -1) -> Any:
    """The run begins in the data group."""
    run = SESSION, "d", "i", number, number, str(number), None, None, stage
    return machine.apply(OpenPlacedInput(*run, TOPIC, 0, after))


def close_with_parts(machine: StateMachine, number: int, *partitions: int) -> Any:
    """Group 0 closes a run of which parts are yet to come."""
    ends = [(partition, *END) for partition in partitions]
    return machine.apply(CloseRun(SESSION, str(number), 2, ends, list(partitions)))


class World:
    """Group 0's leader, with what it proposes."""

    def __init__(self, machine: StateMachine | None = None) -> None:
        self.machine, self.proposed, self.now = machine or group_0(), list[Any](), 0.0
        anything: Any = SimpleNamespace(
            closing=lambda session: None,
            wall_ms=lambda: 7,
            now=lambda: self.now,
            place=lambda entry: entry.place,
        )
        self.views = dict[int, NodeView]()
        raft = SimpleNamespace(peers=[], commit=0)
        group: Any = SimpleNamespace(propose=self._propose, raft=raft, applied_index=0)
        self.group = group
        self.closer = RunCloser(
            machine=self.machine,
            planner=anything,
            sessions=anything,
            group=group,
            views=self.views,
            clock=anything,
            is_there=lambda node: True,
            events=anything,
        )

    def _propose(self, commands: list[Any]) -> int:
        self.proposed += commands
        return 1


def test_a_run_is_open_until_all_groups_have_ended_it() -> None:
    world = World()
    assert world.closer.run_ended(SESSION, "0", {("t", 0): END, ("t", 1): END})
    for ended in ({}, {("t", 0): END}):
        world.closer.closed_elsewhere(SESSION, "0", ended)
        world.closer.close()
        assert not world.proposed
    world.closer.closed_elsewhere(SESSION, "another", {("t", 0): END, ("t", 1): END})
    world.closer.close()
    assert not world.proposed, "the ends of another run say nothing of this one"
    world.closer.closed_elsewhere(SESSION, "0", {("t", 0): END, ("t", 1): END})
    world.closer.close()
    assert world.proposed == [CloseRun(SESSION, "0", 7, [(1, *END), (2, *END)])]
    run = world.machine.apply(world.proposed[0])
    assert [end[1:] for end in run.ends] == [END, END]
    assert not run.to_come


def test_no_group_holds_up_a_newer_run() -> None:
    """One of two groups stands still. Group 0 closes the run where its sender said that it ends."""
    world = World()
    world.closer.run_ended(SESSION, "0", {("t", 0): END, ("t", 1): END})
    world.closer.closed_elsewhere(SESSION, "0", {("t", 0): (0, 500)})
    world.now = AWAITED_S - 0.1
    world.closer.close()
    assert not world.proposed, "a group that is well says where it ends"
    world.now = AWAITED_S
    world.closer.close()
    assert world.proposed == [CloseRun(SESSION, "0", 7, [(1, 0, 500), (2, *END)], [2])]
    world.machine.apply(world.proposed[0])
    assert named_ends(world.machine.state, SESSION, "0") == {("t", 1): END}
    assert world.closer.held_up == {2: [SESSION]}
    assert open_run(world.machine, 1).number == 1
    world.closer.closed_elsewhere(SESSION, "0", {("t", 0): END, ("t", 1): (0, 600)})
    assert world.proposed[1:] == [CloseRun(SESSION, "0", 7, [(2, 0, 600)])]
    run = world.machine.apply(world.proposed[1])
    assert (run.ends, run.to_come) == ([(1, 0, 500), (2, 0, 600)], [])
    assert world.closer.held_up == {}
    world.closer.closed_elsewhere(SESSION, "0", {("t", 1): (0, 600)})
    assert len(world.proposed) == 2


def test_a_group_of_which_the_sender_named_nothing_holds_up_nothing() -> None:
    world = World()
    world.closer.run_ended(SESSION, "0", {("t", 0): END})
    world.closer.closed_elsewhere(SESSION, "0", {("t", 0): END})
    world.now = AWAITED_S
    world.closer.close()
    assert world.proposed == [CloseRun(SESSION, "0", 7, [(1, *END)])]


@pytest.mark.parametrize(("end", "stage"), [(UNKNOWN, None), (END, "stage")])
def test_what_only_its_group_knows_is_waited_for(end: Any, stage: str | None) -> None:
    """The sender did not say where its run ends, or the batch is published as groups have it."""
    world = World()
    world.machine.state.sessions.by_name[SESSION].runs[-1].stage = stage
    world.closer.run_ended(SESSION, "0", {("t", 0): END, ("t", 1): end})
    world.closer.closed_elsewhere(SESSION, "0", {("t", 0): END})
    world.now = 100 * AWAITED_S
    world.closer.close()
    assert not world.proposed
    world.closer.closed_elsewhere(SESSION, "0", {("t", 1): END})
    world.closer.close()
    assert world.proposed == [CloseRun(SESSION, "0", 7, [(1, *END), (2, *END)])]


def test_a_run_with_parts_to_come_is_not_forgotten() -> None:
    machine = group_0()
    close_with_parts(machine, 0, 2)
    sessions = machine.state.sessions
    for number in range(1, RUNS_REMEMBERED + 3):
        assert open_run(machine, number).number == number
        machine.apply(CloseRun(SESSION, str(number), 3))
    session = sessions.by_name[SESSION]
    assert session.runs[0].run_id == "0"
    assert open_run(machine, 0) is session.runs[0], "its sender may ask for it"
    assert session.forgotten == 2, "of the others"
    assert machine.apply(Expire([], [(SESSION, session.idle_since_ms)])) == []
    assert (SESSION in sessions.index.ended, [*sessions.index.parted]) == (False, [SESSION])
    assert vars(SessionIndex.of(sessions)) == vars(sessions.index)
    machine.apply(CloseRun(SESSION, "0", 9, [(2, *END)]))
    assert (SESSION in sessions.index.ended, [*sessions.index.parted]) == (True, [])
    assert session.idle_since_ms == 9
    assert machine.apply(Expire([], [(SESSION, 9)]))


def test_parts_of_some_runs_only_may_be_to_come() -> None:
    machine = group_0()
    for number in range(PARTS_MOST):
        assert open_run(machine, number).number == number
        close_with_parts(machine, number, 2)
    refused = open_run(machine, PARTS_MOST)
    assert isinstance(refused, Rejection)
    assert refused.code == "PARTS_TO_COME"
    machine.apply(CloseRun(SESSION, "5", 9, [(2, *END)]))
    assert open_run(machine, PARTS_MOST).number == PARTS_MOST


def test_what_a_retired_directory_has_does_not_come() -> None:
    machine, group = group_0(), data_group()
    begin(group, 0)
    close_with_parts(machine, 0, 1)
    machine.apply(RetireSessionCommand(SESSION))
    session = machine.state.sessions.by_name[SESSION]
    assert not session.has_parts_to_come
    assert named_ends(machine.state, SESSION, "0") == {}
    assert [*overtaken(group.state, machine.state, [SESSION])] == [(SESSION, "0")]
    new = machine.apply(OpenRunCommand(SESSION, "new", "i", 0, "new", None, None))
    assert comes_first(machine.state, session, new, 1) == -1


def test_a_deleted_topic_does_not_come() -> None:
    machine = group_0()
    close_with_parts(machine, 0, 1, 2)
    machine.apply(DeleteTopicCommand(TOPIC))
    assert not machine.state.sessions.by_name[SESSION].has_parts_to_come
    assert not parts_to_come(machine.state, 2)


def test_a_group_takes_an_older_run_first_and_holds_up_no_other_group() -> None:
    cluster, group = group_0(), data_group()
    close_with_parts(cluster, 0, 1)
    session = cluster.state.sessions.by_name[SESSION]
    open_run(cluster, 1)
    cluster.apply(CloseRun(SESSION, "1", 2))
    newest = open_run(cluster, 2)
    assert comes_first(cluster.state, session, newest, 1) == 0
    assert comes_first(cluster.state, session, newest, 2) == -1
    assert comes_first(cluster.state, session, session.runs[0], 1) == -1
    late = begin(group, 2, after=0)
    assert isinstance(late, Rejection)
    assert late.code == "RUN_OPEN"
    assert group.state.sessions.by_name == {}, "a rejected command changes nothing"
    assert begin(group, 0).run == 0
    group.apply(CloseRun(SESSION, "0", 2))
    assert begin(group, 2, after=0).run == 2, "group 0 has yet to hear of it"


def test_what_comes_with_a_partition_is_taken_first_too() -> None:
    """The newer run is to begin in the group that the partition moves to."""
    cluster = group_0()
    close_with_parts(cluster, 0, 1)
    session, newest = cluster.state.sessions.by_name[SESSION], open_run(cluster, 1)
    task = PlacementTask(5, TaskKind.MOVE_PARTITION, 1, partition=1, target=2)
    assert comes_first(cluster.state, session, newest, 2) == -1
    cluster.state.placement.tasks[5] = task
    assert comes_first(cluster.state, session, newest, 2) == 0


def test_a_partition_moves_once_all_parts_of_closed_runs_are_there() -> None:
    cluster = group_0()
    assert not parts_to_come(cluster.state, 1)
    close_with_parts(cluster, 0, 1)
    assert parts_to_come(cluster.state, 1)
    assert not parts_to_come(cluster.state, 2)
    assert come_in_between(cluster.state, 1, 2), "a newer run would come with it"
    assert not come_in_between(cluster.state, 2, 1)
    cluster.apply(CloseRun(SESSION, "0", 3, [(1, *END)]))
    assert not parts_to_come(cluster.state, 1)
    assert not come_in_between(cluster.state, 1, 2)


def test_a_part_that_was_to_come_is_told_until_group_0_knows() -> None:
    """A newer run may have begun in the group meanwhile."""
    cluster, group = group_0(), data_group()
    close_with_parts(cluster, 0, 1, 2)
    open_run(cluster, 1)
    begin(group, 0)
    assert not told_of(group, cluster)
    group.apply(CloseRun(SESSION, "0", 2))
    for number in (0, 1):
        begin(group, number)
        (told,) = told_of(group, cluster)
        assert (told.run_id, [end.partition for end in told.ends]) == ("0", [0])
    cluster.apply(CloseRun(SESSION, "0", 3, [(1, *END)]))
    assert not told_of(group, cluster), "the other part is another group's"


def test_a_group_closes_a_part_that_comes_where_it_was_said_to_end() -> None:
    cluster, replica = group_0(), Replica()
    close_with_parts(cluster, 0, 1)
    open_run(cluster, 1)
    begin(replica.machine, 0)
    assert [*overtaken(replica.machine.state, cluster.state, [SESSION])] == [(SESSION, "0")]
    replica.hears(cluster, "0", named_ends(cluster.state, SESSION, "0"))
    assert replica.ended == [{("t", 0): END}]


@pytest.mark.parametrize("is_deleted", [False, True])
def test_a_run_stays_open_while_a_topic_that_it_names_may_be_new(*, is_deleted: bool) -> None:
    """Other nodes may have applied an entry that a leader with a slow disk has not."""
    world = World(StateMachine())
    open_run(world.machine, 0)
    world.group.raft.commit = 1
    assert world.closer.run_ended(SESSION, "0", {("new", 0): END})
    world.closer.close()
    assert not world.proposed
    if not is_deleted:
        world.machine.apply(CreateTopicCommand("b" * 32, "new", 1, {}, 0))
    world.group.applied_index = 1
    world.closer.close()
    assert bool(world.proposed) is is_deleted, "of a deleted topic there is nothing to wait for"


def wide_world(inputs: int) -> World:
    """A session has an open run, with nothing in many inputs."""
    machine = StateMachine()
    machine.apply(CreateTopicCommand(TOPIC, "t", inputs + 1, {}, 0))
    open_run(machine, 0)
    for index in range(inputs):
        machine.apply(OpenInputCommand(SESSION, TOPIC, index))
    return World(machine)


def test_a_run_of_many_inputs_is_checked_in_bounded_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """A turn of the leader's loop does not look at all of them (rule turns.18)."""
    inputs = 3 * CHECKED + 1
    world, looked = wide_world(inputs), list[int]()
    whole = RunCloser._is_merged

    def counted(self: RunCloser, session: Any, number: int, ends: Any) -> bool:
        looked.append(number)
        return whole(self, session, number, ends)

    monkeypatch.setattr(RunCloser, "_is_merged", counted)
    ends = {("t", index): (0, 0) for index in range(inputs)}
    world.closer.run_ended(SESSION, "0", ends)
    for turns in range(1, 4):
        world.closer.close()
        world.closer.run_ended(SESSION, "0", dict(ends))  # repeated each second
        assert (len(looked), world.closer.goes_on) == (turns * CHECKED, True)
    world.closer.close()
    assert [type(each) for each in world.proposed] == [CloseRun]
    assert sorted(looked) == list(range(1, inputs + 1))
    assert not world.closer.goes_on


def test_an_input_that_moves_is_checked_again_before_its_run_is_closed() -> None:
    world = wide_world(CHECKED + 1)
    world.closer.run_ended(SESSION, "0", {})
    world.closer.close()
    world.views[0] = NodeView()
    world.views[0].places[1] = SessionPosition(0, 0, 9)  # a checked one
    world.closer.moved([1])
    for _ in range(4):
        world.closer.close()
    assert not world.proposed
    world.machine.state.sessions.inputs[1].byte = 9
    for _ in range(2):
        world.closer.close()
    assert [type(each) for each in world.proposed] == [CloseRun]


def test_an_input_that_is_opened_meanwhile_is_checked_before_its_run_is_closed() -> None:
    world = wide_world(CHECKED + 1)
    world.closer.run_ended(SESSION, "0", {})
    world.closer.close()
    world.machine.apply(OpenInputCommand(SESSION, TOPIC, CHECKED + 1))
    world.closer.close()
    assert not world.proposed
    assert world.closer.goes_on
    for _ in range(2):
        world.closer.close()
    assert [type(each) for each in world.proposed] == [CloseRun]


def test_a_group_that_holds_up_sessions_is_named() -> None:
    world, ends = World(), {("t", 0): END, ("t", 1): END}
    for second in range(int(HELD_UP_S) + 1):  # repeated each second
        assert world.closer.held_up == {}
        world.now = float(second)
        world.closer.run_ended(SESSION, "0", ends)
    assert world.closer.held_up == {1: [SESSION], 2: [SESSION]}
    world.closer.closed_elsewhere(SESSION, "0", {("t", 0): END})
    assert world.closer.held_up == {2: [SESSION]}
    world.closer.closed_elsewhere(SESSION, "0", {("t", 1): END})
    world.closer.close()
    assert world.closer.held_up == {}
    world.machine.apply(world.proposed[0])
    open_run(world.machine, 1)
    world.closer.run_ended(SESSION, "1", ends)
    assert world.closer.held_up == {}, "of this one, since now"


def test_what_is_open_in_group_0_goes_on() -> None:
    cluster, here = group_0(), data_group()
    begin(here, 0)
    assert not [*overtaken(here.state, cluster.state, [SESSION])]
    assert not told_of(here, cluster)
    assert not [*overtaken(here.state, State(), [SESSION])], "group 0 lags here"
    cluster.apply(CloseRun(SESSION, "0", 2))
    open_run(cluster, 1)
    assert [*overtaken(here.state, cluster.state, [SESSION])] == [(SESSION, "0")]


def given_up(
    cluster: StateMachine, replica: Replica, meanwhile: Callable[[], object] = lambda: None
) -> bool:
    """Whether the leader closes the run, if this happens while it waits for group 0."""
    found = dict(overtaken(replica.machine.state, cluster.state, [SESSION]))

    async def catch_up() -> None:
        meanwhile()

    parts: Any = replica
    asyncio.run(ending.give_up_forgotten(parts, cluster, found, catch_up))
    return replica.machine.state.sessions.open_run_of(SESSION) is None


@pytest.mark.parametrize("stage", [None, "stage"])
def test_a_held_run_that_group_0_has_forgotten_is_given_up(stage: str | None) -> None:
    replica = Replica()
    begin(replica.machine, 0, stage)
    assert given_up(StateMachine(), replica) is (stage is not None)


def test_a_held_run_that_is_new_goes_on() -> None:
    """The copy of group 0 lagged when the run was found, or the run began afterwards."""
    replica, cluster, empty = Replica(), StateMachine(), StateMachine()
    begin(replica.machine, 0, "stage")
    assert not given_up(cluster, replica, lambda: setattr(cluster, "state", group_0().state))
    later = Replica()
    assert not given_up(empty, later, lambda: begin(later.machine, 1, "stage"))


def test_a_held_run_of_a_unit_that_group_0_has_yet_to_end_goes_on() -> None:
    """A recovered group has lost its pin, and group 0 has closed the run."""
    replica, cluster = Replica(), group_0()
    begin(replica.machine, 0, "stage")
    cluster.apply(CloseRun(SESSION, "0", 2))
    staged = StagedUnit("stage", "w", 0, [StagedPart(SESSION, "0", [])], TwoPhase(1))
    cluster.state.stages.units[1] = staged
    assert not [*overtaken(replica.machine.state, cluster.state, [SESSION])]
    del cluster.state.sessions.by_name[SESSION]
    assert not given_up(cluster, replica)
    del cluster.state.stages.units[1]
    assert given_up(cluster, replica)


def test_a_part_that_is_closed_is_told_until_group_0_has_closed_the_run() -> None:
    cluster, here = group_0(), data_group()
    begin(here, 0)
    here.apply(CloseRun(SESSION, "0", 2))
    (told,) = told_of(here, cluster)
    assert (told.session, told.run_id, len(told.ends)) == (SESSION, "0", 1)
    cluster.apply(CloseRun(SESSION, "0", 2))
    assert not told_of(here, cluster)


def told_of(machine: StateMachine, cluster: StateMachine) -> list[Any]:
    """The messages to group 0 about closed runs."""
    found = closed(machine.state, cluster.state, [SESSION])
    return [told for run in found for told in closed_parts(machine, cluster, *run)]


class Replica:
    """Of the first data group, as its leader."""

    def __init__(self) -> None:
        self.machine, self.ended = data_group(), list[dict[Any, Any]]()
        self.logs, self.seat = SimpleNamespace(machine=self.machine), SimpleNamespace(group=1)
        self.raft = SimpleNamespace(
            group=SimpleNamespace(propose=self._propose),
            coordinator=SimpleNamespace(run_ended=lambda *told: self.ended.append(told[2])),
            proposer=SimpleNamespace(clock=SimpleNamespace(wall_ms=lambda: 7)),
        )

    def _propose(self, commands: list[Any]) -> None:
        for command in commands:
            self.machine.apply(command)

    def hears(self, cluster: StateMachine, run: str, ends: dict[Any, Any]) -> list[str]:
        """That a run has ended; the runs that it knows then."""
        here: Any = self
        finished(end_run(here, cluster, SESSION, run, ends))
        known = self.machine.state.sessions.by_name.get(SESSION)
        return [] if known is None else [each.run_id for each in known.runs]


@pytest.mark.parametrize("is_known", [False, True])
def test_a_run_that_does_not_write_where_an_older_one_did_ends_there_too(*, is_known: bool) -> None:
    """Group 0 waits for every group in which the session ever wrote: without the word of this one
    the run would never be closed, and the next one never begin.
    """
    cluster, replica = group_0(), Replica()
    older = ["0"] if is_known else []
    if is_known:  # else it was noted only, or has expired here
        begin(replica.machine, 0)
        replica.machine.apply(CloseRun(SESSION, "0", 2))
    cluster.apply(CloseRun(SESSION, "0", 2))
    open_run(cluster, 1)
    assert groups_of(cluster, SESSION) == {1, 2}
    elsewhere = {("t", 1): END}
    assert replica.hears(cluster, "0", elsewhere) == older, "group 0 has closed it"
    assert replica.hears(cluster, "1", {**elsewhere, ("t", 0): END}) == older, "bytes come"
    assert replica.hears(cluster, "1", elsewhere) == [*older, "1"]
    assert not replica.ended, "it closes as any other, once it has begun"
    assert replica.hears(cluster, "1", elsewhere) == [*older, "1"]
    assert replica.ended == [{}]
    replica.machine.apply(CloseRun(SESSION, "1", 3))
    (told,) = told_of(replica.machine, cluster)
    assert [(end.topic, end.partition, end.roll, end.byte) for end in told.ends] == [("t", 0, 0, 0)]
    begin(replica.machine, 1)
    assert replica.machine.state.sessions.open_run_of(SESSION) is None, "late bytes find it closed"


def test_a_part_names_what_was_noted_and_never_came() -> None:
    cluster, here = group_0(), data_group()
    here.apply(OpenPartition(2, TOPIC, "t", {}, 1, [1, 2]))
    begin(here, 0)
    here.apply(CloseRun(SESSION, "0", 2))
    (told,) = told_of(here, cluster)
    assert {end.partition for end in told.ends} == {0, 1}


def test_what_is_staged_and_ended_is_not_begun_anywhere() -> None:
    cluster, replica = group_0(), Replica()
    cluster.state.sessions.by_name[SESSION].runs[-1].stage = "stage"
    assert replica.hears(cluster, "0", {("t", 1): END}) == []


@pytest.mark.parametrize(("number", "code"), [(3, "RUN_CLOSED"), (4, "RUN_CLOSED"), (5, "")])
def test_a_run_that_was_closed_begins_no_more(number: int, code: str) -> None:
    here = data_group()
    assert begin(here, 4).run == 4
    refused = begin(here, 5)
    assert isinstance(refused, Rejection)
    assert refused.code == "RUN_OPEN"
    here.apply(CloseRun(SESSION, "4", 2))
    outcome = begin(here, number)
    if number == 4:
        assert isinstance(outcome, Rejection)
        assert outcome.code == "RUN_CLOSED"
    else:
        assert getattr(outcome, "code", "") == code


class Counted(dict[Any, Any]):
    """By session, and how many were read."""

    looks = 0

    def get(self, *wanted: Any) -> Any:
        self.looks += 1
        return super().get(*wanted)

    def __getitem__(self, key: Any) -> Any:
        self.looks += 1
        return super().__getitem__(key)

    def values(self) -> Any:
        self.looks += len(self)
        return super().values()

    def items(self) -> Any:
        self.looks += len(self)
        return super().items()


def test_the_end_of_a_run_costs_the_same_with_any_number_of_other_sessions() -> None:
    """A sender's word, what the group tells of it, and how it begins where nothing came."""
    cluster, replica = group_0(), Replica()
    for number in range(100):
        name = f"other-{number}"
        cluster.apply(OpenRunCommand(name, name, "i", 0, name, None, None))
        cluster.apply(OpenInputCommand(name, TOPIC, 0))
    places = cluster.index._places = Counted(cluster.index._places)
    assert groups_of(cluster, SESSION) == {1, 2}
    assert replica.hears(cluster, "0", {("t", 1): END}) == ["0"]
    replica.machine.apply(CloseRun(SESSION, "0", 2))
    assert len(told_of(replica.machine, cluster)) == 1
    assert 0 < places.looks < 10


def test_only_sessions_are_looked_at_of_which_something_changed() -> None:
    cluster, here = group_0(), data_group()
    begin(here, 0)
    here.state.sessions.by_name = Counted(here.state.sessions.by_name)
    runs = UnsettledRuns(lambda: here.state, cluster)
    assert runs.owed(0.0) == ([], [])
    here.state.sessions.by_name.looks = 0
    assert runs.owed(1.0) == ([], [])
    assert not here.state.sessions.by_name.looks
    here.apply(CloseRun(SESSION, "0", 2))
    runs.note(SESSION)
    for _ in range(2):  # it is said until group 0 has closed the run
        assert runs.owed(2.0)[0] == [(SESSION, "0")]
    cluster.apply(CloseRun(SESSION, "0", 2))
    runs.note(SESSION)
    assert runs.owed(3.0) == ([], [])
    here.state.sessions.by_name.looks = 0
    assert runs.owed(4.0) == ([], [])
    assert not here.state.sessions.by_name.looks
    runs.owed(4.0 + ALL_S)
    assert here.state.sessions.by_name.looks, "now and then at all"


def test_after_a_snapshot_of_either_group_all_runs_are_looked_at() -> None:
    cluster, here = group_0(), data_group()
    begin(here, 0)
    runs = UnsettledRuns(lambda: here.state, cluster)
    assert runs.owed(0.0) == ([], [])
    later = group_0()
    later.apply(CloseRun(SESSION, "0", 2))
    open_run(later, 1)
    cluster.state = later.state
    assert runs.owed(1.0) == ([], [(SESSION, "0")])
    ended = data_group()
    begin(ended, 0)
    ended.apply(CloseRun(SESSION, "0", 2))
    here.state = ended.state
    assert runs.owed(2.0) == ([], [])
    cluster.state = group_0().state
    assert runs.owed(3.0)[0] == [(SESSION, "0")]
