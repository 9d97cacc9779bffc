"""The records of archived files: one of a fixed size for every segment that was ever archived.

Layout in docs/formats.md, "History": a file that was copied has facts about that where other
records have the end of a long reason.

Invariant: a record that is damaged is never taken for another.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from samelog.format import _kernels as kernels

_BODY = struct.Struct(">qqqqqqq32s36s")
_CRC = struct.Struct(">I")
RECORD_BYTES = _BODY.size + _CRC.size
REASON_BYTES = 36
_COPIED = struct.Struct(">24sqHBB")
COPIED_REASON_BYTES = 24
_IS_COPIED = 1
"""No byte of a reason: in the place of its last one."""


class CopyNote(NamedTuple):
    """A verified copy: since when (ms), at which target of the replicated list, and its formats, a
    bit for each.
    """

    copied_ms: int
    target: int
    formats: int


class ArchivedFile(NamedTuple):
    """One archived segment: offsets [base, next_offset), timestamps and times in ms (-1: none, or
    not known), its bytes and their SHA-256.
    """

    base: int
    next_offset: int
    size: int
    first_ms: int
    last_ms: int
    rolled_ms: int
    archived_ms: int
    sha256: bytes
    reason: str
    copy: CopyNote | None = None


def encode_record(file: ArchivedFile) -> bytes:
    """One record; a long reason is cut."""
    reason = file.reason.encode()
    if reason[REASON_BYTES - 1 : REASON_BYTES] == bytes([_IS_COPIED]):
        reason = reason[: REASON_BYTES - 1]
    if file.copy is not None:
        reason = _COPIED.pack(reason[:COPIED_REASON_BYTES], *file.copy, _IS_COPIED)
    body = _BODY.pack(*file[:7], file.sha256, reason[:REASON_BYTES])
    return body + _CRC.pack(kernels.crc32c(body))


def decode_record(data: bytes | memoryview) -> ArchivedFile | None:
    """What a record holds; None if it is not one."""
    if len(data) != RECORD_BYTES:
        return None
    body = bytes(data[: _BODY.size])
    if _CRC.unpack_from(data, _BODY.size)[0] != kernels.crc32c(body):
        return None
    *numbers, sha256, reason = _BODY.unpack(body)
    copy: CopyNote | None = None
    if reason[-1] == _IS_COPIED:
        reason, *facts, _ = _COPIED.unpack(reason)
        copy = CopyNote._make(facts)
    text = reason.rstrip(b"\0").decode(errors="ignore")
    return ArchivedFile._make((*numbers, sha256, text, copy))


def decode_records(data: bytes) -> list[ArchivedFile] | None:
    """Records one behind the other; None if one of them is none."""
    found = []
    for at in range(0, len(data), RECORD_BYTES):
        record = decode_record(data[at : at + RECORD_BYTES])
        if record is None:
            return None
        found.append(record)
    return found
