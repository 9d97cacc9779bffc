"""One session at one node: opened whenever there is a connection to the node, and how it is.

A session that the node or this side has ended is opened again after a delay, which grows until the
session has lasted; other sessions on the connection do not notice.

Invariant: at most one conversation of a session with the node at a time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from samelog.config.values import Address
from samelog.replicator.push.conversation import PushConversation
from samelog.replicator.push.node_connection import NodeConnection, PublisherEnd
from samelog.runtime.backoff import Backoff
from samelog.runtime.log import log_event
from samelog.runtime.network.channel import Channel
from samelog.runtime.network.link import LASTING_S, NodeAddress
from samelog.wire.push.effects import InputName, PushPhase

log = logging.getLogger(__name__)

Identity = tuple[str, str]
"""(name, id) of a session."""
BeginConversation = Callable[
    [Channel, PublisherEnd, Callable[[Exception | None], None]], PushConversation
]


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """How shipping to one node is. `problems`: inputs that cannot be shipped now, and why."""

    address: Address
    node: str
    phase: PushPhase | None
    """None: the session is not open at the node."""
    last_error: str | None
    """Why it is not, or why it was not before."""
    problems: dict[InputName, str]


class PushLink:
    """Implements node_connection.SharingSession."""

    def __init__(
        self,
        target: NodeAddress,
        *,
        identity: Callable[[], Identity | None],
        converse: BeginConversation,
        backoff: Backoff,
        on_status: Callable[[], None],
    ) -> None:
        self.conversation: PushConversation | None = None
        self.target = target
        self.shared: NodeConnection | None = None
        """The connection to the node, once it is used."""
        self._identity = identity
        self._converse = converse
        self._backoff = backoff
        self._on_status = on_status
        self._opened_at = 0.0
        self._last_error: str | None = None
        self._again: asyncio.TimerHandle | None = None

    @property
    def status(self) -> NodeStatus:
        """How it is now."""
        conversation, shared, error = self.conversation, self.shared, self._last_error
        if shared is not None and not shared.is_up:
            error = shared.last_error or error
        return NodeStatus(
            self.target.address,
            self.target.node or ("" if conversation is None else conversation.node),
            None if conversation is None else conversation.phase,
            error,
            {} if conversation is None else conversation.problems,
        )

    @property
    def is_at_rest(self) -> bool:
        """Whether the session at this node waits for an event."""
        return self.conversation is None or self.conversation.is_at_rest

    # --- the connection -----------------------------------------------------------------------

    def identity(self) -> Identity | None:
        """(name, id) of the session, if that is known and it is not open yet."""
        return None if self.conversation is not None else self._identity()

    def open(self, channel: Channel, end: PublisherEnd) -> PushConversation:
        """Ship on a channel of the connection."""
        self._cancel()
        loop = asyncio.get_running_loop()
        self._opened_at = loop.time()

        def over(error: Exception | None) -> None:
            self._over(error, end)

        self.conversation = self._converse(channel, end, over)
        return self.conversation

    def changed(self) -> None:
        """The connection has come or gone."""
        self._on_status()

    def leave(self) -> None:
        """Ship no more to the node."""
        self._cancel()
        conversation, self.conversation = self.conversation, None
        if conversation is not None:
            conversation.close()

    def _cancel(self) -> None:
        if self._again is not None:
            self._again.cancel()
            self._again = None

    def _over(self, error: Exception | None, end: PublisherEnd) -> None:
        """The conversation is over: begin another one after a while."""
        if self.conversation is None:
            return
        self.conversation = None
        loop = asyncio.get_running_loop()
        if loop.time() >= self._opened_at + LASTING_S:
            self._backoff.reset()
        self._note(error)
        if end.is_open:
            self._again = loop.call_later(self._backoff.next_delay_s(), end.open, self)
        self._on_status()

    def _note(self, error: Exception | None) -> None:
        """Keep why it ended; say it once."""
        text = None if error is None else str(error)
        if text is not None and text != self._last_error:
            address, (session, _) = self.target.address, self._identity() or ("", "")
            says = "not shipping a session to a node"
            log_event(log, logging.WARNING, says, session=session, node=address, error=text)
        self._last_error = text
