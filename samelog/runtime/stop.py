"""A wish to end, as a handler of signals leaves it.

Invariant: a handler never waits for the thread that it interrupts, and a wait ends in time: neither
is so with `threading.Event`, nor with SimpleQueue (in Python 3.11, if its time is over too soon).
"""

from __future__ import annotations

import threading
from contextlib import suppress


class Stop:
    """Set once, from a handler or any thread; waited for by one thread."""

    def __init__(self) -> None:
        self.is_set = False
        self._held = threading.Lock()
        self._held.acquire()

    def set(self) -> None:
        """End, soon."""
        self.is_set = True
        with suppress(RuntimeError):  # it was released before
            self._held.release()

    def wait(self, timeout_s: float) -> bool:
        """Wait until it is set, or so long: whether it is."""
        if not self.is_set:
            self._held.acquire(timeout=timeout_s)
        return self.is_set
