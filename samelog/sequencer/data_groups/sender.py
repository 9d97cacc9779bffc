"""What a replica of a data group sends: to the other replicas of its group, under their numbers.

Invariant: nothing goes to a member that has no replica by the table; a message names the replica
that it is for, so that no later one takes it for its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from samelog.placement.values import PlacedGroup
from samelog.sequencer.cluster.peers import PeerSender, parts_of
from samelog.wire.frames import HEADER_BYTES
from samelog.wire.messages import encode_message
from samelog.wire.peer_messages import InGroup, PeerMessage


class GroupSender:
    """One group's. Implements peers.PeerSender."""

    def __init__(self, links: PeerSender, own: int, group: Callable[[], PlacedGroup]) -> None:
        """`own`: this replica's number, whatever the table says by now; `group`: as the table has
        it.
        """
        self._links = links
        self._own = own
        self._group = group

    @property
    def numbers(self) -> list[int]:
        """The other members with a replica."""
        return [number for number in self._links.numbers if self.replica(number)]

    @property
    def connected(self) -> list[int]:
        """Those of them that can be sent to."""
        return [number for number in self._links.connected if self.replica(number)]

    def replica(self, member: int) -> int:
        """The number of a member's replica; 0: it has none."""
        placed = self._group().replica_of(member)
        return 0 if placed is None else placed.replica

    def send_raft(
        self, group: int, to: int, messages: Sequence[Any], replicas: tuple[int, int] = (0, 0)
    ) -> None:
        """Send Raft messages, or drop them."""
        receiver = self.replica(to)
        if receiver:
            self._links.send_raft(group, to, messages, (self._own, receiver))

    def send(self, to: int, message: PeerMessage) -> bool:
        """Send a message; False if it was dropped."""
        receiver, number = self.replica(to), self._group().number
        if not receiver:
            return False
        seats = number, self._own, receiver
        return all(
            self._links.send(to, InGroup(*seats, encode_message(part)[HEADER_BYTES:]))
            for part in parts_of(message)
        )

    def send_all(self, message: PeerMessage) -> None:
        """Send a message to every member with a replica."""
        for number in self.numbers:
            self.send(number, message)
