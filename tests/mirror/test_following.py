"""What of a source's batches comes next for a mirror."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samelog.format import _kernels as kernels
from samelog.mirror.errors import MirrorStopped
from samelog.mirror.following import BatchFollower
from tests.mirror.fakes import batches
from tests.sequencer.mirroring import source_batch


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


def test_a_batch_with_holes_stops_the_mirror() -> None:
    batch = bytearray(source_batch(0, 3))
    batch[57:61] = (2).to_bytes(4, "big")
    batch[17:21] = kernels.crc32c(memoryview(batch)[21:]).to_bytes(4, "big")
    with pytest.raises(MirrorStopped, match="compacted"):
        BatchFollower(0, 0).take(bytes(batch))


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
