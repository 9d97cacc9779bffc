"""inotify on a simulated disk.

Invariant: every change of a watched directory's names and files is told once, in order.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable

from samelog.runtime.inotify import Event
from tests.cluster_sim.disk import Disk


class SimInotify:
    """One instance; as samelog.runtime.inotify.Inotify."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._numbers = itertools.count(1)
        self._mine: list[tuple[str, Callable[[str, int], None]]] = []
        self._events: list[Event] = []
        self._callback: Callable[[list[Event]], None] | None = None
        self._loop: asyncio.AbstractEventLoop
        self._gap_s = 0.0
        self._is_due = False
        self._gap: asyncio.TimerHandle | None = None

    def add(self, path: str, mask: int) -> int:
        number = next(self._numbers)

        def told(name: str, what: int) -> None:
            if what & mask:
                self._events.append(Event(number, what, name))
                self._ring(0.0)

        self._disk.watchers.setdefault(path, []).append(told)
        self._mine.append((path, told))
        return number

    def attach(
        self,
        loop: asyncio.AbstractEventLoop,
        callback: Callable[[list[Event]], None],
        *,
        gap_s: float = 0.0,
    ) -> None:
        self._loop, self._callback, self._gap_s = loop, callback, gap_s

    def end_gap(self) -> None:
        if self._gap is not None and not self._events:
            self._gap.cancel()
            self._rearm()

    def _ring(self, delay_s: float) -> None:
        if self._callback is not None and not self._is_due:
            self._is_due = True
            self._loop.call_later(delay_s, self._ready)

    def _ready(self) -> None:
        events, self._events = self._events, []
        if self._callback is None or not events:
            self._is_due = False
            return
        self._gap = self._loop.call_later(self._gap_s, self._rearm)
        self._callback(events)

    def _rearm(self) -> None:
        self._gap = None
        self._is_due = False
        if self._events:
            self._ring(0.0)

    def close(self) -> None:
        self._callback = None
        for path, told in self._mine:
            watchers = self._disk.watchers.get(path, [])
            if told in watchers:
                watchers.remove(told)
