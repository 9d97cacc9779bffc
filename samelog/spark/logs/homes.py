"""Which node a reader asks for which partition, where no node need have all of them.

A reader that says where it is asks nodes near it. Those that it had to leave it asks again after a
while, if they are near.

Invariant: a node that has failed, or said that it has not got a partition, is asked again only when
it is its turn once more.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence

from samelog.replicator.known_nodes import KnownNodes
from samelog.runtime.network.link import NodeAddress
from samelog.wire.bounds import Holder

RETURN_S = 30.0
Place = tuple[str, int]
"""Topic and partition."""


class Homes:
    """One reader's."""

    def __init__(self, known: KnownNodes, now: Callable[[], float] = time.monotonic) -> None:
        self._known = known
        self._now = now
        self._left: dict[NodeAddress, float] = {}
        """When a node was left that was usually asked."""
        self.usual = random.choice(known.all)
        """Whoever is asked for what no other node is known for."""
        self._of: dict[Place, NodeAddress] = {}

    def of(self, place: Place) -> NodeAddress:
        """The node to ask for a partition."""
        self._go_near()
        return self._of.get(place, self.usual)

    def learn(self, holders: Sequence[Holder]) -> None:
        """Told of these, and where they are."""
        self._known.learn(holders)

    def _go_near(self) -> None:
        """Usually, ask a node that is near, unless it was left a moment ago."""
        if not self._known.is_far(self.usual):
            return
        near = [each for each in self._known.all if self._known.is_near(each)]
        able = [each for each in near if not self._was_left(each)]
        if able:
            self.usual = random.choice(able)

    def _was_left(self, node: NodeAddress) -> bool:
        """Whether that is a moment ago."""
        return self._now() - self._left.get(node, float("-inf")) < RETURN_S

    def turn(self) -> None:
        """Usually, ask the next one."""
        self._known_again(self.usual)
        self._left[self.usual] = self._now()
        following = self._next(self.usual)
        while self._was_left(following) and following != self.usual:
            following = self._next(following)
        self.usual = self._next(self.usual) if following == self.usual else following
        self._go_near()

    def failed(self, node: NodeAddress) -> None:
        """It does not answer."""
        if node == self.usual:
            self.turn()
        else:
            self._known_again(node)

    def not_here(self, place: Place, node: NodeAddress, holders: Sequence[Holder]) -> None:
        """A node has not got a partition; these have."""
        self._known.learn(holders)
        others = [each for each in self._known.all if each != node]
        named = _named(others, holders)
        near = [each for each in named if self._known.is_near(each)]
        self._of[place] = random.choice(near or named or [self._next(self.of(place))])

    def _known_again(self, node: NodeAddress) -> None:
        """What a node was asked for is asked of the next one."""
        for place in [place for place, home in self._of.items() if home == node]:
            self._of[place] = self._next(node)

    def _next(self, node: NodeAddress) -> NodeAddress:
        known = self._known.all
        at = known.index(node) if node in known else -1
        return known[(at + 1) % len(known)]


def _named(nodes: Sequence[NodeAddress], holders: Sequence[Holder]) -> list[NodeAddress]:
    """The nodes that are told of, by name or address."""
    told = {holder.name for holder in holders} | {holder.address for holder in holders}
    return [each for each in nodes if told & {each.node, str(each.address)}]
