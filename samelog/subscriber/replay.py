"""Hands records out as far apart in time as they were written, or so many times as fast, those of
several partitions in the order of their timestamps.

A replay begins when the copies hold what the cluster has, as far as is known: else one partition
would begin without the others. A record that is older than one before it in its partition is due
together with that. What comes later than it is due is handed out at once.

Invariant: a partition's records go out in order, and none before its time.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile

from samelog.subscriber.cursor import Cursor
from samelog.subscriber.engine import Engine

FOREVER = float("inf")


class Pace:
    """When records are due, by their timestamps. `speed`: 2 is twice as fast as they came."""

    def __init__(self, speed: float) -> None:
        """Raises ValueError unless the speed is a number above 0."""
        if not 0 < speed < FOREVER:
            raise ValueError(f"a replay is so many times as fast: a number above 0, not {speed}")
        self.speed = speed
        self._begin: tuple[float, int] | None = None
        """When the first record was due, and its timestamp."""

    @property
    def is_begun(self) -> bool:
        """Whether a record was asked about."""
        return self._begin is not None

    def wait_s(self, timestamp_ms: int, now: float) -> float:
        """Seconds until a record is due; one that is older than those before it is due at once."""
        if self._begin is None:
            self._begin = now, timestamp_ms
        began_at, first_ms = self._begin
        return max(0.0, began_at + (timestamp_ms - first_ms) / 1000 / self.speed - now)

    def due_ms(self, now: float) -> float:
        """Records up to this timestamp are due; below all of them before the first was asked
        about.
        """
        if self._begin is None:
            return -FOREVER
        began_at, first_ms = self._begin
        return first_ms + (now - began_at) * 1000 * self.speed


@dataclass(slots=True)
class _Head:
    """The next record of a partition: when it is due, by timestamp. One that is older than those
    before it is due already, as they were.
    """

    due_ms: int
    cursor: Cursor


class Replay:
    """Chooses what is handed out next."""

    def __init__(self, speed: float) -> None:
        self.pace = Pace(speed)
        self.wait_s = FOREVER
        """How long until something is due, as of the last `next`."""
        self.most = 0
        """How many records of that partition may be handed out now."""
        self._is_begun = False

    def next(self, engine: Engine, limit_bytes: int) -> Cursor | None:
        """The partition whose record comes next, if it is due. Raises as `Engine.filled`."""
        self.wait_s = FOREVER
        self._is_begun = self._is_begun or engine.is_complete
        if not self._is_begun:
            return None
        heads = sorted(self._heads(engine, limit_bytes), key=lambda head: head.due_ms)
        if not heads:
            return None
        first, now = heads[0], time.monotonic()
        left_s = self.pace.wait_s(first.due_ms, now)
        if left_s > 0:
            self.wait_s = left_s
            return None
        until = min(heads[1].due_ms if heads[1:] else FOREVER, self.pace.due_ms(now))
        self.most = max(1, _run_length(first.cursor, until))
        return first.cursor

    def _heads(self, engine: Engine, limit_bytes: int) -> Iterator[_Head]:
        for cursor in engine.filled(limit_bytes):
            record = next(iter(cursor.upcoming()), None)
            if record is not None:
                yield _Head(record.timestamp, cursor)


def _run_length(cursor: Cursor, until_ms: float) -> int:
    """How many of a partition's records come up to a time."""
    due = takewhile(lambda record: record.timestamp <= until_ms, cursor.upcoming())
    return sum(1 for _ in due)
