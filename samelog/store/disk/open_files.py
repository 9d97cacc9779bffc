"""Bounds the descriptors that the logs of a process keep open.

A log keeps the files that it writes open until they are synced, and a few of those that it reads.
With thousands of written partitions these would be more than a process may open. So the caches of
all logs share one bound: above it, the log whose files were opened longest ago closes them, and
opens them again when it needs them. A file with unsynced writes is closed as well; the next round
of syncs then covers it by syncing the whole file system (`File.close_unsynced`).

PostgreSQL's virtual file descriptors (fd.c) do the same below the file, where each access pays.

Invariant: a log is never asked to close files while it opens one of its own.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from contextlib import suppress
from typing import Protocol

from samelog.format.errors import LogFormatError

TRIES = 64
"""So many caches are asked at most each time a file is opened."""


class Crowded(Protocol):
    """Something that keeps files open."""

    def give_up(self, device: int) -> None:
        """Close files until they are needed again; unsynced ones only if they are on `device`.
        Raises DiskFault.
        """


class Bounded(Protocol):
    """A file system, perhaps with a bound."""

    @property
    def open_files(self) -> OpenFiles | None:
        """The bound of the files that logs keep open; None if there is none."""


def bound_of(fs: Bounded) -> OpenFiles | None:
    """The bound that counts for what this thread opens."""
    bound = fs.open_files
    return bound if bound is not None and bound.counts_here() else None


class OpenFiles:
    """The bound for one thread's caches. Caches of other threads do not count."""

    def __init__(self, limit: int, device: int) -> None:
        """`limit` in descriptors. `device`: of the file system that rounds of syncs sync whole."""
        self.limit = limit
        self._device = device
        self._counts: OrderedDict[Crowded, int] = OrderedDict()
        self._thread = threading.get_ident()
        self.count = 0
        """Descriptors that the caches hold now."""

    def counts_here(self) -> bool:
        """Whether caches that this thread makes count."""
        return threading.get_ident() == self._thread

    def opened(self, cache: Crowded) -> None:
        """A cache has opened a file. Above the bound, others close theirs."""
        self._counts[cache] = self._counts.pop(cache, 0) + 1
        self.count += 1
        if self.count > self.limit:
            self._make_room(cache)

    def closed(self, cache: Crowded, files: int) -> None:
        """A cache has closed files."""
        left = self._counts[cache] - files
        if left:
            self._counts[cache] = left
        else:
            del self._counts[cache]
        self.count -= files

    def _make_room(self, opener: Crowded) -> None:
        for _ in range(min(TRIES, len(self._counts))):
            if self.count <= self.limit:
                return
            cache = next(iter(self._counts))
            self._counts.move_to_end(cache)
            if cache is not opener:
                with suppress(LogFormatError):  # the owner meets the fault when it needs the files
                    cache.give_up(self._device)
