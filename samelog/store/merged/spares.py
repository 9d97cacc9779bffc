"""Whole batches in segments that were set aside: a last resort when no other copy has them.

Damage takes a batch or two, but what lies behind it goes too, because a log has no holes. Once the
hole is filled, by another copy's batch or a void one, the batches behind it are still good.

Offsets lie outside the CRCs. They are believed of batches that follow each other without a break,
and of one that is just where it was in its segment.

Invariant: what is found is valid, and begins at the offset that was asked for.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass

from samelog.format import _kernels as kernels
from samelog.format.batch import HEADER_BYTES, HELD_BATCH_BYTES, LENGTH_PREFIX_BYTES, MAGIC
from samelog.store.disk.batch_walk import CHUNK_BYTES, BatchChunk, BatchWalk
from samelog.store.disk.files import File, FileSystem

_SET_ASIDE = re.compile(r"(?P<base>[0-9]{20})\.log(\.from-(?P<start>[0-9]+))?\.quarantined-[0-9]+")
_MAGIC_AT, _LENGTH_AT = 16, 8


@dataclass(slots=True)
class _Stretch:
    """Whole valid batches one behind the other: offsets [first, behind)."""

    first: int
    behind: int
    base: int
    """The segment they were in."""
    byte: int
    """Where in it."""
    path: str
    position: int
    size: int
    is_sure: bool = False
    """More than one batch agrees on the offsets."""


class Spares:
    """The quarantined files in one partition's directory, and the batches in them."""

    def __init__(self, fs: FileSystem, directory: str) -> None:
        self._fs = fs
        self._directory = directory
        self._seen: list[str] = []
        self._stretches: list[_Stretch] = []

    def read_new(self) -> Iterator[None]:
        """Read the files that were quarantined since the last call, a piece in each step. Raises
        DiskFault.
        """
        is_there = self._fs.exists(self._directory)
        for name in self._fs.list_directory(self._directory) if is_there else ():
            match = _SET_ASIDE.fullmatch(name)
            if match is not None and name not in self._seen:
                self._seen.append(name)
                path, start = os.path.join(self._directory, name), int(match["start"] or 0)
                yield from self._read(path, int(match["base"]), start)

    def _read(self, path: str, base: int, start: int) -> Iterator[None]:
        """Read the copy `path` of what is behind byte `start` of the segment `base`."""
        file = self._fs.open(path)
        try:
            position, size = 0, file.size()
            while position < size:
                walk, last = BatchWalk(file, position, size), None
                for piece in walk:
                    for found in _stretches(piece):
                        found.base, found.byte, found.path = base, start + found.position, path
                        _follow(last, found)
                        self._stretches.append(found)
                        last = found
                    yield
                position = _next_batch(file, walk.end, size)
        finally:
            file.close()

    def find(self, offset: int, end: tuple[int, int]) -> tuple[int, bytes] | None:
        """The segment that batches were in, and the batches, the first one with `offset`, for a log
        that ends at (segment, byte); None if none were seen. Raises DiskFault.
        """
        for known in self._stretches:
            is_sure = known.is_sure or (known.base, known.byte) in (end, (offset, 0))
            if is_sure and known.first <= offset < known.behind:
                data = self._from_offset(known, offset)
                if data:
                    return known.base, data
        return None

    def next_after(self, offset: int) -> int | None:
        """The lowest offset above `offset` that batches begin with."""
        sure = (known.first for known in self._stretches if known.is_sure)
        return min((first for first in sure if first > offset), default=None)

    def _from_offset(self, known: _Stretch, offset: int) -> bytes:
        file = self._fs.open(known.path)
        try:
            data = bytes(file.pread(known.size, known.position))
        finally:
            file.close()
        end = kernels.scan(data, max_batch_bytes=HELD_BATCH_BYTES).end
        for start, *_ in kernels.batch_headers(data, 0, end):
            if _base_offset(data, start) == offset:
                return data[start:end]
        return b""


def _base_offset(data: bytes, start: int) -> int:
    return int.from_bytes(data[start : start + 8], "big")


def _stretches(piece: BatchChunk) -> list[_Stretch]:
    """A piece, cut where an offset is not the one behind the last."""
    found: list[_Stretch] = []
    for start, size, records, *_ in kernels.batch_headers(piece.data, 0, piece.size):
        first = _base_offset(piece.data, start)
        if found and found[-1].behind == first:
            found[-1].behind += records
            found[-1].size += size
            found[-1].is_sure = True
        else:
            at = piece.position + start
            found.append(_Stretch(first, first + records, 0, 0, "", at, size))
    return found


def _follow(last: _Stretch | None, found: _Stretch) -> None:
    """Neighbours that agree confirm each other."""
    if last is not None and last.behind == found.first:
        last.is_sure = found.is_sure = True


def _next_batch(file: File, position: int, size: int) -> int:
    """Where the next valid batch begins behind a bad one; the file's size if there is none."""
    search_from = position + 1
    while search_from + HEADER_BYTES <= size:
        data = bytes(file.pread(CHUNK_BYTES, search_from))
        for at in _candidates(data):
            length = int.from_bytes(data[at + _LENGTH_AT : at + _LENGTH_AT + 4], "big")
            whole = LENGTH_PREFIX_BYTES + length
            if HEADER_BYTES <= whole <= min(HELD_BATCH_BYTES, size - search_from - at):
                batch = file.pread(whole, search_from + at)
                if kernels.scan(batch, max_batch_bytes=HELD_BATCH_BYTES).end == whole:
                    return search_from + at
        if len(data) < CHUNK_BYTES:
            break
        search_from += CHUNK_BYTES - HEADER_BYTES
    return size


def _candidates(data: bytes) -> Iterator[int]:
    """Where the magic byte of a header could be."""
    found = data.find(MAGIC, _MAGIC_AT)
    while found >= 0:
        yield found - _MAGIC_AT
        found = data.find(MAGIC, found + 1)
