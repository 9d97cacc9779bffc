"""Archiving: the oldest segments of a merged log become empty files, which keep their names.

A segment's bytes go by giving its name to a new, empty file, so that nobody who reads the old one
has pages pulled from under them. Which segments those are is decided elsewhere and written to
`partition.json` first: an empty file above that is damage, whatever its size says.

Invariant: nothing at or above the start that partition.json names is ever truncated here.
"""

from __future__ import annotations

import hashlib
import os
from struct import Struct
from typing import NamedTuple

from samelog.format.errors import CorruptLog
from samelog.format.file_names import (
    INDEX,
    LOG,
    TIME_INDEX,
    TXN_INDEX,
    segment_bases,
    segment_name,
)
from samelog.store.disk.files import FileSystem

PIECE_BYTES = 4 << 20
_BASE_TIMESTAMP = Struct(">27xq")  # of a batch


class LogStart(NamedTuple):
    """From where on a log is kept. Records below `offset` are archived; `segment` is the base
    offset of the first segment that is kept, `checksum` the running one where it begins.
    """

    offset: int
    segment: int
    checksum: int


def describe_segment(fs: FileSystem, path: str, size: int) -> tuple[int, bytes]:
    """The first timestamp (ms) and the SHA-256 of a segment's bytes, all of which are read.

    Raises:
        CorruptLog: it does not have so many bytes.
        NoSuchFile, DiskFault
    """
    facts = SegmentFacts(fs, path, size)
    while facts.read():
        pass
    return facts.first_ms, facts.sha256


class SegmentFacts:
    """The facts of a segment, found piece by piece."""

    def __init__(self, fs: FileSystem, path: str, size: int) -> None:
        self._fs = fs
        self._path = path
        self._size = size
        self._position = 0
        self._digest = hashlib.sha256()
        self.first_ms = -1

    @property
    def sha256(self) -> bytes:
        """The SHA-256 of the bytes read so far."""
        return self._digest.digest()

    def read(self) -> int:
        """Take in the next piece: its bytes; 0: there is no more. Raises as `describe_segment`."""
        if self._position >= self._size:
            return 0
        file = self._fs.open(self._path)
        try:
            data = file.pread(min(PIECE_BYTES, self._size - self._position), self._position)
        finally:
            file.close()
        if not data:
            text = f"ends here; it had {self._size} bytes"
            raise CorruptLog(self._path, self._position, text)
        if self._position == 0:
            self.first_ms = _BASE_TIMESTAMP.unpack_from(data)[0]
        self._digest.update(data)
        self._position += len(data)
        return len(data)


def not_truncated(fs: FileSystem, directory: str, below: int) -> list[int]:
    """The segments below an offset that are to be truncated, oldest first. Raises DiskFault.

    Indexes go with a segment's bytes, so those that have one are. That a segment is empty does not
    say that the older ones are truncated: it may be where the log grew when its bytes were lost.
    Without an index, sizes are looked at from the newest on, as the oldest are truncated first.
    """
    names = set(fs.list_directory(directory))
    bases = [base for base in segment_bases(names) if base < below]
    found = {base for base in bases if segment_name(base, TIME_INDEX) in names}
    for base in reversed(bases):
        if base not in found:
            if fs.size(os.path.join(directory, segment_name(base, LOG))) == 0:
                break
            found.add(base)
    return sorted(found)


def truncate_segments(
    fs: FileSystem, directory: str, bases: list[int], within: tuple[int, int] | None = None
) -> None:
    """Empty archived segments, durably; their indexes go. Takes as long as the disk needs to free
    them. If `within` is given, only the directory that has this identity is changed. Raises
    DiskFault; DirectoryGone: another directory is in its place.
    """
    for base in bases:
        path = os.path.join(directory, segment_name(base, LOG))
        if within is None:
            fs.write_atomically(path, b"", durable=False)
        else:
            fs.empty(path, within=within)
        for suffix in (INDEX, TIME_INDEX, TXN_INDEX):
            index = os.path.join(directory, segment_name(base, suffix))
            if fs.exists(index):
                fs.unlink(index, within=within)
    if bases:
        fs.sync_directory(directory)
