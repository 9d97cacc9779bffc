"""Planted bugs in changes of topics: copies, and what is left in them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from samelog.placement import converting
from samelog.sequencer.admin import topics


@contextmanager
def wish_while_it_moves() -> Iterator[None]:
    """Another number of copies is wanted of what is being moved, and is forgotten with the move."""
    with patch.object(converting, "_check_at_rest", lambda table, partitions, copies: None):
        yield


@contextmanager
def empty_what_is_not_merged() -> Iterator[None]:
    """A partition begins behind records that a majority has not merged."""

    async def until_merged(raft: Any, number: int, end: int) -> None:
        """Wait for nothing."""

    with patch.object(topics, "_until_merged", until_merged):
        yield


TOPIC_CHANGES: tuple[tuple[int, Callable[[], Any], str], ...] = (
    (
        218,
        wish_while_it_moves,
        "tests/placement/test_converting.py::test_who_thinks_again_waits_for_what_is_being_moved",
    ),
    (
        217,
        empty_what_is_not_merged,
        "tests/sequencer/test_truncating.py::test_what_is_not_merged_is_waited_for",
    ),
)
"""Rule, bug, and the test that finds it."""
