"""One connection to each other member for bulk data that this node pulls.

Invariant: there is one to every other member that this node knows of, and none to anybody else.
"""

from __future__ import annotations

from collections.abc import Mapping

from samelog.config.tables.node import NodeConfig
from samelog.replicator.pull.repair_pull import RepairPull
from samelog.runtime.network.link import PeerPlace
from samelog.runtime.network.tls import ReloadingContext
from samelog.wire.messages import ConnectionRole, Hello


class PeerPulls:
    """The connections of one kind of pulls."""

    def __init__(self, config: NodeConfig, tls: ReloadingContext, boot: int) -> None:
        self._tls = tls
        self._hello = Hello(
            role=ConnectionRole.PULL, cluster=config.cluster, node=config.name, boot=boot
        )
        self._pulls: dict[int, RepairPull] = {}
        self._peers: dict[int, PeerPlace] = {}

    def set_peers(self, wanted: Mapping[int, PeerPlace]) -> None:
        """Replace the list of other members."""
        for number in [n for n, peer in self._peers.items() if wanted.get(n) is not peer]:
            self._pulls.pop(number).close()
        for number, peer in wanted.items():
            if number not in self._pulls:
                self._pulls[number] = RepairPull(peer, self._tls, hello=self._hello)
        self._peers = dict(wanted)

    def get(self, number: int) -> RepairPull | None:
        """The connection to a member; None if it is none any more."""
        return self._pulls.get(number)

    def name(self, number: int) -> str:
        """The name of a member."""
        return self._peers[number].name

    def close(self) -> None:
        """End every connection."""
        for pull in self._pulls.values():
            pull.close()
