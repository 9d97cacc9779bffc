"""How far the copies of a group are apart: hosts, and failure domains, the widest first.

`rack` names a member's domains with slashes: two members in `lon/r1` and `lon/r2` share a site. How
badly members are spread is how many pairs of them share a host, and then, for each width, how many
share a domain of that width.

Invariant: hosts count before domains, and a wider domain before narrower ones: what is worse for
one of them is worse.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Set
from itertools import combinations

from samelog.placement.table import PlacementTable

DEPTH = 3
Shared = tuple[int, ...]
"""How many pairs share a host, and for each width how many share a domain of it; less is better."""


class Domains:
    """Where the members are."""

    def __init__(self, table: PlacementTable) -> None:
        self.host = table.host_of
        self._paths = {each.number: _paths(each.rack) for each in table.members.values()}
        self._on_host: dict[str, set[int]] = {}
        for number in table.members:
            self._on_host.setdefault(self.host(number), set()).add(number)
        is_one_each = len(self._on_host) in (1, len(table.members))
        self.are_one = len(set(self._paths.values())) <= 1 and is_one_each
        """Whether there is nothing to be spread over."""
        self._least: dict[tuple[int, tuple[int, ...]], Shared] = {}

    def shared(self, member: int, others: Iterable[int]) -> Shared:
        """What a member shares with others."""
        host, mine, counts = self.host(member), self.path(member), [0] * (1 + DEPTH)
        for other in others:
            counts[0] += host == self.host(other)
            for depth, (here, there) in enumerate(zip(mine, self.path(other), strict=True), 1):
                counts[depth] += here == there
        return tuple(counts)

    def shared_within(self, members: Collection[int]) -> Shared:
        """What members share with each other."""
        counts = [0] * (1 + DEPTH)
        for one, other in combinations(members, 2):
            for width, is_shared in enumerate(self.shared(one, [other])):
                counts[width] += is_shared
        return tuple(counts)

    def choose(
        self, copies: int, among: Iterable[int], cost: Callable[[int], tuple[int, ...]]
    ) -> list[int]:
        """Members for a new group, one at most of each host: as far apart as can be, then those
        that cost least.
        """
        left, chosen = set(among), list[int]()
        while left and len(chosen) < copies:
            best = min(left, key=lambda each: (self.shared(each, chosen), *cost(each), each))
            chosen.append(best)
            left -= self.neighbours(best)
        return chosen

    def apart(self, members: Iterable[int], others: Iterable[int]) -> list[int]:
        """Those members that share no host with any of the others."""
        hosts = set(map(self.host, others))
        return [each for each in members if self.host(each) not in hosts]

    def neighbours(self, member: int) -> Set[int]:
        """The members of its host, itself included."""
        return self._on_host.get(self.host(member), {member})

    def least(self, copies: int, among: Collection[int]) -> Shared:
        """What so many members share at least."""
        key = copies, tuple(sorted(among))
        if key not in self._least:
            self._least[key] = self.shared_within(self.choose(copies, among, lambda _each: ()))
        return self._least[key]

    def path(self, member: int) -> tuple[str, ...]:
        """The domains that a member is in, the widest first."""
        return self._paths.get(member) or _paths("")


def _paths(rack: str) -> tuple[str, ...]:
    """`lon/r2` is in `lon` and in `lon/r2`; where nothing narrower is said, that is all of it."""
    parts = rack.split("/", DEPTH - 1)
    return tuple("/".join(parts[: depth + 1]) for depth in range(DEPTH))
