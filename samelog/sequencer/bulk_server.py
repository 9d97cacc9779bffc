"""A bulk connection that another member dialled: it pulls logs from this node, and says what is too
long for its control connection.

Invariant: it belongs to one life of the member. What comes after the last control connection of
that life is gone counts for nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from samelog.config.authorisation import Rights
from samelog.replicator.interfaces import RowSource
from samelog.replicator.pull.server import WINDOW_BYTES, PullServer
from samelog.runtime.network.transport import Connection
from samelog.sequencer.cluster.peers import PeerListener, hear_raft
from samelog.wire.frames import GROUP
from samelog.wire.messages import AnyMessage, ConnectionRole, Hello, OpenMerged, OpenSession
from samelog.wire.peer_messages import PeerMessage
from samelog.wire.pull.sender import READ_BYTES
from samelog.wire.shared_sender import Credit, SharedSender

PULLS = Hello(ConnectionRole.BULK, parts=True)


class DiallingMember(NamedTuple):
    """Who dialled: a member, in one of its lives."""

    number: int
    incarnation: str


class BulkServer(PullServer):
    """One bulk connection. Implements transport.Handler and peers.Ended."""

    def __init__(
        self,
        connection: Connection,
        caller: DiallingMember,
        source: RowSource,
        rights: Rights,
        listener: PeerListener,
        *,
        on_over: Callable[[PullServer], None],
    ) -> None:
        shared = SharedSender(window_bytes=WINDOW_BYTES, read_bytes=READ_BYTES)
        super().__init__(connection, source, rights, hello=PULLS, sender=shared, on_over=on_over)
        self.number, self.incarnation = caller
        self._shared = shared
        self._listener = listener
        self._is_void = False

    def void(self) -> None:
        """Its control connection is gone."""
        self._is_void = True
        self._connection.close()

    def on_message(self, message: AnyMessage) -> None:
        """What a member pulls, and what it says."""
        if self._is_void:
            return
        if isinstance(message, PeerMessage):
            self._listener.on_peer_message(self.number, message)
            return
        if isinstance(message, OpenMerged | OpenSession):
            self._shared.assign(message.handle, Credit(GROUP, isinstance(message, OpenMerged)))
        super().on_message(message)

    def on_raft(self, payload: memoryview) -> None:
        """Long Raft messages."""
        if not self._is_void:
            hear_raft(self.number, payload, self._listener)
