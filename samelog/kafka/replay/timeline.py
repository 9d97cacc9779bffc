"""The one time in which all partitions of a replay are shown.

It begins with the first fetch that waits: then the oldest of the first records is due. While nobody
waits, or nothing is left, nothing runs.

Invariant: all partitions go by the same time, so what is shown of them is in the order of time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from samelog.kafka.replay.log import ALWAYS, ReplayLog
from samelog.replicator.interfaces import RequestRefused
from samelog.replicator.pull.listening import Listening
from samelog.runtime.clock import Clock
from samelog.subscriber.replay import Pace, WaitLog, due_behind_gap

LEAST_S = 0.001
"""Between two looks: what is due within it is shown together."""


class ReplayStream(Listening):
    """A partition that is replayed. Implements any_broker.WatchedLog."""

    def __init__(
        self, log: ReplayLog, timeline: Timeline, fault: Callable[[], RequestRefused | None]
    ) -> None:
        super().__init__()
        self.log = log
        self._timeline = timeline
        self._fault = fault

    @property
    def fault(self) -> RequestRefused | None:
        """Why the copy cannot be read; None if it can."""
        return self._fault()

    def add_listener(self, listener: Callable[[], None]) -> None:
        """Tell `listener` when something is due. Who waits wants the time to begin."""
        super().add_listener(listener)
        self._timeline.wanted()


class Timeline:
    """When what is shown."""

    def __init__(self, pace: Pace, clock: Clock) -> None:
        self._pace = pace
        self._log = WaitLog(pace)
        self._clock = clock
        self._is_wanted = False
        self._streams: list[ReplayStream] = []
        self._timer: asyncio.TimerHandle | None = None

    def add(self, stream: ReplayStream) -> None:
        """Show this partition, too."""
        self._streams.append(stream)
        self.grew()

    def wanted(self) -> None:
        """Somebody waits for records."""
        if not self._is_wanted:
            self._is_wanted = True
            self.grew()

    def grew(self) -> None:
        """There may be more to show: look soon."""
        if self._is_wanted and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(LEAST_S, self._look)

    def close(self) -> None:
        """Show nothing more."""
        self._is_wanted = False
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        self._timer = None
        now = self._clock.now()
        while (first := self._earliest()) is not None and first[0] == ALWAYS:
            self._show(ALWAYS)
        if first is None:
            return  # it is looked again when a copy grows
        due_ms, stream = first
        wait_s = self._pace.wait_s(due_ms, now)
        if wait_s <= 0:
            self._pace.passed(due_ms)
            stream.log.show_next()
            self._show(self._pace.due_ms(now))
            stream.changed()
        else:
            record = (*stream.log.name, stream.log.next_offset)
            self._log.waiting(record, due_ms, wait_s)
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(max(LEAST_S, wait_s), self._look)

    def _earliest(self) -> tuple[int, ReplayStream] | None:
        """When the next record of any partition is due, and of which; None if there is none."""
        heads = ((self._due(stream), stream) for stream in self._streams)
        found = [(due_ms, stream) for due_ms, stream in heads if due_ms is not None]
        return min(found, key=lambda each: each[0], default=None)

    def _due(self, stream: ReplayStream) -> int | None:
        due_ms = stream.log.next_due()
        if due_ms is None or due_ms == ALWAYS or not self._pace.is_gap(due_ms):
            return due_ms
        return due_behind_gap(self._pace, stream.log.upcoming())

    def _show(self, due_ms: float) -> None:
        for stream in self._streams:
            if stream.log.next_due() is None:
                continue
            newest = stream.log.advance(due_ms)
            if newest is not None and newest != ALWAYS:
                self._pace.passed(newest)
            if newest is not None:
                stream.changed()
