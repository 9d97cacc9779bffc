"""Which partitions the table of placement has in each data group, and which groups it has changed.

Invariant: a group is named as changed once for each difference between the table as it was looked
at last and as it is now.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection

from samelog.placement.values import PlacedGroup, Placement

_NONE: frozenset[int] = frozenset()


class Contents:
    """As one member last saw them."""

    def __init__(self) -> None:
        self._version = -1
        self._groups: dict[int, PlacedGroup] = {}
        self._of: defaultdict[int, set[int]] = defaultdict(set)
        self.below = 0
        """The partitions that are known have numbers below this; later ones get higher numbers."""

    def of(self, group: int) -> Collection[int]:
        """The partitions of a group, by number."""
        return self._of.get(group, _NONE)

    def follow(self, table: Placement) -> set[int]:
        """Take the table over as it is now: the groups that are new, changed, or gone, or that have
        other partitions.
        """
        if table.version == self._version:
            return set()
        self._version = table.version
        known, now = self._groups, table.groups
        changed = {number for number, group in now.items() if known.get(number) is not group}
        changed |= known.keys() - now.keys()
        self._groups = dict(now)
        return changed | self._follow_partitions(table)

    def _follow_partitions(self, table: Placement) -> set[int]:
        changed = set()
        for number, placed in table.partitions.items():
            if number not in self._of[placed.group]:
                self._of[placed.group].add(number)
                self.below = max(self.below, number + 1)
                changed.add(placed.group)
        if sum(map(len, self._of.values())) == len(table.partitions):
            return changed
        for group, numbers in self._of.items():
            if gone := {number for number in numbers if table.group_of(number) != group}:
                numbers.difference_update(gone)
                changed.add(group)
        return changed
