"""Who is connected to a node to publish or to read, for those who look.

Invariant: what is listed is open; bytes that were sent stay counted when their connection is over.
"""

from __future__ import annotations

from collections.abc import Callable

from samelog.config.authorisation import NODE_PREFIX, Rights
from samelog.replicator.interfaces import RowSource, SessionIntake
from samelog.replicator.pull.server import PullServer
from samelog.replicator.push.served_session import PushSession
from samelog.replicator.push.server import PushServer
from samelog.replicator.watchers import Watchers
from samelog.runtime.network.transport import Connection
from samelog.sequencer.bulk_server import BulkServer, DiallingMember
from samelog.sequencer.cluster.peers import Callers, PeerListener
from samelog.sequencer.measures import Measures
from samelog.wire.holds import HeldPart
from samelog.wire.messages import Hello


class Connections:
    """One node's."""

    def __init__(self, measures: Measures) -> None:
        self._measures = measures
        self.watchers = Watchers()
        """Those of `pushes`, by what they have opened."""
        self._gone_bytes = 0
        """Sent on connections that are over."""
        self.publishers: dict[PushServer, None] = {}
        """The connections of those who publish."""
        self.pushes: dict[PushSession, None] = {}
        """The sessions that are shipped on them, the oldest first."""
        self.holding: dict[str, dict[PushSession, None]] = {}
        """By name, those whose publishers report held bytes or damage; the oldest first."""
        self.on_holds: Callable[[str], None] = lambda session: None
        """Called with the name of a session whose publisher holds something else now."""
        self.pulls: dict[PullServer, None] = {}
        """Those who read, the oldest first."""

    def push(
        self, connection: Connection, hello: Hello, intake: SessionIntake, rights: Rights
    ) -> PushServer:
        """A publisher has connected."""
        server = PushServer(
            connection,
            hello,
            intake,
            rights,
            sessions=self.pushes,
            on_over=self._push_over,
            on_holds=self._holds_changed,
        )
        self.publishers[server] = None
        return server

    def pull(
        self, connection: Connection, hello: Hello, source: RowSource, rights: Rights
    ) -> PullServer:
        """A subscriber, or a peer that mends its own, has connected."""
        is_peer = connection.identity.startswith(NODE_PREFIX)
        count = None if is_peer else self._measures.sent
        server = PullServer(
            connection,
            source,
            rights,
            hello=hello,
            on_merged_sent=count,
            on_over=self._pull_over,
        )
        self.pulls[server] = None
        return server

    def bulk(
        self,
        connection: Connection,
        caller: DiallingMember,
        source: RowSource,
        rights: Rights,
        *,
        listener: PeerListener,
        callers: Callers,
    ) -> BulkServer:
        """Another member has dialled its bulk connection."""

        def over(server: PullServer) -> None:
            self._pull_over(server)
            callers.remove_bulk(made)

        made = BulkServer(connection, caller, source, rights, listener, on_over=over)
        self.pulls[made] = None
        callers.add_bulk(made)
        return made

    def holds(self, session: str) -> tuple[HeldPart, ...]:
        """Return what a session's publisher reports to this node that it holds."""
        found = self.holding.get(session)
        return next(reversed(found)).holds if found else ()

    def _holds_changed(self, session: PushSession) -> None:
        name = session.session
        known = self.holding.setdefault(name, {})
        if session.holds:
            known[session] = None
        else:
            known.pop(session, None)
        if not known:
            del self.holding[name]
        self.on_holds(name)

    def _push_over(self, server: PushServer) -> None:
        self.publishers.pop(server, None)

    def _pull_over(self, server: PullServer) -> None:
        if server in self.pulls:
            del self.pulls[server]
            self._gone_bytes += server.sent.total

    @property
    def sent_bytes(self) -> int:
        """Bytes of logs that were sent since the start."""
        return self._gone_bytes + sum(server.sent.total for server in self.pulls)
