"""What the next round of archiving takes, and why: a function of what is there, policy and time.

Segments go oldest first within a partition; across partitions, the one that was rolled first goes
first. Whose time of rolling is not known (it was rolled by an older version) never goes for its
age.

Invariant: only sealed segments that a majority has merged durably go, and of a partition only a
prefix; nothing goes that no rule takes, or that a consumer group holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from samelog.archiver.policy import Rules

DELETED, TIME, SIZE, LIMIT, DISK = "deleted", "time", "retention.bytes", "limit", "disk"


class RolledSegment(NamedTuple):
    """A segment that will never grow. `rolled_ms`: when it was rolled; None: not known."""

    base: int
    next_offset: int
    size: int
    rolled_ms: int | None


@dataclass(frozen=True, slots=True)
class Hold:
    """Records from `offset` on were not committed by a group that holds them; within bounds."""

    offset: int
    max_ms: int | None = None
    max_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class PartitionFacts:
    """One partition. `sealed` in order; `merged`: a majority has merged durably below this."""

    partition: int
    name: str
    sealed: Sequence[RolledSegment]
    growing_bytes: int
    merged: int
    rules: Rules
    hold: Hold | None = None
    log_start: int = 0
    """Records below were deleted: nobody reads them any more."""


class ArchiveProposal(NamedTuple):
    """Archive the oldest `files` segments of a partition: all below offset `segment`."""

    partition: int
    name: str
    first: int
    segment: int
    files: int
    size: int
    reason: str


@dataclass(slots=True)
class RoundPlan:
    """What goes, and the names of partitions of which more would go if no group held it."""

    proposals: list[ArchiveProposal] = field(default_factory=list)
    held: list[str] = field(default_factory=list)


class _Selection:
    """How much of one partition goes so far."""

    def __init__(self, facts: PartitionFacts, now_ms: int) -> None:
        self.facts = facts
        self.count = 0
        self.reasons: dict[str, None] = {}
        self.is_held = False
        self.freed = 0
        self.left = facts.growing_bytes + sum(segment.size for segment in facts.sealed)
        self._now_ms = now_ms

    def next(self) -> RolledSegment | None:
        """The next segment that may be archived; None if there is none."""
        if self.count == len(self.facts.sealed):
            return None
        segment = self.facts.sealed[self.count]
        return segment if segment.next_offset <= self.facts.merged else None

    def add_next(self, reason: str) -> bool:
        """Add the next segment, unless it is held. Returns whether it was added."""
        segment = self.next()
        if segment is None or self._holds(segment):
            return False
        self.count += 1
        self.left -= segment.size
        self.freed += segment.size
        self.reasons[reason] = None
        return True

    def _holds(self, segment: RolledSegment) -> bool:
        hold, behind = self.facts.hold, segment.next_offset
        if hold is None or behind <= max(hold.offset, self.facts.log_start):
            return False
        age_ms = 0 if segment.rolled_ms is None else self._now_ms - segment.rolled_ms
        is_old = hold.max_ms is not None and age_ms >= hold.max_ms
        is_large = hold.max_bytes is not None and self.left > hold.max_bytes
        self.is_held = self.is_held or not (is_old or is_large)
        return not (is_old or is_large)

    def age(self) -> tuple[int, int]:
        """The sort key of the next segment, the oldest first."""
        segment = self.next()
        rolled_ms = None if segment is None else segment.rolled_ms
        return -1 if rolled_ms is None else rolled_ms, self.facts.partition

    def proposal(self) -> ArchiveProposal:
        """The proposal to archive the selected segments."""
        facts, reason = self.facts, "+".join(self.reasons)
        ends = facts.sealed[0].base, facts.sealed[self.count - 1].next_offset
        return ArchiveProposal(facts.partition, facts.name, *ends, self.count, self.freed, reason)


def plan_archiving(
    partitions: Sequence[PartitionFacts], *, limit: int | None, pressure: int, now_ms: int
) -> RoundPlan:
    """What the rules take. `limit`: bytes of all partitions together that count; `pressure`: bytes
    that a majority of the disks have too many.
    """
    selections = [_Selection(facts, now_ms) for facts in partitions]
    for selection in selections:
        _deleted(selection)
        _by_time(selection, now_ms)
        _by_size(selection)
    if limit is not None:
        _by_limit([each for each in selections if each.facts.rules.counts], limit)
    freed = sum(selection.freed for selection in selections)
    spared = [selection for selection in selections if not selection.facts.rules.for_ever]
    _oldest(spared, DISK, pressure - freed)
    return _planned(selections)


def _by_limit(selections: Sequence[_Selection], limit: int) -> None:
    _oldest(selections, LIMIT, sum(selection.left for selection in selections) - limit)


def _planned(selections: Sequence[_Selection]) -> RoundPlan:
    return RoundPlan(
        [selection.proposal() for selection in selections if selection.count],
        [selection.facts.name for selection in selections if selection.is_held],
    )


def _deleted(selection: _Selection) -> None:
    while (segment := selection.next()) and segment.next_offset <= selection.facts.log_start:
        selection.add_next(DELETED)


def _by_time(selection: _Selection, now_ms: int) -> None:
    time_ms = selection.facts.rules.time_ms
    while time_ms is not None and (segment := selection.next()) is not None:
        is_old = segment.rolled_ms is not None and now_ms - segment.rolled_ms >= time_ms
        if not is_old or not selection.add_next(TIME):
            return


def _by_size(selection: _Selection) -> None:
    """As Kafka does, keep at least `size` bytes."""
    size = selection.facts.rules.size
    while size is not None and (segment := selection.next()) is not None:
        if selection.left - segment.size < size or not selection.add_next(SIZE):
            return


def _oldest(selections: Sequence[_Selection], reason: str, excess: int) -> None:
    """Add the segments that were rolled first, of any partition, until `excess` bytes are freed."""
    queue = [
        (selection.age(), number) for number, selection in enumerate(selections) if selection.next()
    ]
    heapify(queue)
    while queue and excess > 0:
        number = heappop(queue)[1]
        selection = selections[number]
        before = selection.left
        if selection.add_next(reason) and selection.next() is not None:
            heappush(queue, (selection.age(), number))
        excess -= before - selection.left


def majority_pressure(disks: Sequence[tuple[int, int]], voters: int, percent: int) -> int:
    """The bytes that a majority of the voters' disks have above `percent`; 0 unless that many were
    heard of. `disks`: (used, total) bytes of each.
    """
    excess = sorted((used - total * percent // 100 for used, total in disks), reverse=True)
    needed = voters // 2 + 1
    return max(0, excess[needed - 1]) if len(excess) >= needed else 0
