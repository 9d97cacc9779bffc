"""Planted bugs in what connections hear of their inputs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from samelog.replicator.watchers import IntakeListener, Watchers
from samelog.sequencer.ingest.runs import RunIntake
from samelog.wire.push.receiver import OpenedInput


@contextmanager
def watch_behind_the_position() -> Iterator[None]:
    """A connection watches an input only after its position was read."""
    original = RunIntake._opened_input

    async def opened_input(self: RunIntake, place: Any, known: Any, listener: Any) -> OpenedInput:
        opened = await original(self, place, known, None)
        if listener is not None:
            self.watchers.watch_input(listener, self.first_input | opened.input)
        return opened

    with patch.object(RunIntake, "_opened_input", opened_input):
        yield


@contextmanager
def watch_after_leaving() -> Iterator[None]:
    """A request that was under way adds a connection that is gone, for ever."""

    def watch_input(self: Watchers, listener: IntakeListener, number: int) -> None:
        self.by_input.setdefault(number, {})[listener] = None

    with patch.object(Watchers, "watch_input", watch_input):
        yield


_TESTS = "tests/sequencer/test_watchers.py::"

PROGRESS = (
    (
        "sessions.33",
        watch_behind_the_position,
        _TESTS + "test_a_listener_watches_an_input_before_its_position_is_read",
    ),
    (
        "sessions.33",
        watch_after_leaving,
        _TESTS + "test_a_listener_that_is_gone_leaves_nothing_behind",
    ),
)
"""Rule, bug, and the test that finds it."""
