"""The nodes that a client knows: those of its configuration, and those that it was told of.

Invariant: a node that is configured goes by its configuration, whatever is told of it; what is told
of a node under its name replaces what was told of it before.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from samelog.config.tables.client import ClientConfig
from samelog.config.values import Address, parse_address
from samelog.runtime.network.link import NodeAddress
from samelog.wire.bounds import Holder

TOLD_MOST = 1000


class KnownNodes:
    """One client's."""

    def __init__(self, config: ClientConfig) -> None:
        self._configured = nodes_of(config)
        self._rack = config.rack
        self._told: dict[str, Address] = {}
        self._racks: dict[str, str] = {}
        """By name, and by address: a configured node may have no name here."""

    def follow(self, config: ClientConfig) -> None:
        """The configuration is another one."""
        self._configured, self._rack = nodes_of(config), config.rack

    def learn(self, holders: Iterable[Holder], met: Collection[str] = ()) -> bool:
        """Told of these. `met`: what configured nodes turned out to be called. Whether any is new,
        or elsewhere.
        """
        names = {*met, *(each.node for each in self._configured)}
        addresses = {each.address for each in self._configured}
        before = dict(self._told)
        for holder in holders:
            address = parse_address(holder.address)
            is_known = holder.name in names or address in addresses
            if address is not None and not is_known and len(self._told) < TOLD_MOST:
                self._told[holder.name] = address
            if is_known or holder.name in self._told:
                self._racks[holder.name] = self._racks[holder.address] = holder.rack
        return self._told != before

    def is_near(self, node: NodeAddress) -> bool:
        """Whether a node is where this client is, as far as was told: in its rack, or anywhere in
        its site if it names no rack there.
        """
        known = self._racks.get(node.node or "") or self._racks.get(str(node.address)) or ""
        return bool(self._rack) and f"{known}/".startswith(f"{self._rack}/")

    def is_far(self, node: NodeAddress) -> bool:
        """Whether a node is known to be elsewhere, and another one to be near."""
        return not self.is_near(node) and any(map(self.is_near, self.all))

    @property
    def all(self) -> list[NodeAddress]:
        """Those of the configuration first."""
        return [
            *self._configured,
            *(NodeAddress(where, name) for name, where in self._told.items()),
        ]


def nodes_of(config: ClientConfig) -> list[NodeAddress]:
    """Each node of a configuration, and the name that it must have."""
    names = config.node_names or (None,) * len(config.nodes)
    return [NodeAddress(*each) for each in zip(config.nodes, names, strict=True)]
