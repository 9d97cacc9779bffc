"""Batches in parts: whole or not at all, one at a time, and of no other size."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samelog.format.batch import HELD_BATCH_BYTES
from samelog.wire.errors import FrameError
from samelog.wire.frames import LONGEST_IN_DATA_BYTES, PART_BYTES
from samelog.wire.parts import PartialBatch


def batch(size: int, fill: int = 7) -> bytes:
    """What begins as a batch of this size does."""
    return bytes(8) + (size - 12).to_bytes(4, "big", signed=True) + bytes([fill]) * (size - 12)


LONG = batch(LONGEST_IN_DATA_BYTES + 100)


def pieces(data: bytes, size: int = PART_BYTES) -> list[tuple[int, memoryview]]:
    return [(at, memoryview(data)[at : at + size]) for at in range(0, len(data), size)]


@given(st.integers(12, PART_BYTES), st.integers(0, 1 << 40))
def test_a_batch_is_handed_on_when_all_of_it_has_come(size: int, start: int) -> None:
    partial, found = PartialBatch(), []
    for at, part in pieces(LONG, max(size, 1 << 16)):
        found.append(partial.take(3, 5, start + at, part))
    assert all(whole == b"" for _, whole in found[:-1])
    assert (found[-1][0], bytes(found[-1][1])) == (start, LONG)


def test_what_does_not_go_on_begins_another_batch() -> None:
    partial = PartialBatch()
    first, second, *_ = pieces(LONG)
    partial.take(1, 0, *first)
    for handle, file, byte in ((2, 0, second[0]), (1, 1, second[0]), (1, 0, second[0] + 1)):
        with pytest.raises(FrameError, match="in parts"):
            partial.take(handle, file, byte, second[1])
    ends = [partial.take(2, 0, 7 + at, part) for at, part in pieces(LONG)]
    assert (ends[-1][0], bytes(ends[-1][1])) == (7, LONG)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        bytes(11),
        batch(LONGEST_IN_DATA_BYTES),
        bytes(8) + b"\xff" * 4,
        bytes(8) + (HELD_BATCH_BYTES - 11).to_bytes(4, "big"),
    ],
    ids=["empty", "short", "fits a frame", "negative", "too long"],
)
def test_other_sizes_are_refused(data: bytes) -> None:
    with pytest.raises(FrameError):
        PartialBatch().take(1, 0, 0, memoryview(data)[:PART_BYTES])


def test_no_part_reaches_behind_its_batch() -> None:
    partial = PartialBatch()
    last = pieces(LONG)[-1]
    for at, part in pieces(LONG)[:-1]:
        partial.take(1, 0, at, part)
    with pytest.raises(FrameError, match="1 bytes behind its batch"):
        partial.take(1, 0, last[0], memoryview(bytes(last[1]) + b"x"))
