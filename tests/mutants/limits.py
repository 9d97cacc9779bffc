"""Planted bugs in what groups keep of what their member may."""

from __future__ import annotations

import errno
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from samelog.archiver.policy_file import PolicyFile
from samelog.archiver.shares import LogShares
from samelog.consensus import Effects
from samelog.format.steps import StepWork, finished
from samelog.http import application
from samelog.kafka.apis import group_members
from samelog.kafka.groups import desk
from samelog.replicator.pull.server import PullServer
from samelog.runtime.descriptors import Descriptors
from samelog.runtime.network import connection
from samelog.runtime.network.channel import Channel
from samelog.runtime.network.connection import Connection
from samelog.runtime.network.transport import Server
from samelog.sequencer import building
from samelog.sequencer.admin import groups
from samelog.sequencer.cluster import ended_runs
from samelog.sequencer.cluster.archiving import MemberViews
from samelog.sequencer.data_groups import hosting
from samelog.sequencer.ingest.room import Room
from samelog.sequencer.merge import merging, session_store
from samelog.sequencer.raft import closing
from samelog.sequencer.raft.group import CommitNotKept, RaftGroup
from samelog.sequencer.raft.store import RaftStore
from samelog.store.disk import dirty_files, disk_errors
from samelog.store.disk.dirty_files import RoundFiles
from samelog.store.disk.disk_errors import NoSpace
from samelog.store.disk.os_file import OsFile


@contextmanager
def policies_of_their_own() -> Iterator[None]:
    """A data group has no policy, because its policy file is not read."""
    original = building.archiver_parts

    def archiver_parts(*parts: Any) -> Any:
        made = original(*parts)
        return replace(made, policy=PolicyFile(made.fs, None)) if made.group else made

    with patch.object(building, "archiver_parts", archiver_parts):
        yield


@contextmanager
def all_may_keep_the_limit() -> Iterator[None]:
    """Each group keeps what all of them may keep together."""
    with patch.object(LogShares, "limit_of", lambda self, group, limit, others: limit):
        yield


@contextmanager
def all_free_everything() -> Iterator[None]:
    """Each group frees all by which the disk is too full."""
    with patch.object(LogShares, "pressure_of", lambda self, group, pressure: pressure):
        yield


@contextmanager
def look_at_oneself_only() -> Iterator[None]:
    """That another member of the group has more than it may does not count."""
    with patch.object(MemberViews, "log_bytes", lambda self, number: 0):
        yield


@contextmanager
def close_for_good() -> Iterator[None]:
    """A round of syncs takes a file that was closed unsynced for one that its owner gave up."""
    with patch.object(OsFile, "close_unsynced", OsFile.close):
        yield


@contextmanager
def give_clients_all_descriptors() -> Iterator[None]:
    """Connections of clients may take the last descriptors."""
    with patch.object(Descriptors, "refusal", lambda self, descriptor, is_peer=False: None):
        yield


@contextmanager
def halt_without_descriptors() -> Iterator[None]:
    """A partition whose file cannot be opened for lack of descriptors is halted."""
    full = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
    with patch.object(disk_errors, "_FULL", full):
        yield


@contextmanager
def go_on_without_room() -> Iterator[None]:
    """A save that the disk had no room for counts as written."""
    original = RaftStore.write

    def write(self: RaftStore, effects: Effects) -> None:
        with suppress(NoSpace):
            original(self, effects)
        self.unwritten = None

    with patch.object(RaftStore, "write", write):
        yield


@contextmanager
def apply_twice_behind_a_full_disk() -> Iterator[None]:
    """Entries that wait for room are applied together with those before them in their batch."""
    original = RaftGroup._carry_out

    def carry_out(self: RaftGroup, effects: Effects) -> None:
        try:
            original(self, effects)
        except CommitNotKept:
            self._store.unwritten = effects
            raise

    with patch.object(RaftGroup, "_carry_out", carry_out):
        yield


@contextmanager
def copy_without_room() -> Iterator[None]:
    """A copy of merged bytes takes the room of Raft's files."""
    with patch.object(Room, "take_copy", lambda self, size: True):
        yield


@contextmanager
def end_rounds_without_descriptors() -> Iterator[None]:
    """A round that lacks the files of one log ends, and forgets those of the others."""

    def take(logs: Any) -> RoundFiles:
        return [file for log in logs.values() for file in log.take_dirty()], {}

    with patch.object(session_store, "take_dirty", take), patch.object(merging, "take_dirty", take):
        yield


