"""Planted bugs in what a reset of the cluster leaves as it was, and in resets of data groups."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import msgspec
from msgspec.structs import replace

from samelog.placement.changes import GroupBegunAnew
from samelog.placement.values import Placement
from samelog.replicator.interfaces import LogSource
from samelog.sequencer.data_groups import resets
from samelog.sequencer.data_groups.routing import RoutedLogs
from samelog.sequencer.spanning import steps
from samelog.sequencer.state import machine
from samelog.sequencer.state.tables.placement import OpenPartition
from samelog.sequencer.state.tables.producers import ProducersTable
from samelog.sequencer.state.tables.watermarks import WatermarksTable
from samelog.sequencer.state.types import State
from samelog.sequencer.state.units import moves
from samelog.sequencer.state.units import resets as reset_units


@contextmanager
def forget_dedup_at_resets() -> Iterator[None]:
    """A hard reset forgets what dedup knows of partitions."""
    nothing = patch.object(ProducersTable, "renumber", lambda self, moved: None)
    with nothing, patch.object(WatermarksTable, "renumber", lambda self, moved: None):
        yield


# --- of data groups -------------------------------------------------------------------------------


@contextmanager
def open_what_was_reset() -> Iterator[None]:
    """A leader that has not heard of a reset opens the old partitions once more."""

    def open_partition(state: State, command: OpenPartition) -> None:
        state.open_partition(command)

    with patch.dict(machine.CHANGES, {OpenPartition: open_partition}):
        yield


@contextmanager
def obey_older_resets() -> Iterator[None]:
    """A group executes a reset although it has executed a newer one."""

    def is_older(state: State, log: Any) -> bool:
        topic = state.topics.by_id.get(log.topic_id)
        return topic is not None and topic.partition_numbers[0] != log.numbers[0]

    with patch.object(reset_units, "_is_older", is_older):
        yield


@contextmanager
def reset_while_partitions_move() -> Iterator[None]:
    """Nothing is in the way of a hard reset."""
    with patch.object(reset_units, "why_no_hard_reset", lambda state: None):
        yield


@contextmanager
def move_without_the_new_log() -> Iterator[None]:
    """A partition that moves is of the log that its topic began with."""
    original = moves.carry

    def carry(state: State, number: int, **rest: Any) -> bytes:
        carried = msgspec.msgpack.decode(original(state, number, **rest), type=moves.Carried)
        return msgspec.msgpack.encode(replace(carried, log_id="", former_logs=[]))

    with patch.object(moves, "carry", carry):
        yield


@contextmanager
def open_the_log_of_old() -> Iterator[None]:
    """What is made after a reset is of the log that the topic began with."""

    def opening(cluster: State, number: int) -> OpenPartition:
        topic = cluster.topics.by_id[cluster.placement.partitions[number].topic_id]
        return resets._plain_opening(number, topic, cluster.placement.version, None)

    with patch.object(resets, "opening", opening):
        yield


@contextmanager
def tell_before_it_is_done() -> Iterator[None]:
    """A group reports a reset as done as soon as it is ordered."""

    def begun(here: State, cluster: State, group: int) -> GroupBegunAnew | None:
        reset_id = cluster.placement.resetting.get(group)
        return GroupBegunAnew(group, reset_id, here.epochs.first) if reset_id else None

    with patch.object(resets, "begun_anew", begun):
        yield


@contextmanager
def commit_before_it_is_done() -> Iterator[None]:
    """Offsets are taken for a log that its group has yet to begin."""
    with patch.object(Placement, "is_resetting", lambda self, partition: False):
        yield


@contextmanager
def read_before_it_is_done() -> Iterator[None]:
    """A log is read by its topic's name, whatever its group knows of it."""
    original: Callable[..., LogSource] = RoutedLogs._source

    def source(self: RoutedLogs, topic: str, partition: int) -> LogSource:
        known = self._machine.state.topics.named(topic)
        number = -1 if known is None else known.partition_numbers[partition]
        replica = self._groups.holding(number)
        return original(self, topic, partition) if replica is None else _logs_of(replica)

    with patch.object(RoutedLogs, "_source", source):
        yield


def _logs_of(replica: Any) -> LogSource:
    source: LogSource = replica.group_replica.logs.source
    return source


@contextmanager
def pin_before_it_is_done() -> Iterator[None]:
    """A group looks for what a unit names among partitions of the old logs."""
    with patch.object(steps, "_is_resetting", lambda cluster, group: False):
        yield


@contextmanager
def fence_no_offsets_of_groups() -> Iterator[None]:
    """Group 0 does not learn from which leader epoch on a log is the new one."""
    original = replace

    def without(known: Any, **given: Any) -> Any:
        given.pop("first_epoch", None)
        return original(known, **given)

    with patch("samelog.placement.changes.replace", without):
        yield


_OFFSETS = "tests/kafka/groups/test_offsets.py::"
_ROUTING = "tests/sequencer/test_routing.py::"
_SPANNING = "tests/sequencer/test_spanning_state.py::"
_RESETS = "tests/sequencer/test_group_resets.py::"

RESETS = (
    ("placement.10", open_what_was_reset, _RESETS + "test_who_has_not_heard_of_it_opens_nothing"),
    (
        "placement.10",
        obey_older_resets,
        _RESETS + "test_an_older_reset_says_nothing_of_a_newer_one",
    ),
    ("placement.10", reset_while_partitions_move, _RESETS + "test_what_is_in_the_way_is_named"),
    (
        "placement.10",
        move_without_the_new_log,
        _RESETS + "test_later_partitions_and_moves_are_of_the_new_log",
    ),
    (
        "placement.10",
        open_the_log_of_old,
        _RESETS + "test_a_group_that_had_not_opened_it_opens_the_new_log",
    ),
    (
        "transactions.6",
        tell_before_it_is_done,
        _RESETS + "test_group_0_is_told_once_the_group_has_done_it",
    ),
    (
        "transactions.6",
        commit_before_it_is_done,
        _OFFSETS + "test_what_begins_anew_takes_no_offsets_before_its_group_has_done_so",
    ),
    (
        "transactions.6",
        read_before_it_is_done,
        _ROUTING + "test_a_log_that_begins_anew_is_not_read_before_its_group_has_done_so",
    ),
    (
        "transactions.6",
        pin_before_it_is_done,
        _SPANNING + "test_nothing_is_pinned_in_a_group_that_begins_its_logs_anew",
    ),
    (
        "transactions.6",
        fence_no_offsets_of_groups,
        _RESETS + "test_group_0_is_told_once_the_group_has_done_it",
    ),
)
"""Rule, bug, and the test that finds it."""
