"""Lookups and counters of sessions equal those of a fresh look at the whole state, and too many
remembered sessions of an identity are forgotten, the oldest first.
"""

from __future__ import annotations

from collections import deque
from random import Random
from unittest.mock import Mock

import pytest

from samelog.config.tables.node import Quotas
from samelog.format.positions import SessionPosition
from samelog.sequencer.raft.replica import Replica, _Mark
from samelog.sequencer.state.command_base import Rejection
from samelog.sequencer.state.commands import AnyCommand
from samelog.sequencer.state.expiry import crowded
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.tables.session_index import SessionIndex
from samelog.sequencer.state.tables.sessions import (
    CloseRun,
    Expire,
    Input,
    OpenInputCommand,
    OpenPlacedInput,
    OpenRunCommand,
    RetireSessionCommand,
    Session,
)
from samelog.sequencer.state.tables.topics import CreateTopicCommand, DeleteTopicCommand

FEW = Quotas(sessions=1, partitions=100)
REMEMBERED = 10


def open_run(machine: StateMachine, session: str, run: int = 0, identity: str = "i") -> object:
    """Open a run of a session, with the number as its id."""
    return machine.apply(
        OpenRunCommand(session, session, identity, run, f"{session}/{run}", None, None)
    )


def same(one: SessionIndex, other: SessionIndex) -> bool:
    """Whether two indexes count and find the same."""
    counters = "open_runs", "open_inputs", "remembered", "inputs"
    is_same = all(+getattr(one, name) == +getattr(other, name) for name in counters)
    idle = [
        {key: set(names) for key, names in each._idle.items() if names} for each in (one, other)
    ]
    tables = "ended", "staged", "of_nodes", "_places"
    is_same = is_same and all(getattr(one, name) == getattr(other, name) for name in tables)
    return is_same and idle[0] == idle[1]


def possible(machine: StateMachine, chance: Random, step: int) -> list[AnyCommand]:
    """Commands that change sessions, runs or inputs, most of which can be applied."""
    number = chance.randrange(8)
    session, identity = f"{'kafka-' if number % 2 else 's'}{number}", f"i{number % 3}"
    known = machine.state.sessions.by_name.get(session, Session(session, session, identity))
    newest = known.runs[-1].run_id if known.runs else ""
    topic = chance.choice(list(machine.state.topics.by_id.values()))
    place = topic.topic_id, chance.randrange(topic.partitions)
    run = f"{session}/{step}", None, None
    return [
        OpenRunCommand(session, session, identity, step, *run),
        OpenPlacedInput(
            session,
            session,
            identity,
            known.next_number,
            step,
            *run,
            stage=None,
            topic_id=place[0],
            partition=place[1],
        ),
        *[OpenInputCommand(session, *place)] * 3,
        *[CloseRun(session, newest, step)] * 2,
        Expire([], [(session, known.idle_since_ms)]),
        RetireSessionCommand(session, "", step)
        if chance.random() < 0.5
        else CloseRun(session, newest, step),
        DeleteTopicCommand(topic.topic_id)
        if len(machine.state.topics.by_id) > 1
        else CreateTopicCommand(f"t{step}", f"t{step}", 3, {}, 1),
    ]


@pytest.mark.parametrize("seed", range(20))
def test_an_index_that_follows_all_changes_equals_a_fresh_one(seed: int) -> None:
    machine, chance, taken = StateMachine(), Random(seed), 0
    machine.apply(CreateTopicCommand("t0", "t0", 3, {}, 1))
    for step in range(400):
        outcome = machine.apply(chance.choice(possible(machine, chance, step)))
        taken += not isinstance(outcome, Rejection)
        assert same(machine.index, SessionIndex.of(machine.state.sessions)), step
    assert taken > 100


