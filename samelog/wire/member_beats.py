"""What a member says to the others for all its quiet groups, and what it makes of what they say.

Each pair of members has two ends in each direction (pair_liveness). This is all of one member's:
which group rests with whom, to whom a beat is due, and which groups have to wake, because another
member is silent, or does not rest with it.

Invariant: a group that rests here is in an end with every member that its rest depends on; one that
woke is in none.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from samelog.wire.pair_liveness import BeatReply, FollowingEnd, LeadingEnd, PairBeat

NOT_YET = float("-inf")


class Silence(NamedTuple):
    """Groups that wake because a member is silent: it leads them, or follows in them."""

    led: frozenset[int]
    followed: frozenset[int]


class Rest(NamedTuple):
    """A group rests: in which term, on which others that depends, and whether it is led here."""

    term: int
    others: tuple[int, ...]
    is_led: bool = False


class _Ends:
    """Of one other member."""

    __slots__ = ("began", "following", "leading")

    def __init__(self) -> None:
        self.leading = LeadingEnd()
        self.following = FollowingEnd()
        self.began: float | None = None
        """Since when beats go to it without a pause."""


class MemberBeats:
    """One member's."""

    def __init__(self) -> None:
        self._ends: dict[int, _Ends] = {}
        self._rests: dict[int, Rest] = {}

    # --- what happens here ------------------------------------------------------------------------

    def rests(self, group: int, rest: Rest, now: float) -> None:
        """A group rests from now on. Whoever leads it tells the others before the next beat."""
        if self._rests.get(group) == rest:
            return
        self.woke(group)
        self._rests[group] = rest
        for number in rest.others:
            ends = self._ends_of(number)
            if rest.is_led:
                ends.leading.quiet(group, rest.term)
            else:
                ends.following.quiet(group, rest.term, now)

    def woke(self, group: int) -> None:
        """A group does not rest any more."""
        rest = self._rests.pop(group, None)
        for number in () if rest is None else rest.others:
            ends = self._ends[number]
            (ends.leading if rest is not None and rest.is_led else ends.following).wake(group)

    def heard(self, group: int) -> float:
        """When the leader of a group that rests here was last heard of; minus infinity: never."""
        rest = self._rests.get(group)
        if rest is None or rest.is_led:
            return NOT_YET
        return self._ends[rest.others[0]].following.heard_at

    # --- what is said to others, and by them ------------------------------------------------------

    def due(self, now: float) -> list[tuple[int, PairBeat]]:
        """The beats to be sent now: to whom this member leads something that rests."""
        beats = []
        for number, ends in self._ends.items():
            if not ends.leading.is_needed:
                ends.began = None
                continue
            ends.began = now if ends.began is None else ends.began
            beats.append((number, ends.leading.beat()))
        return beats

    def hear(self, number: int, beat: PairBeat, now: float) -> BeatReply:
        """Another member's beat: the answer."""
        return self._ends_of(number).following.hear(beat, now)

    def answered(
        self, number: int, reply: BeatReply, now: float
    ) -> tuple[frozenset[int], frozenset[int]]:
        """The answer to a beat: which groups have to wake here, and which there."""
        woken = self._ends_of(number).leading.answered(reply, now)
        return woken.here, woken.there

    def not_led(self, number: int, groups: Iterable[int]) -> frozenset[int]:
        """A member does not lead these quietly: those that rest here by its word, to be woken."""
        following = self._ends_of(number).following
        return frozenset(group for group in groups if following.is_quiet(group))

    # --- who is silent ----------------------------------------------------------------------------

    def silent(self, now: float, patience_s: float) -> Silence:
        """What has to wake because somebody was not heard for so long."""
        led: set[int] = set()
        followed: set[int] = set()
        for ends in self._ends.values():
            led |= ends.following.silent(now, patience_s)
            answered_at = ends.leading.agreed_at
            if ends.began is not None and now - max(ends.began, answered_at) >= patience_s:
                followed |= ends.leading.reset()
                ends.began = None
        return Silence(frozenset(led), frozenset(followed))

    def lost(self, number: int) -> Silence:
        """The connections to a member are gone, or it is in another life: nothing rests with it."""
        ends = self._ends.pop(number, None)
        if ends is None:
            return Silence(frozenset(), frozenset())
        self._ends[number] = _Ends()  # what depends on it wakes now, and is taken from there
        return Silence(ends.following.reset(), ends.leading.reset())

    def _ends_of(self, number: int) -> _Ends:
        ends = self._ends.get(number)
        if ends is None:
            ends = self._ends[number] = _Ends()
        return ends
