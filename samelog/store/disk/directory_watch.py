"""Tells a tailing reader whether a directory must be listed again.

A directory's modification time is coarse: a name made right after a listing may leave it unchanged.
So a listing counts as final only when it was made a little later than that time was first seen.

Invariant: once `needs_listing` says no, the last listing saw every name that is there.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from samelog.store.disk.files import FileSystem

GRAIN_S = 0.1
"""Longer than the clock tick that file systems stamp their times with."""


class DirectoryWatch:
    """The change times of one directory."""

    def __init__(
        self, fs: FileSystem, path: str, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._fs = fs
        self._path = path
        self._now = now
        self._modified_ns = -1
        self._first_seen = 0.0
        self._is_final = False

    def needs_listing(self) -> bool:
        """Whether names may have changed since the last listing; the caller lists now if so."""
        modified_ns = self._fs.modified_ns(self._path)
        now = self._now()
        if modified_ns != self._modified_ns:
            self._modified_ns, self._first_seen, self._is_final = modified_ns, now, False
            return True
        if self._is_final:
            return False
        self._is_final = now - self._first_seen >= GRAIN_S
        return True
