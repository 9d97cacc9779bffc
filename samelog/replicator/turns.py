"""Shares the event loop: a connection's bulk work in slices of a millisecond or two.

The first piece of work of a turn of the loop is done at once, inside whatever callback brought it,
so that a single record waits for nothing; everything that comes up later in the same turn is done
at its end, together.

Invariant: no call does work for longer than `TURN_S` plus one step; `step` is called only while the
connection can take more. The clock must move within a turn, which the event loop's own does not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from samelog.replicator.handler import fail
from samelog.runtime.clock import Clock
from samelog.runtime.network.transport import Connection

TURN_S = 0.0015


class Turns:
    """Calls `step` until it says False; then `rest`."""

    def __init__(
        self,
        connection: Connection,
        step: Callable[[], bool],
        rest: Callable[[], None],
        clock: Clock,
    ) -> None:
        self._connection = connection
        self._step = step
        self._rest = rest
        self._now = clock.now
        self._loop = asyncio.get_running_loop()
        self._scheduled = False
        self._wanted = False
        self._closed = False

    def work(self) -> None:
        """There may be something to do."""
        if self._scheduled:
            self._wanted = True
        elif not self._closed:
            self._scheduled = True
            self._loop.call_soon(self._next_turn)
            stop = self._now() + TURN_S
            while self._connection.writable:
                if not self._step():
                    self._rest()
                    return
                if self._now() >= stop:
                    self._wanted = True
                    return

    def close(self) -> None:
        """Never call again."""
        self._closed = True

    def _next_turn(self) -> None:
        self._scheduled = False
        if self._wanted and not self._closed:
            self._wanted = False
            try:
                self.work()
            except Exception as error:  # noqa: BLE001 - the seam: it ends the connection
                fail(self._connection, error)