def ended(machine: StateMachine, count: int, identity: str = "i") -> None:
    """So many sessions of an identity, one after another, each with an input of one topic."""
    machine.apply(CreateTopicCommand("t1", "t", 1, {}, 1))
    for number in range(count):
        session = f"{identity}{number}"
        open_run(machine, session, identity=identity)
        machine.apply(OpenInputCommand(session, "t1", 0))
        machine.apply(CloseRun(session, f"{session}/0", 1_000 + number))


def test_the_sessions_that_ended_longest_ago_are_forgotten_beyond_ten_times_the_quota() -> None:
    machine = StateMachine()
    ended(machine, REMEMBERED + 2)
    ended(machine, REMEMBERED, "other")
    open_run(machine, "i0", 1)  # it is used again: the ones after it ended longer ago
    found = crowded(machine, FEW, is_released=lambda entry: True)
    assert found == Expire([], [("i1", 1_001), ("i2", 1_002)])
    gone = machine.apply(found)
    assert [entry.session for entry in gone] == ["i1", "i2"]
    assert machine.index.remembered == {"i": REMEMBERED, "other": REMEMBERED}
    assert crowded(machine, FEW, is_released=lambda entry: True) is None
    assert not machine.index.grown
    assert isinstance(open_run(machine, "i1"), Rejection), "its old run is refused as before"


def test_a_session_with_unmerged_bytes_is_not_forgotten_however_many_there_are() -> None:
    machine = StateMachine()
    ended(machine, REMEMBERED + 1)

    def is_released(entry: Input) -> bool:
        return entry.session != "i0"

    found = crowded(machine, FEW, is_released=is_released)
    assert found == Expire([], [("i1", 1_001)])


def test_sessions_that_cannot_be_forgotten_are_looked_at_once() -> None:
    """All were looked at each second."""
    machine, looked = StateMachine(), list[str]()
    ended(machine, REMEMBERED + 1)
    released: set[str] = set()

    def is_released(entry: Input) -> bool:
        looked.append(entry.session)
        return entry.session in released

    assert crowded(machine, FEW, is_released=is_released) is None
    assert len(looked) == REMEMBERED + 1
    looked.clear()
    open_run(machine, "other", identity="other")
    assert crowded(machine, FEW, is_released=is_released) is None
    assert not looked
    released.add("i3")
    machine.index.released("i3")
    assert crowded(machine, FEW, is_released=is_released) == Expire([], [("i3", 1_003)])
    released.clear()
    assert crowded(machine, FEW, is_released=is_released) is None
    looked.clear()
    ended(machine, REMEMBERED + 2)
    assert crowded(machine, FEW, is_released=is_released) is None
    assert "i11" in looked, "another one ended"


def test_a_release_lets_its_ended_session_be_looked_at_again() -> None:
    machine = StateMachine()
    ended(machine, 1)
    open_run(machine, "open", identity="other")
    machine.apply(OpenInputCommand("open", "t1", 0))
    machine.index.grown.clear()
    replica = Replica(machine, Mock(), Mock(), Mock())
    [[number], [still_open]] = (machine.index.inputs_of(each) for each in ("i0", "open"))
    places = (number, SessionPosition(0, 0, 5)), (still_open, SessionPosition(0, 0, 5))
    replica._marks[1] = deque([_Mark(0, places)])
    replica.merged_by_majority({1: 0})
    assert machine.index.grown == {"i"}


def test_too_many_remembered_partitions_are_forgotten_too() -> None:
    machine = StateMachine()
    ended(machine, 3)
    found = crowded(machine, Quotas(sessions=1, partitions=1), is_released=lambda entry: True)
    assert found is None
    machine.apply(CreateTopicCommand("t2", "t2", 20, {}, 1))
    open_run(machine, "wide")
    for index in range(20):
        machine.apply(OpenInputCommand("wide", "t2", index))
    found = crowded(machine, Quotas(sessions=1, partitions=1), is_released=lambda entry: True)
    assert found == Expire([], [("i0", 1_000)])
