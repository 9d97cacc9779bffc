"""A wish to end, as a handler of signals leaves it.

Invariant: a handler never waits for the thread that it interrupts. It runs inside of whatever that
thread does, with the locks that are held there: `threading.Event.set` in a handler waits for ever
where the same thread was just about to wait for the event. A SimpleQueue may be put to from there.
"""

from __future__ import annotations

from contextlib import suppress
from queue import Empty, SimpleQueue


class Stop:
    """Set once, from a handler or any thread; waited for by one thread."""

    def __init__(self) -> None:
        self.is_set = False
        self._wishes: SimpleQueue[None] = SimpleQueue()

    def set(self) -> None:
        """End, soon."""
        self.is_set = True
        self._wishes.put(None)

    def wait(self, timeout_s: float) -> bool:
        """Wait until it is set, or so long: whether it is."""
        if not self.is_set:
            with suppress(Empty):
                self._wishes.get(timeout=timeout_s)
        return self.is_set
