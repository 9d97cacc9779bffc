"""Planted bugs in what operators and publishers are promised."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from samelog.publisher.records import Places
from samelog.publisher.shipper import Shipper
from samelog.replicator.interfaces import MergedStream
from samelog.sequencer.cluster.presence import OFFLINE, Presence
from samelog.sequencer.ingest.log_source import NodeLogSource
from samelog.sequencer.state.command_base import WhyNot
from samelog.sequencer.state.machine import CHANGES
from samelog.sequencer.state.tables.topics import AddPartitions
from samelog.sequencer.state.types import State
from samelog.wire.peer_messages import MemberState


@contextmanager
def call_the_connected_live() -> Iterator[None]:
    """A node that is connected is called Live, whatever it says of itself."""
    live = MemberState("live", "", "", "follower", 0, 0, 1, is_cut_off=False)

    def said(self: Presence, number: int, now: float) -> tuple[MemberState, float]:
        return (live if self.is_there(number) else OFFLINE), 0.0

    with patch.object(Presence, "said", said):
        yield


@contextmanager
def wait_for_this_run_only() -> Iterator[None]:
    """What earlier runs left in the directory is not waited for."""

    def wanted(self: Shipper, wanted: Places) -> Places:
        return wanted

    with patch.object(Shipper, "_still_wanted", wanted):
        yield


@contextmanager
def add_partitions_here_only() -> Iterator[None]:
    """The node that applies it first has new partitions of a topic, and no other node."""
    original, first = CHANGES[AddPartitions], list[State]()

    def add(state: State, command: AddPartitions) -> WhyNot:
        first.append(state)
        return original(state, command) if state is first[0] else None

    with patch.dict(CHANGES, {AddPartitions: add}):
        yield


@contextmanager
def end_where_the_node_does() -> Iterator[None]:
    """A node that lags tells readers its own end for the cluster's."""

    async def end(self: NodeLogSource, stream: MergedStream) -> int:
        return stream.log.next_offset

    with patch.object(NodeLogSource, "confirm_end", end):
        yield


_SHIPPING = "tests/publisher/test_shipping.py::"

PROMISES = (
    (
        "readers.1",
        add_partitions_here_only,
        "tests/sequencer/test_setting_state.py::test_new_partitions_are_on_every_node",
    ),
    (
        "raft.11",
        call_the_connected_live,
        "tests/sequencer/test_states.py::test_a_connected_node_that_catches_up_is_not_called_live",
    ),
    (
        "sessions.7",
        wait_for_this_run_only,
        _SHIPPING + "test_what_earlier_runs_left_is_waited_for_too",
    ),
    (
        "readers.2",
        end_where_the_node_does,
        "tests/sequencer/test_reading_ends.py::test_a_reader_gets_all_that_was_acknowledged",
    ),
)
"""Rule, bug, and the test that finds it."""
