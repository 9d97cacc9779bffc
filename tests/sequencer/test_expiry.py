"""What the leader finds idle."""

from __future__ import annotations

import pytest

from samelog.config.tables.node import Expiry
from samelog.sequencer.state.expiry import LIMIT, due
from samelog.sequencer.state.instructions import Merge, Range, Sequence5
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.tables.sessions import (
    CloseRun,
    Expire,
    OpenInputCommand,
    OpenRunCommand,
)
from samelog.sequencer.state.tables.topics import CreateTopicCommand

EXPIRY = Expiry(producers_s=10, sessions_s=100)


@pytest.fixture
def machine() -> StateMachine:
    """A producer id last used at 1 s, a session that ended at 2 s, and one that did not."""
    machine = StateMachine()
    machine.apply(CreateTopicCommand("t1", "t", 1, {}, 1))
    for session in ("ended", "open"):
        machine.apply(OpenRunCommand(session, session, "i", 0, session, None, None))
        machine.apply(OpenInputCommand(session, "t1", 0))
    part = Range(1, 0, 0, 0, 10, 1, 10, 7)
    machine.apply(Merge(1, 0, 1, 1_000, False, [part], sequences=[Sequence5(7, 0, 0, 0, 0)]))
    machine.apply(CloseRun("ended", "ended", 2_000))
    return machine


def test_nothing_expires_early(machine: StateMachine) -> None:
    assert due(machine, 11_000, EXPIRY, is_released=lambda entry: True) is None


def test_producer_ids_expire_behind_their_newest_batch(machine: StateMachine) -> None:
    found = due(machine, 11_001, EXPIRY, is_released=lambda entry: True)
    assert found == Expire([(7, 1_000)], [])
    machine.apply(found)
    assert due(machine, 11_001, EXPIRY, is_released=lambda entry: True) is None


def test_sessions_expire_behind_their_last_run_and_never_with_one_open(
    machine: StateMachine,
) -> None:
    found = due(machine, 102_001, EXPIRY, is_released=lambda entry: True)
    assert found == Expire([(7, 1_000)], [("ended", 2_000)])


def test_a_session_with_unmerged_bytes_does_not_expire(machine: StateMachine) -> None:
    found = due(machine, 102_001, EXPIRY, is_released=lambda entry: False)
    assert found == Expire([(7, 1_000)], [])


def test_an_entry_stays_small(machine: StateMachine) -> None:
    machine.state.producers.seen_ms = dict.fromkeys(range(3 * LIMIT), 0)
    found = due(machine, 102_001, EXPIRY, is_released=lambda entry: True)
    assert found is not None
    assert len(found.producers) == LIMIT
