"""Who leads each data group, and what it has opened there, as far as one member has heard.

Invariant: the leader known of a group is that of the newest term reported.
"""

from __future__ import annotations

from collections.abc import Container
from typing import NamedTuple

from samelog.runtime.flag import Flag


class Led(NamedTuple):
    """The newest term of a group that is known, who led in it, and by which replica; 0: unknown.

    `opened`: those of the group's partitions that have a lower number are open there.
    """

    term: int
    member: int
    replica: int
    opened: int = 0


class KnownLeaders:
    """As one member knows them."""

    def __init__(self) -> None:
        self._known: dict[int, Led] = {}
        self._new: set[int] = set()
        """Groups that have another one than `take` has returned last."""
        self.opening: set[int] = set()
        """Groups that are led here, and whose leader has yet to say that it has opened all."""
        self.openings = Flag()
        """Set for a moment when a leader, here or elsewhere, has opened partitions."""

    def note(self, group: int, led: Led) -> bool:
        """A member leads a group, or did. Returns whether the term is news."""
        known = self._known.get(group)
        if known is not None and (led.term, led.opened) <= (known.term, known.opened):
            return False
        self._known[group] = led
        if known is not None and led.term == known.term:
            return False
        self._new.add(group)
        return True

    def get(self, group: int) -> Led | None:
        """The newest leader of a group."""
        return self._known.get(group)

    def take(self, groups: Container[int]) -> dict[int, int]:
        """Those of these groups that have another leader than at the last call, and which."""
        found = {number for number in self._new if number in groups}
        self._new -= found
        return {number: self._known[number].member for number in found}

    def forget(self, group: int) -> None:
        """The group is gone."""
        self._known.pop(group, None)
        self._new.discard(group)
        self.opening.discard(group)
