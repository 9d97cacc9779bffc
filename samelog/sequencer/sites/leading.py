"""Where the leader of group 0 should be: in the sites that an operator named, if any. Pure.

After a loss there whoever is left leads, wherever it is: that costs a line's round trip for each
acknowledgement, and is better than none. Once a voter in these sites has been well for a while,
leadership goes back.

Invariant: it goes only from a member outside of these sites to one inside that has been well for
WELL_S without a break, so it never goes to and fro (rule sites.10).
"""

from __future__ import annotations

from collections.abc import Collection

from samelog.placement.sites import Sites

WELL_S = 60.0
OUTSIDE_PATIENCE = 2.0
"""A voter outside of these sites waits so many times as long before it campaigns."""


class LeaderPlace:
    """What the leader knows of the others; nobody else does."""

    def __init__(self) -> None:
        self._well_since: dict[int, float] = {}

    def forget(self) -> None:
        """This member does not lead."""
        self._well_since.clear()

    def look(self, own: int, sites: Sites, well: Collection[int], now: float) -> list[int]:
        """Who should lead in the place of this member. `well`: voters that are up, count, and lack
        nothing but what came in just now.
        """
        self._well_since = {each: self._well_since.get(each, now) for each in well}
        if sites.may_lead(own):
            return []
        since = self._well_since
        return [each for each in since if sites.may_lead(each) and now - since[each] >= WELL_S]


def patience(own: int, sites: Sites) -> float:
    """How many times as long as others a member waits for a leader's word."""
    return 1.0 if sites.may_lead(own) else OUTSIDE_PATIENCE
