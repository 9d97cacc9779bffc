"""Staged runs in the state machine: held, then published whole and once, or given up."""

from __future__ import annotations

import pytest

from samelog.config.tables.node import Expiry
from samelog.format.errors import LogFormatError
from samelog.format.positions import SessionPosition
from samelog.sequencer.merge.drafts import PlannerLimits
from samelog.sequencer.merge.planner import Planner
from samelog.sequencer.spanning.ranges import StagedInput, ranges_of
from samelog.sequencer.state.command_base import Rejection
from samelog.sequencer.state.commands import decode_commands, encode_commands
from samelog.sequencer.state.expiry import due
from samelog.sequencer.state.instructions import Merge, Range
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.tables.sessions import CloseRun, OpenInputCommand, OpenRunCommand
from samelog.sequencer.state.tables.stages import PublishStageCommand
from samelog.sequencer.state.tables.topics import CreateTopicCommand, DeleteTopicCommand
from tests.sequencer.test_planner import Bytes, records

EXPIRY = Expiry(producers_s=10, sessions_s=1_000_000)


@pytest.fixture
def machine() -> StateMachine:
    """Two staged sessions (inputs 1 and 2), and one that is not (input 3), in one partition."""
    machine = StateMachine()
    machine.apply(CreateTopicCommand("t1", "t", 1, {}, 1))
    for session, stage in (("a", "sink"), ("b", "sink"), ("plain", None)):
        machine.apply(OpenRunCommand(session, session, "i", 0, f"run-{session}", None, None, stage))
        machine.apply(OpenInputCommand(session, "t1", 0))
    return machine


def merge(base: int, number: int, *, start: int = 0) -> Merge:
    part = Range(number, 0, 0, start, start + 10, 1, 10, 7)
    return Merge(1, base, 3, 1000, False, [part])


def publish(
    *merges: Merge, batch: int = 0, writer: str = "q", names: str = "ab"
) -> PublishStageCommand:
    return PublishStageCommand(
        "sink", writer, batch, [(name, f"run-{name}") for name in names], list(merges), 5
    )


def test_what_is_held_is_not_merged(machine: StateMachine) -> None:
    before = machine.encode()
    assert isinstance(machine.apply(merge(0, 1)), Rejection)
    assert machine.encode() == before
    assert not isinstance(machine.apply(merge(0, 3)), Rejection)


def test_a_batch_is_published_whole(machine: StateMachine) -> None:
    command = publish(merge(0, 1), merge(1, 2), merge(2, 1, start=10))
    assert decode_commands(encode_commands([command])) == [command]
    assert machine.apply(command) == command
    assert machine.state.partitions.by_number[1].next_offset == 3
    assert machine.state.sessions.inputs[1].place == SessionPosition(0, 0, 20)
    assert machine.state.sessions.open_run_of("a") is None
    assert machine.state.sessions.open_run_of("plain") is not None


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (publish(merge(0, 1), merge(0, 2)), "PRECONDITION"),
        (publish(merge(0, 1), merge(1, 1)), "PRECONDITION"),
        (publish(merge(0, 1), merge(1, 3)), "PRECONDITION"),
        (publish(merge(0, 1), merge(1, 2), names="a"), "PRECONDITION"),
        (publish(merge(0, 1), names="ax"), "UNKNOWN_RUN"),
        (publish(merge(0, 3), names="plain"), "UNKNOWN_RUN"),
    ],
)
def test_or_not_at_all(machine: StateMachine, command: PublishStageCommand, code: str) -> None:
    before = machine.encode()
    outcome = machine.apply(command)
    assert isinstance(outcome, Rejection)
    assert outcome.code == code
    assert machine.encode() == before


def test_a_batch_that_comes_again_is_dropped(machine: StateMachine) -> None:
    machine.apply(publish(merge(0, 1), batch=4, names="a"))
    again = ((4, "q", "PUBLISHED"), (3, "q", "PUBLISHED"), (4, "r", "BACKWARDS"))
    for batch, writer, code in again:
        outcome = machine.apply(publish(merge(1, 2), batch=batch, writer=writer, names="b"))
        assert isinstance(outcome, Rejection)
        assert outcome.code == f"STAGE_{code}"
    assert machine.state.partitions.by_number[1].next_offset == 1
    outcome = machine.apply(publish(merge(1, 2), batch=5, writer="r", names="b"))
    assert not isinstance(outcome, Rejection)


def test_a_deleted_topic_takes_no_batch(machine: StateMachine) -> None:
    machine.apply(DeleteTopicCommand("t1"))
    outcome = machine.apply(publish(merge(0, 1), names="a"))
    assert isinstance(outcome, Rejection)
    assert outcome.code == "UNKNOWN_TOPIC"


def test_a_staged_session_has_one_run_and_is_forgotten_with_it(machine: StateMachine) -> None:
    machine.apply(publish(merge(0, 1), names="a"))
    machine.apply(CloseRun("b", "run-b", 6))
    another = machine.apply(OpenRunCommand("b", "b", "i", 1, "another", None, None, "sink"))
    assert isinstance(another, Rejection)
    assert due(machine, 7, EXPIRY, is_released=lambda entry: False) is not None  # b: given up
    command = due(machine, 7, EXPIRY, is_released=lambda entry: entry.number == 1)
    assert command is not None
    machine.apply(command)
    assert set(machine.state.sessions.by_name) == {"plain"}
    assert set(machine.state.sessions.inputs) == {3}


def test_a_snapshot_keeps_stages(machine: StateMachine) -> None:
    machine.apply(publish(merge(0, 1), names="a"))
    again = StateMachine.decode(machine.encode())
    assert isinstance(again.apply(publish(merge(1, 2), names="b")), Rejection)
    assert isinstance(again.apply(merge(1, 2)), Rejection), "what is held was merged"


def test_the_planner_leaves_what_is_held_and_plans_it_when_published(
    machine: StateMachine,
) -> None:
    source, limits = Bytes(), PlannerLimits(entry_bytes=400, entry_ranges=3)
    planner = Planner(machine, limits)
    for number in (1, 2, 3):
        for count in range(5):
            source.put(number, records(b"%d" % count * 100))
    (plain,) = planner.plan(source.ends(), source, term=3, now_ms=1)
    assert {part.input for part in plain.ranges} == {3}
    staged = [StagedInput(machine.state.sessions.inputs[n], source.end(n)) for n in (1, 2)]
    parts = [part for each in staged for part in ranges_of(each, source)]
    merges = planner.plan_stage([(1, parts)], term=3, now_ms=1)
    assert not isinstance(machine.apply(plain), Rejection)
    assert not isinstance(machine.apply(publish(*merges)), Rejection)
    assert len(merges) > 1
    assert machine.state.sessions.inputs[2].place == source.end(2)


def test_what_cannot_be_merged_is_said() -> None:
    machine = StateMachine()
    machine.apply(CreateTopicCommand("t1", "t", 1, {}, 1))
    machine.apply(OpenRunCommand("a", "a", "i", 0, "r", None, None, "sink"))
    machine.apply(OpenInputCommand("a", "t1", 0))
    source = Bytes()
    source.put(1, records(b"x", producer_id=4, producer_epoch=0, base_sequence=0))
    with pytest.raises(LogFormatError, match="producer id"):
        list(ranges_of(StagedInput(machine.state.sessions.inputs[1], source.end(1)), source))
