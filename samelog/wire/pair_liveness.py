"""Two members of a cluster tell each other that they live, for all groups that they share at once.

A group in which nothing happens is *quiet*: its leader sends no heartbeats to a follower, and the
follower has no timer of its own. For that the leader tells it (group, term) once, and from then on
the members exchange one beat, however many groups are quiet between them: a digest of all (group,
term) that the sender leads and that are quiet. Who follows the same in the same terms agrees, and
each quiet group counts as if its leader had been heard, and its follower. A digest that differs is
answered with the list, and whatever differs is woken: it has heartbeats of its own again, until its
leader makes it quiet again. So a leader that was deposed, and a follower that stepped down, halted
or restarted, are found within a beat, though the member that they are part of lives.

This decides only whom to suspect. Votes, commits and reads are proved by the group's own messages.

Invariant: a group counts as heard at either end only if at the moment that was said the one led it
and the other followed it in one term. What both ends have is digested, never what exists elsewhere:
a beat has the same size, and costs the same, for one group as for thousands.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import NamedTuple

_MODULUS = 1 << 128

GroupTerm = tuple[int, int]
"""A group, and a term in it."""


class PairBeat(NamedTuple):
    """I live, and lead what has this digest, as far as it is quiet between us."""

    number: int
    digest: int


class BeatReply(NamedTuple):
    """Of the beat `number`: I follow the same. Or not: then `followed` is what I follow."""

    number: int
    agrees: bool
    followed: tuple[GroupTerm, ...] = ()


class Woken(NamedTuple):
    """What has to have heartbeats of its own again, here and at the other end."""

    here: frozenset[int]
    there: frozenset[int]


NOTHING = Woken(frozenset(), frozenset())


class TermSet:
    """Groups with their terms, and a digest of them that costs the same for any number."""

    def __init__(self) -> None:
        self.terms: dict[int, int] = {}
        self.digest = 0

    def put(self, group: int, term: int) -> None:
        """The group is in, in this term."""
        self.remove(group)
        self.terms[group] = term
        self.digest = (self.digest + _digest(group, term)) % _MODULUS

    def remove(self, group: int) -> None:
        """The group is not in."""
        term = self.terms.pop(group, None)
        if term is not None:
            self.digest = (self.digest - _digest(group, term)) % _MODULUS


def _digest(group: int, term: int) -> int:
    return int.from_bytes(blake2b(b"%d %d" % (group, term), digest_size=16).digest(), "big")


class LeadingEnd:
    """What one member knows of another one that follows it."""

    def __init__(self) -> None:
        self._led = TermSet()
        self._since: dict[int, int] = {}
        """The first beat that covers a quiet group."""
        self._number = 0
        self._agreed = 0
        """The newest beat that was agreed to."""
        self.agreed_at = float("-inf")
        """When that was heard."""

    @property
    def is_needed(self) -> bool:
        """Whether anything is quiet."""
        return bool(self._since)

    def quiet(self, group: int, term: int) -> None:
        """The group is quiet from now on; the follower is told before the next beat."""
        self._led.put(group, term)
        self._since[group] = self._number + 1

    def wake(self, group: int) -> None:
        """The group has heartbeats of its own again, or is not led here any more."""
        self._led.remove(group)
        self._since.pop(group, None)

    def is_quiet(self, group: int) -> bool:
        """Whether beats speak for the group."""
        return group in self._since

    def beat(self) -> PairBeat:
        """The next beat, to be sent behind all that was said before."""
        self._number += 1
        return PairBeat(self._number, self._led.digest)

    def heard(self, group: int) -> float:
        """When the follower last agreed that it follows a quiet group; minus infinity: never."""
        since = self._since.get(group)
        return self.agreed_at if since is not None and since <= self._agreed else float("-inf")

    def answered(self, reply: BeatReply, now: float) -> Woken:
        """The follower's word; what to wake. Older words say nothing."""
        if not self._agreed < reply.number <= self._number:
            return NOTHING
        if reply.agrees:
            self._agreed, self.agreed_at = reply.number, now
            return NOTHING
        followed = dict(reply.followed)
        covered = {group for group, since in self._since.items() if since <= reply.number}
        here = {group for group in covered if followed.get(group) != self._led.terms[group]}
        for group in here:
            self.wake(group)
        return Woken(frozenset(here), frozenset(followed.keys() - self._since.keys()))

    def reset(self) -> frozenset[int]:
        """The connection, or the life of the other member, is another one: all are awake."""
        woken = frozenset(self._since)
        self._led, self._since = TermSet(), {}
        self._agreed, self.agreed_at = self._number, float("-inf")
        return woken


class FollowingEnd:
    """What one member knows of another one that leads it."""

    def __init__(self) -> None:
        self._followed = TermSet()
        self.heard_at = float("-inf")
        """When the leader was heard to lead what is followed here."""

    def quiet(self, group: int, term: int, now: float) -> None:
        """The leader has said that the group is quiet, and it is followed here in this term. That
        speaks for no other group.
        """
        if not self._followed.terms:
            self.heard_at = now
        self._followed.put(group, term)

    def wake(self, group: int) -> None:
        """The group has a timer of its own again, or is not followed here any more."""
        self._followed.remove(group)

    def is_quiet(self, group: int) -> bool:
        """Whether beats speak for the group."""
        return group in self._followed.terms

    def hear(self, beat: PairBeat, now: float) -> BeatReply:
        """The leader lives; whether it leads what is followed here."""
        if beat.digest != self._followed.digest:
            return BeatReply(
                beat.number, agrees=False, followed=tuple(self._followed.terms.items())
            )
        self.heard_at = now
        return BeatReply(beat.number, agrees=True)

    def silent(self, now: float, patience_s: float) -> frozenset[int]:
        """Groups whose leader was not heard for so long: they are awake now, and suspect it."""
        if now - self.heard_at < patience_s:
            return frozenset()
        return self.reset()

    def woken(self, groups: Iterable[int]) -> None:
        """The leader does not make these quiet: they have timers of their own again."""
        for group in groups:
            self.wake(group)

    def reset(self) -> frozenset[int]:
        """The connection, or the life of the other member, is another one: all are awake."""
        woken = frozenset(self._followed.terms)
        self._followed = TermSet()
        return woken
