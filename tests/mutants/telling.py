"""Planted bugs in what nodes tell each other, and in what is concluded from it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import msgspec

from samelog.sequencer.cluster.reporter import Reporter
from samelog.sequencer.merge.merging import Merging
from samelog.sequencer.raft.coordinator import Coordinator
from samelog.sequencer.state.types import Partition


@contextmanager
def tell_once() -> Iterator[None]:
    """Cursors that could not be sent to a node are not repeated to it."""
    original = Reporter._tell_cursors

    def tell(self: Reporter, number: int, partitions: Any) -> bool:
        original(self, number, partitions)
        return True

    with patch.object(Reporter, "_tell_cursors", tell):
        yield


@contextmanager
def lead_on_with_old_cursors() -> Iterator[None]:
    """A new leader takes over cursors as they are, and looks at what is reported from then on."""
    original = Coordinator.leadership_changed

    def changed(self: Coordinator) -> None:
        self._unsettled.merged = set()
        original(self)
        self._unsettled.merged = set()

    with patch.object(Coordinator, "leadership_changed", changed):
        yield


@contextmanager
def open_what_is_here_alone() -> Iterator[None]:
    """A partition without a directory is not opened, though records of it are committed."""
    original = Merging._has_something

    def has_something(self: Merging, partition: Partition) -> bool:
        return original(self, msgspec.structs.replace(partition, next_offset=0))

    with patch.object(Merging, "_has_something", has_something):
        yield


@contextmanager
def believe_any_checksum() -> Iterator[None]:
    """A checksum that one node reports is recorded, whatever a majority has."""

    def agreed(self: Coordinator) -> list[tuple[int, int, int]]:
        return [
            (partition, offset, checksum)
            for view in self._voting_views()
            for partition, samples in view.samples.items()
            for offset, checksum in samples.items()
        ]

    with patch.object(Coordinator, "_agreed_samples", agreed):
        yield


TELLING = (
    (
        32,
        tell_once,
        "tests/sequencer/test_reporter.py::test_a_cursor_that_could_not_be_sent_is_repeated",
    ),
    (
        32,
        lead_on_with_old_cursors,
        "tests/sequencer/test_coordinator.py::test_cursors_are_what_a_majority_has_of_everything",
    ),
    (
        32,
        open_what_is_here_alone,
        "tests/sequencer/test_idle.py::test_a_log_without_its_directory_is_copied_though_nobody_writes",
    ),
)
"""Rule, bug, and the test that finds it."""
