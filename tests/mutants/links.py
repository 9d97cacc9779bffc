"""Planted bugs in the two connections between members."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from samelog.consensus.log import RaftLog
from samelog.sequencer.bulk_server import BulkServer
from samelog.sequencer.cluster import peers
from samelog.sequencer.cluster.peers import Callers, PeerLink
from samelog.wire import pair_liveness
from samelog.wire.member_queues import ControlQueue, GroupQueues
from samelog.wire.pair_liveness import FollowingEnd, LeadingEnd
from samelog.wire.shared_sender import Credit, SharedSender


@contextmanager
def long_frames_on_control() -> Iterator[None]:
    """A chunk of a snapshot is sent on the control connection."""
    with patch.object(peers, "is_long", lambda frame: False):
        yield


@contextmanager
def take_long_frames_on_control() -> Iterator[None]:
    """Nobody looks how long a frame on a control connection is."""
    with patch.object(peers, "check_control", lambda size_bytes: None):
        yield


@contextmanager
def beats_wait_their_turn() -> Iterator[None]:
    """A heartbeat leaves behind what has waited for longer."""
    original = ControlQueue.put

    def put(self: ControlQueue, frame: bytes, *, urgent: bool) -> bool:
        return original(self, frame, urgent=False)

    with patch.object(ControlQueue, "put", put):
        yield


@contextmanager
def reports_take_the_other_way() -> Iterator[None]:
    """A long report goes over the bulk connection, where newer ones pass it."""
    with patch.object(peers, "parts_of", lambda message: [message]):
        yield


@contextmanager
def long_entries_side_by_side() -> Iterator[None]:
    """What follows a long entry is sent beside it, on the faster way."""
    with patch.object(RaftLog, "is_long", lambda self, index, limit_bytes: False):
        yield


@contextmanager
def one_window_for_all_groups() -> Iterator[None]:
    """The logs of all groups share the window of a bulk connection."""
    original = SharedSender.assign

    def assign(self: SharedSender, handle: int, credit: Credit) -> None:
        original(self, handle, Credit(0, credit.is_merged))

    with patch.object(SharedSender, "assign", assign):
        yield


@contextmanager
def one_queue_for_all_groups() -> Iterator[None]:
    """Long frames of all groups share one credit, and one turn."""
    original = GroupQueues.put

    def put(self: GroupQueues, group: int, frame: bytes) -> bool:
        return original(self, 0, frame)

    with patch.object(GroupQueues, "put", put):
        yield


@contextmanager
def take_bulk_of_older_lives() -> Iterator[None]:
    """A bulk connection counts whichever life of the member the control connection is of."""

    def is_connected(self: Callers, number: int, incarnation: str) -> bool:
        return any(not server.is_void for server in self._servers[number])

    with patch.object(Callers, "is_connected", is_connected):
        yield


@contextmanager
def hear_what_is_void() -> Iterator[None]:
    """What comes on a bulk connection after its control connection is gone still counts."""
    with patch.object(BulkServer, "void", lambda self: self._connection.close()):
        yield


@contextmanager
def bulk_outlives_control() -> Iterator[None]:
    """A member goes on with its bulk connection when the control connection is gone."""

    def closed(self: PeerLink, error: Exception | None) -> None:
        self.connected = False
        self._on_over(error)

    with patch.object(PeerLink, "on_closed", closed):
        yield


@contextmanager
def pull_from_any_life() -> Iterator[None]:
    """A member does not look which life of the peer answers on the bulk connection."""
    with patch.object(PeerLink, "_check_bulk", lambda self, welcome: None):
        yield


@contextmanager
def never_end_orphans() -> Iterator[None]:
    """A bulk connection that was taken stays, whatever becomes of its control connection."""
    with patch.object(Callers, "_end_orphans", lambda self, number: None):
        yield


@contextmanager
def notes_are_heartbeats() -> Iterator[None]:
    """A leader that makes one group quiet is taken as heard for all that are."""
    original = FollowingEnd.quiet

    def quiet(self: FollowingEnd, group: int, term: int, now: float) -> None:
        original(self, group, term, now)
        self.heard_at = now

    with patch.object(FollowingEnd, "quiet", quiet):
        yield


@contextmanager
def digest_groups_alone() -> Iterator[None]:
    """The beat of two members does not say in which terms groups are led."""
    original = pair_liveness._digest
    with patch.object(pair_liveness, "_digest", lambda group, term: original(group, 0)):
        yield


@contextmanager
def beats_cover_what_is_newer() -> Iterator[None]:
    """A group that became quiet behind a beat is taken as heard by the answer to it."""
    original = LeadingEnd.quiet

    def quiet(self: LeadingEnd, group: int, term: int) -> None:
        original(self, group, term)
        self._since[group] = self._number

    with patch.object(LeadingEnd, "quiet", quiet):
        yield


_LIVENESS = "tests/wire/test_pair_liveness.py::"
_TWO = "tests/sequencer/test_two_connections.py::"
_CREDITS = "tests/wire/test_shared_sender.py::"
_QUEUES = "tests/wire/test_member_queues.py::"

LINKS = (
    (
        "raft.21",
        long_frames_on_control,
        _TWO + "test_heartbeats_do_not_wait_for_a_snapshot_of_a_gigabyte",
    ),
    ("raft.21", take_long_frames_on_control, _TWO + "test_a_long_frame_ends_a_control_connection"),
    (
        "raft.21",
        beats_wait_their_turn,
        _TWO + "test_what_is_urgent_leaves_a_crowded_connection_first",
    ),
    (
        "raft.21",
        reports_take_the_other_way,
        _TWO + "test_a_long_report_stays_on_control_in_parts_that_say_the_same",
    ),
    (
        "raft.21",
        long_entries_side_by_side,
        "tests/consensus/test_replicating.py::test_nothing_is_under_way_beside_a_long_entry",
    ),
    (
        "raft.22",
        one_window_for_all_groups,
        _CREDITS + "test_a_group_whose_window_is_full_holds_up_no_other",
    ),
    (
        "raft.22",
        one_queue_for_all_groups,
        _QUEUES + "test_a_group_that_has_used_its_credit_takes_none_of_another",
    ),
    (
        "raft.23",
        take_bulk_of_older_lives,
        _TWO + "test_a_bulk_connection_of_another_life_is_not_taken",
    ),
    (
        "raft.23",
        never_end_orphans,
        _TWO + "test_a_newer_life_ends_the_bulk_connection_of_an_older_one",
    ),
    (
        "raft.23",
        hear_what_is_void,
        _TWO + "test_what_still_comes_on_a_void_connection_counts_for_nothing",
    ),
    (
        "raft.23",
        bulk_outlives_control,
        _TWO + "test_the_bulk_connection_ends_with_the_control_connection",
    ),
    (
        "raft.23",
        pull_from_any_life,
        _TWO + "test_the_bulk_connection_leads_to_the_life_that_control_talks_to",
    ),
    (
        "raft.24",
        notes_are_heartbeats,
        _LIVENESS + "test_a_leader_that_makes_others_quiet_is_not_heard_for_those_that_are",
    ),
    ("raft.24", digest_groups_alone, _LIVENESS + "test_the_same_groups_in_another_term_differ"),
    (
        "raft.24",
        beats_cover_what_is_newer,
        _LIVENESS + "test_what_became_quiet_behind_a_beat_is_not_heard_by_it",
    ),
)
"""Rule, bug, and the test that finds it."""
