"""Planted bugs in what a node does with versions that are newer than its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from samelog.consensus import Entry, Snapshot
from samelog.sequencer.cluster.links import Links
from samelog.sequencer.raft.replica import Replica
from samelog.sequencer.state import machine
from samelog.sequencer.state.command_base import WhyNot
from samelog.sequencer.state.commands import CommandError
from samelog.sequencer.state.tables.members import RaiseLevel
from samelog.sequencer.state.types import State


@contextmanager
def skip_what_is_unknown() -> Iterator[None]:
    """A node passes over an entry of a kind that it does not know."""
    original = Replica.apply

    def apply(self: Replica, entry: Entry) -> list[Any]:
        try:
            return original(self, entry)
        except CommandError:
            self.applied_index = entry.index
            return []

    with patch.object(Replica, "apply", apply):
        yield


@contextmanager
def install_what_is_unknown() -> Iterator[None]:
    """A node installs a leader's snapshot whatever feature level it is of."""
    original = Replica.install

    def install(self: Replica, snapshot: Snapshot) -> None:
        supported, self.supported = self.supported, 1 << 31
        try:
            original(self, snapshot)
        finally:
            self.supported = supported

    with patch.object(Replica, "install", install):
        yield


@contextmanager
def finalize_without_learners() -> Iterator[None]:
    """The feature level is raised though a learner does not support the new one."""
    original = machine.CHANGES[RaiseLevel]

    def raise_level(state: State, command: RaiseLevel) -> WhyNot:
        everybody = state.members.by_number
        state.members.by_number = {number: each for number, each in everybody.items() if each.voter}
        problem = original(state, command)
        state.members.by_number = everybody
        return problem

    with patch.dict(machine.CHANGES, {RaiseLevel: raise_level}):
        yield


@contextmanager
def send_what_only_some_know() -> Iterator[None]:
    """A kind of message is sent to members that may not know it."""
    original = Links.__init__

    def init(self: Links, *arguments: Any, **named: Any) -> None:
        original(self, *arguments, **named | {"level": lambda: 1 << 31})

    with patch.object(Links, "__init__", init):
        yield


_LEVELS = "tests/sequencer/test_levels.py::"

UPGRADING = (
    (
        "raft.12",
        skip_what_is_unknown,
        _LEVELS + "test_an_unknown_kind_of_entry_halts_whoever_meets_it",
    ),
    (
        "raft.12",
        install_what_is_unknown,
        _LEVELS + "test_who_is_sent_a_snapshot_of_a_higher_level_halts_and_can_come_again",
    ),
    (
        "raft.12",
        finalize_without_learners,
        _LEVELS + "test_a_level_is_raised_when_all_members_support_it_learners_too",
    ),
    (
        "raft.12",
        send_what_only_some_know,
        _LEVELS + "test_a_message_goes_out_only_once_all_members_know_it",
    ),
)
"""Rule, bug, and the test that finds it."""
