"""Planted bugs in planning what was received, in taking entries with their bytes only, and in what
makes both durable.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from unittest.mock import patch

from samelog.consensus import Effects, Raft
from samelog.consensus.effects import NOTHING
from samelog.consensus.saves import Saves
from samelog.format.positions import SessionPosition
from samelog.runtime.disk.syncer import GroupSync
from samelog.sequencer.cluster.reporter import Reporter
from samelog.sequencer.group_replica import GroupReplica
from samelog.sequencer.ingest.session_rounds import SessionRounds
from samelog.sequencer.merge.checked_ranges import CheckedRanges
from samelog.sequencer.raft import coordinator
from samelog.sequencer.raft.closing import RunCloser
from samelog.sequencer.raft.coordinator import Coordinator
from samelog.sequencer.raft.direct import DirectInputs
from samelog.sequencer.raft.entry_bytes import EntryBytes
from samelog.sequencer.raft.group import RaftGroup
from samelog.sequencer.state.commands import AnyCommand
from samelog.sequencer.state.instructions import Range
from samelog.sequencer.state.tables.sessions import Input
from samelog.store.disk.disk_errors import DiskFault
from samelog.store.session.log import InputLog


@contextmanager
def take_any_bytes_of_an_entry() -> Iterator[None]:
    """A follower does not look whether its bytes are those that the leader planned."""
    with patch.object(EntryBytes, "_agrees", lambda self, part: True):
        yield


@contextmanager
def only_bytes_back() -> Iterator[None]:
    """A held entry is not checked again when an applied entry opens or closes an input."""

    def applied(
        self: GroupReplica, index: int, commands: Sequence[AnyCommand], *, rejected: bool
    ) -> None:
        self.raft.coordinator.applied(index, commands, rejected)

    with patch.object(GroupReplica, "entry_applied", applied):
        yield


@contextmanager
def back_entries_by_bytes_that_are_gone() -> Iterator[None]:
    """Bytes that a node has had count after it has given them up."""
    ever = property(lambda self: 0, lambda self, value: None)
    with patch.object(InputLog, "losses", ever, create=True):
        yield


@contextmanager
def merge_what_another_entry_named() -> Iterator[None]:
    """Bytes that were checked for one entry are merged for another one that names their place."""
    original = CheckedRanges.take

    def place(part: Range) -> tuple[int, ...]:
        return part.input, part.run, part.roll, part.start, part.stop

    def take(self: CheckedRanges, part: Range) -> bytearray | None:
        there = (known for known in self._kept if place(known) == place(part))
        return original(self, next(there, part))

    with patch.object(CheckedRanges, "take", take):
        yield


@contextmanager
def vouch_behind_a_failed_round() -> Iterator[None]:
    """A round of session bytes counts although one with bytes before its own has failed."""
    never = property(lambda self: False, lambda self, value: None)
    with patch.object(SessionRounds, "_has_failed", never, create=True):
        yield


@contextmanager
def vouch_for_a_round_under_way() -> Iterator[None]:
    """A round of session bytes that has no file counts before those ahead of it have ended."""

    async def at_once(self: SessionRounds) -> None:
        pass

    with patch.object(SessionRounds, "_rounds_before", at_once):
        yield


@contextmanager
def pass_who_waits_for_a_failed_sync() -> Iterator[None]:
    """A sync succeeds at once while who waits for one that failed has not heard of it yet."""

    def note(self: GroupSync, fault: DiskFault) -> None:
        self._error = self._error or fault

    with patch.object(GroupSync, "_note", note):
        yield


@contextmanager
def cut_what_rotted() -> Iterator[None]:
    """A restarted node cuts entries whose bytes it had, and lost to damage."""
    with patch.object(EntryBytes, "is_kept", EntryBytes.is_backed):
        yield


@contextmanager
def plan_what_nobody_has_shown() -> Iterator[None]:
    """A leader plans what it has received, whoever else the publisher reaches."""

    def reach(
        self: Coordinator, entry: Input, reported: SessionPosition | None
    ) -> SessionPosition | None:
        return self._sessions.written(entry)

    with patch.object(Coordinator, "_direct_reach", reach):
        yield


@contextmanager
def never_go_back_to_reports() -> Iterator[None]:
    """An input whose bytes come too late, again and again, holds all others up for ever."""
    with patch.object(DirectInputs, "_missed", lambda self, number, now: None):
        yield


@contextmanager
def late_by_held_rounds() -> Iterator[None]:
    """For how long followers held an entry back counts as the time of a round."""
    original = RaftGroup._apply

    def apply(self: RaftGroup, effects: Effects) -> None:
        proposed = dict(self._proposed)
        for entry in effects.apply:
            if entry.index in proposed:
                self.entry_bytes.rounds_s.append(self._clock.now() - proposed[entry.index])
        original(self, effects)

    with patch.object(RaftGroup, "_apply", apply):
        yield


@contextmanager
def look_only_in_rounds() -> Iterator[None]:
    """A follower looks for inputs that the leader names no more only when a report is due."""
    original = Reporter.tick

    def tick(self: Reporter, now: float) -> None:
        known = self.quiet.numbers
        if not any(now >= untold.due_at for untold in self._untold.values()):
            self.quiet.numbers = set()
        original(self, now)
        self.quiet.numbers = self.quiet.numbers or known

    with patch.object(Reporter, "tick", tick):
        yield


@contextmanager
def plan_without_majority() -> Iterator[None]:
    """What the leader alone holds is planned."""

    def place(places: Iterable[SessionPosition], voters: int) -> SessionPosition | None:
        return max(places, default=None)

    with patch.object(coordinator, "majority_place", place):
        yield


@contextmanager
def close_before_all_is_applied() -> Iterator[None]:
    """A topic that a leader does not know yet is taken for a deleted one when it closes a run."""
    with patch.object(RunCloser, "_is_current", lambda self: True):
        yield


@contextmanager
def close_runs_unasked() -> Iterator[None]:
    """A run is closed by what the others happen to have reported so far."""
    with patch.object(RunCloser, "_all_answered", lambda self, name: True):
        yield


@contextmanager
def count_what_was_kept_at_once() -> Iterator[None]:
    """A restarted node answers for entries whose bytes its last process has not synced."""
    with patch.object(Raft, "save_kept", lambda self: NOTHING):
        yield


@contextmanager
def hide_what_was_kept() -> Iterator[None]:
    """A restarted node tells its peers only of entries that count already: it seems to have
    forgotten the others.
    """
    with patch.object(Saves, "on_disk", property(lambda self: self.durable_index)):
        yield


_TESTS = "tests/sequencer/test_one_round.py::"

ONE_ROUND = (
    (
        "raft.14",
        take_any_bytes_of_an_entry,
        _TESTS + "test_other_bytes_at_the_same_place_do_not_back_an_entry",
    ),
    (
        "raft.14",
        only_bytes_back,
        _TESTS + "test_an_entry_that_is_applied_checks_the_held_one_again",
    ),
    (
        "raft.14",
        back_entries_by_bytes_that_are_gone,
        _TESTS + "test_bytes_that_were_given_up_back_nothing",
    ),
    (
        "raft.14",
        merge_what_another_entry_named,
        _TESTS + "test_bytes_that_back_an_entry_are_at_hand_once_and_for_its_digest_only",
    ),
    (
        "raft.15",
        hide_what_was_kept,
        "tests/sequencer/test_group.py::test_what_a_restarted_node_keeps_counts_once_its_bytes_are_durable",
    ),
    (
        "raft.15",
        count_what_was_kept_at_once,
        "tests/sequencer/test_group.py::test_what_a_restarted_node_keeps_counts_once_its_bytes_are_durable",
    ),
    (
        "raft.15",
        vouch_behind_a_failed_round,
        "tests/sequencer/test_session_rounds.py::test_no_round_succeeds_behind_one_that_failed",
    ),
    (
        "raft.15",
        vouch_for_a_round_under_way,
        "tests/sequencer/test_session_rounds.py::test_what_an_earlier_round_has_counts_with_a_later_one",
    ),
    (
        "logs.5",
        pass_who_waits_for_a_failed_sync,
        "tests/runtime/test_syncer.py::test_a_failed_sync_is_heard_of_before_a_later_one_succeeds",
    ),
    ("raft.16", cut_what_rotted, _TESTS + "test_damage_is_no_reason_to_cut_an_entry"),
    (
        "merge.11",
        plan_without_majority,
        _TESTS + "test_what_a_majority_has_shown_is_planned_when_received",
    ),
    (
        "merge.11",
        plan_what_nobody_has_shown,
        _TESTS + "test_what_a_majority_has_shown_is_planned_when_received",
    ),
    (
        "merge.11",
        never_go_back_to_reports,
        _TESTS + "test_an_input_whose_bytes_come_late_goes_back_to_reports_for_longer_and_longer",
    ),
    (
        "merge.15",
        late_by_held_rounds,
        "tests/sequencer/test_group.py::test_a_round_ends_with_its_sync_and_not_with_its_commit",
    ),
    (
        "merge.15",
        look_only_in_rounds,
        "tests/sequencer/test_reporter.py::test_a_follower_whose_leader_names_an_input_no_more_reports_it_at_the_next_look",
    ),
    (
        "sessions.8",
        close_before_all_is_applied,
        "tests/sequencer/test_ending.py::test_a_run_stays_open_while_a_topic_that_it_names_may_be_new[False]",
    ),
    (
        "sessions.8",
        close_runs_unasked,
        _TESTS + "test_a_run_is_closed_after_all_who_can_be_reached_were_asked",
    ),
)
"""Rule, bug, and the test that finds it."""
