"""Planted bugs in what sessions share: a connection, its window, its turns, and a clock."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast
from unittest.mock import patch

from samelog.replicator.interfaces import InputName
from samelog.replicator.push import served_session
from samelog.replicator.push.client import PushClient
from samelog.replicator.push.connections import LookedAt, PushConnections
from samelog.replicator.push.file_writer import FileWriter
from samelog.replicator.push.local_session import LocalSession
from samelog.replicator.push.node_connection import PublisherEnd
from samelog.replicator.push.served_session import PushSession
from samelog.replicator.turns import Turns, TurnTaker
from samelog.runtime.faults import fault_of
from samelog.runtime.network.channel import Channel
from samelog.runtime.network.connection import Connection
from samelog.sequencer.ingest.intake import Intake
from samelog.sequencer.state.tables.sessions import Input
from samelog.wire import sender
from samelog.wire.push.acks import Acknowledgements
from samelog.wire.push.receiver import PushReceiver
from samelog.wire.sender import SharedWindow


def _carrier(channel: Channel) -> Connection:
    """Return the connection of a channel."""
    return cast(Connection, channel._connection)


@contextmanager
def one_session_ends_all() -> Iterator[None]:
    """What is wrong with a session ends the connection."""

    def failed(self: Channel, error: Exception) -> None:
        _carrier(self).close(fault_of(error))

    with patch.object(Channel, "failed", failed):
        yield


@contextmanager
def one_session_stalls_all() -> Iterator[None]:
    """Nothing is read from the connection while a session's bytes are checked."""
    original = PushSession._take

    async def take(self: PushSession, handle: int, taking: Any) -> None:
        connection = _carrier(self._connection)
        connection.pause_reading()
        await original(self, handle, taking)
        connection.resume_reading()

    with patch.object(PushSession, "_take", take):
        yield


@contextmanager
def take_bytes_into_the_open_run() -> Iterator[None]:
    """A node does not look which run bytes are of: whichever is open gets them."""
    original = Intake._open_entry

    def open_entry(self: Intake, number: int, run_number: int) -> Input:
        entry = self._machine.state.sessions.inputs.get(number)
        return original(self, number, run_number if entry is None else entry.run)

    with patch.object(Intake, "_open_entry", open_entry):
        yield


@contextmanager
def no_turns_among_sessions() -> Iterator[None]:
    """A session that has more to send sends it before any other one."""

    def take_turns(self: Turns) -> None:
        while self.ready:
            taker = next(iter(self.ready))
            while taker.step():
                pass
            self.ready.pop(taker, None)
            taker.rest()

    with patch.object(Turns, "_take_turns", take_turns):
        yield


@contextmanager
def no_first_piece() -> Iterator[None]:
    """A session waits until others leave room, though nothing of it is under way."""
    with patch.object(sender, "FIRST_BYTES", 0):
        yield


@contextmanager
def forget_who_waits_for_room() -> Iterator[None]:
    """A session that found no room is not woken when the window has room."""
    with patch.object(SharedWindow, "wait", lambda self, again: None):
        yield


@contextmanager
def keep_closed_runs() -> Iterator[None]:
    """Runs are remembered as long as the session is open."""
    with patch.object(PushReceiver, "_forget_runs", lambda self, run_id: None):
        yield


@contextmanager
def look_at_all_each_poll() -> Iterator[None]:
    """All sessions are checked in each poll, at rest or not."""

    def due(self: PushConnections) -> list[LookedAt]:
        return [*self._sessions]

    with patch.object(PushConnections, "_due_soon", due):
        yield


@contextmanager
def sleep_through_trouble() -> Iterator[None]:
    """What happens to the files of a session that rests does not wake it."""
    with patch.object(PushClient, "_look_soon", lambda self: None):
        yield


@contextmanager
def believe_that_the_leader_is_reached() -> Iterator[None]:
    """A node holds back acknowledgements that the publisher gets from no other one."""
    original = Acknowledgements.reached

    def reached(self: Acknowledgements, *moved: Any, can_wait: bool = False) -> bool:
        return original(self, *moved, can_wait=True)

    with patch.object(Acknowledgements, "reached", reached):
        yield


@contextmanager
def reach_lost_members() -> Iterator[None]:
    """A publisher that has lost a node does not tell the others."""
    original = PublisherEnd.tell_reached

    def tell(self: PublisherEnd, members: frozenset[int]) -> None:
        original(self, members | self._reached)

    with patch.object(PublisherEnd, "tell_reached", tell):
        yield


