"""Small JSON files that say what a directory is; each carries the version of its format.

Invariant: a file of another version is never read further than its version, and never written over.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

from samelog.format.errors import CorruptLog, UnsupportedFormat
from samelog.store.disk.files import FileSystem, NoSuchFile

FORMAT_VERSION = 1
_LIMIT_BYTES = 1 << 20

_Value = TypeVar("_Value", bound="Versioned")


class Versioned(msgspec.Struct, frozen=True, kw_only=True):
    """What every such file holds."""

    format_version: int = FORMAT_VERSION


class OtherTopic(UnsupportedFormat):
    """A directory belongs to another topic id than expected: its name was used before."""

    def __init__(self, path: str, found: str, expected: str) -> None:
        super().__init__(path, found, expected)
        self.path = path
        self.found = found
        self.expected = expected

    def __str__(self) -> str:
        return f"{self.path} belongs to topic id {self.found}, not to {self.expected}"


def read_json_file(fs: FileSystem, path: str, kind: type[_Value]) -> _Value | None:
    """The contents of a file; None if it is not there.

    Raises:
        UnsupportedFormat: it was written by another version.
        CorruptLog: it cannot be read, or is not a regular file.
    """
    try:
        data = fs.read_file(path, _LIMIT_BYTES)
    except NoSuchFile:
        return None
    try:
        version = msgspec.json.decode(data, type=Versioned).format_version
        if version != FORMAT_VERSION:
            raise UnsupportedFormat(
                f"{path}: format version {version}; this program reads {FORMAT_VERSION}: "
                "use the program that wrote it, or a newer one"
            )
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CorruptLog(path, 0, f"unreadable ({error}); restore it") from error


def write_json_file(fs: FileSystem, path: str, value: Versioned) -> None:
    """Write or replace a file, durably. Raises DiskFault."""
    fs.write_atomically(path, msgspec.json.format(msgspec.json.encode(value), indent=1) + b"\n")
