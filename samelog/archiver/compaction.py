"""Commands of compaction, and what they change in the replicated state.

The leader orders what is compacted: closed segments from the first one on, below the last stable
offset, and up to where tombstones may go. Every node does it by itself and says what it wrote. Once
a majority of those that voted when it was ordered wrote the same, that is the log, for all.

A tombstone may go only if it was there in a compaction that is `delete.retention.ms` old: whoever
began to read before that one and saw an older value has had that long to meet the tombstone.

Invariant: one compaction of a partition is under way at a time, and nothing is archived meanwhile,
but what gives one up that does not come to its end: on full disks archiving must go on. Its outcome
names every segment from the first one to its end, and follows from what a majority has.
"""

from __future__ import annotations

from typing import ClassVar, Protocol

import msgspec

from samelog.format.compaction import CompactedSegment, replaced
from samelog.format.numbers import Unsigned32

PASSES_REMEMBERED = 64
SEED_BYTES = 16
GIVEN_UP_AFTER_MS = 3_600_000
"""An order that is older does not hold up archiving any more."""


class _Command(
    msgspec.Struct, frozen=True, array_like=True, tag_field="t", forbid_unknown_fields=True
):
    """A command of the replicated state machine."""

    needs: ClassVar[int] = 1


class CompactCommand(_Command, frozen=True, tag=70):
    """Compact a partition from its first segment to offset `stop`, where a segment begins. `number`
    follows that of its last compaction. `seed`, of 16 bytes, is what keys are hashed with. `voters`
    are those whose word counts. A newer one takes the place of one under way.
    """

    partition: Unsigned32
    number: Unsigned32
    start: int
    stop: int
    tombstones_below: int
    segment_bytes: int
    seed: bytes
    voters: list[Unsigned32]
    at_ms: int


class RewrittenCommand(_Command, frozen=True, tag=71):
    """A member wrote these segments in the compaction `number` of a partition."""

    partition: Unsigned32
    number: Unsigned32
    member: Unsigned32
    segments: list[CompactedSegment]
    at_ms: int


CompactionCommand = CompactCommand | RewrittenCommand


class Pass(msgspec.Struct, frozen=True, array_like=True):
    """A compaction that is done: up to where, and when."""

    stop: int
    at_ms: int


class Compactions(msgspec.Struct, omit_defaults=True):
    """Of one partition."""

    number: Unsigned32 = 0
    """Of the last one that was ordered."""
    order: CompactCommand | None = None
    """The one that is under way."""
    written: dict[Unsigned32, list[CompactedSegment]] = {}
    """Member -> what it wrote in that one."""
    segments: list[CompactedSegment] = []
    """The compacted segments of the log, in order."""
    passes: list[Pass] = []
    """The newest ones that are done, in order."""

    @property
    def clean(self) -> int:
        """Below this offset everything was compacted once."""
        return self.passes[-1].stop if self.passes else 0

    @property
    def newest(self) -> int:
        """The newest compaction of which the log has segments; 0: it has none."""
        return max((each.number for each in self.segments), default=0)

    def tombstones_below(self, before_ms: int) -> int:
        """Up to where a compaction went that was done by then."""
        return max((each.stop for each in self.passes if each.at_ms <= before_ms), default=0)

    def problem_with(self, files: list[tuple[int, int, int]], now_ms: int) -> str | None:
        """Why these (base, next offset, size) cannot be archived now, if so."""
        if self.order is not None and now_ms - self.order.at_ms < GIVEN_UP_AFTER_MS:
            return "the partition is being compacted"
        stop = max((each[1] for each in files), default=0)
        compacted = {(e.base, e.stop, e.sealed.size) for e in self.segments if e.base < stop}
        return "it was compacted meanwhile" if compacted - set(files) else None

    def keep(self, segments: list[CompactedSegment]) -> None:
        """These are all there are: who had others is lost, and so is an order under way."""
        self.give_up_order()
        self.segments = segments

    def give_up_order(self) -> None:
        """A compaction that is under way is not carried out."""
        self.order, self.written = None, {}

    def forget_below(self, base: int) -> None:
        """Segments below are archived; an order that begins there is given up."""
        self.give_up_order()
        self.segments = [each for each in self.segments if each.base >= base]


class HasCompactions(msgspec.Struct, kw_only=True):
    """What a partition's state has besides."""

    compacted: Compactions | None = None
    """None: it never was, as most, which cost no memory then."""

    @property
    def compactions(self) -> Compactions:
        """What was ordered and done."""
        return Compactions() if self.compacted is None else self.compacted


class CompactedPartition(Protocol):
    """What the replicated state has of a partition, as far as compaction changes it."""

    next_offset: int
    start_segment: int
    rolls: tuple[tuple[int, int], ...]
    compacted: Compactions | None

    @property
    def compactions(self) -> Compactions: ...


def apply_order(partition: CompactedPartition, command: CompactCommand) -> str | None:
    """Begin a compaction; why that cannot be, if so."""
    known = partition.compactions
    if known.order == command:
        return None  # proposed twice, because its fate was not known
    is_next = command.number == known.number + 1
    is_there = partition.start_segment == command.start < command.stop <= partition.next_offset
    begins = any(base == command.stop for base, _ in partition.rolls)
    if not is_next or not is_there or not begins or len(command.seed) != SEED_BYTES:
        return f"compaction {command.number} of {command.start} to {command.stop}"
    known.number, known.order, known.written = command.number, command, {}
    partition.compacted = known
    return None


def apply_rewritten(partition: CompactedPartition, command: RewrittenCommand) -> str | None:
    """A member says what it wrote; why that cannot be, if so. It counts once a majority wrote the
    same.
    """
    known, order = partition.compactions, partition.compactions.order
    if order is None or order.number != command.number:
        return None  # it is decided already
    if not _covers(command.segments, order):
        return f"not the segments from {order.start} to {order.stop}"
    known.written[command.member] = command.segments
    votes = [known.written.get(voter) for voter in order.voters]
    if 2 * votes.count(command.segments) > len(order.voters):
        _finish(partition, order, command)
    return None


def _finish(
    partition: CompactedPartition, order: CompactCommand, command: RewrittenCommand
) -> None:
    known = partition.compactions
    known.segments = replaced(known.segments, command.segments)
    known.order, known.written = None, {}
    known.passes = [*known.passes, Pass(order.stop, max(order.at_ms, command.at_ms))]
    del known.passes[:-PASSES_REMEMBERED]
    bases = {each.base for each in command.segments}
    partition.rolls = tuple(
        roll for roll in partition.rolls if roll[0] >= order.stop or roll[0] in bases
    )


def _covers(segments: list[CompactedSegment], order: CompactCommand) -> bool:
    at = order.start
    for each in segments:
        if each.base != at or each.stop <= at or each.number != order.number:
            return False
        at = each.stop
    return at == order.stop