@contextmanager
def take_what_follows_a_failure() -> Iterator[None]:
    """Frames that a session has under way behind the bytes that ended it are taken."""

    def go_on(self: PushSession) -> None:
        self._is_held = False
        while self._kept and not self._is_held:
            self._take_kept()()

    with patch.object(PushSession, "_go_on", go_on):
        yield


@contextmanager
def keep_any_number_of_frames() -> Iterator[None]:
    """Kept frames without a payload count for nothing."""
    with patch.object(served_session, "FRAME_BYTES", 0):
        yield


@contextmanager
def stop_before_writes_end() -> Iterator[None]:
    """A push client stops while threads still write into the session's directory."""

    async def finish(self: FileWriter) -> None:
        """Wait for nothing."""

    with patch.object(FileWriter, "finish", finish):
        yield


@contextmanager
def send_within_a_change() -> Iterator[None]:
    """Room that a change makes is used before the change is complete."""
    with patch.object(TurnTaker, "work_later", TurnTaker.work):
        yield


@contextmanager
def list_all_for_one_input() -> Iterator[None]:
    """If a file of one input is gone, the directories of all inputs are listed."""
    original = LocalSession.look_again

    def look_again(self: LocalSession, name: InputName | None = None) -> bool:
        return original(self)

    with patch.object(LocalSession, "look_again", look_again):
        yield


_SHARED = "tests/replicator/test_shared_connection.py::"
_UPKEEP = "tests/replicator/test_push_upkeep.py::"
_SENDER = "tests/wire/test_sender.py::"
PUSH_SESSIONS = (
    (
        "sessions.34",
        believe_that_the_leader_is_reached,
        _SHARED + "test_a_node_hurries_where_the_publisher_does_not_reach_the_leader",
    ),
    (
        "sessions.34",
        reach_lost_members,
        _SHARED + "test_a_node_learns_which_members_the_publisher_reaches",
    ),
    (
        "sessions.35",
        one_session_ends_all,
        _SHARED + "test_what_the_cluster_refuses_of_one_session_ends_that_session_only",
    ),
    (
        "sessions.36",
        one_session_stalls_all,
        _SHARED + "test_bytes_that_are_checked_hold_up_their_session_only_and_keep_its_order",
    ),
    (
        "sessions.52",
        take_bytes_into_the_open_run,
        "tests/cluster_sim/test_simulation.py::test_worlds_hold_in_which_sessions_share_connections",
    ),
    (
        "sessions.36",
        no_turns_among_sessions,
        "tests/replicator/test_small_parts.py::test_parts_of_a_connection_take_turns",
    ),
    (
        "sessions.37",
        no_first_piece,
        _SENDER + "test_a_sender_with_nothing_under_way_sends_a_first_piece",
    ),
    (
        "sessions.37",
        forget_who_waits_for_room,
        _SENDER + "test_senders_share_the_window_of_a_connection",
    ),
    (
        "sessions.38",
        keep_closed_runs,
        "tests/wire/test_push_receiver.py::test_handles_and_runs_that_ended_are_freed",
    ),
    (
        "sessions.39",
        look_at_all_each_poll,
        _SHARED + "test_a_session_at_rest_is_looked_at_once_in_a_while",
    ),
    (
        "sessions.39",
        sleep_through_trouble,
        _SHARED + "test_the_death_of_a_writer_is_noticed_without_polling",
    ),
    (
        "sessions.45",
        take_what_follows_a_failure,
        _SHARED + "test_nothing_that_follows_a_failure_is_taken",
    ),
    (
        "sessions.45",
        keep_any_number_of_frames,
        _SHARED + "test_a_connection_waits_while_its_sessions_keep_many_frames",
    ),
    (
        "sessions.46",
        stop_before_writes_end,
        _UPKEEP + "test_a_client_that_stops_has_written_what_it_began_to_write",
    ),
    (
        "sessions.47",
        send_within_a_change,
        _UPKEEP + "test_a_session_that_gets_room_within_a_change_sends_after_it",
    ),
    (
        "sessions.48",
        list_all_for_one_input,
        _UPKEEP + "test_a_file_that_is_gone_costs_a_listing_of_its_input",
    ),
)
