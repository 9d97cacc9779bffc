"""The receive buffer cuts the same frames as the plain decoder, within its bounds of memory."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samelog.runtime.network._tls import ROOM_BYTES, SMALLEST_BYTES, ReceiveBuffer
from samelog.wire.errors import FrameError
from samelog.wire.frames import (
    DATA_LIMIT_BYTES,
    HEADER_BYTES,
    LONGEST_FRAME_BYTES,
    Frame,
    FrameType,
    encode_frame,
    encode_header,
)
from tests.wire.frame_decoder import FrameDecoder


def fill(buffer: ReceiveBuffer, data: bytes) -> None:
    """As a connection does: into the room there is, in as many steps as it takes."""
    while data:
        room = buffer.room(len(data))
        assert len(room) > 0
        size = min(len(room), len(data))
        room[:size] = data[:size]
        buffer.stop += size
        data = data[size:]


def frames_in(buffer: ReceiveBuffer) -> list[Frame]:
    found: list[Frame] = []
    while (frame := buffer.next()) is not None:
        found.append(Frame(frame[0], bytes(frame[2]), frame[1]))
    return found


@given(
    st.lists(st.sampled_from([1, 5, 100, 4000, 20_000, 70_000]), max_size=12),
    st.lists(st.sampled_from([1, 8, 50, 3000, 17_000]), max_size=6).map(
        lambda cuts: [*cuts, 90_000]
    ),
)
def test_the_same_frames_as_the_plain_decoder(sizes: list[int], cuts: list[int]) -> None:
    stream = b"".join(
        encode_frame(FrameType.RAFT, bytes([n + 1]) * size, n << 28) for n, size in enumerate(sizes)
    )
    buffer, decoder = ReceiveBuffer(), FrameDecoder()
    found: list[Frame] = []
    at, turns = 0, itertools.cycle(cuts)
    while at < len(stream):
        size = next(turns)
        fill(buffer, stream[at : at + size])
        decoder.feed(stream[at : at + size])
        at += size
        cut = frames_in(buffer)
        assert cut == list(iter(decoder.next, None))
        found += cut
    assert [len(frame.payload) for frame in found] == sizes
    assert len(buffer) == 0


def test_memory_grows_with_what_has_come_not_with_what_is_announced() -> None:
    buffer = ReceiveBuffer()
    fill(buffer, encode_header(FrameType.DATA, DATA_LIMIT_BYTES))
    assert buffer.next() is None
    assert buffer.capacity == SMALLEST_BYTES
    came = HEADER_BYTES
    while came < DATA_LIMIT_BYTES + HEADER_BYTES:
        piece = min(10_000, DATA_LIMIT_BYTES + HEADER_BYTES - came)
        fill(buffer, bytes(piece))
        came += piece
        assert buffer.capacity <= max(2 * came, SMALLEST_BYTES)
    assert buffer.capacity <= LONGEST_FRAME_BYTES + ROOM_BYTES
    frame = buffer.next()
    assert frame is not None
    assert len(frame[2]) == DATA_LIMIT_BYTES


def test_a_bad_header_is_an_error_each_time() -> None:
    buffer = ReceiveBuffer()
    fill(buffer, b"\xff" * 20)
    for _ in range(2):
        with pytest.raises(FrameError):
            buffer.next()


def test_memory_is_given_back_after_a_quiet_while() -> None:
    buffer = ReceiveBuffer()
    fill(buffer, encode_frame(FrameType.RAFT, bytes(1 << 20)))
    assert buffer.next() is not None
    big = buffer.capacity
    buffer.trim()
    assert buffer.capacity == big, "it was needed just now"
    fill(buffer, encode_frame(FrameType.RAFT, b"x")[:3])
    buffer.trim()
    assert buffer.capacity == big, "bytes are held"
    fill(buffer, encode_frame(FrameType.RAFT, b"x")[3:])
    assert frames_in(buffer) == [Frame(FrameType.RAFT, b"x")]
    buffer.trim()
    assert buffer.capacity == SMALLEST_BYTES
    fill(buffer, encode_frame(FrameType.RAFT, b"y"))
    assert frames_in(buffer) == [Frame(FrameType.RAFT, b"y")]
