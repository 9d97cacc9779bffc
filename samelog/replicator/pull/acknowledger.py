"""How the receiver of a pull frees the sender's window: in time, but not for every piece.

A budget slows the sender down by telling later what was taken: it sends a window ahead, and then as
fast as it is told.

Invariant: never more than `ACKNOWLEDGE_BYTES` of all handles together are taken, paid for and not
told, and nothing stays so for longer than `DELAY_S`; so a window larger than that never closes for
good.
"""

from __future__ import annotations

import asyncio

from samelog.runtime.network.transport import Connection
from samelog.wire.messages import Received

ACKNOWLEDGE_BYTES = 1 << 20
DELAY_S = 0.1


class Budget:
    """So many bytes a second; who spends more has to wait. 0: any number."""

    def __init__(self, bytes_per_s: int) -> None:
        self._bytes_per_s = bytes_per_s
        self._free_at = 0.0

    def spend(self, size_bytes: int, now: float) -> float:
        """Seconds until so much is paid for, with all that was spent before."""
        if not self._bytes_per_s:
            return 0.0
        self._free_at = max(self._free_at, now) + size_bytes / self._bytes_per_s
        return self._free_at - now


class Acknowledger:
    """Tells the sender at the other end of one connection what was taken."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._taken: dict[int, int] = {}
        """Handle -> bytes taken and not told."""
        self._bytes = 0
        self._timer: asyncio.TimerHandle | None = None
        self._is_over = False

    def took(self, handle: int, size_bytes: int, budget: Budget | None = None) -> None:
        """So many bytes of a handle were taken. `budget`: what may be taken in a second, by all who
        share it; None: all that comes.
        """
        wait_s = 0.0
        if budget is not None:
            wait_s = budget.spend(size_bytes, asyncio.get_running_loop().time())
        if wait_s > 0:
            asyncio.get_running_loop().call_later(wait_s, self.note, handle, size_bytes)
        else:
            self.note(handle, size_bytes)

    def note(self, handle: int, size_bytes: int) -> None:
        """As `took`, for bytes that no budget limits."""
        if self._is_over:
            return
        self._taken[handle] = self._taken.get(handle, 0) + size_bytes
        self._bytes += size_bytes
        if self._bytes >= ACKNOWLEDGE_BYTES:
            self._tell()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(DELAY_S, self._tell)

    def close(self) -> None:
        """The connection is over."""
        self._is_over = True
        self._taken.clear()
        self._stop_timer()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _tell(self) -> None:
        taken, self._taken = self._taken, {}
        self._bytes = 0
        self._stop_timer()
        for handle, size_bytes in taken.items():
            self._connection.send(Received(handle, size_bytes))
