"""How far members and sites are behind, as far as one node was told. Pure.

Invariant: what a member said too long ago is not its lag any more: then the lag is not known.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from samelog.placement.sites import Sites
from samelog.wire.peer_messages import SiteLag

UNKNOWN = -1
FRESH_S = 5.0
"""Members say it once a second."""


class MemberLag(NamedTuple):
    """Of one member: both UNKNOWN if it has not said so lately; `age_s`: of its word."""

    lag_ms: int
    records: int
    age_s: float


class SiteLags:
    """What the members of sites said, the node itself included."""

    def __init__(self) -> None:
        self._said: dict[int, tuple[SiteLag, float]] = {}

    def say(self, number: int, said: SiteLag, now: float) -> None:
        """A member's own word."""
        self._said[number] = said, now

    def keep(self, members: Mapping[int, object]) -> None:
        """Forget who is in no site any more."""
        self._said = {number: said for number, said in self._said.items() if number in members}

    def of_member(self, number: int, now: float) -> MemberLag:
        """Of one member."""
        if number not in self._said:
            return MemberLag(UNKNOWN, UNKNOWN, UNKNOWN)
        said, at = self._said[number]
        age_s = now - at
        if age_s > FRESH_S:
            return MemberLag(UNKNOWN, UNKNOWN, age_s)
        return MemberLag(said.lag_ms, said.records, age_s)

    def of_site(self, name: str, sites: Sites, now: float) -> int:
        """Milliseconds that the best member of a site is behind; UNKNOWN if none says so."""
        there = [number for number, site in sites.members.items() if site == name]
        known = [lag for each in there if (lag := self.of_member(each, now).lag_ms) != UNKNOWN]
        return min(known, default=UNKNOWN)
