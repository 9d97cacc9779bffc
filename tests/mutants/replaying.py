"""Planted bugs in what is shown again, in its own time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from samelog.format.batch import BatchHeader
from samelog.kafka.replay import log
from samelog.subscriber.cursor import Cursor
from samelog.subscriber.engine import Engine
from samelog.subscriber.replay import Replay


@contextmanager
def show_one_after_the_other() -> Iterator[None]:
    """Each partition's records come in their time, whatever the others have by then."""
    original = Replay.next

    def following(self: Replay, engine: Engine, limit_bytes: int) -> Cursor | None:
        return engine.next_filled(limit_bytes) and original(self, engine, limit_bytes)

    def heads(self: Replay, engine: Engine, limit_bytes: int) -> Iterator[object]:
        yield from list(_heads(self, engine, limit_bytes))[:1]

    _heads = Replay._heads
    with patch.object(Replay, "next", following), patch.object(Replay, "_heads", heads):
        yield


@contextmanager
def show_whole_batches() -> Iterator[None]:
    """Kafka clients get a batch with its first record."""

    def begun(data: bytes, start: int, header: BatchHeader, due: int) -> bytes:
        return bytes(data[start : start + header.size])

    with patch.object(log, "_begun", begun):
        yield


_ORDER = "tests/subscriber/test_replay.py::test_partitions_come_in_the_order_of_time"
_SERVED = "tests/kafka/test_replay.py::test_what_is_due_is_shown_and_nothing_else"
REPLAYING = (
    (172, show_one_after_the_other, _ORDER),
    (
        172,
        show_whole_batches,
        "tests/kafka/test_replay.py::test_what_is_due_is_shown_and_nothing_else",
    ),
)
"""Rule, bug, and the test that finds it."""
