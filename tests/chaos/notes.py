"""What a load process writes down as it happens, outside every disk that is made to fail.

A note is one line, written with one call, so a killed process leaves whole lines and perhaps one
that is cut, which is ignored. The page cache outlives a killed process; the machine that runs the
tests does not lose its power.

Invariant: an acknowledgement is noted after the publisher was told, never before.
"""

from __future__ import annotations

import os
import time
from enum import Enum
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple


class Kind(Enum):
    """What happened."""

    APPENDED = "A"
    ACKNOWLEDGED = "K"
    MERGED = "M"
    RECEIVED = "R"
    ENDED = "E"
    """Cleanly, with everything merged."""


class Note(NamedTuple):
    """One line: how many records of this life, and when (the machine's monotonic clock)."""

    kind: Kind
    records: int
    at_s: float


class NoteBook:
    """Writes the notes of one process."""

    def __init__(self, path: str) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def write(self, kind: Kind, count: int) -> None:
        """Note that `count` records have come so far."""
        line = f"{kind.value} {count} {time.monotonic():.6f}\n"
        os.write(self._descriptor, line.encode())


def read_notes(path: Path) -> list[Note]:
    """All whole lines of a file that may still grow, or not be there yet."""
    try:
        lines = path.read_text(encoding="ascii").split("\n")[:-1]
    except FileNotFoundError:
        return []
    return [
        Note(Kind(kind), int(count), float(at))
        for kind, count, at in (line.split(" ") for line in lines)
    ]


def last_count(notes: list[Note], kind: Kind) -> int:
    """How far a life came."""
    return max((note.records for note in notes if note.kind is kind), default=0)


def longest_gap_ms(times: list[float], began: float, finished: float) -> int:
    """The longest time between two of these moments, as far as it lies in the interval."""
    inside = [began, *sorted(at for at in times if began <= at <= finished), finished]
    return round(1000 * max(later - earlier for earlier, later in pairwise(inside)))
