"""Planted bugs in how subscribers start: at the end of partitions, and with unfinished copies."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from samelog.replicator.pull.client import PullClient
from samelog.sequencer.state.tables.groups import GroupsTable
from samelog.store.merged import partition_file
from samelog.wire.pull.copies import StartAt
from samelog.wire.pull.receiver import PullReceiver
from samelog.wire.receiver import ResumePoint


@contextmanager
def begin_added_partitions_at_their_end() -> Iterator[None]:
    """A partition that is added later begins where it ends when it is noticed."""

    def find_start(self: PullClient, topic: str, topic_id: str, partition: int) -> StartAt:
        return self._options.find_start(topic, topic_id, partition)

    with patch.object(PullClient, "_find_start", find_start):
        yield


@contextmanager
def forget_when_a_group_began() -> Iterator[None]:
    """A member that joins later takes every partition without a position for an old one."""
    with patch.object(GroupsTable, "begin_native", lambda self, group, next_partition: None):
        yield


@contextmanager
def believe_the_end_of_one_node() -> Iterator[None]:
    """The end is where the node that is asked ends, however far it lags behind the cluster."""
    original = PullReceiver.place_found

    def place_found(self: PullReceiver[Any], handle: int, place: StartAt | ResumePoint) -> None:
        original(self, handle, place)
        self._copies[handle].is_from_end = False

    with patch.object(PullReceiver, "place_found", place_found):
        yield


@contextmanager
def refuse_copies_that_never_began() -> Iterator[None]:
    """A directory without segments and partition.json stops the subscriber."""
    with patch.object(partition_file, "segment_bases", lambda names: [0]):
        yield


_COPYING = "tests/subscriber/test_copying.py::"
_CRASHES = "tests/store/test_merged_log_crash.py::"
_GROUPS = "tests/sequencer/test_group_state.py::"
STARTING = (
    (
        "kafka.7",
        begin_added_partitions_at_their_end,
        _COPYING + "test_an_added_partition_is_read_from_its_start",
    ),
    (
        "kafka.7",
        forget_when_a_group_began,
        _GROUPS + "test_partitions_that_are_newer_than_a_native_group_are_told_as_new",
    ),
    (
        "readers.22",
        believe_the_end_of_one_node,
        _COPYING + "test_the_end_is_the_clusters_not_that_of_a_node_that_lags",
    ),
    (
        "readers.27",
        refuse_copies_that_never_began,
        _CRASHES + "test_a_subscriber_starts_after_it_ended_at_any_step_of_making_a_copy",
    ),
)
"""Rule, bug, and the test that finds it."""
