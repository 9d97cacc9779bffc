"""Waiting for files to grow, or to be woken by another thread.

Where this process keeps the copies, what keeps them wakes whoever waits, and nothing is watched.
Else the active file of each partition is watched with inotify in the very thread that waits: that
is the shortest way from another process's write to a reader. Whoever waits also looks again now and
then, because inotify can miss changes; more often, where the user has no inotify instance left.

Invariant: a wake is never lost; after `wake` the next `wait` returns at once.
"""

from __future__ import annotations

import os
import select
import threading

from samelog.format.file_names import MARKS_FILE
from samelog.runtime.inotify import Inotify, Mask, open_or_warn

_NEW_NAME = Mask.CREATE | Mask.MOVED_TO
_ANYTHING = Mask.OVERFLOW | Mask.IGNORED


class Waiter:
    """For one waiting thread, or an event loop (`fileno`). `wake` may be called from any thread."""

    def __init__(self, *, is_woken: bool = False) -> None:
        """`is_woken`: `wake` is called whenever a file has grown or is new."""
        self.names_changed = False
        """Whether a watched directory has a new name; whoever looks resets it."""
        self._inotify = None if is_woken else open_or_warn(Inotify)
        self.watches = self._inotify is not None
        """Whether there is any use in asking it to watch something."""
        self.is_blind = not is_woken and not self.watches
        """Whether only looking again finds what has changed."""
        self._is_wake_due = False
        """Whether the next `wait` returns at once, because of a `wake`."""
        self._wake_reader, self._wake_writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._epoll = select.epoll()
        if self._inotify is not None:
            self._epoll.register(self._inotify.fileno(), select.EPOLLIN)
        self._epoll.register(self._wake_reader, select.EPOLLIN)
        self._watched: dict[str, int] = {}
        self._lock = threading.RLock()  # a signal handler may wake whoever holds it
        self._is_closed = False

    def fileno(self) -> int:
        """Readable when `wait` would return at once."""
        return self._epoll.fileno()

    def watch_file(self, path: str) -> bool:
        """Wake when this file grows; whether it was not watched before, and is now."""
        return self._watch(path, Mask.MODIFY)

    def watch_directory(self, path: str) -> bool:
        """Wake when this directory has a new name; whether it was not watched, and is now."""
        return self._watch(path, _NEW_NAME)

    def _watch(self, path: str, mask: int) -> bool:
        if self._inotify is None or path in self._watched:
            return False
        try:
            self._watched[path] = self._inotify.add(path, mask)
        except OSError:  # not there (yet), or no watch left: looking again must do
            return False
        return True

    def is_watched(self, path: str) -> bool:
        """Whether this file or directory is watched."""
        return path in self._watched

    def forget(self, path: str) -> None:
        """Stop watching a path."""
        watch = self._watched.pop(path, None)
        if watch is not None and self._inotify is not None:
            try:
                self._inotify.remove(watch)
            except OSError:  # went with its file
                return

    def wait(self, timeout_s: float) -> bool:
        """Wait for a change, a wake, or the time; whether something happened."""
        happened = self._epoll.poll(timeout_s)
        for descriptor, _ in happened:
            if descriptor == self._wake_reader:
                os.read(descriptor, 1)
                self._is_wake_due = False  # what comes from here on is found by who looks now
                continue
            for event in () if self._inotify is None else self._inotify.read():
                is_new = event.mask & _NEW_NAME and not event.name.startswith(MARKS_FILE)
                if is_new or event.mask & _ANYTHING:
                    self.names_changed = True
        return bool(happened)

    def wake(self) -> None:
        """Make `wait` return."""
        with self._lock:
            if not self._is_closed and not self._is_wake_due:
                self._is_wake_due = True
                os.write(self._wake_writer, b"\0")

    def wake_to_rescan(self) -> None:
        """Have `wait` return, as if there were new names."""
        self.names_changed = True
        self.wake()

    def close(self) -> None:
        """Close all descriptors; no call of `wait` may be running."""
        with self._lock:
            self._is_closed = True
            self._epoll.close()
            if self._inotify is not None:
                self._inotify.close()
            os.close(self._wake_reader)
            os.close(self._wake_writer)
