"""Planted bugs in what readers of what is committed get."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from samelog.format.transactions import Aborted, OpenTransactions
from samelog.replicator.pull.range_pull import RangePull, Wanted
from samelog.subscriber import committed_reader
from samelog.subscriber.committed_reader import CommittedReader


@contextmanager
def hand_out_what_is_open() -> Iterator[None]:
    """Who reads what is committed reads up to the end of the log."""
    is_all = property(lambda self: self.offset)
    with patch.object(OpenTransactions, "last_stable_offset", is_all):
        yield


@contextmanager
def hand_out_what_was_aborted() -> Iterator[None]:
    """Who reads what is committed gets what was aborted, once that is decided."""
    with patch.object(committed_reader, "without_aborted", lambda data, *others: data):
        yield


@contextmanager
def read_on_in_the_old_file() -> Iterator[None]:
    """What was aborted is looked up in another file than records are read from."""
    is_behind: Any = property(lambda self: True, lambda self, value: None)
    with patch.object(CommittedReader, "_is_behind", is_behind):
        yield


@contextmanager
def believe_a_node_that_lags() -> Iterator[None]:
    """What a node knows to be aborted is all, though it has yet to see what is decided."""

    async def aborted(self: RangePull, wanted: Wanted, first: int, stop: int) -> list[Aborted]:
        handle, _ = await self._open(wanted, reads=False)
        found = await self._ask(handle, first, stop)
        return [Aborted(*each, 0) for each in found.found]

    with patch.object(RangePull, "aborted", aborted):
        yield


_SUBSCRIBER = "tests/subscriber/test_committed.py::"
_REPLICATOR = "tests/replicator/test_range_pull.py::"

COMMITTING = (
    (
        "transactions.2",
        hand_out_what_is_open,
        _SUBSCRIBER + "test_what_is_open_waits_and_what_was_aborted_never_comes",
    ),
    (
        "transactions.2",
        hand_out_what_was_aborted,
        _SUBSCRIBER + "test_what_is_open_waits_and_what_was_aborted_never_comes",
    ),
    (
        "transactions.2",
        read_on_in_the_old_file,
        _SUBSCRIBER + "test_what_is_compacted_under_a_reader_is_read_as_it_is_now",
    ),
    (
        "transactions.2",
        believe_a_node_that_lags,
        "tests/replicator/test_range_pull.py::test_what_was_aborted_is_told_once_all_is_decided",
    ),
)
"""Rule, bug, and the test that finds it."""
