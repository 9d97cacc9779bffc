"""Who is connected to a node to publish or to read, for those who look.

Invariant: what is listed is open; nobody is kept from going by being listed.
"""

from __future__ import annotations

from weakref import WeakSet

from shiplog.replicator.pull_server import PullServer
from shiplog.replicator.push_server import PushServer


class Connections:
    """One node's."""

    def __init__(self) -> None:
        self._pushes: WeakSet[PushServer] = WeakSet()
        self._pulls: WeakSet[PullServer] = WeakSet()

    def pushing(self, server: PushServer) -> PushServer:
        """A publisher has connected."""
        self._pushes.add(server)
        return server

    def pulling(self, server: PullServer) -> PullServer:
        """A subscriber, or a peer that repairs itself, has connected."""
        self._pulls.add(server)
        return server

    @property
    def pushes(self) -> list[PushServer]:
        """Those who publish, the oldest first."""
        return sorted((x for x in self._pushes if x.link.is_open), key=lambda x: x.since)

    @property
    def pulls(self) -> list[PullServer]:
        """Those who read, the oldest first."""
        return sorted((x for x in self._pulls if x.link.is_open), key=lambda x: x.since)
