"""A compacted segment: what took the place of segments of a merged log, as every node has it.

Compaction keeps the newest record of each key (`_kernels.Compaction` states the rule to the byte).
Offsets stay: where records were dropped a batch has fewer records than offsets, and where nothing
stayed an empty batch stands for a range of offsets. So a compacted segment begins and ends where
segments began and ended before, and every offset in it is in one batch.

Invariant: the running checksum of a log stays that of the bytes as merged. A compacted segment
carries the ones before and behind what it stands for, which its own bytes do not give.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from operator import attrgetter

import msgspec

from samelog.format.segment import SealedSegment


class CompactedSegment(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One segment that compaction wrote. `number`: of the compaction, counted by partition."""

    sealed: SealedSegment
    """Its checksum is the running one of the bytes as merged."""
    number: int
    begin_checksum: int
    """The running checksum where it begins."""
    bytes_checksum: int
    """CRC-32C of its own bytes, continuing `begin_checksum`."""
    sha256: bytes

    @property
    def base(self) -> int:
        """Its base offset."""
        return self.sealed.base_offset

    @property
    def stop(self) -> int:
        """The offset behind it."""
        return self.sealed.next_offset


def segment_around(segments: Sequence[CompactedSegment], offset: int) -> CompactedSegment | None:
    """The one that stands for an offset, of segments in order; None: none does."""
    at = bisect_right(segments, offset, key=attrgetter("base")) - 1
    return segments[at] if at >= 0 and offset < segments[at].stop else None


def segment_at(segments: Sequence[CompactedSegment], base: int) -> CompactedSegment | None:
    """The one that begins at an offset; None: none does."""
    found = segment_around(segments, base)
    return found if found is not None and found.base == base else None


def replaced(known: list[CompactedSegment], new: list[CompactedSegment]) -> list[CompactedSegment]:
    """The compacted segments of a log, in order, once `new` took the place of what was there."""
    if not new:
        return known
    first, stop = new[0].base, new[-1].stop
    before = [each for each in known if each.stop <= first]
    return [*before, *new, *(each for each in known if each.base >= stop)]
