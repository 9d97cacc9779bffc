"""Bounds what clients may have done for them in one turn of the event loop.

Whoever keeps a node's lease has a turn as soon as the present one is over.

Invariant: what was used between two renewals is one turn's, and `left` never falls below 0.
"""

from __future__ import annotations

import asyncio


class TurnBudget:
    """Bytes of work that a turn has room for; of the loop that it is used in."""

    __slots__ = ("_limit", "left")

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self.left = limit_bytes

    def use(self, size: int) -> None:
        """Use some of what is left."""
        if self.left == self._limit:
            asyncio.get_running_loop().call_soon(self._renew)
        self.left = max(0, self.left - size)

    def _renew(self) -> None:
        self.left = self._limit
