"""Frames: any bytes, in pieces of any size, give frames, "need more" or FrameError."""

from __future__ import annotations

import struct
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samelog.wire.errors import FrameError, FrameProblem
from samelog.wire.frames import (
    CONTROL_LIMIT_BYTES,
    DATA_HEADER_BYTES,
    DATA_LIMIT_BYTES,
    HEADER_BYTES,
    LIMITS_BYTES,
    LONGEST_FRAME_BYTES,
    MAX_CHANNEL,
    MAX_HANDLE,
    MAX_POSITION,
    RAFT_LIMIT_BYTES,
    Frame,
    FrameType,
    decode_data_header,
    decode_header,
    encode_data_header,
    encode_frame,
    encode_header,
)
from tests.wire.frame_decoder import FrameDecoder


def header(
    length: int, frame_type: int, version: int = 1, reserved: int = 0, channel: int = 0
) -> bytes:
    return struct.pack("!IBBHI", length, frame_type, version, reserved, channel)


def payloads(frame_type: FrameType) -> st.SearchStrategy[Frame]:
    has_place = frame_type in (FrameType.DATA, FrameType.PART)
    least = DATA_HEADER_BYTES + 1 if has_place else 1
    return st.builds(
        Frame,
        st.just(frame_type),
        st.binary(min_size=least, max_size=300),
        st.integers(0, MAX_CHANNEL),
    )


frames = st.sampled_from(FrameType).flatmap(payloads)


def drain(decoder: FrameDecoder) -> list[Frame]:
    found: list[Frame] = []
    while (frame := decoder.next()) is not None:
        found.append(frame)
    return found


def test_the_header_is_as_documented() -> None:
    assert encode_frame(FrameType.CONTROL, b"\x91\x04") == bytes.fromhex(
        "00000002 01 01 0000 00000000 9104"
    )
    assert encode_data_header(7, 8, 9, 1) == bytes.fromhex(
        "00000015 02 01 0000 00000000 00000007 0000000000000008 0000000000000009"
    )
    assert encode_header(FrameType.RAFT, 3) == bytes.fromhex("00000003 03 01 0000 00000000")
    assert encode_header(FrameType.RAFT, 3, 7) == bytes.fromhex("00000003 03 01 0000 00000007")


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (header(1, 0), FrameProblem.UNKNOWN_TYPE),
        (header(1, 5), FrameProblem.UNKNOWN_TYPE),
        (header(1, 255), FrameProblem.UNKNOWN_TYPE),
        (header(1, 1, version=0), FrameProblem.UNSUPPORTED_VERSION),
        (header(1, 1, version=2), FrameProblem.UNSUPPORTED_VERSION),
        (header(1, 1, reserved=1), FrameProblem.RESERVED_BITS),
        (header(0, 1), FrameProblem.TOO_SHORT),
        (header(0, 3), FrameProblem.TOO_SHORT),
        (header(DATA_HEADER_BYTES, 2), FrameProblem.TOO_SHORT),
        (header(CONTROL_LIMIT_BYTES + 1, 1), FrameProblem.TOO_LONG),
        (header(DATA_LIMIT_BYTES + 1, 2), FrameProblem.TOO_LONG),
        (header(RAFT_LIMIT_BYTES + 1, 3), FrameProblem.TOO_LONG),
        (header((1 << 32) - 1, 2), FrameProblem.TOO_LONG),
        (header(1 << 31, 3), FrameProblem.TOO_LONG),
        (b"GET / HTTP/1", FrameProblem.UNSUPPORTED_VERSION),
    ],
)
def test_bad_headers(data: bytes, problem: FrameProblem) -> None:
    with pytest.raises(FrameError) as caught:
        decode_header(data)
    assert caught.value.problem is problem


@pytest.mark.parametrize("frame_type", FrameType)
def test_the_limit_itself_is_allowed(frame_type: FrameType) -> None:
    limit = LIMITS_BYTES[frame_type]
    assert decode_header(encode_header(frame_type, limit)) == (frame_type, limit)
    with pytest.raises(FrameError):
        encode_header(frame_type, limit + 1)
    assert limit + HEADER_BYTES <= LONGEST_FRAME_BYTES


@pytest.mark.parametrize(("file", "byte"), [(MAX_POSITION + 1, 0), (0, MAX_POSITION + 1)])
def test_positions_beyond_63_bits_are_refused(file: int, byte: int) -> None:
    with pytest.raises(FrameError):
        decode_data_header(struct.pack("!IQQ", 1, file, byte))


@given(st.integers(0, MAX_HANDLE), st.integers(0, MAX_POSITION), st.integers(0, MAX_POSITION))
def test_data_headers_round_trip(handle: int, file: int, byte: int) -> None:
    encoded = encode_data_header(handle, file, byte, 1)
    assert decode_header(encoded) == (FrameType.DATA, DATA_HEADER_BYTES + 1)
    assert decode_data_header(encoded[HEADER_BYTES:]) == (handle, file, byte)


@given(st.lists(frames, max_size=6), st.lists(st.integers(1, 40), max_size=40))
def test_frames_survive_any_cutting(sent: list[Frame], cuts: list[int]) -> None:
    stream = b"".join(encode_frame(*frame) for frame in sent)
    decoder = FrameDecoder()
    received: list[Frame] = []
    for size in cuts:
        decoder.feed(stream[:size])
        stream = stream[size:]
        received += drain(decoder)
    decoder.feed(stream)
    received += drain(decoder)
    assert received == sent
    assert decoder.wanted_bytes == 0


@given(frames)
def test_byte_by_byte_it_says_how_much_is_missing(frame: Frame) -> None:
    decoder = FrameDecoder()
    data = encode_frame(*frame)
    for index in range(len(data)):
        decoder.feed(data[index : index + 1])
        whole = HEADER_BYTES if index + 1 < HEADER_BYTES else len(data)
        assert decoder.wanted_bytes == whole - index - 1
    assert decoder.next() == frame


@given(st.binary(max_size=200), st.binary(max_size=20))
def test_any_bytes_give_a_frame_or_more_or_one_error(data: bytes, more: bytes) -> None:
    decoder = FrameDecoder()
    decoder.feed(data)
    error = error_of(decoder)
    if error is not None:
        decoder.feed(more + encode_frame(FrameType.CONTROL, b"x"))
        assert error_of(decoder) is error


def error_of(decoder: FrameDecoder) -> FrameError | None:
    try:
        drain(decoder)
    except FrameError as error:
        return error
    return None


def test_a_lying_length_costs_no_memory() -> None:
    tracemalloc.start()
    try:
        decoder = FrameDecoder()
        decoder.feed(header(DATA_LIMIT_BYTES, 2) + b"x")
        assert decoder.next() is None
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()
