"""Units of work over several groups, in the state machines of group 0 and of a data group."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from samelog.placement.tasks import Action
from samelog.placement.values import NewGroup, PartitionPass, PassStage
from samelog.sequencer.spanning.steps import lost_groups, next_steps
from samelog.sequencer.state.command_base import Rejection
from samelog.sequencer.state.commands import decode_commands, encode_commands
from samelog.sequencer.state.instructions import Merge, Range
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.tables.members import Member
from samelog.sequencer.state.tables.placement import OpenPartition, PlaceTopic
from samelog.sequencer.state.tables.resets import HardReset
from samelog.sequencer.state.tables.sessions import (
    CloseRun,
    OpenPlacedInput,
    OpenRunCommand,
    RetireSessionCommand,
)
from samelog.sequencer.state.tables.stages import (
    BeginStage,
    EndStage,
    PinStage,
    SettleUnit,
    StagedPart,
    StagedUnit,
    UnitStep,
)
from samelog.sequencer.state.tables.topics import DeleteTopicCommand
from samelog.sequencer.state.tables.transfers import PassPartition
from samelog.sequencer.state.two_phase import Decision

RUN = ("s", "run-s")
PARTS = [StagedPart(*RUN, [(1, 0, 10), (2, 0, 10)])]
UNIT = 1


@pytest.fixture
def cluster() -> StateMachine:
    """Group 0: a topic of two partitions, in groups 1 and 2, and a run that is staged for it."""
    machine = StateMachine()
    machine.state.members.by_number[0] = Member(0, "a", "a:1", "x", voter=True)
    groups = [NewGroup(1, (0,), 0), NewGroup(1, (0,), 0)]
    machine.apply(PlaceTopic(0, "id", "t", {}, 1, groups, [1, 2]))
    machine.apply(OpenRunCommand("s", "s", "i", 0, "run-s", None, None, "sink"))
    return machine


def data_group(number: int) -> StateMachine:
    """A data group with one of the partitions, in which the run has an input."""
    machine = StateMachine()
    machine.apply(OpenPartition(number, "id", "t", {}, 1, [1, 2]))
    opened = OpenPlacedInput("s", "s", "i", 0, 0, "run-s", None, None, "sink", "id", number - 1)
    assert not isinstance(machine.apply(opened), Rejection)
    return machine


def begin(batch: int = 0, writer: str = "q", parts: list[StagedPart] = PARTS) -> BeginStage:
    return BeginStage("sink", writer, batch, parts, 5)


def part(size: int = 10) -> Range:
    return Range(1, 0, 0, 0, size, 1, size, 7)


def pin(partition: int, number: int = UNIT, *, size: int = 10) -> PinStage:
    return PinStage(number, "sink", [RUN], [(partition, [part(size)])])


def end(partition: int, *, is_commit: bool = True, size: int = 10) -> EndStage:
    merge = Merge(partition, 0, 3, 1000, roll=False, ranges=[part(size)])
    return EndStage(UNIT, is_commit, [RUN], [merge] if is_commit else [], 0, 7)


def settle(group: int, step: UnitStep, number: int = UNIT) -> SettleUnit:
    return SettleUnit(number, group, step, "why")


def decision(cluster: StateMachine, number: int = UNIT) -> Decision | None:
    known = cluster.state.stages.units.get(number)
    return None if known is None else known.unit.decision


def code(outcome: object) -> str:
    assert isinstance(outcome, Rejection), outcome
    return outcome.code


def test_a_unit_is_committed_once_all_groups_are_prepared(cluster: StateMachine) -> None:
    made = cluster.apply(begin())
    assert isinstance(made, StagedUnit)
    assert list(made.unit.participants) == [0, 1, 2]
    assert cluster.apply(begin()) is made
    for group in (1, 2, 0):
        assert decision(cluster) is Decision.NONE
        assert cluster.state.stages.published == {}
        cluster.apply(settle(group, UnitStep.PREPARED))
    assert decision(cluster) is Decision.COMMIT
    assert cluster.state.stages.published["sink"].unit == UNIT
    cluster.apply(settle(1, UnitStep.REFUSED))
    assert decision(cluster) is Decision.COMMIT
    assert code(cluster.apply(begin())) == "STAGE_PUBLISHED"
    assert code(cluster.apply(begin(writer="other"))) == "STAGE_BACKWARDS"
    assert code(cluster.apply(begin(1))) == "STAGE_BUSY", "batches follow each other"
    for group in (0, 1, 2):
        assert decision(cluster) is Decision.COMMIT
        cluster.apply(settle(group, UnitStep.DONE))
    assert decision(cluster) is None
    assert code(cluster.apply(begin())) == "STAGE_PUBLISHED"


def test_one_group_that_refuses_is_enough(cluster: StateMachine) -> None:
    cluster.apply(begin())
    cluster.apply(settle(1, UnitStep.PREPARED))
    cluster.apply(settle(2, UnitStep.REFUSED))
    cluster.apply(settle(2, UnitStep.PREPARED))
    cluster.apply(settle(0, UnitStep.PREPARED))
    assert decision(cluster) is Decision.ABORT
    assert cluster.state.stages.published == {}
    for group in (0, 1, 2):
        cluster.apply(settle(group, UnitStep.DONE))
    assert decision(cluster) is None


def test_a_batch_that_is_begun_anew_gives_the_first_attempt_up(cluster: StateMachine) -> None:
    cluster.apply(begin())
    cluster.apply(OpenRunCommand("z", "z", "i", 0, "run-z", None, None, "sink"))
    later = [StagedPart("z", "run-z", [(1, 0, 10)])]
    assert code(cluster.apply(begin(writer="other", parts=later))) == "STAGE_BUSY"
    cluster.apply(begin(parts=later))
    assert (decision(cluster, 1), decision(cluster, 2)) == (Decision.ABORT, Decision.NONE)


@pytest.mark.parametrize(
    ("command", "wanted"),
    [
        (begin(parts=[StagedPart("s", "another", [(1, 0, 10)])]), "UNKNOWN_RUN"),
        (begin(parts=[StagedPart(*RUN, [(9, 0, 10)])]), "UNKNOWN_TOPIC"),
        (BeginStage("other", "q", 0, PARTS, 5), "UNKNOWN_RUN"),
    ],
)
def test_what_cannot_be_begun(cluster: StateMachine, command: BeginStage, wanted: str) -> None:
    before = cluster.encode()
    assert decode_commands(encode_commands([command])) == [command]
    assert code(cluster.apply(command)) == wanted
    assert cluster.encode() == before


def test_what_is_pinned_stays_until_it_is_carried_out() -> None:
    machine = data_group(1)
    command = pin(1)
    assert decode_commands(encode_commands([command])) == [command]
    assert machine.apply(command) == machine.apply(command) == command
    assert code(machine.apply(CloseRun(*RUN))) == "PINNED"
    assert code(machine.apply(RetireSessionCommand("s"))) == "PINNED"
    assert code(machine.apply(pin(1, 2))) == "PINNED"
    machine = StateMachine.decode(machine.encode())
    before = machine.encode()
    assert code(machine.apply(end(1, size=11))) == "PRECONDITION"
    nothing = EndStage(UNIT, True, [RUN], [], 0, 7)
    assert code(machine.apply(nothing)) == "PRECONDITION"
    assert machine.encode() == before
    assert machine.apply(end(1)) == end(1)
    assert machine.state.partitions.by_number[1].next_offset == 1
    assert machine.state.sessions.open_run_of("s") is None
    assert code(machine.apply(end(1))) == "STAGE_ENDED"
    assert code(machine.apply(pin(1))) == "STAGE_ENDED"
    assert machine.state.partitions.by_number[1].next_offset == 1


def test_what_is_given_up_is_closed_and_never_pinned_later() -> None:
    machine = data_group(1)
    assert code(machine.apply(end(1))) == "NOT_PINNED"
    assert not isinstance(machine.apply(end(1, is_commit=False)), Rejection)
    assert machine.state.sessions.open_run_of("s") is None
    assert code(machine.apply(pin(1))) == "STAGE_ENDED"
    assert code(machine.apply(pin(1, 2))) == "UNKNOWN_RUN"


def test_a_topic_that_is_deleted_is_left_out() -> None:
    machine = data_group(1)
    machine.apply(pin(1))
    machine.apply(DeleteTopicCommand("id"))
    assert code(machine.apply(end(1))) == "PRECONDITION"
    assert not isinstance(machine.apply(EndStage(UNIT, True, [RUN], [], 0, 7)), Rejection)


def test_what_is_pinned_is_not_sealed_and_what_is_sealed_is_not_pinned() -> None:
    seal = PassPartition(5, Action.SEAL_PARTITION, 1, b"")
    machine, moving = data_group(1), data_group(1)
    machine.apply(PassPartition(5, Action.HOLD_PARTITION, 1, b""))
    assert code(machine.apply(seal)) == "STAGED"
    machine.apply(pin(1))
    assert code(machine.apply(seal)) == "PINNED"
    machine.apply(end(1))
    assert not isinstance(machine.apply(seal), Rejection)
    moving.state.transfers.passing = PartitionPass(5, 1, PassStage.SEALED)
    assert code(moving.apply(pin(1))) == "PARTITION_MOVES"


# --- one group alone ------------------------------------------------------------------------------

ALONE = [StagedPart(*RUN, [(1, 0, 10)])]


def publish(number: int = UNIT, over: int = 0) -> EndStage:
    return replace(end(1), number=number, over=over, stage="sink")


def refuse(number: int = UNIT, over: int = 0) -> EndStage:
    return replace(end(1, is_commit=False), number=number, over=over, stage="sink", why="no")


def test_a_group_that_is_alone_publishes_by_its_own_entry(cluster: StateMachine) -> None:
    group = data_group(1)
    made = cluster.apply(begin(parts=ALONE))
    assert isinstance(made, StagedUnit)
    assert list(made.unit.participants) == [1]
    found = next_steps(cluster.state, group.state, 1)
    assert (found.pin, found.decide) == ([], [UNIT])
    assert decode_commands(encode_commands([publish()])) == [publish()]
    assert group.apply(publish()) == publish()
    assert group.state.partitions.by_number[1].next_offset == 1
    assert group.state.sessions.open_run_of("s") is None
    assert code(group.apply(publish())) == code(group.apply(refuse())) == "STAGE_ENDED"
    assert code(cluster.apply(begin(1, parts=ALONE))) == "STAGE_BUSY", "it waits for the report"
    assert cluster.state.stages.published == {}
    found = next_steps(cluster.state, group.state, 1)
    assert (found.decide, found.tell) == ([], [SettleUnit(UNIT, 1, UnitStep.DONE)])
    cluster.apply(found.tell[0])
    assert decision(cluster) is Decision.COMMIT
    assert cluster.state.stages.published["sink"].unit == UNIT
    assert next_steps(cluster.state, cluster.state, 0).end == [(UNIT, True)]
    assert code(cluster.apply(CloseRun(*RUN))) == "PINNED", (
        "group 0 says first that it is published"
    )
    closed = EndStage(UNIT, True, [RUN], [], 0, 7, "sink")
    assert cluster.apply(closed) == closed
    assert cluster.state.sessions.open_run_of("s") is None
    cluster.apply(settle(0, UnitStep.DONE))
    assert decision(cluster) is None


def test_what_a_group_may_have_published_is_not_given_up(cluster: StateMachine) -> None:
    """The writer begins another attempt, or drops it, while the group publishes the first one."""
    cluster.apply(OpenRunCommand("z", "z", "i", 0, "run-z", None, None, "sink"))
    later = [StagedPart("z", "run-z", [(1, 0, 10)])]
    made = cluster.apply(begin(parts=ALONE))
    assert cluster.apply(begin(parts=later)) is made
    cluster.apply(settle(0, UnitStep.REFUSED))
    assert decision(cluster) is Decision.NONE
    assert code(cluster.apply(CloseRun(*RUN))) == "PINNED"
    assert code(cluster.apply(RetireSessionCommand("s"))) == "PINNED"
    cluster.apply(settle(1, UnitStep.DONE))
    assert decision(cluster) is Decision.COMMIT
    assert code(cluster.apply(begin(parts=later))) == "STAGE_PUBLISHED"


def test_a_refusal_forbids_a_later_publication(cluster: StateMachine) -> None:
    group = data_group(1)
    made = cluster.apply(begin(parts=ALONE))
    old = StateMachine.decode(cluster.encode())
    group.apply(refuse())
    assert group.state.sessions.open_run_of("s") is None
    group.apply(OpenPlacedInput("s", "s", "i", 1, 1, "run-2", None, None, "sink", "id", 0))
    assert code(group.apply(publish())) == "STAGE_ENDED"
    (told,) = next_steps(cluster.state, group.state, 1).tell
    assert told == SettleUnit(UNIT, 1, UnitStep.REFUSED, "no")
    cluster.apply(told)
    assert decision(cluster) is Decision.ABORT
    assert isinstance(made, StagedUnit)
    assert made.problem == "no"
    assert next_steps(cluster.state, cluster.state, 0).end == [(UNIT, False)]
    cluster.apply(EndStage(UNIT, False, [RUN], [], 0, 7))
    cluster.apply(settle(0, UnitStep.DONE))
    assert decision(cluster) is None
    over = cluster.state.stages.over_for(1)
    group.apply(refuse(UNIT + 1, over))
    assert list(group.state.stages.ended) == [UNIT + 1]
    assert code(group.apply(publish())) == "STAGE_ENDED", "a leader whose group 0 is old asks again"
    found = next_steps(old.state, group.state, 1)
    assert (found.decide, found.tell) == ([], [])


def test_what_is_over_ends_below_the_first_unit_that_is_not(cluster: StateMachine) -> None:
    spanning = cluster.state.stages
    assert spanning.over_for(1) == 0
    cluster.apply(begin(parts=ALONE))
    assert [spanning.over_for(group) for group in (0, 1, 2)] == [0, 0, 1]


def test_a_group_that_went_with_its_topic_has_published_nothing(cluster: StateMachine) -> None:
    cluster.apply(begin(parts=ALONE))
    del cluster.state.placement.groups[1]
    (gone,) = lost_groups(cluster.state)
    cluster.apply(gone)
    assert decision(cluster) is Decision.COMMIT
    assert next_steps(cluster.state, cluster.state, 0).end == [(UNIT, True)]


# --- what comes next ------------------------------------------------------------------------------


def test_a_group_tells_what_its_own_entries_say(cluster: StateMachine) -> None:
    here = data_group(1)
    assert next_steps(cluster.state, here.state, 1).pin == []
    cluster.apply(begin())
    assert next_steps(cluster.state, here.state, 1).pin == [UNIT]
    here.apply(pin(1))
    found = next_steps(cluster.state, here.state, 1)
    assert (found.pin, found.tell) == ([], [SettleUnit(UNIT, 1, UnitStep.PREPARED)])
    for group in (0, 1, 2):
        cluster.apply(settle(group, UnitStep.PREPARED))
    assert next_steps(cluster.state, here.state, 1).end == [(UNIT, True)]
    behind = data_group(1)
    found = next_steps(cluster.state, behind.state, 1)
    assert (found.end, found.tell) == ([], []), "a deposed leader lacks the pin, and says nothing"
    here.apply(end(1))
    found = next_steps(cluster.state, here.state, 1)
    assert (found.end, found.tell) == ([], [SettleUnit(UNIT, 1, UnitStep.DONE)])


def test_what_was_pinned_too_late_is_given_up(cluster: StateMachine) -> None:
    here = data_group(1)
    here.apply(pin(1))
    assert next_steps(cluster.state, here.state, 1).end == [], "this group 0 is older than the unit"
    cluster.state.stages.last = UNIT
    assert next_steps(cluster.state, here.state, 1).end == [(UNIT, False)]
    here.apply(replace(end(1, is_commit=False), over=UNIT))
    spanning = here.state.stages
    assert (spanning.pins, spanning.ended) == ({}, {}), "group 0 has done with it"


def test_a_group_that_is_gone_has_done_its_part(cluster: StateMachine) -> None:
    cluster.apply(begin())
    cluster.apply(settle(2, UnitStep.GONE))
    assert list(lost_groups(cluster.state)) == []
    del cluster.state.placement.groups[2]
    (gone,) = lost_groups(cluster.state)
    for each in (settle(0, UnitStep.PREPARED), settle(1, UnitStep.PREPARED), gone):
        cluster.apply(each)
    assert decision(cluster) is Decision.COMMIT


def test_nothing_is_pinned_in_a_group_that_begins_its_logs_anew(cluster: StateMachine) -> None:
    """The unit names partitions that the group does not know yet: that is not refused."""
    cluster.apply(HardReset("r1", 1, 1))
    cluster.apply(begin(parts=[StagedPart(*RUN, [(3, 0, 10), (4, 0, 10)])]))
    group = data_group(1)
    assert next_steps(cluster.state, group.state, 1).pin == []
    cluster.state.placement.resetting.pop(1)
    assert next_steps(cluster.state, group.state, 1).pin == [UNIT]
