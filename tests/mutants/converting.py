"""Planted bugs in what group 0 does with partitions that leave it for data groups."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from samelog.placement.values import PlacedPartition
from samelog.sequencer.cluster.changes import Changes
from samelog.sequencer.data_groups.hosting import DataGroups
from samelog.sequencer.data_groups.intake import RoutedIntake
from samelog.sequencer.data_groups.replica import DataReplica
from samelog.sequencer.group_replica import GroupReplica
from samelog.sequencer.ingest.intake import Intake
from samelog.sequencer.raft import coordinator
from samelog.sequencer.raft.coordinator import Coordinator
from samelog.sequencer.raft.entry_bytes import EntryBytes
from samelog.sequencer.state.tables.sessions import Input
from samelog.sequencer.state.types import State
from samelog.sequencer.state.units import moves, stubs
from samelog.sequencer.state.units.stubs import Stub
from samelog.store.merged.topic_dirs import TopicDirs


@contextmanager
def begin_with_the_groups_epochs() -> Iterator[None]:
    """The table says of a partition from group 0 that its leader epochs had begun with 0."""

    def named(number: int, topic_id: str, index: int, group: int, *_: int) -> PlacedPartition:
        return PlacedPartition(number, topic_id, index, group)

    with patch.object(stubs, "PlacedPartition", named):
        yield


@contextmanager
def forget_who_wrote() -> Iterator[None]:
    """Group 0 forgets sessions' inputs with the partition: their runs end without the new group."""
    original = stubs.keep_stub

    def keep_stub(state: State, stub: Stub) -> None:
        original(state, (stub[0], []))

    with patch.object(moves, "keep_stub", keep_stub):
        yield


@contextmanager
def keep_what_was_merged() -> Iterator[None]:
    """Group 0 still says how far a partition is merged that has left it."""

    def stub_of(state: State, number: int) -> Stub:
        return state.partitions.by_number[number], state.sessions.of_partition(number)

    def keep_stub(state: State, stub: Stub) -> None:
        state.partitions.put(stub[0])
        state.sessions.inputs.update((entry.number, entry) for entry in stub[1])

    as_it_was = patch.object(moves, "stub_of", stub_of)
    with as_it_was, patch.object(moves, "keep_stub", keep_stub):
        yield


@contextmanager
def leave_files_behind() -> Iterator[None]:
    """Who was away when a partition left keeps what it had of it in group 0."""
    with patch.object(TopicDirs, "remove_later", lambda self, path, topic_id, index: None):
        yield


@contextmanager
def need_what_has_left() -> Iterator[None]:
    """Members change only once what has left group 0 is on a majority in it, which nobody tells."""

    def has(self: Changes, merged: dict[int, int], wanted: dict[int, int]) -> bool:
        here = self._machine.state.partitions.by_number
        return all(merged.get(n, 0) >= offset for n, offset in wanted.items() if n in here)

    with (
        patch.object(Changes, "_has", has),
        patch.object(Coordinator, "majority_merged", lambda self, numbers: {}),
    ):
        yield


@contextmanager
def take_what_is_for_others() -> Iterator[None]:
    """Bytes are taken for a partition that has left, by who had opened it before."""
    original: Any = Intake._open_entry

    def open_entry(self: Intake, number: int, run_number: int) -> Input:
        entry = self._machine.state.sessions.inputs.get(number)
        return entry if entry is not None else original(self, number, run_number)

    with patch.object(Intake, "_open_entry", open_entry):
        yield


@contextmanager
def tell_of_an_end_for_ever() -> Iterator[None]:
    """What a snapshot says of runs that were waited for is not looked at."""
    original = GroupReplica.snapshot_installed

    def installed(self: GroupReplica) -> None:
        with patch.object(GroupReplica, "run_changed", lambda self, session: None):
            original(self)

    with patch.object(GroupReplica, "snapshot_installed", installed):
        yield


@contextmanager
def hear_of_what_has_ended() -> Iterator[None]:
    """What is under way in a replica that has ended wakes the one that came in its place."""
    original = DataGroups.moved

    def moved(self: DataGroups, replica: DataReplica) -> None:
        with patch.dict(self.replicas, {replica.number: replica}):
            original(self, replica)

    with patch.object(DataGroups, "moved", moved):
        yield


@contextmanager
def wait_for_samples_that_never_come() -> Iterator[None]:
    """A leader waits for checksums at an offset that most replicas have copied past."""
    with patch.object(coordinator, "may_agree", lambda partition, votes, views: True):
        yield


@contextmanager
def keep_what_was_over_before() -> Iterator[None]:
    """A publisher hears nothing of runs that were over before their partition came to its group."""
    with patch.object(RoutedIntake, "_over_before", lambda *_: None):
        yield


@contextmanager
def wait_for_bytes_of_what_has_left() -> Iterator[None]:
    """Entries that name bytes of a sealed partition are held until they come; nobody takes them."""
    with patch.object(EntryBytes, "_has_left", lambda self, partition: False):
        yield


_LEFT = "tests/placement/test_leaving.py::"
_NODES = "tests/sequencer/test_leaving.py::test_nothing_of_it_is_left_in_group_0_nor_taken_there"
_MADE = _LEFT + "test_what_has_left_is_as_what_was_made_in_a_data_group"
_OVER = (
    "tests/sequencer/test_closed_parts.py"
    "::test_a_run_that_was_over_before_its_partition_moved_is_let_go"
)
_ENDED = (
    "tests/sequencer/test_data_groups.py"
    "::test_what_ended_says_nothing_of_the_replica_that_came_in_its_place"
)
CONVERTING = (
    ("placement.15", begin_with_the_groups_epochs, _MADE),
    ("placement.15", keep_what_was_merged, _MADE),
    ("placement.15", forget_who_wrote, _LEFT + "test_a_run_ends_once_the_group_has_ended_its_part"),
    ("placement.15", leave_files_behind, _NODES),
    (
        "placement.15",
        need_what_has_left,
        "tests/sequencer/test_leaving.py::test_members_may_change_though_what_was_needed_has_left",
    ),
    ("placement.15", take_what_is_for_others, _NODES),
    (
        "raft.45",
        wait_for_samples_that_never_come,
        "tests/sequencer/test_coordinator.py::test_checksums_are_waited_for_that_may_come",
    ),
    (
        "sessions.16",
        keep_what_was_over_before,
        _OVER,
    ),
    (
        "sessions.15",
        wait_for_bytes_of_what_has_left,
        "tests/sequencer/test_one_round.py::test_what_has_left_the_group_needs_no_bytes",
    ),
    (
        "sessions.14",
        hear_of_what_has_ended,
        _ENDED,
    ),
    (
        "sessions.13",
        tell_of_an_end_for_ever,
        "tests/sequencer/test_closed_parts.py::test_a_run_that_a_snapshot_closes_is_over",
    ),
)
"""Rule, bug, and the test that finds it."""
