"""Keeps a push connection to one node up: connects, waits, connects again.

Invariant: at most one connection to the node at a time; between two attempts lies a delay that
grows until a connection has lasted.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from samelog.config.values import Address
from samelog.replicator.interfaces import InputName
from samelog.replicator.push.conversation import PushConversation
from samelog.runtime.backoff import Backoff
from samelog.runtime.clock import Clock
from samelog.runtime.errors import ConnectFault
from samelog.runtime.log import format_event
from samelog.runtime.network.tls import NODE_PREFIX, ReloadingContext
from samelog.runtime.network.transport import Connection, connect
from samelog.wire.messages import Hello
from samelog.wire.push.effects import PushPhase

log = logging.getLogger(__name__)

LASTING_S = 5.0
"""A connection that held for so long counts as a success."""


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """How shipping to one node is. `problems`: inputs that cannot be shipped now, and why."""

    address: Address
    node: str
    phase: PushPhase | None
    """None: not connected."""
    last_error: str | None
    """Why there is no connection, or why the one before ended."""
    problems: dict[InputName, str]


class PushLink:
    """One node."""

    def __init__(
        self,
        address: Address,
        node: str | None,
        *,
        tls: ReloadingContext,
        greet: Callable[[], Hello],
        converse: Callable[[Connection, Callable[[Exception | None], None]], PushConversation],
        backoff: Backoff,
        clock: Clock,
        on_status: Callable[[], None],
    ) -> None:
        """`node` is the expected name; None: whichever node it is."""
        self.conversation: PushConversation | None = None
        self.address = address
        self.node = node
        self._tls = tls
        self._greet = greet
        self._converse = converse
        self._backoff = backoff
        self._clock = clock
        self._on_status = on_status
        self._connection: Connection | None = None
        self._last_error: str | None = None

    @property
    def status(self) -> NodeStatus:
        """How it is now."""
        conversation = self.conversation
        return NodeStatus(
            self.address,
            self.node or ("" if conversation is None else conversation.node),
            None if conversation is None else conversation.phase,
            self._last_error,
            {} if conversation is None else conversation.problems,
        )

    async def run(self) -> None:
        """Ship until cancelled."""
        try:
            while True:
                await self._connect_once()
                await asyncio.sleep(self._backoff.next_delay_s())
        finally:
            if self._connection is not None:
                self._connection.close()
                await self._connection.wait_ended()

    async def _connect_once(self) -> None:
        over: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()

        def on_over(error: Exception | None) -> None:
            if not over.done():  # nobody waits any more when shipping was stopped
                over.set_result(error)

        def open_handler(connection: Connection) -> PushConversation:
            connection.send(self._greet())
            self.conversation = self._converse(connection, on_over)
            return self.conversation

        started = self._clock.now()
        try:
            self._connection = await connect(
                self.address,
                self._tls,
                open_handler,
                expected_identity=None if self.node is None else NODE_PREFIX + self.node,
            )
            error = await over
        except ConnectFault as fault:
            error = fault
        finally:
            self.conversation = None
        self._connection = None
        if self._clock.now() >= started + LASTING_S:
            self._backoff.reset()
        self._note(error)

    def _note(self, error: Exception | None) -> None:
        """Keep why it ended; say it once."""
        text = None if error is None else str(error)
        if text is not None and text != self._last_error:
            event = format_event("not shipping to a node", node=str(self.address), error=text)
            log.warning("%s", event)
        self._last_error = text
        self._on_status()
