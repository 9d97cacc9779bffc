"""How much of what a member may keep is one group's: the policy counts for a member, and the leader
of each group plans for its own logs only. Pure.

A group has the share of the bound that it has of the bytes. Members have different groups, so what
counts is the fullest of those that have a copy. Members of one host share the bound, so each counts
its bytes as often as there are members on its host.

Invariant: what all groups of a member plan together is what it has too much, and not more; a group
that is alone has all of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class GroupBytes(NamedTuple):
    """Bytes of a group's merged logs on this member: `limited` of topics that are part of the
    limit, `spared` of those that are not kept for ever.
    """

    limited: int
    spared: int


class LogShares:
    """Of all groups of one member that have logs here."""

    def __init__(self, members: int = 1) -> None:
        """`members`: how many members share the host, and the limit."""
        self._members = members
        self._held: dict[int, GroupBytes] = {}
        self._pending: dict[int, int] = {}

    def note(self, group: int, held: GroupBytes) -> None:
        """A group has so much now."""
        self._held[group] = held

    def forget(self, group: int) -> None:
        """A group has no replica here any more."""
        self._held.pop(group, None)
        self._pending.pop(group, None)

    def note_pending(self, group: int, size: int) -> None:
        """So many bytes of a group are archived and not truncated yet."""
        self._pending[group] = size

    @property
    def pending_bytes(self) -> int:
        """Of all groups."""
        return sum(self._pending.values())

    @property
    def is_shared(self) -> bool:
        """Whether several groups have logs here, or other members of the host have their share."""
        return len(self._held) > 1 or self._members > 1

    @property
    def limited(self) -> int:
        """Bytes of all groups that are part of the limit, once for each member of the host."""
        return self._members * sum(each.limited for each in self._held.values())

    def limit_of(self, group: int, limit: int, others: Iterable[int]) -> int:
        """What a group may keep of a limit, with `others`: `limited` of the other members that have
        the group, by their own word.
        """
        fullest = max(self.limited, *others, 0)
        if fullest <= limit:
            return limit
        return limit * self._held[group].limited // fullest

    def pressure_of(self, group: int, pressure: int) -> int:
        """What a group is to free of that by which the disk is too full."""
        own, all_of_it = self._held[group].spared, sum(each.spared for each in self._held.values())
        return pressure if own == all_of_it else -(-pressure * own // all_of_it)
