"""Keeps a connection to a node up: dials, waits until it is over, says why, and dials again.

A node that is not in time may just have too little processor time, and each attempt costs it more.
So after every attempt that took too long the next one may take twice as long, up to a bound.

A node that is known to be there, as it has just dialled us, is not waited for: it may be needed at
once, for an election.

Invariant: at most one connection at a time; between two attempts lies a delay that grows until one
has lasted, or was called a success, unless the node was seen since the first of them began.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from samelog.config.values import Address
from samelog.runtime.backoff import Backoff
from samelog.runtime.clock import Clock
from samelog.runtime.errors import ConnectFault, ConnectProblem, DeadlinePassed
from samelog.runtime.log import log_event
from samelog.runtime.network.tls import NODE_PREFIX, ReloadingContext
from samelog.runtime.network.transport import (
    DEFAULT_DEADLINES,
    Connection,
    Deadlines,
    Handler,
    connect,
)

log = logging.getLogger(__name__)

LASTING_S = 5.0
"""A connection that held for so long counts as a success."""

LONGER_MAX = 4
"""So many times as long as at first a node may take at last."""

OnOver = Callable[[Exception | None], None]
"""To be called by a link's handler when its connection is over."""


class NodeAddress(NamedTuple):
    """Where to dial; `node`: what the node must be called, None: whichever it is."""

    address: Address
    node: str | None


@dataclass(slots=True)
class PeerPlace:
    """Where to dial a node: addresses, each tried when the one before it failed."""

    name: str
    addresses: tuple[Address, ...]
    tried: int = 0

    @property
    def address(self) -> Address:
        """The one to try now."""
        return self.addresses[self.tried % len(self.addresses)]

    def failed(self) -> None:
        """That node was not there."""
        self.tried += 1


class NodeLink:
    """One connection, again and again."""

    def __init__(
        self,
        open_handler: Callable[[Connection, OnOver], Handler],
        *,
        tls: ReloadingContext,
        backoff: Backoff,
        clock: Clock,
        says: str,
        level: int = logging.WARNING,
        deadlines: Deadlines = DEFAULT_DEADLINES,
    ) -> None:
        """`says` is the event that is logged, once, when a connection ends or there is none."""
        self.connection: Connection | None = None
        self.last_error: str | None = None
        """Why there is no connection, or why the one before ended."""
        self._open_handler = open_handler
        self._tls = tls
        self._backoff = backoff
        self._clock = clock
        self._says = says
        self._level = level
        self._deadlines = deadlines
        self._longer = 1
        self._seen = asyncio.Event()

    async def keep_up(
        self, target: Callable[[], NodeAddress], on_ended: Callable[[Exception | None], None]
    ) -> None:
        """Dial until cancelled; then close. `on_ended` is called after each connection, and each
        attempt that came to none.
        """
        try:
            while True:
                self._seen.clear()
                error = await self._dial(target())
                on_ended(error)
                await self._pause()
        finally:
            if self.connection is not None:
                self.connection.close()
                await self.connection.wait_ended()

    def succeeded(self) -> None:
        """The peer is the one wanted: after this connection the next one is dialled at once."""
        self._backoff.reset()
        self.last_error = None

    def is_there(self) -> None:
        """The node was seen just now: do not wait before the next attempt."""
        self._seen.set()

    async def _pause(self) -> None:
        """Wait between two attempts."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._backoff.next_delay_s()):
                await self._seen.wait()

    async def _dial(self, target: NodeAddress) -> Exception | None:
        over: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()

        def on_over(error: Exception | None) -> None:
            if not over.done():  # nobody waits any more when the link was cancelled
                over.set_result(error)

        def open_handler(connection: Connection) -> Handler:
            self.connection = connection
            return self._open_handler(connection, on_over)

        started = self._clock.now()
        try:
            await connect(
                target.address,
                self._tls,
                open_handler,
                expected_identity=None if target.node is None else NODE_PREFIX + target.node,
                deadlines=self._deadlines.longer(self._longer),
            )
            error = await over
        except ConnectFault as fault:
            error = fault
        self.connection = None
        if self._clock.now() >= started + LASTING_S:
            self._backoff.reset()
            self._longer = 1
        if is_too_late(error):
            self._longer = min(LONGER_MAX, 2 * self._longer)
        self._note(target, error)
        return error

    def _note(self, target: NodeAddress, error: Exception | None) -> None:
        """Keep why it ended; say it once."""
        text = None if error is None else str(error)
        if text is not None and text != self.last_error:
            log_event(log, self._level, self._says, node=target.address, error=text)
        self.last_error = text


def is_too_late(error: Exception | None) -> bool:
    """Whether a connection ended, or never began, because the peer took too long."""
    if isinstance(error, ConnectFault):
        return error.problem is ConnectProblem.TIMEOUT
    return isinstance(error, DeadlinePassed)
