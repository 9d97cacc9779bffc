"""Planted bugs in how batches go that are longer than a frame."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from samelog.wire.parts import PartialBatch
from samelog.wire.sender import PartTurn, Sender


@contextmanager
def hand_on_what_is_cut() -> Iterator[None]:
    """Each part is handed on as it comes."""
    original = PartialBatch.take

    def take(self: PartialBatch, *arguments: Any) -> Any:
        start, whole = original(self, *arguments)
        return start, whole or self._data

    with patch.object(PartialBatch, "take", take):
        yield


@contextmanager
def many_long_batches_at_once() -> Iterator[None]:
    """A long batch is begun though another one is under way."""

    def begin(
        self: PartTurn, sender: Sender, handle: int, start: int, end: int, again: Any
    ) -> bool:
        self.sender, self.handle, self.start, self.end = sender, handle, start, end
        return True

    with patch.object(PartTurn, "begin", begin):
        yield


@contextmanager
def parts_before_all_others() -> Iterator[None]:
    """A batch that was begun is sent to its end before anything else is."""
    original = Sender.next_read

    def next_read(self: Sender) -> Any:
        return self._next_part() or original(self)

    with patch.object(Sender, "next_read", next_read):
        yield


_SENDER = "tests/wire/test_sender.py::"
LONG_BATCHES = (
    (
        "turns.2",
        hand_on_what_is_cut,
        "tests/wire/test_parts.py::test_a_batch_is_handed_on_when_all_of_it_has_come",
    ),
    ("turns.2", many_long_batches_at_once, _SENDER + "test_one_batch_at_a_time_is_sent_in_parts"),
    ("turns.2", parts_before_all_others, _SENDER + "test_parts_take_turns_with_what_others_have"),
)
"""Rule, bug, and the test that finds it."""
