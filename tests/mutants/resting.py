"""Planted bugs in what a node has of its groups together: memory, limits, room, who is near."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from samelog.consensus import Snapshot
from samelog.kafka.broker import Broker
from samelog.sequencer import building, group_replica, startup
from samelog.sequencer.building import ReplicaSite
from samelog.sequencer.cluster.scrubber import ScrubPace
from samelog.sequencer.data_groups.beats import QuietGroups
from samelog.sequencer.data_groups.upkeep import DataGroupUpkeep
from samelog.sequencer.ingest.quotas import QuotaKeeper
from samelog.sequencer.parts import CareParts
from samelog.sequencer.raft.snapshots import Snapshotter
from samelog.sequencer.raft.store import RaftStore
from tests.mutants.keeping import keep_leading


@contextmanager
def begin_unheard() -> Iterator[None]:
    """A leader that rests without a member does not wake when that has begun its replica."""
    nobody = frozenset[int]()
    with patch.object(QuietGroups, "_led_without", lambda self, node, message: nobody):
        yield


@contextmanager
def send_the_oldest_snapshot() -> Iterator[None]:
    """A leader sends the oldest snapshot that is kept, which may not meet its log."""
    original = RaftStore.read_snapshot

    def read_snapshot(self: RaftStore) -> Snapshot | None:
        with patch.object(self, "_snapshots", self._snapshots[:1]):
            return original(self)

    with patch.object(RaftStore, "read_snapshot", read_snapshot):
        yield


@contextmanager
def cut_for_who_is_away() -> Iterator[None]:
    """A log that rests is cut, though a follower that is away lacks the end of it."""
    rests = property(lambda self: self._group.raft.rests)
    with patch.object(Snapshotter, "_all_rest", rests):
        yield


@contextmanager
def begin_without_a_log() -> Iterator[None]:
    """A node whose Raft log is gone begins an empty one, and repeats promises that it has given."""
    with patch.object(startup, "check_has_log", lambda *place: None):
        yield


@contextmanager
def limit_each_replica() -> Iterator[None]:
    """Each replica of a node reads its logs at the rate that is meant for the node."""
    original = building.care_parts

    def care_parts(site: ReplicaSite, *parts: Any) -> CareParts:
        member = replace(site.member, scrub=ScrubPace(site.given.config.scrub))
        return original(replace(site, member=member), *parts)

    with patch.object(group_replica, "care_parts", care_parts):
        yield


@contextmanager
def promise_the_disk_to_each_replica() -> Iterator[None]:
    """Each replica of a node takes in as much as the disk has left, whatever others took in."""
    original = QuotaKeeper.recount

    def recount(self: QuotaKeeper, disk_bytes: int, pending_bytes: int) -> int:
        original(self, disk_bytes, pending_bytes)
        return self._own.total() + pending_bytes

    with patch.object(QuotaKeeper, "recount", recount):
        yield


@contextmanager
def send_readers_anywhere() -> Iterator[None]:
    """A consumer is sent to a node in its rack, whether that has the partition or not."""

    def everywhere(self: Broker, topic: Any, index: int) -> list[int]:
        return self.nodes()

    with patch.object(Broker, "nodes_of", everywhere):
        yield


@contextmanager
def lead_a_group_without_intake() -> Iterator[None]:
    """A leader of a data group that can take in nothing goes on leading."""
    with keep_leading(DataGroupUpkeep):
        yield


_SEQUENCER = "tests/sequencer/"

RESTING = (
    (
        "merge.9",
        lead_a_group_without_intake,
        _SEQUENCER
        + "test_data_groups.py::test_a_leader_of_a_group_that_takes_nothing_in_lets_another_lead",
    ),
    (
        "raft.27",
        begin_unheard,
        _SEQUENCER
        + "test_beats.py::test_a_replica_that_begins_late_wakes_the_leader_that_rests_without_it",
    ),
    (
        "raft.39",
        send_the_oldest_snapshot,
        _SEQUENCER + "test_raft_store.py::test_what_is_sent_is_the_newest_snapshot_that_is_whole",
    ),
    (
        "raft.40",
        cut_for_who_is_away,
        _SEQUENCER + "test_resting_logs.py::test_when_the_end_of_a_log_may_go",
    ),
    (
        "raft.41",
        begin_without_a_log,
        _SEQUENCER
        + "test_recovery.py::test_a_node_without_its_raft_log_does_not_begin_another_one",
    ),
    (
        "turns.3",
        limit_each_replica,
        _SEQUENCER + "test_data_groups.py::test_limits_of_a_node_are_of_all_its_replicas",
    ),
    (
        "turns.3",
        promise_the_disk_to_each_replica,
        _SEQUENCER
        + "test_quotas.py::test_what_is_to_be_written_is_counted_in_all_groups_of_a_node",
    ),
    (
        "kafka.6",
        send_readers_anywhere,
        "tests/kafka/test_metadata.py::test_who_has_a_rack_is_sent_to_who_has_the_partition_there",
    ),
)
