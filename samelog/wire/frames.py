"""Frames: the unit of everything on a connection.

Header, 12 bytes, big endian: u32 payload length, u8 type, u8 version (1), u16 zero, u32 channel: 0
is the connection itself, other numbers are conversations that share it. A DATA payload starts with
u32 handle, u64 file, u64 byte; the rest is whole record batches. `file` numbers a file of the log
that the handle stands for: the roll in a session log, the base offset of the segment in a merged
one. A batch that is longer than a DATA frame goes in parts: a PART payload starts as a DATA payload
does, and the rest is a piece of one batch. A header says how long its payload is, so the limit of
its type is checked before a byte of memory is taken for it.

Invariant: for any bytes, in pieces of any size, a decoder answers a frame, "need more" or
FrameError, and after a FrameError nothing else.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from enum import IntEnum, unique
from types import MappingProxyType
from typing import NamedTuple

from samelog.wire.errors import FrameError, FrameProblem

FRAME_VERSION = 1
HEADER_BYTES = 12
DATA_HEADER_BYTES = 20
CONTROL_LIMIT_BYTES = 1 << 20
DATA_LIMIT_BYTES = 8 << 20
RAFT_LIMIT_BYTES = 8 << 20
PART_BYTES = 1 << 20
"""Of a batch, in one frame: what is short waits behind no more."""

MAX_HANDLE = (1 << 32) - 1
MAX_POSITION = (1 << 63) - 1
MAX_CHANNEL = MAX_HANDLE

HEADER = struct.Struct("!IBBHI")
"""Length of the payload, type, version, reserved bits, channel."""
_DATA_HEADER = struct.Struct("!IQQ")
_WHOLE_DATA_HEADER = struct.Struct("!IBBHIIQQ")


@unique
class FrameType(IntEnum):
    """What a payload is."""

    CONTROL = 1
    DATA = 2
    RAFT = 3
    PART = 4


LIMITS_BYTES: Mapping[int, int] = MappingProxyType(
    {
        FrameType.CONTROL: CONTROL_LIMIT_BYTES,
        FrameType.DATA: DATA_LIMIT_BYTES,
        FrameType.RAFT: RAFT_LIMIT_BYTES,
        FrameType.PART: DATA_HEADER_BYTES + PART_BYTES,
    }
)
LONGEST_IN_DATA_BYTES = DATA_LIMIT_BYTES - DATA_HEADER_BYTES
"""The longest batch that is not sent in parts."""
LONGEST_FRAME_BYTES = HEADER_BYTES + max(LIMITS_BYTES.values())

_WITH_POSITION = (FrameType.DATA, FrameType.PART)
_BOUNDS = {
    frame_type: (DATA_HEADER_BYTES + 1 if frame_type in _WITH_POSITION else 1, limit)
    for frame_type, limit in LIMITS_BYTES.items()
}
"""Type -> least and largest length of its payload, in bytes."""
KINDS = {
    (frame_type.value, FRAME_VERSION, 0): (frame_type, *_BOUNDS[frame_type])
    for frame_type in FrameType
}
"""Type, version and reserved bits of a sound header -> type, least and largest length."""


class Frame(NamedTuple):
    """One whole frame; `payload` is without the header."""

    type: FrameType
    payload: bytes
    channel: int = 0


def encode_frame(frame_type: FrameType, payload: bytes, channel: int = 0) -> bytes:
    """A whole frame. Raises FrameError when the payload is longer than its type may be."""
    return encode_header(frame_type, len(payload), channel) + payload


def encode_header(frame_type: FrameType, size_bytes: int, channel: int = 0) -> bytes:
    """The header of a frame whose payload has `size_bytes`. Raises FrameError."""
    least, limit = _BOUNDS[frame_type]
    if not least <= size_bytes <= limit:
        raise _bad_length(frame_type, size_bytes)
    return HEADER.pack(size_bytes, frame_type, FRAME_VERSION, 0, channel)


def encode_data_header(
    handle: int, file: int, byte: int, size_bytes: int, channel: int = 0
) -> bytes:
    """Both headers (32 bytes) of a DATA frame with `size_bytes` of batches. Raises FrameError."""
    length = DATA_HEADER_BYTES + size_bytes
    if not DATA_HEADER_BYTES < length <= DATA_LIMIT_BYTES:
        raise _bad_length(FrameType.DATA, length)
    return _WHOLE_DATA_HEADER.pack(
        length, FrameType.DATA, FRAME_VERSION, 0, channel, handle, file, byte
    )


def encode_part(
    handle: int, file: int, byte: int, part: bytes | memoryview, channel: int = 0
) -> bytes:
    """A whole PART frame, with a piece of a batch. Raises FrameError."""
    header = encode_header(FrameType.PART, DATA_HEADER_BYTES + len(part), channel)
    return b"".join((header, _DATA_HEADER.pack(handle, file, byte), part))


def decode_header(buffer: bytes | bytearray | memoryview, start: int = 0) -> tuple[FrameType, int]:
    """(type, payload length) of the whole header at `start`. Raises FrameError."""
    length, *rest, _ = HEADER.unpack_from(buffer, start)
    kind = KINDS.get(tuple(rest))
    if kind is None or not kind[1] <= length <= kind[2]:
        raise bad_header(length, *rest)
    return kind[0], length


def decode_channel(buffer: bytes | bytearray | memoryview, start: int = 0) -> int:
    """The channel in the whole header at `start`."""
    channel: int = HEADER.unpack_from(buffer, start)[-1]
    return channel


def decode_data_header(buffer: bytes | bytearray | memoryview) -> tuple[int, int, int]:
    """Where what a DATA or PART payload holds belongs: byte `byte` of file `file` of what `handle`
    stands for, as (handle, file, byte). Raises FrameError.
    """
    handle, file, byte = _DATA_HEADER.unpack_from(buffer)
    if file > MAX_POSITION or byte > MAX_POSITION:
        raise FrameError(FrameProblem.TOO_LONG, f"position ({file}, {byte}) is beyond 63 bits")
    return handle, file, byte


def bad_header(length: int, type_number: int, version: int, reserved: int) -> FrameError:
    """What is wrong with a header that is not among KINDS, or whose length is out of bounds."""
    if version != FRAME_VERSION:
        text = f"version {version}, known is {FRAME_VERSION}"
        return FrameError(FrameProblem.UNSUPPORTED_VERSION, text)
    if type_number not in LIMITS_BYTES:
        return FrameError(FrameProblem.UNKNOWN_TYPE, f"unknown type {type_number}")
    if reserved:
        text = f"reserved bits are {reserved:#06x}, not zero"
        return FrameError(FrameProblem.RESERVED_BITS, text)
    return _bad_length(FrameType(type_number), length)


def _bad_length(frame_type: FrameType, length: int) -> FrameError:
    least, limit = _BOUNDS[frame_type]
    if length > limit:
        text = f"{frame_type.name} payload of {length} bytes, the limit is {limit}"
        return FrameError(FrameProblem.TOO_LONG, text)
    text = f"{frame_type.name} payload of {length} bytes, the least is {least}"
    return FrameError(FrameProblem.TOO_SHORT, text)
