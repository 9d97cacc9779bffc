"""Reads and writes the small JSON files that say what a directory is.

Invariant: a file of another format version is never written over, because it is read before. What
is written can be read.
"""

from __future__ import annotations

import logging
from functools import lru_cache
from typing import TypeVar

from samelog.format.checked_json import checked, is_intact
from samelog.format.directory_files import Versioned, decode_directory_file, encode_directory_file
from samelog.format.errors import CorruptLog
from samelog.store.disk.files import FileSystem, NoSuchFile

log = logging.getLogger(__name__)

LIMIT_BYTES = 1 << 20

_Value = TypeVar("_Value", bound=Versioned)


def read_json_file(
    fs: FileSystem, path: str, kind: type[_Value], *, limit_bytes: int = LIMIT_BYTES
) -> _Value | None:
    """The contents of a file; None if it is not there.

    Raises:
        UnsupportedFormat: it was written by another version.
        CorruptLog: it cannot be read, or is not a regular file.
    """
    try:
        data = fs.read_file(path, limit_bytes)
    except NoSuchFile:
        return None
    value = decode_directory_file(data, path, kind)
    checked_text(path, data)
    return value


def checked_text(path: str, data: bytes) -> bytes:
    """Return the text of a file as it was written, and log damage to the other one of its two
    texts. Raises ValueError: none is intact.
    """
    text = checked(data)
    if not is_intact(data):
        report_once(f"{path} is damaged; what it said is read from its two texts")
    return text


@lru_cache(maxsize=256)
def report_once(text: str) -> None:
    """Log an error, once however often it is found."""
    log.error("%s", text)


def write_json_file(
    fs: FileSystem,
    path: str,
    value: Versioned,
    *,
    durable: bool = True,
    limit_bytes: int = LIMIT_BYTES,
) -> None:
    """Write or replace a file; `durable`: wait for the disk.

    Raises:
        CorruptLog: nobody could read it, so nothing was written.
        DiskFault
    """
    fs.write_atomically(path, _encoded(path, value, limit_bytes), durable=durable)


def create_json_file(fs: FileSystem, path: str, value: Versioned, *, temporary: str) -> bool:
    """Create a file durably; False if it exists. Raises as `write_json_file`, and NoHardLinks."""
    data = _encoded(path, value, LIMIT_BYTES)
    return fs.create_atomically(path, data, temporary=temporary)


def _encoded(path: str, value: Versioned, limit_bytes: int) -> bytes:
    data = encode_directory_file(value)
    if len(data) > limit_bytes:
        raise CorruptLog(path, 0, f"would be longer than {limit_bytes} bytes")
    return data
