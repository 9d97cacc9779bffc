"""Planted bugs in changes of topics, and in what is told of the cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from samelog.config import authorisation
from samelog.kafka import event_writer
from samelog.kafka.producer_log import ProducerLog
from samelog.placement import converting
from samelog.sequencer import recovery
from samelog.sequencer.admin import topics
from samelog.sequencer.state import machine
from samelog.sequencer.state.command_base import Rejection
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.tables.events import Happened, NoteElection
from samelog.sequencer.state.types import State
from samelog.sequencer.state.units import events


@contextmanager
def wish_while_it_moves() -> Iterator[None]:
    """Another number of copies is wanted of what is being moved, and is forgotten with the move."""
    with patch.object(converting, "_check_at_rest", lambda table, partitions, copies: None):
        yield


@contextmanager
def empty_what_is_not_merged() -> Iterator[None]:
    """A partition begins behind records that a majority has not merged."""

    async def until_merged(raft: Any, number: int, end: int) -> None:
        """Wait for nothing."""

    with patch.object(topics, "_until_merged", until_merged):
        yield


@contextmanager
def tell_of_every_election() -> Iterator[None]:
    """Whoever says that a node leads is believed, again and again."""

    def elected(state: State, command: NoteElection) -> Iterator[Happened]:
        yield command.at_ms, "election", command.node, ""

    with patch.dict(events.TELLERS, {NoteElection: elected}):
        yield


@contextmanager
def number_what_waits() -> Iterator[None]:
    """Event numbers restart with the events that the topic does not have."""
    original = events.note_events

    def note(state: State, found: Sequence[Happened]) -> None:
        state.events.next_number = len(state.events.waiting)
        original(state, found)

    with patch.object(machine, "note_events", note):
        yield


@contextmanager
def tell_what_was_refused() -> Iterator[None]:
    """A command is told of before it is known whether it changes anything."""
    original = StateMachine.apply

    def apply(self: StateMachine, command: Any) -> Any:
        tell = events.TELLERS.get(type(command))
        happened = () if tell is None else tuple(tell(self.state, command))
        outcome = original(self, command)
        if isinstance(outcome, Rejection) and happened:
            events.note_events(self.state, happened)
        return outcome

    with patch.object(StateMachine, "apply", apply):
        yield


@contextmanager
def number_events_from_what_is_left() -> Iterator[None]:
    """A recovered group 0 numbers its events from what it has left."""
    with patch.object(recovery, "leave_event_numbers_out", lambda state: None):
        yield


@contextmanager
def forget_what_is_written() -> Iterator[None]:
    """Group 0 forgets an event once the leader of the topic's group has merged it."""

    def held(self: Any) -> int:
        return int(self._written)

    with patch.object(event_writer._EventLog, "held", held):
        yield


@contextmanager
def write_again_in_the_same_run() -> Iterator[None]:
    """What was not taken is written again behind it, with ids that are 2^31 higher."""
    with patch.object(ProducerLog, "end_run", lambda self: None):
        yield


@contextmanager
def let_anybody_tell() -> Iterator[None]:
    """Who may write to all topics may write events."""
    with patch.object(authorisation, "EVENTS_TOPIC", ""):
        yield


_EVENTS = "tests/sequencer/test_told_events.py::"

TOPIC_CHANGES: tuple[tuple[str, Callable[[], Any], str], ...] = (
    ("readers.18", tell_of_every_election, _EVENTS + "test_an_election_is_told_once"),
    (
        "readers.18",
        number_what_waits,
        _EVENTS + "test_what_the_topic_is_known_to_have_waits_no_more",
    ),
    ("readers.18", tell_what_was_refused, _EVENTS + "test_what_is_refused_did_not_happen"),
    (
        "readers.29",
        number_events_from_what_is_left,
        "tests/sequencer/test_recovery.py::test_one_node_goes_on_alone_and_keeps_all_positions",
    ),
    (
        "readers.29",
        forget_what_is_written,
        _EVENTS + "test_group_0_keeps_what_a_majority_has_not_merged_durably",
    ),
    (
        "readers.29",
        write_again_in_the_same_run,
        _EVENTS + "test_what_was_not_taken_is_written_again_in_another_run",
    ),
    ("readers.18", let_anybody_tell, _EVENTS + "test_nobody_else_writes_events"),
    (
        "placement.12",
        wish_while_it_moves,
        "tests/placement/test_converting.py::test_who_thinks_again_waits_for_what_is_being_moved",
    ),
    (
        "logs.16",
        empty_what_is_not_merged,
        "tests/sequencer/test_truncating.py::test_what_is_not_merged_is_waited_for",
    ),
)
"""Rule, bug, and the test that finds it."""
