"""Planted bugs in what is shown again, in its own time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from samelog.format.batch import BatchHeader
from samelog.kafka.replay import log
from samelog.subscriber import replay
from samelog.subscriber.cursor import Cursor
from samelog.subscriber.engine import Engine
from samelog.subscriber.replay import FOREVER, Pace, Replay, _Timeline


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


@contextmanager
def wait_for_any_timestamp() -> Iterator[None]:
    """A replay waits out each gap in full, and infers nothing from it."""
    with patch.object(Pace, "max_gap_ms", FOREVER), patch.object(Pace, "_gap_s", _whole_gap_s):
        yield


def _whole_gap_s(self: Pace, timeline: _Timeline, timestamp_ms: int) -> float:
    return max(0, timestamp_ms - timeline.newest_ms) / 1000 / self.speed


@contextmanager
def forget_the_time_before_a_gap() -> Iterator[None]:
    """Behind a gap there is only the time that begins with it."""
    with patch.object(replay, "TIMELINES", 1):
        yield


_CUT = "tests/subscriber/test_replay.py::test_a_replay_ends_whatever_timestamps_are"
_BACK = "tests/cli/test_replay.py::test_a_wrong_timestamp_delays_only_itself"
_ORDER = "tests/subscriber/test_replay.py::test_partitions_come_in_the_order_of_time"
_SERVED = "tests/kafka/test_replay.py::test_what_is_due_is_shown_and_nothing_else"
REPLAYING = (
    ("readers.20", wait_for_any_timestamp, _CUT),
    ("readers.20", forget_the_time_before_a_gap, _BACK),
    ("readers.4", show_one_after_the_other, _ORDER),
    (
        "readers.4",
        show_whole_batches,
        "tests/kafka/test_replay.py::test_what_is_due_is_shown_and_nothing_else",
    ),
)
"""Rule, bug, and the test that finds it."""
