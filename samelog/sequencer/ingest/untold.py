"""Inputs whose publishers soon hear how far this node has made them durable.

Mostly an entry that names the bytes is committed in a moment, and one message reports both. So what
is only durable waits that long.

Invariant: no input waits longer than `ACK_GAP_S`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from samelog.runtime.loop import InLoop
from samelog.wire.push.acks import ACK_GAP_S


class UntoldInputs(InLoop):
    """Of one intake."""

    def __init__(self, tell: Callable[[set[int]], None]) -> None:
        """`tell` is called with the inputs that have waited."""
        self._tell = tell
        self.numbers: set[int] = set()
        """Those that wait."""
        self._timer: asyncio.TimerHandle | None = None

    def add(self, numbers: Iterable[int]) -> None:
        """More of these inputs is durable."""
        self.numbers.update(numbers)
        if self._timer is None:
            self._timer = self.loop.call_later(ACK_GAP_S, self._waited)

    def told(self, numbers: Iterable[int]) -> None:
        """Publishers hear of these inputs now."""
        self.numbers.difference_update(numbers)
        if not self.numbers and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def close(self) -> None:
        """Tell nothing more of what waits."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _waited(self) -> None:
        self._timer = None
        numbers, self.numbers = self.numbers, set()
        self._tell(numbers)