@contextmanager
def vouch_without_descriptors() -> Iterator[None]:
    """A round counts for logs whose files it lacks."""

    def take(logs: Any) -> RoundFiles:
        return original(logs)[0], {}

    original = dirty_files.take_dirty
    with patch.object(session_store, "take_dirty", take), patch.object(merging, "take_dirty", take):
        yield


@contextmanager
def take_all_frames_at_once() -> Iterator[None]:
    """A connection handles all that one read of its socket has brought in one turn of the loop."""
    with (
        patch.object(connection, "TURN_FRAMES", 1 << 30),
        patch.object(connection, "SLICE_S", 1e9),
    ):
        yield


@contextmanager
def shake_all_hands_at_once() -> Iterator[None]:
    """A server continues each handshake as soon as bytes arrive."""

    def in_slice(client: Hashable, work: Callable[[], None], **_: bool) -> None:
        work()

    with patch.object(connection, "in_slice", in_slice):
        yield


@contextmanager
def prefer_no_host() -> Iterator[None]:
    """Handshakes of nodes wait behind those of clients."""
    with patch.object(Server, "is_preferred", lambda *_: False):
        yield


@contextmanager
def take_messages_without_slices() -> Iterator[None]:
    """Messages of a client wait for the next turn of the loop only, however many there are."""

    def may_go_on(self: Connection, asked: int) -> bool:
        self._wait_for_turn()
        return False

    with patch.object(Connection, "_may_go_on", may_go_on):
        yield


@contextmanager
def leave_handles_to_the_collector() -> Iterator[None]:
    """A closed pull connection follows no log any more, and keeps the rest of each handle."""

    def let_all_go(self: PullServer) -> None:
        for number in tuple(self._served):
            self._let_go(number)

    with patch.object(PullServer, "_let_all_go", let_all_go):
        yield


@contextmanager
def note_all_positions_at_once() -> Iterator[None]:
    """All positions that a subscriber shows are in one entry."""
    with patch.object(groups, "NOTED_AT_ONCE", 1 << 30):
        yield


@contextmanager
def commit_a_heartbeat_at_once() -> Iterator[None]:
    """All positions of a heartbeat are committed in one turn of the loop."""
    with patch.object(desk, "COMMITTED_AT_ONCE", 1 << 30):
        yield


@contextmanager
def tell_all_ends_at_once() -> Iterator[None]:
    """All ends of a run are sent in one turn of the loop."""

    def tell(_: object, *told: Any, to: int | None = None) -> None:
        *run, send = told
        for message in ended_runs._messages(*run):
            send(message)

    with patch.object(ended_runs.EndedRuns, "tell", tell):
        yield


@contextmanager
def look_at_all_ends_at_once() -> Iterator[None]:
    """The leader of a data group checks all ends of a run in one turn of the loop."""

    def done_within(steps: StepWork[object], count: int) -> bool:
        finished(steps)
        return True

    with patch.object(hosting, "done_within", done_within):
        yield


@contextmanager
def match_topics_at_once() -> Iterator[None]:
    """An expression is matched with all topics in one turn of the loop."""

    async def paced(steps: StepWork[object]) -> object:
        return finished(steps)

    with patch.object(group_members, "paced", paced):
        yield


@contextmanager
def check_all_inputs_at_once() -> Iterator[None]:
    """All inputs of an ended run are checked in one turn of the leader's loop."""
    with patch.object(closing, "CHECKED", 1 << 30):
        yield


@contextmanager
def keep_handlers_of_ended_channels() -> Iterator[None]:
    """A channel and its handler know each other after the last call."""

    def tell_closed(self: Channel, error: Exception | None) -> None:
        if self.handler is not None:
            self.handler.on_closed(error)

    with patch.object(Channel, "_tell_closed", tell_closed):
        yield


@contextmanager
def encode_answers_at_once() -> Iterator[None]:
    """An answer over HTTP is encoded in one turn of the loop."""

    async def paced(steps: StepWork[str]) -> str:
        return finished(steps)

    with patch.object(application, "paced", paced):
        yield


