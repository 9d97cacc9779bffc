"""Cuts a stream of bytes into requests, and reads what stands before each of them.

A frame is a 4-byte length, big endian and signed, and as many bytes (Kafka's NetworkReceive).

Request header: int16 API key, int16 version, int32 correlation id; from header version 1 on a
nullable string client id (with a 16-bit length in every version); from 2 on tagged fields. Answers:
int32 correlation id, and from header version 1 on tagged fields (Kafka's RequestHeader.json and
ResponseHeader.json).

Invariant: no memory is set aside for a length that is only claimed: what is held is what came.
Also: tagged fields of whatever number are skipped, as the protocol demands.
"""

from __future__ import annotations

import struct

import msgspec

from samelog.kafka.codec.errors import MalformedRequest
from samelog.kafka.codec.primitives import MessageReader

LENGTH_BYTES = 4


class FrameReader:
    """One connection's incoming bytes."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        """How long a request may be."""
        self.partial = bytearray()
        """What came of a request that is not whole yet."""

    def feed(self, data: bytes) -> list[memoryview]:
        """Take what came: the requests that are whole now, read-only. Where a request lies wholly
        in `data`, it is not copied. Raises MalformedRequest.
        """
        frames: list[memoryview] = []
        view = memoryview(data)
        while view and self.partial:
            view = self._complete(view, frames)
        at, size = 0, len(view)
        while size - at >= LENGTH_BYTES:
            begin = at + LENGTH_BYTES
            length = int.from_bytes(view[at:begin], "big", signed=True)
            if not 0 < length <= self.limit_bytes:
                raise self._bad_length(length)
            end = begin + length
            if end > size:
                break
            frames.append(view[begin:end])
            at = end
        self.partial += view[at:]
        return frames

    def _complete(self, view: memoryview, frames: list[memoryview]) -> memoryview:
        """Take what a frame lacks that began before; what lies behind it."""
        partial = self.partial
        if len(partial) < LENGTH_BYTES:
            lacking = LENGTH_BYTES - len(partial)
            partial += view[:lacking]
            view = view[lacking:]
            if len(partial) < LENGTH_BYTES:
                return view
        lacking = LENGTH_BYTES + self._length(partial) - len(partial)
        partial += view[:lacking]
        if len(view) >= lacking:
            frames.append(memoryview(partial).toreadonly()[LENGTH_BYTES:])
            self.partial = bytearray()
        return view[lacking:]

    def _length(self, data: memoryview | bytearray) -> int:
        length = int.from_bytes(data[:LENGTH_BYTES], "big", signed=True)
        if not 0 < length <= self.limit_bytes:
            raise self._bad_length(length)
        return length

    def _bad_length(self, length: int) -> MalformedRequest:
        text = f"a request of {length} bytes; at most {self.limit_bytes} are taken"
        return MalformedRequest(text)


_FIXED = struct.Struct(">hhi")
API_VERSIONS_KEY = 18
NO_TAGS = b"\0"


class RequestHeader(msgspec.Struct, frozen=True):
    """The header of a request."""

    key: int
    version: int
    correlation: int


def read_header(frame: memoryview) -> RequestHeader:
    """What every request begins with. Raises MalformedRequest."""
    if len(frame) < _FIXED.size:
        raise MalformedRequest(f"a request of {len(frame)} bytes has no header")
    return RequestHeader(*_FIXED.unpack_from(frame))


def read_client_id(frame: memoryview, *, flexible: bool) -> tuple[str, int]:
    """The client's name for itself, and where the body begins. Raises MalformedRequest."""
    reader = MessageReader(frame, _FIXED.size)
    client_id = reader.nullable_string() or ""
    reader.flexible = flexible
    reader.skip_tags()
    return client_id, reader.at


def response_header(header: RequestHeader, *, flexible: bool) -> bytes:
    """What the answer begins with. That of ApiVersions never has tagged fields, so that a client
    that knows no versions yet can read it.
    """
    correlation = header.correlation.to_bytes(4, "big", signed=True)
    return correlation + NO_TAGS if flexible and header.key != API_VERSIONS_KEY else correlation
