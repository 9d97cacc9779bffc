"""What compactions are ordered, and when one counts."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from samelog.archiver.command import ArchiveCommand, ArchivedSegment, apply_archive
from samelog.archiver.compaction import (
    CompactCommand,
    RewrittenCommand,
    apply_order,
    apply_rewritten,
)
from samelog.archiver.compaction_plan import (
    SEGMENTS_MANY,
    SEGMENTS_MOST,
    ClosedSegment,
    CompactionFacts,
    Due,
    due,
)
from samelog.archiver.compaction_progress import PATIENCE_S, CompactionProgress
from samelog.format.compaction import CompactedSegment
from samelog.format.segment import SealedSegment
from samelog.sequencer.raft.proposer import FORWARD_BYTES
from samelog.sequencer.state.tables.partitions import Partition

COMPACT = {"cleanup.policy": "compact"}
WANTED = 1 << 20
"""Of each segment, in bytes."""
HOUR_MS = 3_600_000
CLOSED = [ClosedSegment(0, 10, 100, 1_000), ClosedSegment(10, 20, 100, 2_000)]


def segment(base: int, stop: int, *, number: int = 1, size: int = 50) -> CompactedSegment:
    """A compacted one."""
    sealed = SealedSegment(base, size, stop, 5, 7, 0, 0, 1, 0)
    return CompactedSegment(sealed, number, 3, 4, bytes(32))


def partition() -> Partition:
    """Of offsets 0 to 29, in segments of ten."""
    return Partition(1, "t", 0, next_offset=30, rolls=((10, 1_000), (20, 2_000)))


def order(number: int = 1, stop: int = 20, *, start: int = 0) -> CompactCommand:
    """An order to three voters."""
    return CompactCommand(1, number, start, stop, 0, 1 << 20, bytes(16), [0, 1, 2], 5_000)


def test_what_is_dirty_enough_is_due() -> None:
    facts = CompactionFacts(CLOSED, 20, partition().compactions, 30, WANTED)
    assert due(COMPACT, facts, 9_000) == Due(20, 0, WANTED)
    assert due({}, facts, 9_000) is None
    assert due({"cleanup.policy": "compact,delete"}, facts, 9_000) == Due(20, 0, WANTED)
    assert due({**COMPACT, "min.compaction.lag.ms": "7500"}, facts, 9_000) == Due(10, 0, WANTED)
    assert due(COMPACT, CompactionFacts(CLOSED, 19, facts.compactions, 30, WANTED), 9_000) == Due(
        10, 0, WANTED
    )


def test_a_little_dirt_waits_until_it_is_old() -> None:
    known = partition()
    finish(known, order(stop=10), [segment(0, 10)])
    closed = [ClosedSegment(0, 10, 900, 1_000), ClosedSegment(10, 20, 100, 2_000)]
    facts = CompactionFacts(closed, 20, known.compactions, 30, WANTED)
    assert due(COMPACT, facts, 9_000) is None
    assert due({**COMPACT, "max.compaction.lag.ms": "7000"}, facts, 9_000) == Due(20, 0, WANTED)
    assert due({**COMPACT, "min.cleanable.dirty.ratio": "0.05"}, facts, 9_000) == Due(20, 0, WANTED)


def test_tombstones_go_when_a_compaction_with_them_is_old_enough() -> None:
    known = partition()
    finish(known, order(stop=10), [segment(0, 10)])
    facts = CompactionFacts(CLOSED, 20, known.compactions, 30, WANTED)
    day = {**COMPACT, "delete.retention.ms": "1000", "min.cleanable.dirty.ratio": "0"}
    assert due(day, facts, 6_999) == Due(20, 0, WANTED)
    assert due(day, facts, 7_000) == Due(20, 10, WANTED)
    assert due(day, replace(facts, held_from=4), 7_000) == Due(20, 4, WANTED)


def test_new_segments_are_larger_where_they_would_be_too_many() -> None:
    """Members name each of them; and what is too much for that is left as it is."""
    none = partition().compactions
    many = [ClosedSegment(n, n + 1, 1 << 30, 1_000) for n in range(4_000)]
    found = due(COMPACT, CompactionFacts(many[:100], 4_000, none, 30, WANTED), 9_000)
    assert found == Due(100, 0, 2 * (100 << 30) // SEGMENTS_MANY)
    found = due(COMPACT, CompactionFacts(many, 4_000, none, 30, WANTED), 9_000)
    assert found == Due(2_500, 0, 1 << 30)
    large = (1 << 32) - 1
    sealed = SealedSegment(1 << 62, large, (1 << 62) + 1, *[large] * 6)
    longest = CompactedSegment(sealed, large, large, large, bytes(32))
    told = RewrittenCommand(1, large, 1, [longest] * SEGMENTS_MOST, 1 << 50)
    assert len(msgspec.msgpack.encode(told)) < FORWARD_BYTES


def test_what_goes_on_is_waited_for() -> None:
    progress = CompactionProgress(3, began_at=100.0, moved_at=100.0)
    assert progress.goes_on(3, 100.0 + PATIENCE_S - 1)
    assert not progress.goes_on(3, 100.0 + PATIENCE_S)
    assert not progress.goes_on(2, 100.0)
    progress.moved(1, 2, 100.0 + 2 * PATIENCE_S)
    assert progress.goes_on(3, 100.0 + 10 * PATIENCE_S - 1)
    assert not progress.goes_on(3, 100.0 + 10 * PATIENCE_S)


def finish(known: Partition, command: CompactCommand, segments: list[CompactedSegment]) -> None:
    """Have two of three write the same."""
    assert apply_order(known, command) is None
    for member in (0, 2):
        told = RewrittenCommand(1, command.number, member, segments, 6_000)
        assert apply_rewritten(known, told) is None


def test_what_a_majority_wrote_counts() -> None:
    known = partition()
    assert apply_order(known, order()) is None
    written = [segment(0, 20)]
    for member in (0, 0, 7):
        assert apply_rewritten(known, RewrittenCommand(1, 1, member, written, 6_000)) is None
        assert known.compactions.order is not None
    other = [segment(0, 20, size=51)]
    assert apply_rewritten(known, RewrittenCommand(1, 1, 1, other, 6_000)) is None
    assert known.compactions.segments == []
    assert apply_rewritten(known, RewrittenCommand(1, 1, 2, written, 6_500)) is None
    assert (known.compactions.order, known.compactions.segments) == (None, written)
    assert known.rolls == ((20, 2_000),)
    assert known.compactions.clean == 20


@pytest.mark.parametrize(
    "command",
    [
        order(2),
        order(stop=15),
        order(stop=30),
        order(start=10),
        msgspec.structs.replace(order(), seed=b"short"),
    ],
)
def test_what_cannot_be_is_refused(command: CompactCommand) -> None:
    known = partition()
    assert apply_order(known, command) is not None
    assert known == partition()


def test_all_of_it_is_written() -> None:
    known = partition()
    assert apply_order(known, order()) is None
    for segments in ([segment(0, 10)], [segment(10, 20)], [segment(0, 20, number=2)], []):
        assert apply_rewritten(known, RewrittenCommand(1, 1, 0, segments, 0)) is not None


def archive(*files: tuple[int, int, int]) -> ArchiveCommand:
    """Archive these segments (base, next offset, size)."""
    named = [ArchivedSegment(*file, -1, -1, -1, bytes(32)) for file in files]
    stop = files[-1][1]
    return ArchiveCommand(1, stop, stop, 0, 0, "time", named)


def test_nothing_is_archived_while_it_is_compacted() -> None:
    known = partition()
    assert apply_order(known, order()) is None
    assert apply_archive(known, [], archive((0, 10, 100))) == "the partition is being compacted"
    for member in (0, 1):
        told = RewrittenCommand(1, 1, member, [segment(0, 20)], 6_000)
        assert apply_rewritten(known, told) is None
    planned_before = archive((0, 10, 100), (10, 20, 100))
    assert apply_archive(known, [], planned_before) == "it was compacted meanwhile"
    assert apply_archive(known, [], archive((0, 20, 50))) is None
    assert known.compactions.segments == []


def test_an_order_that_does_not_end_is_given_up_for_archiving() -> None:
    """Disks that are full may be why it does not end, and archiving is what helps."""
    known = partition()
    assert apply_order(known, order()) is None
    late = msgspec.structs.replace(archive((0, 10, 100)), at_ms=5_000 + HOUR_MS)
    assert apply_archive(known, [], late) is None
    for member in (0, 1):
        told = RewrittenCommand(1, 1, member, [segment(0, 20)], 6_000)
        assert apply_rewritten(known, told) is None
    assert (known.compactions.order, known.compactions.segments) == (None, [])
    assert apply_order(known, order(2, start=10)) is None


def test_a_newer_order_takes_the_place_of_one_under_way() -> None:
    known = partition()
    assert apply_order(known, order()) is None
    assert apply_rewritten(known, RewrittenCommand(1, 1, 0, [segment(0, 20)], 0)) is None
    assert apply_order(known, order(2)) is None
    assert known.compactions.written == {}
