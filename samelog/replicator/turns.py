"""Shares the event loop: a connection's bulk work in slices of a millisecond or two.

Several parts of a connection, such as the sessions that it ships, take turns step by step. The
first piece of work of a turn of the loop is done at once, inside whatever callback brought it, so
that a single record waits for nothing; everything that comes up later in the same turn is done at
its end, together, and leaves in one write.

Invariant: no call does work for longer than `TURN_S` plus one step; `step` is called only while the
connection can take more; a part that has more to do waits for at most one step of every other one,
and one that fails ends alone. The clock must move within a turn, which the event loop's own does
not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from samelog.replicator.handler import Line, fail
from samelog.runtime.clock import Clock
from samelog.runtime.network.transport import Connection

TURN_S = 0.0015


class TurnTaker:
    """What has work to do on a connection: calls `step` until it says False; then `rest`."""

    __slots__ = ("line", "rest", "step", "turns")

    def __init__(
        self, turns: Turns, line: Line, step: Callable[[], bool], rest: Callable[[], None]
    ) -> None:
        self.turns: Turns | None = turns
        """None: it has left."""
        self.line = line
        self.step = step
        self.rest = rest

    def work(self) -> None:
        """There may be something to do."""
        turns = self.turns
        if turns is not None:
            turns.ready[self] = None
            if not turns.scheduled:
                turns.go_on()

    def work_later(self) -> None:
        """There may be something to do, but not before what calls this has returned."""
        if self.turns is not None:
            self.turns.ready[self] = None
            self.turns.schedule()

    def close(self) -> None:
        """Never call again."""
        if self.turns is not None:
            self.turns.ready.pop(self, None)
            self.turns = None


class Turns:
    """Of one connection."""

    def __init__(self, connection: Connection, clock: Clock) -> None:
        self.scheduled = False
        """Whether work waits for the end of this turn of the loop."""
        self.ready: dict[TurnTaker, None] = {}
        """Those that may have something to do, the next one first."""
        self._connection = connection
        self._now = clock.now
        self._loop = asyncio.get_running_loop()

    def join(self, line: Line, step: Callable[[], bool], rest: Callable[[], None]) -> TurnTaker:
        """Take part. What `step` or `rest` raises ends `line`."""
        return TurnTaker(self, line, step, rest)

    def go_on(self) -> None:
        """The connection may take more."""
        if self.scheduled or not self.ready or not self._connection.writable:
            return
        self.scheduled = True
        self._loop.call_soon(self._next_turn)
        if len(self.ready) == 1:
            self._take_turns()
            return
        self._connection.cork()
        try:
            self._take_turns()
        finally:
            self._connection.uncork()

    def schedule(self) -> None:
        """Do what is ready at the end of this turn of the loop."""
        if not self.scheduled:
            self.scheduled = True
            self._loop.call_soon(self._next_turn)

    def _take_turns(self) -> None:
        """One step of each in turn; a taker that has more to do comes behind the others."""
        ready, connection, now = self.ready, self._connection, self._now
        stop = now() + TURN_S
        while ready and connection.writable:
            taker = next(iter(ready))
            del ready[taker]
            try:
                if not taker.step():
                    taker.rest()
                elif taker.turns is not None:
                    ready[taker] = None
            except Exception as error:  # noqa: BLE001 - the seam: it ends the line
                taker.close()
                fail(taker.line, error)
            if now() >= stop:
                return

    def _next_turn(self) -> None:
        self.scheduled = False
        if self.ready:
            self.go_on()
