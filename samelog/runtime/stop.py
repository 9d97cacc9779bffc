"""A wish to end, as a handler of signals leaves it.

Invariant: a handler never waits for the thread that it interrupts, and a wait never lasts longer
than it may. A handler runs inside of whatever that thread does, with the locks that are held there:
`threading.Event.set` in a handler waits for ever where the same thread was just about to wait for
the event. To release a plain lock waits for nobody. `SimpleQueue.get(timeout=…)` of Python 3.11
waits for ever if its time is over before it has begun to wait, as on a machine that is busy.
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
