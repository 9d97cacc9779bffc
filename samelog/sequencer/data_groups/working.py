"""Which replicas of data groups are at work, and when each of the others is looked at again.

A replica begins to work when something happens to it, and rests again once its core rests and
nothing was under way for a while. Only those at work are told that time passes: what the others
cost does not depend on how many they are. Whoever rests and has logs is looked at now and then, for
what only time brings: files that were taken away, runs that expire, what is to be archived.

Invariant: a replica whose core does not rest is at work; one that rests has nothing under way.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Generic, Protocol, TypeVar

LINGER_S = 5.0
"""What comes in bursts does not begin and end its tasks each time."""
LOOK_S = 60.0


class Worker(Protocol):
    """One replica."""

    @property
    def number(self) -> int:
        """Of its group."""

    @property
    def is_busy(self) -> bool:
        """Whether anything is under way."""

    @property
    def due_at(self) -> float | None:
        """When it has to be looked at though nothing happens; None: never."""

    def work(self) -> None:
        """Run what there is work for."""

    def tidy(self) -> bool:
        """Let go of what is not needed at rest: False if something is under way because of that."""

    def rest(self) -> None:
        """Run nothing."""


W = TypeVar("W", bound=Worker)


class Working(Generic[W]):
    """Of one member."""

    def __init__(self) -> None:
        self._since: dict[int, float] = {}
        """Since when nothing is under way in groups that are at work."""
        self._at_work: dict[int, W] = {}
        self._looks: list[tuple[float, int, W]] = []
        self._look_at: dict[int, float] = {}
        """Group that rests -> when it is looked at; what else `_looks` has is out of date."""

    def __iter__(self) -> Iterator[W]:
        """Those at work now."""
        return iter(tuple(self._at_work.values()))

    def __contains__(self, group: object) -> bool:
        return group in self._at_work

    def begin(self, replica: W, now: float) -> None:
        """It has something to do, or may have."""
        self._since[replica.number] = now
        self._at_work[replica.number] = replica
        self._look_at.pop(replica.number, None)
        replica.work()

    def end(self, group: int) -> None:
        """The replica is gone."""
        for known in (self._since, self._at_work, self._look_at):
            known.pop(group, None)

    def look(self, now: float) -> None:
        """Let those rest that have nothing to do, and look at those that it is time for."""
        while self._looks and self._looks[0][0] <= now:
            at, group, replica = heapq.heappop(self._looks)
            if self._look_at.get(group) == at:
                self.begin(replica, now)
        for replica in self:
            self._let_rest(replica, now)

    def _let_rest(self, replica: W, now: float) -> None:
        if replica.is_busy:
            self._since[replica.number] = now
            return
        if now - self._since[replica.number] < LINGER_S:
            return
        if not replica.tidy():
            return
        self.end(replica.number)
        replica.rest()
        if (at := replica.due_at) is not None:
            at = max(at, now)
            self._look_at[replica.number] = at
            heapq.heappush(self._looks, (at, replica.number, replica))
