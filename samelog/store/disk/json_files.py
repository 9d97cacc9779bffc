"""Reads and writes the small JSON files that say what a directory is.

Invariant: a file of another format version is never written over, because it is read before.
"""

from __future__ import annotations

from typing import TypeVar

from samelog.format.directory_files import Versioned, decode_directory_file, encode_directory_file
from samelog.store.disk.files import FileSystem, NoSuchFile

_LIMIT_BYTES = 1 << 20

_Value = TypeVar("_Value", bound=Versioned)


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
    return decode_directory_file(data, path, kind)


def write_json_file(fs: FileSystem, path: str, value: Versioned, *, durable: bool = True) -> None:
    """Write or replace a file; `durable`: wait for the disk. Raises DiskFault."""
    fs.write_atomically(path, encode_directory_file(value), durable=durable)
