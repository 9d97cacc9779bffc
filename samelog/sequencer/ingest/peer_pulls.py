"""Connections to each other member for bulk data that this node pulls.

Invariant: of each kind there is one to every other member that this node knows of, and none to
anybody else.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from samelog.config.tables.node import NodeConfig
from samelog.replicator.pull.acknowledger import Budget
from samelog.replicator.pull.repair_pull import RepairPull
from samelog.runtime.network.link import PeerPlace
from samelog.runtime.network.tls import ReloadingContext
from samelog.wire.messages import ConnectionRole, Hello


class PeerPulls:
    """The connections of one kind of pulls."""

    def __init__(
        self,
        config: NodeConfig,
        tls: ReloadingContext,
        boot: int,
        *,
        budget: Budget | None = None,
    ) -> None:
        """`budget`: of all of them together."""
        self._tls = tls
        self._budget = budget
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
                self._pulls[number] = RepairPull(
                    peer, self._tls, hello=self._hello, budget=self._budget
                )
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


class PullKinds(NamedTuple):
    """Apart, because what catches up fills its window for long: what is missing now, what the
    peers' Kafka clients write, and catching up.
    """

    repair: PeerPulls
    following: PeerPulls
    copying: PeerPulls

    @classmethod
    def make(cls, config: NodeConfig, tls: ReloadingContext, boot: int) -> PullKinds:
        """Of one node."""
        budget = Budget(config.recovery_bytes_per_s)
        repair, following = (PeerPulls(config, tls, boot) for _ in range(2))
        return cls(repair, following, PeerPulls(config, tls, boot, budget=budget))
