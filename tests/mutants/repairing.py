"""Planted bugs in what nodes copy from each other."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from samelog.sequencer.cluster.repair.merged import MergedSink
from samelog.sequencer.cluster.repair.sessions import SessionRepair


@contextmanager
def leave_bytes_where_they_are() -> Iterator[None]:
    """Nodes do not pull what only a peer got from a publisher."""
    with patch.object(SessionRepair, "peer_reported", lambda self, node, places: None):
        yield


@contextmanager
def copy_what_no_majority_has() -> Iterator[None]:
    """What is copied from a peer is not compared with the checksum that a majority agreed on."""
    with patch.object(MergedSink, "_compare", lambda self, first, checksum, data: None):
        yield


@contextmanager
def copy_what_may_not_be_committed() -> Iterator[None]:
    """All that a peer sends is taken, also what this node does not know to be committed."""
    with patch.object(MergedSink, "_committed", lambda self, data: data):
        yield


_SEQUENCER = "tests/sequencer/"
_REPAIR = _SEQUENCER + "test_repair.py::"
REPAIRING = (
    (
        "merge.3",
        leave_bytes_where_they_are,
        _SEQUENCER + "test_node.py::test_bytes_that_reached_one_node_only_are_merged",
    ),
    (
        "merge.4",
        copy_what_no_majority_has,
        _REPAIR + "test_what_no_crc_covers_is_compared_with_what_a_majority_has",
    ),
    (
        "merge.1",
        copy_what_may_not_be_committed,
        _REPAIR + "test_only_what_is_committed_and_has_room_is_taken_and_nothing_twice",
    ),
)
"""Rule, bug, and the test that finds it."""
