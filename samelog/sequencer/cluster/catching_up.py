"""How far a replica is that catches up, in the order in which it does: it takes writes at once, and
then copies what was merged before.

Invariant: a replica that lacks anything that was known to be merged is not said to be live.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from samelog.sequencer.state.tables.partitions import Partition

LIVE = ""
PERCENT = 100


class History(NamedTuple):
    """Records that a replica has, of those that it shall have."""

    here: int
    all: int

    @property
    def ratio(self) -> float:
        """1: nothing is lacking."""
        return self.here / self.all if self.all else 1.0

    @property
    def percent(self) -> int:
        """Rounded down, so that 100 is whole."""
        return self.here * PERCENT // self.all if self.all else PERCENT


def history_of(known: Mapping[int, Partition], ends: Mapping[int, int]) -> History:
    """`ends`: where the merged logs end here; one that is not here is not open, as nothing of it
    has come.
    """
    here = whole = 0
    for number, partition in known.items():
        first = partition.log_start
        whole += partition.next_offset - first
        here += min(max(ends.get(number, first), first), partition.next_offset) - first
    return History(here, whole)


def phase(history: History, *, takes_writes: bool) -> str:
    """What is still to come, for people; empty: nothing is."""
    if not takes_writes:
        return "writes"
    return LIVE if history.here >= history.all else f"history {history.percent} %"
