"""Moves that leave no member with two groups more than another, and none that leads two more.

What one member has too many of goes to who has least, through others where it cannot go straight:
the shortest such way is found breadth first. Each way makes the sum of squares smaller and puts no
group's copies nearer to each other, so moves never go back and forth.

Invariant: where any moves can even two members out, some are found.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Set
from dataclasses import dataclass

from samelog.placement.domains import Domains
from samelog.placement.holdings import Holdings
from samelog.placement.table import PlacementTable


@dataclass(frozen=True, slots=True)
class GroupMove:
    """A group goes from one member to another."""

    group: int
    loses: int
    gets: int


Find = Callable[[int, int, Collection[int]], int | None]
"""A group that may go from the first member to the second, and is none of some."""


def _way(counts: dict[int, int], find: Find, stuck: set[int]) -> list[GroupMove]:
    """The moves that even out two members, none if there are none. Who is stuck stays so while
    groups only leave those that have most, and move once: nobody whom one of them reaches is asked
    again.
    """
    order = sorted(counts, key=lambda each: (-counts[each], each))
    for fullest in order:
        if counts[fullest] - counts[order[-1]] < 2:
            break
        if fullest not in stuck and (way := _way_from(fullest, counts, order, find, stuck)):
            return way
    return []


def _way_from(
    fullest: int, counts: dict[int, int], order: list[int], find: Find, stuck: set[int]
) -> list[GroupMove]:
    """Breadth first; the emptiest are tried first."""
    came: dict[int, GroupMove] = {}
    waiting = deque([fullest])
    while waiting:
        here = waiting.popleft()
        used = [move.group for move in _traced(came, fullest, here)]
        for there in reversed(order):
            if there == fullest or there in came:
                continue
            group = find(here, there, used)
            if group is None:
                continue
            came[there] = GroupMove(group, here, there)
            if counts[fullest] - counts[there] >= 2:
                return _traced(came, fullest, there)
            waiting.append(there)
    stuck.update((fullest, *came))
    return []


def _traced(came: dict[int, GroupMove], first: int, last: int) -> list[GroupMove]:
    """The way, its end first: who gets has given already."""
    moves = []
    while last != first:
        moves.append(came[last])
        last = came[last].loses
    return moves


class Evening:
    """Looks for moves among groups that stand still otherwise."""

    def __init__(
        self,
        table: PlacementTable,
        holdings: Holdings,
        domains: Domains,
        members: Collection[int],
        may_move: Callable[[int], bool],
    ) -> None:
        self._table = table
        self._holdings = holdings
        self._domains = domains
        self._members = members
        self._may_move = may_move
        self._taken: set[int] = set()
        self._allowed: dict[tuple[int, tuple[str, ...]], set[int]] = {}
        """(member, where another is) -> groups that may go from the one to there."""

    def copies(self) -> list[GroupMove]:
        """Replicas that should move, one at most of each group; they are planned."""
        found, stuck = [], set[int]()
        while moves := _way(self._counts(), self._copy_to_move, stuck):
            for move in moves:
                self._taken.add(move.group)
                self._holdings.plan(self._table.groups[move.group], move.gets, move.loses)
            found += moves
        return found

    def leaders(self) -> list[GroupMove]:
        """Groups that another of their members should lead; each once."""
        found, stuck = [], set[int]()
        led = {each: set(self._holdings.led.get(each, ())) for each in self._members}
        may_lead = self._table.placement.sites.may_lead

        def find(here: int, there: int, used: Collection[int]) -> int | None:
            if not may_lead(there):
                return None
            both = led[here] & self._holdings.held.get(there, set())
            return min((each for each in both - set(used) if self._is_free(each)), default=None)

        while moves := _way({each: len(led[each]) for each in led}, find, stuck):
            for move in moves:
                self._taken.add(move.group)
                led[move.loses].discard(move.group)
                led[move.gets].add(move.group)
            found += moves
        return found

    def _counts(self) -> dict[int, int]:
        return {each: self._holdings.count(each) for each in self._members}

    def _is_free(self, group: int) -> bool:
        return group not in self._taken and self._may_move(group)

    def _copy_to_move(self, here: int, there: int, used: Collection[int]) -> int | None:
        """One that brings no copies nearer to each other, and is not on the host already."""
        place = here, self._domains.path(there)
        if place not in self._allowed:
            self._allowed[place] = {
                each
                for each in self._holdings.held.get(here, ())
                if self._is_free(each) and self._is_as_far(each, here, there)
            }
        held = self._held_beside(here, there)
        return min(self._allowed[place] - held - self._taken - set(used), default=None)

    def _held_beside(self, loses: int, gets: int) -> Set[int]:
        """Groups of which the host of `gets` would have two copies if one came from `loses`."""
        held, others = self._holdings.held, self._domains.neighbours(gets) - {gets, loses}
        found = held.get(gets, set())
        return found.union(*[held.get(each, ()) for each in others]) if others else found

    def _is_as_far(self, group: int, here: int, there: int) -> bool:
        rest = [each for each in self._holdings.members[group] if each != here]
        return self._domains.shared(there, rest)[1:] <= self._domains.shared(here, rest)[1:]
