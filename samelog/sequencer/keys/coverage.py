"""How far the members of a group know the keys of a partition that comes to it.

Each member tells the leader once a second. The partition is sealed in its old group only when a
majority covers it: once the old group has dropped it, no other member has the keys of archived
records.

Invariant: what a member said counts for a few seconds only, so that nothing is believed of one that
has died or lost its disk.
"""

from __future__ import annotations

from collections.abc import Callable

from samelog.runtime.clock import Clock
from samelog.wire.peer_messages import KeysCovered

TELL_S = 1.0
COUNTS_S = 3.0
"""Longer than it takes to say the same again."""


class KeyCoverage:
    """One replica's."""

    def __init__(
        self,
        clock: Clock,
        leader: Callable[[], int | None],
        send: Callable[[int, KeysCovered], object],
    ) -> None:
        self._clock = clock
        self._leader = leader
        self._send = send
        self._told: tuple[int | None, KeysCovered] | None = None
        """To which leader what was said last."""
        self._told_at = 0.0
        self._heard: dict[int, tuple[float, KeysCovered]] = {}
        """Member -> when it said what."""

    def tell(self, own: int, partition: int, offset: int) -> None:
        """This member knows the keys of records below an offset. To be called often."""
        told, now = (self._leader(), KeysCovered(partition, offset)), self._clock.now()
        if told == self._told and now - self._told_at < TELL_S:
            return
        self._told, self._told_at = told, now
        leader, message = told
        if leader == own:
            self.heard(own, message)
        elif leader is not None:
            self._send(leader, message)

    def heard(self, node: int, message: KeysCovered) -> None:
        """A member has said how far it is."""
        self._heard[node] = self._clock.now(), message

    def has_covered(self, node: int, partition: int, offset: int) -> bool:
        """Whether a member knows the keys of all records below an offset, as it said just now."""
        at, said = self._heard.get(node, (0.0, KeysCovered(partition, -1)))
        is_new = self._clock.now() - at < COUNTS_S
        return is_new and said.partition == partition and said.offset >= offset
