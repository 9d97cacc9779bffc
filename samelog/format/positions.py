"""The two types of place in a log, and nothing beside them.

A session log is a sequence of files `log.<run>.<roll>` for each partition; a merged log is a
sequence of segments, each called after its base offset.

Invariant: positions of one log are ordered as its bytes are, and a position alone does not say
which bytes are there: two logs that differ may both have it.
"""

from __future__ import annotations

from typing import NamedTuple


class SessionPosition(NamedTuple):
    """Byte `byte` of file `log.<run>.<roll>` of one partition of a session."""

    run: int
    roll: int
    byte: int


class SegmentPosition(NamedTuple):
    """Byte `byte` of the segment of a merged log that begins at offset `base_offset`."""

    base_offset: int
    byte: int
