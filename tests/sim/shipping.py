"""Bytes that entries name, and that come to the nodes beside the log: from a publisher that may
reach but some of them, and may be gone after that, or from another node that has them.

An entry names bytes by the number that its data begins with. Every node has them written first, and
durable after a sync, of their own or of the log. They are removed where a majority has applied
their entry: nobody can get them any more then.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from samelog.consensus import Entry, is_configuration

if TYPE_CHECKING:
    from tests.sim.node import SimNode
    from tests.sim.world import World

FETCH_EVERY_S = 0.05


class Stored:
    """The bytes on one disk, by number."""

    def __init__(self) -> None:
        self.written: set[int] = set()
        self.durable: set[int] = set()

    def crash(self, chance: random.Random) -> None:
        """Power fails: of what was not synced anything may survive."""
        lost = {n for n in sorted(self.written - self.durable) if chance.random() < 0.5}
        self.written -= lost
        self.durable = set(self.written)

    def synced(self, numbers: frozenset[int]) -> None:
        """A sync that began when these were written is done."""
        self.durable |= numbers & self.written


def named(entry: Entry) -> int | None:
    """Which bytes an entry names; None: none."""
    if not entry.data or is_configuration(entry.data):
        return None
    return int(entry.data.split(b":", 1)[0])


class Shipping:
    """The publishers of one world, and what of their bytes is where."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._index: dict[int, int] = {}
        """Number -> the entry that was committed with it."""
        self._released: set[int] = set()
        self._fetching: set[tuple[int, int]] = set()

    def publish(self, number: int) -> None:
        """Send new bytes to all nodes, of which some may never get them from here."""
        chance = self._world.chance
        for node in self._world.nodes:
            if self._world.healed or chance.random() < self._world.options.reach_chance:
                delay = chance.uniform(0.0002, 0.02 if chance.random() < 0.8 else 0.5)
                self._world.later(delay, node, lambda node=node: self._arrive(node, number))  # type: ignore[misc]

    def _arrive(self, node: SimNode, number: int) -> None:
        if not node.up or number in self._released:
            return
        node.disk.bytes.written.add(number)
        stored, delay = node.disk.bytes, 0.0
        if not self._world.healed and self._world.chance.random() < 0.3:
            delay = self._world.chance.uniform(0.0, 2.0)  # nothing asks for it
        numbers = frozenset((number,))
        self._world.after_sync(node, lambda: stored.synced(numbers), delay)
        node.bytes_came()

    def to_propose(self, node: SimNode) -> list[int]:
        """What a leader has received, durable or not, and its log does not name yet."""
        log = node.raft.log
        planned = set(map(named, log.entries(node.applied + 1, log.last_index + 1)))
        received = node.disk.bytes.written - planned
        return sorted(number for number in received if not self._has_applied(node, number))

    def wanted(self, node: SimNode, number: int) -> None:
        """A node waits for bytes: after a while it gets them from another one that has them."""
        key = (node.number, number)
        if key not in self._fetching:
            self._fetching.add(key)
            self._world.later(FETCH_EVERY_S, node, lambda: self._fetch(node, number))

    def _fetch(self, node: SimNode, number: int) -> None:
        self._fetching.discard((node.number, number))
        others = [n for n in self._world.nodes if n.up and number in n.disk.bytes.written]
        if others and self._world.is_connected(self._world.chance.choice(others), node):
            self._arrive(node, number)
        elif node.up:
            node.bytes_came()  # asks again, if it still waits

    def applied(self, entry: Entry) -> None:
        """A node has applied an entry."""
        number = named(entry)
        if number is not None:
            self._index.setdefault(number, entry.index)

    def _has_applied(self, node: SimNode, number: int) -> bool:
        index = self._index.get(number)
        return index is not None and index <= node.applied

    def release(self, node: SimNode) -> None:
        """Remove what a majority has applied, this node too."""
        voters = [self._world.nodes[number] for number in self._world.checker.membership.voters]
        for number in sorted(node.disk.bytes.written):
            appliers = [voter for voter in voters if self._has_applied(voter, number)]
            if self._has_applied(node, number) and 2 * len(appliers) > len(voters):
                self._released.add(number)
                node.disk.bytes.written.discard(number)
                node.disk.bytes.durable.discard(number)
