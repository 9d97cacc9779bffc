"""A subscriber's connection to one node, beside those to others, where no node has everything.

Invariant: it asks that node only; what another connection copies it leaves alone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from samelog.config.values import Address
from samelog.replicator.pull.conversation import PullConversation
from samelog.replicator.pull.options import PullParts
from samelog.runtime.backoff import Backoff
from samelog.runtime.network.link import NodeAddress, NodeLink, OnOver
from samelog.runtime.network.transport import Connection

Converse = Callable[[Connection, Address, OnOver], PullConversation]


class PullLane:
    """One node's."""

    def __init__(self, node: NodeAddress, parts: PullParts, converse: Converse) -> None:
        self.conversation: PullConversation | None = None
        self._node = node
        self._converse = converse
        self._link = NodeLink(
            self._open,
            tls=parts.tls,
            backoff=Backoff(parts.random),
            clock=parts.clock,
            says="not copying from a node",
            level=logging.INFO,
        )
        self._task: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Keep the connection up, until stopped."""
        self._task = asyncio.current_task()
        await self._link.keep_up(lambda: self._node, self._ended)

    def _open(self, connection: Connection, on_over: OnOver) -> PullConversation:
        self.conversation = self._converse(connection, self._node.address, on_over)
        return self.conversation

    def _ended(self, error: Exception | None) -> None:
        self.conversation = None

    def stop(self) -> None:
        """End it."""
        if self._task is not None:
            self._task.cancel()
