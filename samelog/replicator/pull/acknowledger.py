"""How the receiver of a pull frees the sender's window: in time, but not for every piece.

Invariant: never more than `ACKNOWLEDGE_BYTES` of all handles together are taken and not told, and
nothing stays untold for longer than `DELAY_S`; so a window larger than that never closes for good.
"""

from __future__ import annotations

import asyncio

from samelog.runtime.network.transport import Connection
from samelog.wire.messages import Received

ACKNOWLEDGE_BYTES = 1 << 20
DELAY_S = 0.1


class Acknowledger:
    """Tells the sender at the other end of one connection what was taken."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._taken: dict[int, int] = {}
        """Handle -> bytes taken and not told."""
        self._bytes = 0
        self._timer: asyncio.TimerHandle | None = None

    def took(self, handle: int, size_bytes: int) -> None:
        """So many bytes of a handle were taken."""
        self._taken[handle] = self._taken.get(handle, 0) + size_bytes
        self._bytes += size_bytes
        if self._bytes >= ACKNOWLEDGE_BYTES:
            self._tell()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(DELAY_S, self._tell)

    def close(self) -> None:
        """The connection is over."""
        self._taken.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _tell(self) -> None:
        taken, self._taken = self._taken, {}
        self._bytes = 0
        self.close()
        for handle, size_bytes in taken.items():
            self._connection.send(Received(handle, size_bytes))
