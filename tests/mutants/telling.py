"""Planted bugs in what nodes tell each other, and in what is concluded from it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from samelog.sequencer.cluster.reporter import Reporter
from samelog.sequencer.raft.coordinator import Coordinator


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
