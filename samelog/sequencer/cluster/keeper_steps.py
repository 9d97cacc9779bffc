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
"""A replica that lacks no more entries than this lacks only what came in just now."""


@dataclass(frozen=True, slots=True)
class Peer:
    """Another member of the group. `is_close`: it has the log and the merged bytes, but for what
    came in just now; known of suspects and of who is to be promoted only.
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
    match: int
    """Up to which entry it has the log."""
    is_close: bool = False


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a group is to be. `leaders`: who should lead, the best first; nobody: it does not
    matter. `going`: members that are about to lose their replicas. `replaced`: (member, who comes
    in its place), where the latter votes and the former has nothing any more.
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
    is_transferring: bool
    """Whether leadership is being given away."""
    may_change: bool
    """Whether the last change of the members is over."""
    may_prefer: bool
    """Whether this member has led for long enough to be judged."""
    asked: Collection[int] = ()
    """Suspects that it was proposed to let in, in this term and in this life of theirs."""


class StepKind(Enum):
    """What a step does."""

    READMIT = "readmit"
    PROMOTE = "promote"
    REMOVE = "remove"
    TRANSFER = "transfer"


@dataclass(frozen=True, slots=True)
class Step:
    """Something to propose for a member, or leadership for it."""

    kind: StepKind
    member: int


def next_step(wanted: Wanted, observed: Observed, done: Collection[Step] = ()) -> Step | None:
    """Return the most urgent step that was not `done` just now, or None."""
    steps = _readmit(observed), _change(wanted, observed, done), _transfer(wanted, observed, done)
    return next((step for step in steps if step is not None and step not in done), None)


def _readmit(observed: Observed) -> Step | None:
    """A suspect counts again by an entry that is committed without it, once it has everything."""
    for peer in observed.peers:
        is_suspect = not (peer.counts and peer.is_sure)
        if is_suspect and peer.is_there and peer.is_close and peer.number not in observed.asked:
            return Step(StepKind.READMIT, peer.number)
    return None


def _change(wanted: Wanted, observed: Observed, done: Collection[Step]) -> Step | None:
    """One change of the members at a time; who is replaced goes before others come."""
    if not observed.may_change or any(each.kind in _CHANGES for each in done):
        return None
    for old, new in wanted.replaced:
        if old == observed.own:  # handing over first costs less than an election
            return Step(StepKind.TRANSFER, new)
        return Step(StepKind.REMOVE, old)
    for peer in observed.peers:
        is_ready = not peer.votes and peer.counts and peer.is_close
        if peer.number in wanted.promoted and is_ready:
            return Step(StepKind.PROMOTE, peer.number)
    return None


_CHANGES = (StepKind.PROMOTE, StepKind.REMOVE)


def _transfer(wanted: Wanted, observed: Observed, done: Collection[Step]) -> Step | None:
    if observed.is_transferring or any(each.kind is StepKind.TRANSFER for each in done):
        return None
    heir = _heir(wanted, observed)
    return None if heir is None else Step(StepKind.TRANSFER, heir)


def _heir(wanted: Wanted, observed: Observed) -> int | None:
    """Return who should lead instead of this member; None if nobody should, or can."""
    able = {
        each.number: each
        for each in observed.peers
        if each.votes
        and each.counts
        and each.is_there
        and each.takes_in
        and not each.is_resting
        and each.number not in wanted.going
    }
    if observed.is_to_yield:
        return max(able, key=lambda each: (each in wanted.leaders, able[each].match), default=None)
    for number in wanted.leaders if observed.may_prefer else ():
        if number == observed.own:
            return None
        if number in able and observed.last_index - able[number].match <= CLOSE_ENTRIES:
            return number
    return None
