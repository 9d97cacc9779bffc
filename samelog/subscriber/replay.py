"""Hands records out as far apart in time as they were written, or so many times as fast, those of
several partitions in the order of their timestamps.

A replay begins when the copies hold what the cluster has, as far as is known: else one partition
would begin without the others. A record that is older than one before it in its partition is due
together with that. What comes later than it is due is handed out at once.

Producers choose timestamps freely. No record waits longer than `max_gap` after the record
before it, and one record with a timestamp far ahead of its neighbours delays only itself.

Invariant: a partition's records go out in order, and none before its time (172, 350).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import takewhile

from samelog.subscriber.cursor import Cursor
from samelog.subscriber.engine import Engine

log = logging.getLogger(__name__)

FOREVER = float("inf")
MAX_GAP_S = 10.0
LOGGED_S = 1.0
"""Waits of at least this long are logged."""
TIMELINES = 4
"""How many timelines are remembered, the least recently used one is forgotten first."""


@dataclass(slots=True)
class _Timeline:
    """Records whose timestamps follow each other without a gap above the limit. `due_at`: when the
    newest of them was due.
    """

    due_at: float
    newest_ms: int


class Pace:
    """When records are due, by their timestamps. `speed`: 2 is twice as fast as they came.

    A gap above `max_gap_s` begins a new timeline. The one before it is remembered, so that records
    that go back to it after a single wrong timestamp keep their distances.
    """

    def __init__(self, speed: float, max_gap_s: float = MAX_GAP_S) -> None:
        """Raises ValueError unless both are numbers above 0; only the gap may be infinite."""
        if not 0 < speed < FOREVER:
            raise ValueError(f"a replay is so many times as fast: a number above 0, not {speed}")
        if not max_gap_s > 0:
            raise ValueError(f"max_gap is a number of seconds above 0, not {max_gap_s}")
        self.speed = speed
        self.max_gap_s = max_gap_s
        self._timelines: list[_Timeline] = []
        """The least recently used one first."""

    @property
    def max_gap_ms(self) -> float:
        """The longest gap between timestamps that is waited for in full."""
        return self.max_gap_s * 1000 * self.speed

    def is_gap(self, timestamp_ms: int) -> bool:
        """Whether the wait for a record is cut to `max_gap_s`, or no record was passed yet."""
        return not self._timelines or self._is_gap(self._nearest(timestamp_ms), timestamp_ms)

    def wait_s(self, timestamp_ms: int, now: float) -> float:
        """Seconds until a record is due; one that is older than those before it is due at once."""
        if not self._timelines:
            self._timelines.append(_Timeline(now, timestamp_ms))
        timeline = self._nearest(timestamp_ms)
        return max(0.0, timeline.due_at + self._gap_s(timeline, timestamp_ms) - now)

    def passed(self, timestamp_ms: int) -> None:
        """Note that the records up to this timestamp are due."""
        timeline = self._nearest(timestamp_ms)
        due_at = timeline.due_at + self._gap_s(timeline, timestamp_ms)
        if self._is_gap(timeline, timestamp_ms):
            for each in self._timelines:
                each.due_at = max(each.due_at, due_at)  # no time passes in them meanwhile
            timeline = _Timeline(due_at, timestamp_ms)
        else:
            self._timelines.remove(timeline)
            timeline.due_at = due_at
            timeline.newest_ms = max(timeline.newest_ms, timestamp_ms)
        self._timelines = [*self._timelines, timeline][-TIMELINES:]

    def due_ms(self, now: float) -> float:
        """Records up to this timestamp are due; below all of them before the first was asked
        about.
        """
        if not self._timelines:
            return -FOREVER
        newest = self._timelines[-1]
        return newest.newest_ms + (now - newest.due_at) * 1000 * self.speed

    def _nearest(self, timestamp_ms: int) -> _Timeline:
        return min(self._timelines, key=lambda each: abs(timestamp_ms - each.newest_ms))

    def _is_gap(self, timeline: _Timeline, timestamp_ms: int) -> bool:
        return timestamp_ms - timeline.newest_ms > self.max_gap_ms

    def _gap_s(self, timeline: _Timeline, timestamp_ms: int) -> float:
        gap_s = max(0, timestamp_ms - timeline.newest_ms) / 1000 / self.speed
        return min(gap_s, self.max_gap_s)


def due_behind_gap(pace: Pace, timestamps: Sequence[int]) -> int:
    """Return the timestamp with which the first of a partition's next records is due, if there is a
    gap before it: its own, or, if it is far ahead of most records behind it, that of the first of
    these.
    """
    first = timestamps[0]
    behind = [each for each in timestamps if first - each > pace.max_gap_ms]
    return behind[0] if 2 * len(behind) > len(timestamps) else first


class WaitLog:
    """Logs which record a replay waits for, once per record."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._logged: tuple[str, int, int] | None = None

    def waiting(self, record: tuple[str, int, int], timestamp_ms: int, wait_s: float) -> None:
        """Log a wait for (topic, partition, offset), unless it is short or logged already."""
        is_cut = self._pace.is_gap(timestamp_ms)
        if record == self._logged or not (is_cut or wait_s >= LOGGED_S):
            return
        self._logged = record
        cut = f"; the gap before it is longer than max_gap ({self._pace.max_gap_s:g} s)"
        log.log(
            logging.WARNING if is_cut else logging.INFO,
            "replay waits %.1f s for %s-%d, offset %d, whose timestamp is %s%s",
            wait_s,
            *record,
            _shown(timestamp_ms),
            cut if is_cut else "",
        )


def _shown(timestamp_ms: int) -> str:
    """Return a timestamp as it is, with its date if it has one."""
    try:
        at = datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=timestamp_ms)
    except OverflowError:
        return f"{timestamp_ms} ms"
    return f"{timestamp_ms} ms ({at.isoformat(timespec='milliseconds')})"


@dataclass(slots=True)
class _Head:
    """The next record of a partition: when it is due, by timestamp. One that is older than those
    before it is due already, as they were.
    """

    due_ms: int
    cursor: Cursor
    offset: int


class Replay:
    """Chooses what is handed out next."""

    def __init__(self, speed: float, max_gap_s: float = MAX_GAP_S) -> None:
        """Raises ValueError, as `Pace`."""
        self.pace = Pace(speed, max_gap_s)
        self.wait_s = FOREVER
        """How long until something is due, as of the last `next`."""
        self.most = 0
        """How many records of that partition may be handed out now."""
        self._is_begun = False
        self._log = WaitLog(self.pace)

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
            reader = first.cursor.reader
            self._log.waiting((reader.topic, reader.partition, first.offset), first.due_ms, left_s)
            return None
        self.pace.passed(first.due_ms)
        until = min(heads[1].due_ms if heads[1:] else FOREVER, self.pace.due_ms(now))
        due = _due_timestamps(first.cursor, until)
        if due:
            self.pace.passed(max(due))
        self.most = max(1, len(due))
        return first.cursor

    def _heads(self, engine: Engine, limit_bytes: int) -> Iterator[_Head]:
        for cursor in engine.filled(limit_bytes):
            records = cursor.upcoming()
            if records:
                due_ms = records[0].timestamp
                if self.pace.is_gap(due_ms):
                    due_ms = due_behind_gap(self.pace, [record.timestamp for record in records])
                yield _Head(due_ms, cursor, records[0].offset)


def _due_timestamps(cursor: Cursor, until_ms: float) -> list[int]:
    """Return the timestamps of a partition's next records that come up to a time."""
    due = takewhile(lambda record: record.timestamp <= until_ms, cursor.upcoming())
    return [record.timestamp for record in due]
