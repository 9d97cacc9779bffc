"""What the leader of a Raft group does next for the group's members and leadership. Pure.

Both kinds of group, that of all members and data groups, are kept by these rules; what differs is
what is wanted: the member list, or the row of the table of placement.

Invariant: leadership never goes to a member that would have to give it away at once.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum

CLOSE_ENTRIES = 256
"""A replica is caught up if it lacks at most this many entries."""


@dataclass(frozen=True, slots=True)
class Peer:
    """Another member of the group. `is_close`: it has caught up with the log and the merged bytes;
    computed only for suspects and for learners.
    """

    number: int
    votes: bool
    counts: bool
    """Whether its promises count."""
    is_sure: bool
    """Whether this life of it is sure to have forgotten nothing."""
    is_there: bool
    takes_in: bool
    is_resting: bool
    """Whether it is in maintenance."""
    is_cut_off: bool
    """Whether it has said that it hears no leader of group 0."""
    match: int
    """Up to which entry it has the log."""
    is_close: bool = False

    @property
    def may_become_voter(self) -> bool:
        """Whether the member is a learner that counts and has caught up."""
        return not self.votes and self.counts and self.is_close

    @property
    def may_lead(self) -> bool:
        """Whether the member can win an election and has no reason to yield leadership."""
        return (
            self.votes and self.counts and self.is_there and self.takes_in and not self.is_resting
        )


@dataclass(frozen=True, slots=True)
class WantedGroup:
    """Desired state of a group. `leaders`: preferred leaders, the best first; empty if any voter
    may lead. `going`: members that are about to lose their replicas. `replaced`: pairs (member, its
    replacement), where the replacement votes and the member has no replicas any more.
    """

    leaders: tuple[int, ...] = ()
    going: frozenset[int] = frozenset()
    promoted: frozenset[int] = frozenset()
    replaced: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Observed:
    """What the group's leader knows."""

    own: int
    peers: tuple[Peer, ...]
    last_index: int
    is_to_yield: bool
    """Whether any other member that is well leads better than this one: it is in maintenance, takes
    nothing in, or has bytes of a session that have rotted and were not left to others yet.
    """
    is_cut_off: bool
    """Whether this member hears no leader of group 0, so that it knows of no topic that was deleted
    and of no setting that was changed meanwhile.
    """
    is_transferring: bool
    """Whether leadership is being given away."""
    may_change: bool
    """Whether the last change of the members is over."""
    may_prefer: bool
    """Whether this member has led for long enough to be judged."""
    asked: Collection[int] = ()
    """Suspects whose readmission was proposed in this term and in their present life."""


class StepKind(Enum):
    """What a step does."""

    READMIT = "readmit"
    PROMOTE = "promote"
    REMOVE = "remove"
    TRANSFER = "transfer"


@dataclass(frozen=True, slots=True)
class KeeperStep:
    """Something to propose for a member, or leadership for it."""

    kind: StepKind
    member: int


def next_step(
    wanted: WantedGroup, observed: Observed, done: Collection[KeeperStep] = ()
) -> KeeperStep | None:
    """Return the most urgent step that was not `done` just now, or None."""
    steps = _readmit(observed), _change(wanted, observed, done), _transfer(wanted, observed, done)
    return next((step for step in steps if step is not None and step not in done), None)


def _readmit(observed: Observed) -> KeeperStep | None:
    """A suspect counts again by an entry that is committed without it, once it has everything."""
    for peer in observed.peers:
        is_suspect = not (peer.counts and peer.is_sure)
        if is_suspect and peer.is_there and peer.is_close and peer.number not in observed.asked:
            return KeeperStep(StepKind.READMIT, peer.number)
    return None


def _change(
    wanted: WantedGroup, observed: Observed, done: Collection[KeeperStep]
) -> KeeperStep | None:
    """Return the next change of the members. Replaced members leave before learners become voters,
    and a second change waits for the end of the first.
    """
    if not observed.may_change or any(each.kind in _CHANGES for each in done):
        return None
    for old, new in wanted.replaced:
        if old == observed.own:  # handing over first costs less than an election
            return KeeperStep(StepKind.TRANSFER, new)
        return KeeperStep(StepKind.REMOVE, old)
    for peer in observed.peers:
        if peer.number in wanted.promoted and peer.may_become_voter:
            return KeeperStep(StepKind.PROMOTE, peer.number)
    return None


_CHANGES = (StepKind.PROMOTE, StepKind.REMOVE)


def _transfer(
    wanted: WantedGroup, observed: Observed, done: Collection[KeeperStep]
) -> KeeperStep | None:
    if observed.is_transferring or any(each.kind is StepKind.TRANSFER for each in done):
        return None
    heir = _heir(wanted, observed)
    return None if heir is None else KeeperStep(StepKind.TRANSFER, heir)


def _able(wanted: WantedGroup, observed: Observed) -> dict[int, Peer]:
    """Return who can lead: none that is cut off from group 0, unless all are, this member too."""
    able = [each for each in observed.peers if each.may_lead and each.number not in wanted.going]
    connected = [each for each in able if not each.is_cut_off]
    found = connected if connected or not observed.is_cut_off else able
    return {each.number: each for each in found}


def _heir(wanted: WantedGroup, observed: Observed) -> int | None:
    """Return the successor for leadership; None if this member should keep it or none can lead."""
    able, yields = _able(wanted, observed), observed.is_to_yield
    if observed.is_cut_off:
        yields |= any(not each.is_cut_off for each in able.values())
    if yields:
        return max(able, key=lambda each: (each in wanted.leaders, able[each].match), default=None)
    for number in wanted.leaders if observed.may_prefer else ():
        if number == observed.own:
            return None
        if number in able and observed.last_index - able[number].match <= CLOSE_ENTRIES:
            return number
    return None
