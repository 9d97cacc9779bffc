"""What a log that copies from peers does where the cluster has compacted meanwhile.

A peer has only the compacted segments. A log that ends where one begins copies it as such: it is
sealed with the running checksum of what it stands for. One that ends inside goes back to where it
begins, because what it has of it goes on nowhere. A majority has all of it, or it would not be
decided.

Invariant: nothing is cut but what lies in a compacted segment, or behind one that was copied in
part and is not the cluster's any more.
"""

from __future__ import annotations

from collections.abc import Sequence

from samelog.format.compaction import CompactedSegment, segment_around, segment_at
from samelog.store.merged.log import MergedLog


def place_to_cut(log: MergedLog, segments: Sequence[CompactedSegment]) -> int | None:
    """Where the log has to end before it can copy on; None: it can."""
    copied, (growing, size), end = log.generations.copied, log.end(), log.next_offset
    if copied is not None:
        return None if segment_at(segments, copied.base) == copied else copied.base
    covering = segment_around(segments, growing)
    if covering is None or end >= covering.stop or (growing, size) == (covering.base, 0):
        return None
    return covering.base


def _is_whole(log: MergedLog, segments: Sequence[CompactedSegment]) -> bool:
    """Whether the growing segment has all that a compacted one stands for: nobody has its bytes any
    more behind which others come.
    """
    growing, size = log.end()
    covering = segment_around(segments, growing)
    return covering is not None and size > 0 and log.next_offset == covering.stop


def begin_next(log: MergedLog, segments: Sequence[CompactedSegment]) -> None:
    """If a compacted segment begins where the log ends, that is what comes; where one ends, the
    growing segment does, too. Raises LogFormatError: what was copied is not what the cluster has.
    """
    if _is_whole(log, segments):
        log.roll()
    following = segment_at(segments, log.next_offset)
    if following is None:
        return
    if log.end() != (following.base, 0):
        log.roll()
    log.begin_copy(following)
