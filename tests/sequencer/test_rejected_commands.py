"""A rejected command changes nothing (rule placement.19). Simulated worlds watch that, too."""

from __future__ import annotations

import pytest

from samelog.placement.changes import TurnTask
from samelog.placement.tasks import TaskState
from samelog.sequencer.state.command_base import Rejection
from samelog.sequencer.state.commands import AnyCommand
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.tables.placement import ChangePlacement
from samelog.sequencer.state.tables.sessions import (
    CloseRun,
    OpenPlacedInput,
    OpenRunCommand,
    RetireSessionCommand,
)
from samelog.sequencer.state.tables.topics import CreateTopicCommand
from samelog.sequencer.state.tables.transactions import InitProducer

TOPIC, OWNER = "a" * 32, "samelog://publisher/x"


def opened(session_id: str, number: int, run_id: str, stage: str | None = None) -> OpenRunCommand:
    return OpenRunCommand("s", session_id, OWNER, number, run_id, None, None, stage)


def init(owner: str, producer: int, epoch: int) -> InitProducer:
    return InitProducer("t1", 60_000, producer, epoch, 42, 5, owner)


def taken_over() -> StateMachine:
    """A session of a retired directory, and a transactional id without an owner."""
    machine = StateMachine()
    machine.apply(CreateTopicCommand(TOPIC, "t", 1, {}, 1))
    machine.apply(opened("old", 0, "r0"))
    machine.apply(CloseRun("s", "r0", 5))
    machine.apply(RetireSessionCommand("s", "old", 6))
    machine.apply(init("", -1, -1))
    return machine


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (opened("new", 0, "r1", stage="batch"), "SESSION_CONFLICT"),
        (opened("old", 1, "r1"), "SESSION_FENCED"),
        (
            OpenPlacedInput("p", "d", OWNER, 0, 0, "r0", None, None, None, TOPIC, 7),
            "UNKNOWN_TOPIC",
        ),
        (init("samelog://publisher/y", 7, 0), "PRODUCER_FENCED"),
        (ChangePlacement(-1, [TurnTask(9, TaskState.RUNNING)]), "UNKNOWN_TASK"),
    ],
)
def test_a_rejected_command_changes_nothing(command: AnyCommand, code: str) -> None:
    machine = taken_over()
    before = machine.encode()
    outcome = machine.apply(command)
    assert isinstance(outcome, Rejection), outcome
    assert outcome.code == code
    assert machine.encode() == before


def test_another_directory_takes_a_retired_session_over() -> None:
    machine = taken_over()
    assert not isinstance(machine.apply(opened("new", 0, "r1")), Rejection)
    session = machine.state.sessions.by_name["s"]
    assert (session.session_id, session.retired, session.fenced_ids) == ("new", False, ["old"])
