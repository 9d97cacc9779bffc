"""Commands of compaction, and what they change in the replicated state.

The leader orders what is compacted: closed segments from the first one on, below the last stable
offset, and up to where tombstones may go. Every node does it by itself and says what it wrote. Once
a majority of those that voted when it was ordered wrote the same, that is the log, for all.

A tombstone may go only if it was there in a compaction that is `delete.retention.ms` old: whoever
began to read before that one and saw an older value has had that long to meet the tombstone.

Invariant: one compaction of a partition is under way at a time, and nothing is archived meanwhile.
Its outcome names every segment from the first one to its end, and follows from what a majority has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from samelog.format.compaction import CompactedSegment, replaced
from samelog.format.numbers import Unsigned32
from samelog.sequencer.levels import COMPACTION
from samelog.sequencer.state.command_base import Command

if TYPE_CHECKING:
    from samelog.sequencer.state.types import State

PASSES_REMEMBERED = 64
SEED_BYTES = 16
Problem = tuple[str, str] | None


class CompactCommand(Command, frozen=True, tag=70):
    """Compact a partition from its first segment to offset `stop`, where a segment begins. `number`
    follows that of its last compaction. `seed`, of 16 bytes, is what keys are hashed with. `voters`
    are those whose word counts. A newer one takes the place of one under way.
    """

    needs: ClassVar[int] = COMPACTION
    partition: Unsigned32
    number: Unsigned32
    start: int
    stop: int
    tombstones_below: int
    segment_bytes: int
    seed: bytes
    voters: list[Unsigned32]
    at_ms: int


class RewrittenCommand(Command, frozen=True, tag=71):
    """A member wrote these segments in the compaction `number` of a partition."""

    needs: ClassVar[int] = COMPACTION
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


class Compactions(msgspec.Struct):
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

    def tombstones_below(self, before_ms: int) -> int:
        """Up to where a compaction went that was done by then."""
        return max((each.stop for each in self.passes if each.at_ms <= before_ms), default=0)

    def forget_below(self, base: int) -> None:
        """Segments below are archived."""
        self.segments = [each for each in self.segments if each.base >= base]


def _compact(state: State, command: CompactCommand) -> Problem:
    partition = state.partitions.get(command.partition)
    if partition is None:
        return "UNKNOWN_TOPIC", f"partition {command.partition} is gone"
    known = partition.compactions
    if known.order == command:
        return None
    is_next = command.number == known.number + 1
    is_there = partition.start_segment == command.start < command.stop <= partition.next_offset
    begins = any(base == command.stop for base, _ in partition.rolls)
    if not is_next or not is_there or not begins or len(command.seed) != SEED_BYTES:
        return "PRECONDITION", f"compaction {command.number} of {command.start} to {command.stop}"
    known.number, known.order, known.written = command.number, command, {}
    return None


def _rewritten(state: State, command: RewrittenCommand) -> Problem:
    partition = state.partitions.get(command.partition)
    if partition is None:
        return "UNKNOWN_TOPIC", f"partition {command.partition} is gone"
    known, order = partition.compactions, partition.compactions.order
    if order is None or order.number != command.number:
        return None  # it is decided already
    if not _covers(command.segments, order):
        return "PRECONDITION", f"not the segments from {order.start} to {order.stop}"
    known.written[command.member] = command.segments
    votes = [known.written.get(voter) for voter in order.voters]
    if 2 * votes.count(command.segments) <= len(order.voters):
        return None
    _finish(partition, order, command)
    return None


def _finish(partition: Any, order: CompactCommand, command: RewrittenCommand) -> None:
    known = partition.compactions
    known.segments = replaced(known.segments, command.segments)
    known.order, known.written = None, {}
    known.passes = [*known.passes, Pass(order.stop, max(order.at_ms, command.at_ms))]
    del known.passes[:-PASSES_REMEMBERED]
    bases = {each.base for each in command.segments}
    partition.rolls = [
        roll for roll in partition.rolls if roll[0] >= order.stop or roll[0] in bases
    ]


def _covers(segments: list[CompactedSegment], order: CompactCommand) -> bool:
    at = order.start
    for each in segments:
        if each.base != at or each.stop <= at or each.number != order.number:
            return False
        at = each.stop
    return at == order.stop


COMPACTION_CHANGES: Mapping[type, Callable[[Any, Any], Problem]] = {
    CompactCommand: _compact,
    RewrittenCommand: _rewritten,
}
