"""What of a source's batches comes next for a mirror."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samelog.format import _kernels as kernels
from samelog.format.void_batch import EMPTY_OFFSETS_MOST, empty_batches
from samelog.mirror.errors import MirrorStopped
from samelog.mirror.following import BatchFollower
from tests.mirror.fakes import batches
from tests.sequencer.mirroring import compacted, source_batch


@given(st.lists(st.integers(1, 5), min_size=1, max_size=8), st.data())
def test_what_comes_in_any_pieces_is_what_the_source_has(
    counts: list[int], data: st.DataObject
) -> None:
    made = batches(*counts)
    first = data.draw(st.integers(0, len(made) - 1))
    begin = sum(counts[:first])
    following = BatchFollower(begin, 0)
    found, at = b"", 0
    while at < len(made):
        size = data.draw(st.integers(1, len(made) - at))
        found += following.take(b"".join(made[at : at + size])).data
        at += size
    assert found == b"".join(made[first:])
    assert following.expected == sum(counts)
    assert following.checksum == kernels.crc32c(found)


def test_a_hole_is_told_and_nothing_behind_it_is_given() -> None:
    following = BatchFollower(0, 0)
    found = following.take(source_batch(0) + source_batch(10))
    assert (found.data, found.hole_up_to, following.expected) == (source_batch(0), 10, 3)


def test_a_batch_that_spans_the_end_of_the_mirror_is_another_history() -> None:
    with pytest.raises(MirrorStopped, match="no batch begins at offset 2"):
        BatchFollower(2, 0).take(source_batch(0))


def test_a_batch_that_lacks_records_is_taken_as_it_is() -> None:
    """What compaction left of it has the offsets that it had."""
    batch = compacted(0, 5, 2, 3)
    following = BatchFollower(0, 0)
    assert following.take(batch + source_batch(5)).data == batch + source_batch(5)
    assert following.expected == 8


def test_what_was_compacted_away_is_there_as_empty_batches() -> None:
    """Before, between and behind: Kafka leaves holes, we leave empty batches of any width."""
    following = BatchFollower(0, 0, is_compacted=True)
    first, second, third = source_batch(10), source_batch(13), source_batch(40)
    found = following.take(first + second)
    assert found.data == empty_batches(0, 10, 7) + first + second
    found = following.take(third)
    assert (found.data, found.hole_up_to) == (empty_batches(16, 40, 7) + third, None)
    empty = empty_batches(43, 60, 7)
    assert following.take(empty).data == empty
    assert following.checksum is None, "the source's running checksums are of what was there before"
    following.compare(43, 1)
    headers = kernels.batch_headers(empty, 0, len(empty))
    assert [(header[2], len(empty)) for header in headers] == [(17, kernels.HEADER_BYTES)]


def test_what_the_mirror_has_may_be_compacted_at_the_source_since() -> None:
    """One empty batch comes for many offsets, and the mirror ends in the middle of them."""
    following = BatchFollower(6, None, is_compacted=True)
    found = following.take(empty_batches(0, 20, 3) + source_batch(20))
    assert found.data == empty_batches(6, 20, 3) + source_batch(20)
    with pytest.raises(MirrorStopped, match="no batch begins at offset 1"):
        BatchFollower(1, None, is_compacted=True).take(source_batch(0))


def test_a_wide_hole_is_several_empty_batches() -> None:
    wide = empty_batches(5, 5 + 2 * EMPTY_OFFSETS_MOST + 1, 0)
    headers = kernels.batch_headers(wide, 0, len(wide))
    assert [header[2] for header in headers] == [EMPTY_OFFSETS_MOST] * 2 + [1]
    assert kernels.scan(wide).end == len(wide)


@pytest.mark.parametrize("stop", [3, 7])
def test_a_restore_of_what_was_compacted_ends_where_it_is_to_end(stop: int) -> None:
    following = BatchFollower(0, 0, stop=stop, is_compacted=True)
    found = following.take(source_batch(0) + source_batch(20))
    assert found.data == source_batch(0) + empty_batches(3, stop, 7)
    assert (found.is_over, following.expected) == (True, stop)


def test_damage_stops_the_mirror() -> None:
    batch = bytearray(source_batch(0))
    batch[-1] ^= 1
    with pytest.raises(MirrorStopped, match="offset 0"):
        BatchFollower(0, 0).take(bytes(batch))


@pytest.mark.parametrize("stop", [3, 5])
def test_it_ends_with_the_last_whole_batch_before_the_end(stop: int) -> None:
    following = BatchFollower(0, 0, stop=stop)
    found = following.take(source_batch(0) + source_batch(3))
    assert (found.data, found.is_over) == (source_batch(0), True)


def test_running_checksums_are_compared() -> None:
    following = BatchFollower(0, 0)
    following.take(source_batch(0))
    following.compare(3, kernels.crc32c(source_batch(0)))
    following.compare(99, 1)  # not known any more, or not yet
    with pytest.raises(MirrorStopped, match="running checksum at 3"):
        following.compare(3, 1)
