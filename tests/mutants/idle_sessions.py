"""Planted bugs in what quiet and new sessions cost a node."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from unittest.mock import patch

from samelog.format.positions import SessionPosition
from samelog.runtime.disk.syncer import Syncer
from samelog.sequencer.ingest.node_sessions import RunKeeper
from samelog.sequencer.merge.session_store import SessionStore
from samelog.sequencer.raft.direct import QuietInputs
from samelog.sequencer.state.tables.sessions import Input
from samelog.store.disk.files import File
from samelog.store.session.new_input import NewInput


@contextmanager
def look_at_every_session() -> Iterator[None]:
    """All sessions are looked at each second to find those of nodes."""
    original = RunKeeper.tick

    def tick(self: RunKeeper, now: float, *, is_leader: bool) -> None:
        machine = self._machine
        with patch.object(machine.index, "of_nodes", dict.fromkeys(machine.state.sessions.by_name)):
            original(self, now, is_leader=is_leader)

    with patch.object(RunKeeper, "tick", tick):
        yield


@contextmanager
def count_every_input() -> Iterator[None]:
    """All inputs are looked at to count what is not merged."""

    def take_grown(self: SessionStore) -> dict[int, None]:
        return dict.fromkeys(self._machine.state.sessions.inputs)

    with patch.object(SessionStore, "take_grown", take_grown):
        yield


@contextmanager
def name_before_the_contents_are_durable() -> Iterator[None]:
    """A file that says whose a directory is gets its name before what it holds is on the disk."""
    write, rename = NewInput.write, NewInput.rename

    def write_and_rename(self: NewInput) -> list[File]:
        files = write(self)
        rename(self)
        self._renames.clear()
        return [file for file in files if not file.path.endswith(".tmp")]

    with patch.object(NewInput, "write", write_and_rename):
        yield


@contextmanager
def open_what_is_being_made() -> Iterator[None]:
    """The log of an input is opened while its directories are made."""
    with patch.object(SessionStore, "log", lambda self, number: self._open_log(number)):
        yield


@contextmanager
def say_nothing_of_bytes_of_before() -> Iterator[None]:
    """Bytes that an input had before its directories were made again are never vouched for."""
    original = SessionStore._make

    async def make(self: SessionStore, entry: Input, syncer: Syncer) -> None:
        with patch.object(self._events, "session_log_unsynced", lambda number: None):
            await original(self, entry, syncer)

    with patch.object(SessionStore, "_make", make):
        yield


@contextmanager
def look_at_every_quiet_input() -> Iterator[None]:
    """All inputs that need no reports are looked up in each tick."""
    original = QuietInputs.look

    def look(self: QuietInputs, places: Mapping[int, SessionPosition]) -> set[int]:
        self.stated(self.numbers)
        return original(self, places)

    with patch.object(QuietInputs, "look", look):
        yield


_STORE = "tests/sequencer/test_session_store.py::test_"
_TEST = "tests/sequencer/test_idle_sessions.py::test_quiet_sessions_cost_nothing"
IDLE_SESSIONS = (
    ("sessions.23", look_at_every_session, _TEST),
    ("sessions.23", count_every_input, _TEST),
    (
        "sessions.24",
        name_before_the_contents_are_durable,
        _STORE + "a_loss_of_power_leaves_no_file_of_a_new_input_without_its_contents",
    ),
    (
        "sessions.24",
        open_what_is_being_made,
        _STORE + "an_input_is_made_once_and_not_opened_meanwhile",
    ),
    (
        "sessions.24",
        say_nothing_of_bytes_of_before,
        _STORE + "bytes_of_an_input_that_is_made_again_are_vouched_for",
    ),
    (
        "sessions.23",
        look_at_every_quiet_input,
        "tests/sequencer/test_one_round.py::test_a_look_at_quiet_inputs_follows_what_has_moved",
    ),
)
