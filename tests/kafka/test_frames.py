"""Cutting bytes into requests."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samelog.kafka.codec.errors import MalformedRequest
from samelog.kafka.codec.framing import FrameReader

FRAMES = st.lists(st.binary(min_size=1, max_size=40), max_size=8)


@given(frames=FRAMES, cuts=st.lists(st.integers(1, 30), max_size=40))
def test_frames_come_out_whole_however_they_are_cut(frames: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames)
    reader = FrameReader(40)
    found: list[bytes] = []
    for cut in [*cuts, len(stream)]:
        found += map(bytes, reader.feed(stream[:cut]))
        stream = stream[cut:]
    found += map(bytes, reader.feed(stream))
    assert found == frames
    assert not reader.partial


@pytest.mark.parametrize("length", [41, 1 << 30, -1, 0, -(1 << 31)])
@pytest.mark.parametrize("split", [False, True])
def test_a_length_out_of_bounds_is_refused_when_it_is_read(length: int, split: bool) -> None:
    reader = FrameReader(40)
    data = length.to_bytes(4, "big", signed=True)
    if split:
        assert reader.feed(data[:2]) == []
        data = data[2:]
    with pytest.raises(MalformedRequest, match="at most 40"):
        reader.feed(data)


def test_only_what_came_is_held() -> None:
    reader = FrameReader(1 << 30)
    reader.feed((1 << 30).to_bytes(4, "big") + b"x" * 10)
    assert len(reader.partial) == 14


def test_a_frame_that_comes_in_one_piece_is_not_copied() -> None:
    data = b"\0\0\0\3abc"
    (frame,) = FrameReader(40).feed(data)
    assert frame.obj is data