@contextmanager
def read_bodies_of_strangers() -> Iterator[None]:
    """The body of a request is decoded before the right to send it is checked."""
    with patch.object(application, "BY_PATH", ()):
        yield


_FILES = "tests/store/test_open_files.py::"
_SHARES = "tests/archiver/test_shares.py::"
_ENDS = (
    "tests/sequencer/test_ended_runs.py::test_a_run_that_ends_in_many_partitions_takes_no_long_turn"
)
_TURNS = "tests/replicator/test_turns.py::test_"
_SHARING = "tests/runtime/test_handshakes.py::test_"
_MERGED = "tests/sequencer/test_merged_rounds.py::test_"
_SESSIONS = "tests/sequencer/test_session_rounds.py::test_"
LIMITS = (
    (
        "archive.6",
        policies_of_their_own,
        _SHARES + "test_data_groups_have_the_policy_of_their_member",
    ),
    ("archive.6", all_may_keep_the_limit, _SHARES + "test_groups_together_keep_the_limit"),
    ("archive.6", all_free_everything, _SHARES + "test_groups_together_free_what_is_too_much"),
    ("archive.6", look_at_oneself_only, _SHARES + "test_group_0_plans_for_its_share"),
    (
        "turns.6",
        close_for_good,
        _FILES + "test_what_was_closed_unsynced_is_covered_by_a_sync_of_the_file_system",
    ),
    ("turns.6", give_clients_all_descriptors, _FILES + "test_connections_leave_a_reserve"),
    ("turns.6", halt_without_descriptors, _FILES + "test_a_lack_of_descriptors_passes"),
    (
        "logs.12",
        end_rounds_without_descriptors,
        _MERGED + "a_round_without_descriptors_is_repeated",
    ),
    ("turns.7", take_all_frames_at_once, _TURNS + "no_message_takes_a_long_turn"),
    ("turns.13", shake_all_hands_at_once, _SHARING + "a_turn_has_a_slice_of_handshakes"),
    ("turns.13", prefer_no_host, _SHARING + "handshakes_of_hosts_of_nodes_are_preferred"),
    (
        "turns.14",
        take_messages_without_slices,
        _SHARING + "many_messages_of_a_client_wait_for_slices",
    ),
    (
        "turns.15",
        leave_handles_to_the_collector,
        _TURNS + "closed_connections_leave_little_garbage",
    ),
    (
        "turns.15",
        keep_handlers_of_ended_channels,
        _TURNS + "closed_connections_leave_little_garbage",
    ),
    (
        "turns.16",
        note_all_positions_at_once,
        "tests/kafka/test_turns.py::test_many_noted_positions_take_no_long_turn",
    ),
    (
        "turns.16",
        commit_a_heartbeat_at_once,
        "tests/kafka/test_turns.py::test_a_long_heartbeat_takes_no_long_turn",
    ),
    (
        "turns.18",
        check_all_inputs_at_once,
        "tests/sequencer/test_ending.py::test_a_run_of_many_inputs_is_checked_in_bounded_turns",
    ),
    ("turns.19", tell_all_ends_at_once, _ENDS),
    ("turns.19", look_at_all_ends_at_once, _ENDS),
    (
        "turns.17",
        match_topics_at_once,
        "tests/kafka/test_turns.py::test_an_expression_over_many_topics_takes_no_long_turn",
    ),
    (
        "turns.8",
        encode_answers_at_once,
        "tests/http/test_turns.py::test_no_answer_takes_a_long_turn",
    ),
    (
        "operations.8",
        read_bodies_of_strangers,
        "tests/http/test_server.py::test_no_long_body_is_decoded_without_the_right_to_send_it",
    ),
    (
        "merge.17",
        apply_twice_behind_a_full_disk,
        "tests/sequencer/test_group.py::test_entries_that_cannot_be_applied_without_room_are_applied_once_later",
    ),
    (
        "merge.17",
        go_on_without_room,
        "tests/sequencer/test_group.py::test_a_save_without_room_waits_and_later_ones_behind_it",
    ),
    (
        "merge.17",
        copy_without_room,
        "tests/sequencer/test_repair.py::test_only_what_is_committed_and_has_room_is_taken_and_nothing_twice",
    ),
    ("logs.12", vouch_without_descriptors, _SESSIONS + "inputs_without_descriptors_wait"),
)
"""Rule, bug, and the test that finds it."""
