"""Noticing that small files changed, without hurry: certificates, policies.

watchdog watches the directories, not the files: editors rename over them, and mounted secrets swing
a link beside them, or above the directory that they seem to be in. A burst of changes gives one
call. Where inotify's limits are reached, the directories are polled. Changes can be missed; who
cannot live with that also looks now and then.

Invariant: `on_change` runs in the event loop of whoever made the watch, never in watchdog's thread,
never after `close`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable

from watchdog.events import FileSystemEvent, FileSystemEventHandler
from watchdog.observers import Observer
from watchdog.observers.api import BaseObserver
from watchdog.observers.polling import PollingObserver

from samelog.runtime.inotify import LIMITS, warn_of_polling

SETTLE_S = 0.2
"""Certificate and key are written one after the other."""
POLL_S = 1.0

_CHANGES = frozenset({"created", "modified", "moved", "deleted", "closed"})


def watched_directories(paths: Iterable[str]) -> list[str]:
    """The directories in which something happens when one of these files changes: its own, and
    those of links on the way to it.
    """
    found = set()
    for path in paths:
        directory = os.path.dirname(os.path.abspath(path))
        found.add(directory)
        while directory != os.path.dirname(directory):
            above = os.path.dirname(directory)
            if os.path.islink(directory):
                found.add(above)
            directory = above
    return sorted(found)


class FileWatch(FileSystemEventHandler):
    """Calls `on_change` some time after anything happened in the directories of `paths`."""

    def __init__(
        self, paths: Iterable[str], on_change: Callable[[], None], *, settle_s: float = SETTLE_S
    ) -> None:
        """To be made in the event loop. Raises OSError when a directory cannot be watched."""
        self._loop = asyncio.get_running_loop()
        self._on_change = on_change
        self._settle_s = settle_s
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False
        self._observer = self._observe(watched_directories(paths))

    def _observe(self, directories: Iterable[str]) -> BaseObserver:
        try:
            return self._started(Observer(), directories)
        except OSError as error:
            if error.errno not in LIMITS:
                raise
            warn_of_polling(error)
            return self._started(PollingObserver(timeout=POLL_S), directories)

    def _started(self, observer: BaseObserver, directories: Iterable[str]) -> BaseObserver:
        for directory in directories:
            observer.schedule(self, directory)
        try:
            observer.start()
        except OSError:
            observer.unschedule_all()  # what it had watched already
            raise
        return observer

    def on_any_event(self, event: FileSystemEvent) -> None:
        """In watchdog's thread: something happened."""
        if event.event_type in _CHANGES and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._changed)

    def close(self) -> None:
        """Watch no more."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._observer.stop()
        self._observer.join()

    def _changed(self) -> None:
        if self._timer is None and not self._closed:
            self._timer = self._loop.call_later(self._settle_s, self._call)

    def _call(self) -> None:
        self._timer = None
        self._on_change()
