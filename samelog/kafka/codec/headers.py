"""What stands before every request and every answer.

Request header: int16 API key, int16 version, int32 correlation id; from header version 1 on a
nullable string client id (with a 16-bit length in every version); from 2 on tagged fields. Answers:
int32 correlation id, and from header version 1 on tagged fields (Kafka's RequestHeader.json and
ResponseHeader.json).

Invariant: tagged fields of whatever number are skipped, as the protocol demands.
"""

from __future__ import annotations

import struct

import msgspec

from samelog.kafka.codec.errors import MalformedRequest
from samelog.kafka.codec.primitives import MessageReader

_FIXED = struct.Struct(">hhi")
_CLIENT_ID_AT = _FIXED.size + 2
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
    size = int.from_bytes(frame[_FIXED.size : _CLIENT_ID_AT], "big", signed=True)
    end = _CLIENT_ID_AT + max(size, 0)
    if size < -1 or end > len(frame):
        raise MalformedRequest(f"a client id of {size} bytes in a request of {len(frame)}")
    try:
        client_id = str(frame[_CLIENT_ID_AT:end], "utf-8")
    except UnicodeDecodeError as error:
        raise MalformedRequest(f"a client id is not UTF-8: {error.reason}") from error
    if not flexible:
        return client_id, end
    if frame[end : end + 1] == NO_TAGS:
        return client_id, end + 1
    reader = MessageReader(frame, end, flexible=True)
    reader.tags()
    return client_id, reader.at


def response_header(header: RequestHeader, *, flexible: bool) -> bytes:
    """What the answer begins with. That of ApiVersions never has tagged fields, so that a client
    that knows no versions yet can read it.
    """
    correlation = header.correlation.to_bytes(4, "big", signed=True)
    return correlation + NO_TAGS if flexible and header.key != API_VERSIONS_KEY else correlation
