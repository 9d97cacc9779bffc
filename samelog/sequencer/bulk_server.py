"""A bulk connection that another member dialled: it pulls logs from this node, and says what is too
long for its control connection.

Session bytes are sent as they come: acknowledgements wait for them. Nobody waits for merged bytes,
so what grows is gathered first.

Invariant: it belongs to one life of the member. What comes after the last control connection of
that life is gone counts for nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from samelog.config.authorisation import Rights
from samelog.replicator.interfaces import RowSource
from samelog.replicator.pull.server import WINDOW_BYTES, PullServer
from samelog.replicator.pull.streams import ServedMerged
from samelog.runtime.network.transport import Connection
from samelog.sequencer.cluster.peers import PeerListener, hear_raft
from samelog.wire.bounds import METADATA_GROUP
from samelog.wire.messages import AnyMessage, ConnectionRole, Hello, OpenMerged, OpenSessionLog
from samelog.wire.peer_messages import PeerMessage
from samelog.wire.pull.sender import READ_BYTES
from samelog.wire.shared_sender import Credit, SharedSender

PULLS = Hello(ConnectionRole.BULK, parts=True)
GATHER_S = 0.05
"""So long merged bytes are gathered."""


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
        self._grown = set[int]()
        """Handles of merged logs that have grown since they were last sent from."""
        self._gathers: asyncio.TimerHandle | None = None

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
        if isinstance(message, OpenMerged | OpenSessionLog):
            self._shared.assign(
                message.handle, Credit(METADATA_GROUP, isinstance(message, OpenMerged))
            )
        super().on_message(message)

    def on_closed(self, error: Exception | None) -> None:
        """Gone: nothing is gathered any more."""
        if self._gathers is not None:
            self._gathers.cancel()
        super().on_closed(error)

    def on_raft(self, payload: memoryview) -> None:
        """Long Raft messages."""
        if not self._is_void:
            hear_raft(self.number, payload, self._listener)

    def _changed(self, number: int) -> None:
        known = self._served.get(number)
        if known is None or not isinstance(known[0], ServedMerged):
            super()._changed(number)
            return
        self._grown.add(number)
        if self._gathers is None:
            self._gathers = self._loop.call_later(GATHER_S, self._send_grown)

    def _send_grown(self) -> None:
        self._gathers = None
        grown, self._grown = self._grown, set()
        for number in grown:
            super()._changed(number)
