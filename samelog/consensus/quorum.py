"""The mathematics of majorities: the one place that knows how many voters are enough.

Invariant: any two sets of voters that these functions call enough have a voter in common.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from enum import Enum


class Tally(Enum):
    """Where a vote stands."""

    PENDING = "pending"
    WON = "won"
    LOST = "lost"


def majority(voters: int) -> int:
    """How many of so many voters are enough."""
    return voters // 2 + 1


def reached(values: Iterable[int]) -> int:
    """The highest value that a majority has reached, given each voter's value (at least one)."""
    ordered = sorted(values)
    return ordered[(len(ordered) - 1) // 2]


def tally(
    votes: Mapping[int, bool], voters: Collection[int], doubtful: Collection[int] = ()
) -> Tally:
    """The outcome of an election given the votes so far; only voters' votes count.

    A majority has to be of voters that have lost nothing: only then one of them has each committed
    entry. The others, the doubtful, count where all voters are of one mind: what none of them has
    any more, nobody has.
    """
    granted = [voter for voter in voters if votes.get(voter) is True]
    sure = sum(1 for voter in granted if voter not in doubtful)
    needed = majority(len(voters))
    if sure >= needed or len(granted) == len(voters):
        return Tally.WON
    open_votes = sum(1 for voter in voters if voter not in votes)
    can_win = sure + open_votes >= needed or len(granted) + open_votes == len(voters)
    return Tally.PENDING if can_win else Tally.LOST
