"""Planted bugs in what answers requests that wait inside a node."""

from __future__ import annotations

from collections.abc import Container, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import msgspec

from samelog.consensus import quiet
from samelog.kafka.apis import produce
from samelog.kafka.groups import driver
from samelog.kafka.producer_log import ProducerLog
from samelog.replicator.pull.repair_pull import _Request
from samelog.sequencer.cluster.node_dir import NodeDirectory
from samelog.sequencer.cluster.repair.sessions import SessionRepair
from samelog.sequencer.data_groups import stages
from samelog.sequencer.raft.coordinator import Coordinator
from samelog.sequencer.raft.group import RaftGroup
from samelog.sequencer.state.tables.sessions import Input
from samelog.wire.push import inputs

NEVER_S = 1e9


@contextmanager
def wait_for_partitions_to_open() -> Iterator[None]:
    """A batch whose partition is not open waits however long opening takes."""
    with patch.object(produce, "LEAST_TIMEOUT_MS", NEVER_S * 1000):
        yield


@contextmanager
def wait_for_decisions() -> Iterator[None]:
    """A group's request waits however long its decision takes to be committed."""
    with patch.object(driver, "COMMIT_S", NEVER_S):
        yield


@contextmanager
def wait_for_the_begin_of_a_stage() -> Iterator[None]:
    """A writer waits however long its batch takes to be begun."""
    with patch.object(stages, "DECIDE_S", NEVER_S):
        yield


@contextmanager
def wait_for_voters_that_left() -> Iterator[None]:
    """A leader does not plan what waited for the report of a voter that has left its group."""
    original = Coordinator.members_changed

    def change(self: Coordinator, members: Container[int]) -> None:
        known = set(self._unsettled.to_plan)
        with patch.object(Coordinator, "plan_soon", lambda self: None):
            original(self, members)
        self._unsettled.to_plan = known

    with patch.object(Coordinator, "members_changed", change):
        yield


@contextmanager
def close_without_an_answer() -> Iterator[None]:
    """Batches whose fate is not known when their log is closed are not answered."""
    with patch.object(ProducerLog, "end_run", lambda self: None):
        yield


@contextmanager
def install_without_an_answer() -> Iterator[None]:
    """Batches whose verdicts a snapshot stands for are not answered."""
    with patch.object(ProducerLog, "on_state_replaced", lambda self: None):
        yield


@contextmanager
def end_without_an_answer() -> Iterator[None]:
    """Requests that wait for entries of a replica that ends are not answered."""
    with patch.object(RaftGroup, "end", lambda self: None):
        yield


@contextmanager
def leave_errors_of_cancelled_pulls() -> Iterator[None]:
    """The outcome of a pull that was cancelled is not retrieved."""
    with patch.object(_Request, "abandon", lambda self: None):
        yield


@contextmanager
def pull_what_is_gone() -> Iterator[None]:
    """An input counts as lacking although it was removed."""
    original = SessionRepair._lacking
    known: dict[int, Input] = {}

    def lacking(self: SessionRepair, number: int, place: object) -> Input | None:
        found = original(self, number, place)  # type: ignore[arg-type]
        if found is not None:
            known[number] = found
        return known.get(number)

    with patch.object(SessionRepair, "_lacking", lacking):
        yield


@contextmanager
def rest_without_newcomers() -> Iterator[None]:
    """A leader that is awake takes no note of a replica that has begun."""
    with patch.object(quiet, "stay_awake", quiet.wake):
        yield


@contextmanager
def take_an_empty_table_for_none() -> Iterator[None]:
    """Version 0 of the table counts as not confirmed."""
    original = NodeDirectory._keep_sure_after

    def keep(self: NodeDirectory, version: int | None) -> None:
        original(self, version or None)

    with patch.object(NodeDirectory, "_keep_sure_after", keep):
        yield


@contextmanager
def forget_what_earlier_lives_confirmed() -> Iterator[None]:
    """Only what this life confirmed tells which replicas are the first of their member."""
    original = NodeDirectory.open

    def opened(*given: Any, **named: Any) -> NodeDirectory:
        directory = original(*given, **named)
        known = directory.record.suspicions._replace(sure_after=None)
        directory.record = msgspec.structs.replace(directory.record, suspicions=known)
        return directory

    with patch.object(NodeDirectory, "open", opened):
        yield


@contextmanager
def end_with_an_empty_file() -> Iterator[None]:
    """A run is said to end at the start of its last file, also if that is empty."""
    with patch.object(inputs, "_end_of_bytes", lambda files: files.part_end):
        yield


_DIRECTORY = "tests/sequencer/test_node_dir.py::"
_GROUP = "tests/sequencer/test_group.py::"
_PULLS = "tests/replicator/test_repair_pull.py::"
_QUIET = "tests/consensus/test_quiet.py::"
_WAITING = "tests/kafka/test_waiting.py::"
WAITING = (
    (
        "turns.4",
        wait_for_partitions_to_open,
        _WAITING + "test_a_batch_whose_partition_is_not_opened_in_time_is_answered",
    ),
    (
        "turns.4",
        wait_for_decisions,
        _WAITING + "test_a_group_request_whose_decision_is_not_committed_is_refused",
    ),
    (
        "turns.4",
        wait_for_the_begin_of_a_stage,
        _WAITING + "test_a_writer_of_a_stage_hears_of_a_batch_that_is_not_begun_in_time",
    ),
    (
        "turns.4",
        close_without_an_answer,
        _WAITING + "test_batches_of_a_log_that_is_closed_are_not_taken",
    ),
    (
        "turns.4",
        install_without_an_answer,
        "tests/kafka/test_producer_log.py::test_batches_that_a_snapshot_decides_are_answered",
    ),
    (
        "turns.4",
        end_without_an_answer,
        _GROUP + "test_who_waits_for_an_entry_hears_of_the_end_of_the_replica_and_of_the_term",
    ),
    (
        "readers.19",
        leave_errors_of_cancelled_pulls,
        _PULLS + "test_a_pull_that_is_cancelled_in_the_turn_of_its_refusal_leaves_nothing_behind",
    ),
    (
        "readers.19",
        pull_what_is_gone,
        "tests/sequencer/test_repair.py::test_a_pull_of_an_input_that_goes_meanwhile_ends",
    ),
    (
        "raft.46",
        rest_without_newcomers,
        _QUIET + "test_a_leader_that_hears_of_a_late_follower_does_not_rest_without_it",
    ),
    (
        "raft.47",
        take_an_empty_table_for_none,
        _DIRECTORY + "test_a_table_may_be_empty_when_it_is_confirmed",
    ),
    (
        "raft.47",
        forget_what_earlier_lives_confirmed,
        _DIRECTORY + "test_a_directory_knows_since_when_its_replicas_are_the_first_ones",
    ),
    (
        "sessions.17",
        end_with_an_empty_file,
        "tests/wire/test_push_ends.py::test_a_run_ends_with_its_last_bytes",
    ),
    (
        "merge.18",
        wait_for_voters_that_left,
        "tests/sequencer/test_coordinator.py::test_what_waited_for_a_voter_that_left_is_planned",
    ),
)
"""Rule, bug, and the test that finds it."""
