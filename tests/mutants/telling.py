"""Planted bugs in what nodes tell each other, and in what is concluded from it."""

from __future__ import annotations

from collections.abc import Container, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import msgspec

from samelog.sequencer.cluster.reporter import Reporter
from samelog.sequencer.merge.merged_partition import MergedPartition
from samelog.sequencer.merge.merging import Merging
from samelog.sequencer.raft import coordinator
from samelog.sequencer.raft.coordinator import Coordinator
from samelog.sequencer.state.instructions import VoidRecordsCommand
from samelog.sequencer.state.tables.partitions import Partition, PartitionsTable


@contextmanager
def tell_once() -> Iterator[None]:
    """Cursors that could not be sent to a node are not repeated to it."""
    original = Reporter._tell_cursors

    def tell(self: Reporter, number: int, partitions: Any) -> bool:
        original(self, number, partitions)
        return True

    with patch.object(Reporter, "_tell_cursors", tell):
        yield


@contextmanager
def leave_new_members_untold() -> Iterator[None]:
    """A new member of a group hears nothing on a connection that stood before."""
    original = Reporter.follow_members

    def follow(self: Reporter, members: Container[int]) -> None:
        with patch.object(Reporter, "tell_everything", lambda self, number: None):
            original(self, members)

    with patch.object(Reporter, "follow_members", follow):
        yield


@contextmanager
def lead_on_with_old_cursors() -> Iterator[None]:
    """A new leader takes over cursors as they are, and looks at what is reported from then on."""
    original = Coordinator.leadership_changed

    def changed(self: Coordinator) -> None:
        self._unsettled.merged = set()
        original(self)
        self._unsettled.merged = set()

    with patch.object(Coordinator, "leadership_changed", changed):
        yield


@contextmanager
def open_what_is_here_alone() -> Iterator[None]:
    """A partition without a directory is not opened, though records of it are committed."""
    original = Merging._take_up

    def take_up(self: Merging, partition: Partition) -> None:
        original(self, msgspec.structs.replace(partition, next_offset=0))

    with patch.object(Merging, "_take_up", take_up):
        yield


@contextmanager
def believe_any_checksum() -> Iterator[None]:
    """A checksum that one node reports is recorded, whatever a majority has."""

    def newest(votes: dict[tuple[int, int], int], voters: int) -> tuple[Any, None]:
        return max(votes, default=None), None

    with patch.object(coordinator, "verdict", newest):
        yield


@contextmanager
def sample_at_intervals_only() -> Iterator[None]:
    """Checksums are not sampled at a change of leader."""
    with patch.object(Merging, "sample", lambda self: None):
        yield


@contextmanager
def serve_what_others_deny() -> Iterator[None]:
    """Where no majority has the same bytes, every node serves its own."""
    with patch.object(Merging, "no_majority", lambda self, number, offset: None):
        yield


@contextmanager
def compare_only_at_once() -> Iterator[None]:
    """Who has yet to merge up to where a majority agrees is not compared with it."""
    never = property(lambda self: None, lambda self, value: None)
    with patch.object(MergedPartition, "agreed", never, create=True):
        yield


@contextmanager
def believe_in_what_was_given_up() -> Iterator[None]:
    """Agreed checksums outlive the records."""
    original = PartitionsTable.give_up

    def forgetful(self: PartitionsTable, command: VoidRecordsCommand) -> None:
        partition = self.by_number[command.partition]
        before = partition.checked_offset, partition.checked_sum
        original(self, command)
        partition.checked_offset, partition.checked_sum = before

    with patch.object(PartitionsTable, "give_up", forgetful):
        yield


_DIVERGENCE = "tests/sequencer/test_divergence.py::"

TELLING = (
    ("merge.4", compare_only_at_once, _DIVERGENCE + "test_who_lags_is_compared_when_it_gets_there"),
    (
        "merge.4",
        sample_at_intervals_only,
        _DIVERGENCE + "test_who_differs_is_found_at_a_change_of_leader",
    ),
    (
        "merge.4",
        serve_what_others_deny,
        _DIVERGENCE + "test_where_no_majority_agrees_nobody_serves",
    ),
    (
        "merge.4",
        believe_in_what_was_given_up,
        "tests/sequencer/test_state.py::test_a_checksum_of_records_that_were_given_up_says_nothing",
    ),
    (
        "raft.5",
        tell_once,
        "tests/sequencer/test_reporter.py::test_a_cursor_that_could_not_be_sent_is_repeated",
    ),
    (
        "raft.5",
        leave_new_members_untold,
        "tests/sequencer/test_reporter.py::test_a_new_member_that_is_connected_is_told_everything",
    ),
    (
        "raft.5",
        lead_on_with_old_cursors,
        "tests/sequencer/test_coordinator.py::test_cursors_are_what_a_majority_has_of_everything",
    ),
    (
        "raft.5",
        open_what_is_here_alone,
        "tests/sequencer/test_idle.py::test_a_log_without_its_directory_is_copied_though_nobody_writes",
    ),
)
"""Rule, bug, and the test that finds it."""
