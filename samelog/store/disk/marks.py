"""Durable marks: small files that say up to where a log is known to be on disk.

Layout: one line of JSON, then one line with the CRC-32C of the first (without its line feed) as
eight hexadecimal digits. Marks are written lazily, so they lag; they never lead, because they are
written only after a finished sync. A file that cannot be read counts as no mark at all.

Invariant: what a mark vouches for was durable when the mark was written.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

from samelog.format import _kernels as kernels
from samelog.format.errors import CorruptLog
from samelog.store.disk.files import FileSystem, NoSuchFile

MARKS_FORMAT_VERSION = 1
MARKS_FILE = "marks"
_LIMIT_BYTES = 64 << 20

_Marks = TypeVar("_Marks", bound="Marks")


class Marks(msgspec.Struct, frozen=True, kw_only=True):
    """What all marks files have in common."""

    format_version: int = MARKS_FORMAT_VERSION


def encode_marks(marks: Marks) -> bytes:
    """The contents of a marks file."""
    line = msgspec.json.encode(marks)
    return b"%s\n%08x\n" % (line, kernels.crc32c(line))


def decode_marks(data: bytes, kind: type[_Marks]) -> _Marks | None:
    """The marks in a file's contents; None when they cannot be trusted."""
    line, _, checksum = data.partition(b"\n")
    if checksum != b"%08x\n" % kernels.crc32c(line):
        return None
    try:
        marks = msgspec.json.decode(line, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return marks if marks.format_version == MARKS_FORMAT_VERSION else None


def read_marks(fs: FileSystem, path: str, kind: type[_Marks]) -> _Marks | None:
    """The marks at `path`; None when there are none, or none that can be trusted."""
    try:
        data = fs.read_file(path, _LIMIT_BYTES)
    except (NoSuchFile, CorruptLog):
        return None
    return decode_marks(data, kind)
