"""Gives memory back to the system once a process has had nothing to do for a while.

Freed blocks are kept for the next use (`loop.keep_freed_memory`), also those of what is made once,
as the snapshot of a large state. Whoever is idle has no use for them.

Invariant: while there is something to do, nothing is given back; and once only until there is.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable

from samelog.store.disk.tail_memory import NOTHING_KEPT, TailMemory

IDLE_S = 10.0
"""Whoever does something every few seconds keeps what it has."""


def give_memory_back() -> None:
    """Have the C library return what is freed. Does nothing where there is no malloc_trim."""
    library = ctypes.CDLL(None)
    if hasattr(library, "malloc_trim"):
        library.malloc_trim(0)


class IdleMemory:
    """Of one process."""

    def __init__(
        self,
        now: float,
        give_back: Callable[[], None] = give_memory_back,
        *,
        tails: TailMemory = NOTHING_KEPT,
        sessions: TailMemory = NOTHING_KEPT,
    ) -> None:
        """`tails` and `sessions`: the newest bytes of merged logs, and of session logs."""
        self.tails = tails
        self.sessions = sessions
        self._give_back = give_back
        self._work: object = None
        self._since: float | None = now
        """Since when nothing was done; None: what is freed was given back."""

    def look(self, work: object, now: float) -> None:
        """To be called about once a second. `work` differs once anything was done."""
        if work != self._work:
            self._work, self._since = work, now
        elif self._since is not None and now - self._since >= IDLE_S:
            self._since = None
            self._give_back()
