"""A push connection to one node, kept up, and how it is.

Invariant: at most one conversation with the node at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from samelog.config.values import Address
from samelog.replicator.push.conversation import PushConversation
from samelog.runtime.backoff import Backoff
from samelog.runtime.clock import Clock
from samelog.runtime.network.link import NodeAddress, NodeLink, OnOver
from samelog.runtime.network.tls import ReloadingContext
from samelog.runtime.network.transport import Connection
from samelog.wire.messages import Hello
from samelog.wire.push.effects import InputName, PushPhase


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
        converse: Callable[[Connection, OnOver], PushConversation],
        backoff: Backoff,
        clock: Clock,
        on_status: Callable[[], None],
    ) -> None:
        """`node` is the expected name; None: whichever node it is."""
        self.conversation: PushConversation | None = None
        self.address = address
        self.node = node
        self._greet = greet
        self._converse = converse
        self._on_status = on_status
        says = "not shipping to a node"
        self._link = NodeLink(self._open, tls=tls, backoff=backoff, clock=clock, says=says)

    @property
    def status(self) -> NodeStatus:
        """How it is now."""
        conversation = self.conversation
        return NodeStatus(
            self.address,
            self.node or ("" if conversation is None else conversation.node),
            None if conversation is None else conversation.phase,
            self._link.last_error,
            {} if conversation is None else conversation.problems,
        )

    async def run(self) -> None:
        """Ship until cancelled."""
        try:
            await self._link.keep_up(lambda: NodeAddress(self.address, self.node), self._ended)
        finally:
            self.conversation = None

    def _open(self, connection: Connection, on_over: OnOver) -> PushConversation:
        connection.send(self._greet())
        self.conversation = self._converse(connection, on_over)
        return self.conversation

    def _ended(self, error: Exception | None) -> None:
        self.conversation = None
        self._on_status()
