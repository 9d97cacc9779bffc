"""Finds segment files that somebody removed or cut while the log is open, and puts them back.

Invariant: a file takes a segment's name only when it holds all of the segment; what had the name
before is set aside, never removed.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NamedTuple

from samelog.format import _kernels as kernels
from samelog.format.file_names import LOG, segment_name
from samelog.store.disk.files import File, FileSystem, NoSuchFile
from samelog.store.disk.quarantine import copy_bytes, set_aside

RESTORED = ".restored"
"""Behind the name of a segment that is not whole yet."""
PIECE_BYTES = 4 << 20


class MissingFile(NamedTuple):
    """A segment whose file is not as long as it was written; `size`: how long it is, -1: gone."""

    base: int
    size: int


def find_missing_files(
    fs: FileSystem, directory: str, wanted: Sequence[tuple[int, int]]
) -> list[MissingFile]:
    """Of these segments (base, size), those with less on the disk. Raises DiskFault."""
    try:
        names = set(fs.list_directory(directory))
    except NoSuchFile:
        names = set()
    found = []
    for base, size in wanted:
        name = segment_name(base, LOG)
        try:
            held = fs.size(os.path.join(directory, name)) if name in names else -1
        except NoSuchFile:
            held = -1
        if held < size:
            found.append(MissingFile(base, held))
    return found


def restored_path(directory: str, base: int) -> str:
    """Where a segment is put together."""
    return os.path.join(directory, segment_name(base, LOG) + RESTORED)


def copy_open(fs: FileSystem, source: File, path: str, size: int) -> None:
    """Copy what is still open, though its name is gone, durably. Raises DiskFault."""
    target = fs.open(path, writable=True, create=True)
    try:
        target.truncate(0)
        copy_bytes(source, target, 0, size, shift=0)
        target.datasync()
    finally:
        target.close()


def checksum_of(fs: FileSystem, path: str, begin: int) -> int:
    """The running checksum behind a file, `begin` being the one before it. Raises DiskFault."""
    file, position, checksum = fs.open(path), 0, begin
    try:
        while data := file.pread(PIECE_BYTES, position):
            checksum = kernels.crc32c(data, checksum)
            position += len(data)
        file.datasync()
    finally:
        file.close()
    return checksum


def put_back(fs: FileSystem, directory: str, base: int) -> str | None:
    """Give a restored file the segment's name: where what had it before is now, if there was any.
    Raises DiskFault.
    """
    path = os.path.join(directory, segment_name(base, LOG))
    aside = set_aside(fs, path) if fs.exists(path) else None
    fs.rename(restored_path(directory, base), path)
    fs.sync_directory(directory)
    return aside
