"""Whole batches in segments that were set aside: a last resort when no other copy has them.

Damage takes a batch or two, but what lies behind it goes too, because a log has no holes. When
another copy has filled the hole, the batches behind it are still good, at the same bytes.

Invariant: what is found is valid, and goes on exactly at the given byte and offset.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from shiplog.logformat import _kernels as kernels
from shiplog.logformat.batch import HELD_BATCH_BYTES
from shiplog.logformat.files import FileSystem
from shiplog.logformat.merged_names import LOG, segment_name

PIECE_BYTES = 1 << 20
_SET_ASIDE = re.compile(r"(?:\.from-(?P<start>[0-9]+))?\.quarantined-[0-9]+")


def find_spare(fs: FileSystem, directory: str, base: int, byte: int, offset: int) -> bytes:
    """Batches of the segment `base` from `byte` on, the first one with `offset`; empty if none are
    found. Raises DiskFault.
    """
    for path, start in _set_aside(fs, directory, base):
        data = _batches_at(fs, path, byte - start) if byte >= start else b""
        if data and int.from_bytes(data[:8], "big") == offset:
            return data
    return b""


def _set_aside(fs: FileSystem, directory: str, base: int) -> Iterator[tuple[str, int]]:
    """What was set aside of a segment, and the byte it begins at."""
    segment = segment_name(base, LOG)
    for name in fs.list_directory(directory):
        match = _SET_ASIDE.fullmatch(name.removeprefix(segment))
        if name.startswith(segment) and match is not None:
            yield os.path.join(directory, name), int(match["start"] or 0)


def _batches_at(fs: FileSystem, path: str, position: int) -> bytes:
    """Whole valid batches from `position` on; at least one, if there is one."""
    file = fs.open(path)
    try:
        for size in (PIECE_BYTES, HELD_BATCH_BYTES):
            data = bytes(file.pread(size, position))
            end = kernels.scan(data, max_batch_bytes=HELD_BATCH_BYTES).end
            if end:
                return data[:end]
    finally:
        file.close()
    return b""
