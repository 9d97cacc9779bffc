"""Which segments of a subscriber's copies go, so that all of them keep within a disk budget.

The oldest closed segments go first, whatever partition they are of; that they were written last is
what makes others younger. A segment that grows stays, however large it is.

Invariant: of each copy a first part goes, and never all of it.
"""

from __future__ import annotations

import heapq
import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from samelog.format.file_names import LOG, segment_bases, segment_name
from samelog.replicator.interfaces import InputName
from samelog.store.disk.files import FileSystem


class CopySegment(NamedTuple):
    """A segment with bytes in it; `following`: the base offset of the next one, None: it grows."""

    modified_ns: int
    copy: InputName
    following: int | None
    size: int


def segments_of_all(fs: FileSystem, paths: Mapping[InputName, str]) -> list[list[CopySegment]]:
    """The segments of each copy, given where it is. Raises LogFormatError."""
    return [segments_of(fs, path, copy) for copy, path in paths.items()]


def segments_of(fs: FileSystem, path: str, copy: InputName) -> list[CopySegment]:
    """The segments of one copy, in order. As the oldest are emptied first, the newest closed one
    that is empty has none before it. Raises LogFormatError.
    """
    found: list[CopySegment] = []
    following = None
    for base in reversed(segment_bases(fs.list_directory(path))):
        file = os.path.join(path, segment_name(base, LOG))
        size = fs.size(file)
        if size > 0:
            found.append(CopySegment(fs.modified_ns(file), copy, following, size))
        elif following is not None:
            break
        following = base
    return found[::-1]


def starts_within(
    budget_bytes: int, copies: Sequence[Sequence[CopySegment]]
) -> dict[InputName, int]:
    """Copy -> where it has to begin from now on; those that stay as they are are not named. Of each
    copy the segments are given in order.
    """
    starts: dict[InputName, int] = {}
    excess = sum(segment.size for segments in copies for segment in segments) - budget_bytes
    for segment in heapq.merge(*copies, key=lambda each: each.modified_ns):
        if excess <= 0:
            break
        if segment.following is not None:
            starts[segment.copy] = segment.following
            excess -= segment.size
    return starts
