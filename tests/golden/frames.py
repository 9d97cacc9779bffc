"""Frames as text: the bytes in hexadecimal, and what they mean.

Each frame is three lines: `>` (from who dialled) or `<`; the bytes; the decoded value.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from samelog.consensus import decode_groups
from samelog.wire.frames import (
    DATA_HEADER_BYTES,
    HEADER_BYTES,
    FrameType,
    decode_data_header,
    decode_header,
)
from samelog.wire.messages import decode_message

FRAMES_KEPT = 60


def split(frame: bytes) -> tuple[FrameType, Any]:
    """What a frame is: a message, Raft's messages, or (data header, batches)."""
    kind, length = decode_header(frame)
    payload = frame[HEADER_BYTES:]
    if len(payload) != length:
        raise ValueError("not one whole frame")
    if kind is FrameType.CONTROL:
        return kind, decode_message(payload)
    if kind is FrameType.RAFT:
        return kind, decode_groups(payload)
    return kind, (decode_data_header(payload), payload[DATA_HEADER_BYTES:])


def meaning(frame: bytes) -> str:
    """A frame in words."""
    kind, value = split(frame)
    if kind is FrameType.DATA:
        (handle, file, byte), batches = value
        return f"DATA handle={handle} file={file} byte={byte}: {len(batches)} bytes"
    return repr(value)


def describe(direction: str, frame: bytes) -> str:
    """A frame as it stands in a golden file."""
    return f"{direction}\n{frame.hex()}\n{meaning(frame)}\n"


def read(text: str) -> Iterator[tuple[bytes, str]]:
    """The bytes and the meaning of each frame of a golden file."""
    lines = text.splitlines()
    for number in range(0, len(lines), 3):
        yield bytes.fromhex(lines[number + 1]), lines[number + 2]
