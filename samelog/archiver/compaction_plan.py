"""Whether a partition is to be compacted now, and up to where: a function of what is there,
settings and time.

What was compacted before is *clean*, what closed segments came since is *dirty*. A compaction takes
all of both. It is due when enough is dirty (`min.cleanable.dirty.ratio`), or has been for too long
(`max.compaction.lag.ms`), as with Kafka's broker.

Invariant: only closed segments that a majority has merged durably go, below the last stable offset,
below records that were declared void, and older than `min.compaction.lag.ms`. Age counts from the
time of the cluster at which a segment was rolled, never from timestamps of records.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from samelog.archiver.compaction import Compactions
from samelog.archiver.policy import CLEANUP_POLICY, is_compacted

DELETE_RETENTION_MS = "delete.retention.ms"
MAX_COMPACTION_LAG_MS = "max.compaction.lag.ms"
MIN_CLEANABLE_RATIO = "min.cleanable.dirty.ratio"
MIN_COMPACTION_LAG_MS = "min.compaction.lag.ms"
DEFAULTS: Mapping[str, str] = {
    DELETE_RETENTION_MS: "86400000",
    MAX_COMPACTION_LAG_MS: str((1 << 63) - 1),
    MIN_CLEANABLE_RATIO: "0.5",
    MIN_COMPACTION_LAG_MS: "0",
}
"""Kafka's."""


SEGMENTS_MANY = 1_000
"""More are not made of one partition, if that takes none too large. Members name each of them in an
entry of Raft, and a log in one file that it replaces often."""
SEGMENT_BYTES_MOST = 1 << 30
SEGMENTS_MOST = 5_000
BYTES_MOST = SEGMENTS_MOST * SEGMENT_BYTES_MOST // 2
"""What is behind so much of a partition is not compacted."""


class ClosedSegment(NamedTuple):
    """A segment that grows no more. `rolled_ms`: when, by the cluster's time; None: not known."""

    base: int
    stop: int
    size: int
    rolled_ms: int | None


@dataclass(frozen=True, slots=True)
class CompactionFacts:
    """A partition's log, as the leader has it. Below `limit` a majority has merged it durably, and
    all is decided and there.
    """

    closed: Sequence[ClosedSegment]
    limit: int
    compactions: Compactions
    held_from: int
    """From there on a consumer group holds records: tombstones stay, too."""
    segment_bytes: int
    """What the topic wants."""


class Due(NamedTuple):
    """Compact up to `stop`; tombstones below `tombstones_below` may go."""

    stop: int
    tombstones_below: int
    segment_bytes: int
    """New segments are closed with half of it."""


def due(settings: Mapping[str, str], facts: CompactionFacts, now_ms: int) -> Due | None:
    """What is to be compacted now; None: nothing."""
    if not is_compacted(settings.get(CLEANUP_POLICY, "")):
        return None
    taken = _taken(settings, facts, now_ms)
    clean = facts.compactions.clean
    dirty = [each for each in taken if each.base >= clean]
    if not dirty or not _is_due(settings, taken, dirty, now_ms):
        return None
    horizon = now_ms - _number(settings, DELETE_RETENTION_MS)
    gone = min(facts.compactions.tombstones_below(horizon), facts.held_from)
    return Due(taken[-1].stop, gone, _segment_bytes(facts, taken))


def _segment_bytes(facts: CompactionFacts, taken: Sequence[ClosedSegment]) -> int:
    """Enough that they are not too many."""
    least = 2 * sum(each.size for each in taken) // SEGMENTS_MANY
    return max(facts.segment_bytes, min(least, SEGMENT_BYTES_MOST))


def _taken(settings: Mapping[str, str], facts: CompactionFacts, now_ms: int) -> list[ClosedSegment]:
    newest_ms = now_ms - _number(settings, MIN_COMPACTION_LAG_MS)
    taken: list[ClosedSegment] = []
    size = 0
    for each in facts.closed:
        size += each.size
        is_clean = each.stop <= facts.compactions.clean
        is_old = each.rolled_ms is not None and each.rolled_ms <= newest_ms
        if each.stop > facts.limit or not (is_clean or is_old) or size > BYTES_MOST:
            break
        taken.append(each)
    return taken


def _is_due(
    settings: Mapping[str, str],
    taken: Sequence[ClosedSegment],
    dirty: Sequence[ClosedSegment],
    now_ms: int,
) -> bool:
    share = float(settings.get(MIN_CLEANABLE_RATIO, DEFAULTS[MIN_CLEANABLE_RATIO]))
    if sum(each.size for each in dirty) > share * sum(each.size for each in taken):
        return True
    oldest_ms = dirty[0].rolled_ms
    most_ms = _number(settings, MAX_COMPACTION_LAG_MS)
    return oldest_ms is not None and now_ms - oldest_ms >= most_ms


def _number(settings: Mapping[str, str], key: str) -> int:
    return int(settings.get(key, DEFAULTS[key]))
