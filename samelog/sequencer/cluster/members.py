"""Who belongs to the cluster, as far as this node knows: what it needs to find and recognise peers.

The replicated state has the list; before the first leader has written it down, the one that the
directory was made with stands in. A list that a peer tells and that is newer than the state's,
because this node lags behind, counts for finding peers and for nothing else: otherwise a node that
lags could refuse the very leader that would bring it up to date. So does a newcomer's first list,
which is of the version that it was added by: members that lag tell it older ones.

Invariant: which nodes vote is never decided here but by the Raft log.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from samelog.config.authorisation import NODE_PREFIX
from samelog.config.tables.node import PeerConfig
from samelog.config.values import Address, parse_address
from samelog.runtime.network.link import PeerPlace
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.tables.members import Member
from samelog.wire.peer_messages import MemberList, PeerMember


class NotAMember(Exception):
    """This node does not belong to the cluster any more, or under another number."""

    def __init__(self, message: str, number: int | None) -> None:
        super().__init__(message)
        self.number = number
        """The number that the node has been given instead; None if it was removed."""


class Members:
    """The member list of one node."""

    def __init__(
        self,
        machine: StateMachine,
        first: Iterable[Member],
        first_version: int = 0,
        *,
        configured: Iterable[PeerConfig],
    ) -> None:
        """`first`: who belonged to the cluster when the directory was made. `configured`: where
        this node looks first for peers that its own configuration names.
        """
        self._configured = {peer.name: peer.address for peer in configured}
        self._places: dict[int, PeerPlace] = {}
        self._machine = machine
        self._heard = {member.number: member for member in first}
        self._heard_version = first_version

    @property
    def version(self) -> int:
        """How new the list is."""
        return max(self._heard_version, self._machine.state.members.version)

    @property
    def all(self) -> Mapping[int, Member]:
        """Number -> member, by the newest list known."""
        state = self._machine.state
        if self._heard_version > state.members.version:
            return self._heard
        return state.members.by_number or self._heard

    def peers(self, own: int) -> dict[int, PeerPlace]:
        """Where to dial the other members: first where this node's configuration says, if it names
        them, then where the list says; those addresses were checked when they were added.
        """
        others = {number: self._place(member) for number, member in self.all.items()}
        others.pop(own, None)
        self._places = {
            number: known if known is not None and known.addresses == place.addresses else place
            for number, place in others.items()
            for known in [self._places.get(number)]
        }
        return self._places

    def _place(self, member: Member) -> PeerPlace:
        listed = parse_address(member.address) or Address("", 0)
        first = self._configured.get(member.name, listed)
        return PeerPlace(member.name, (first,) if first == listed else (first, listed))

    def hear(self, told: MemberList) -> bool:
        """A peer tells its list; whether it is newer than what was known."""
        if told.version <= self.version:
            return False
        self._heard = {member[0]: Member(*member) for member in told.members}
        self._heard_version = told.version
        return True

    def told(self) -> MemberList:
        """The list, to be told to a peer."""
        members = tuple(
            PeerMember(
                member.number,
                member.name,
                member.address,
                member.identity,
                member.voter,
                member.promote,
                member.replaces,
            )
            for member in self.all.values()
        )
        return MemberList(self.version, members)

    def named(self, name: str) -> Member | None:
        """The member of that name."""
        return next((member for member in self.all.values() if member.name == name), None)

    def name(self, number: int) -> str:
        """What a member is called, for people."""
        member = self.all.get(number)
        return f"node {number}" if member is None else member.name

    def check(self, name: str, number: int, since: int) -> None:
        """Raises NotAMember when a list of a version above `since`, when this node became a member,
        does not have it under its number.
        """
        if self.version <= since:
            return
        member = self.named(name)
        if member is None:
            raise NotAMember(
                f"{name} was removed from the cluster and takes no part any more", None
            )
        if member.number != number:
            message = f"{name} was number {number} and has been given number {member.number}"
            raise NotAMember(message, member.number)


def members_of(peers: Iterable[PeerConfig]) -> list[Member]:
    """The members of a new cluster, all of them voters, numbered as the configuration has them."""
    return [
        Member(number, peer.name, str(peer.address), NODE_PREFIX + peer.name, voter=True)
        for number, peer in enumerate(peers)
    ]
