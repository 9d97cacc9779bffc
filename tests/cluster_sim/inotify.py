"""inotify on a simulated disk.

Invariant: every change of a watched directory's names and files is reported once, in order.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable

from samelog.runtime.inotify import Event
from samelog.runtime.linger import Linger
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
        self.linger = Linger(0.0)
        self._due: asyncio.TimerHandle | None = None

    def add(self, path: str, mask: int) -> int:
        number = next(self._numbers)

        def told(name: str, what: int) -> None:
            if what & mask:
                self._events.append(Event(number, what, name))
                self._ring()

        self._disk.watchers.setdefault(path, []).append(told)
        self._mine.append((path, told))
        return number

    def attach(
        self, loop: asyncio.AbstractEventLoop, callback: Callable[[list[Event]], None]
    ) -> None:
        self._loop, self._callback = loop, callback

    def hurry(self) -> None:
        self._report()

    def _ring(self) -> None:
        if self._callback is not None and self._due is None:
            wait_s = self.linger.wait_s(self._loop.time())
            self._due = self._loop.call_later(wait_s, self._report)

    def _report(self) -> None:
        if self._due is not None:
            self._due.cancel()
            self._due = None
        events, self._events = self._events, []
        if self._callback is not None and events:
            self.linger.sent(self._loop.time())
            self._callback(events)

    def close(self) -> None:
        self._callback = None
        for path, told in self._mine:
            watchers = self._disk.watchers.get(path, [])
            if told in watchers:
                watchers.remove(told)
