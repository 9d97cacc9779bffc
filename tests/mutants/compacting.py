"""Planted bugs in compaction that ordinary tests find."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from samelog.archiver import compaction
from samelog.archiver.compaction import CompactedPartition, Compactions, RewrittenCommand
from samelog.store.merged.reader import MergedReader


@contextmanager
def win_though_it_was_aborted() -> Iterator[None]:
    """A record of an aborted transaction is the newest of its key."""
    with patch.object(MergedReader, "aborted", lambda self, first, stop: []):
        yield


@contextmanager
def count_a_single_word() -> Iterator[None]:
    """What one member wrote is what all have."""

    def apply(partition: CompactedPartition, command: RewrittenCommand) -> str | None:
        order = partition.compactions.order
        if order is not None:
            compaction._finish(partition, order, command)
        return None

    with patch.object(compaction, "apply_rewritten", apply):
        yield


@contextmanager
def archive_what_is_being_compacted() -> Iterator[None]:
    """Segments are archived while they are being compacted."""

    def problem_with(self: Compactions, files: Any, now_ms: int) -> str | None:
        return None

    with patch.object(Compactions, "problem_with", problem_with):
        yield


_COMMANDS = "tests/archiver/test_compaction.py::"
_FILES = "tests/store/test_compaction.py::"
COMPACTING = (
    (68, win_though_it_was_aborted, _FILES + "test_what_was_aborted_never_wins"),
    (69, count_a_single_word, _COMMANDS + "test_what_a_majority_wrote_counts"),
    (
        69,
        archive_what_is_being_compacted,
        _COMMANDS + "test_nothing_is_archived_while_it_is_compacted",
    ),
)
"""Rule, bug, and the test that finds it."""
