"""Who is connected to a node to publish or to read, for those who look.

Invariant: what is listed is open; bytes that were sent stay counted when their connection is over.
"""

from __future__ import annotations

from samelog.config.authorisation import NODE_PREFIX
from samelog.replicator.pull.server import PullServer
from samelog.replicator.push.server import PushServer
from samelog.sequencer.measures import Measures


class Connections:
    """One node's."""

    def __init__(self, measures: Measures) -> None:
        self._measures = measures
        self._gone_bytes = 0
        """Sent on connections that are over."""
        self.pushes: dict[PushServer, None] = {}
        """Those who publish, the oldest first."""
        self.pulls: dict[PullServer, None] = {}
        """Those who read, the oldest first."""

    def pushing(self, server: PushServer) -> PushServer:
        """A publisher has connected."""
        self.pushes[server] = None
        server.on_over = lambda: self._pushed(server)
        return server

    def pulling(self, server: PullServer) -> PullServer:
        """A subscriber, or a peer that mends its own, has connected."""
        self.pulls[server] = None
        server.on_over = lambda: self._pulled(server)
        if not server.link.identity.startswith(NODE_PREFIX):
            server.on_merged_sent = self._measures.sent
        return server

    def _pushed(self, server: PushServer) -> None:
        self.pushes.pop(server, None)

    def _pulled(self, server: PullServer) -> None:
        if server in self.pulls:
            del self.pulls[server]
            self._gone_bytes += server.sent.total

    @property
    def sent_bytes(self) -> int:
        """Bytes of logs that were sent since the start."""
        return self._gone_bytes + sum(server.sent.total for server in self.pulls)
