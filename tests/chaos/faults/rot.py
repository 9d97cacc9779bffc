"""Bits that turn at rest, in any kind of file of a node.

Invariant: one byte changes and the file stays the same one, whoever has it open; `Rot.undo` gives
exactly the bytes from before back, if the file is still there.
"""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

KINDS: dict[str, tuple[str, ...]] = {
    "session log": ("sessions/*/*/log.*",),
    "session marks": ("sessions/.marks",),
    "session.json": ("sessions/*/session.json",),
    "topic.json": ("sessions/*/*/topic.json",),
    "merged segment": ("merged/*/*.log",),
    "offset index": ("merged/*/*.index",),
    "time index": ("merged/*/*.timeindex",),
    "merged marks": ("merged/*/marks",),
    "partition.json": ("merged/*/partition.json",),
    "Raft log": ("raft/wal.*",),
    "Raft snapshot": ("raft/*/snapshot.*",),
    "node.json": ("node.json",),
}


@dataclass(frozen=True, slots=True)
class Rot:
    """One bit that was turned."""

    path: Path
    position: int
    mask: int

    def apply(self) -> None:
        """Turn it (back)."""
        with self.path.open("r+b") as file:
            file.seek(self.position)
            old = file.read(1)[0]
            file.seek(self.position)
            file.write(bytes([old ^ self.mask]))

    def undo(self) -> None:
        """Turn it back if the file is still there, and as long as it was."""
        if self.path.exists() and self.path.stat().st_size > self.position:
            self.apply()

    @property
    def place(self) -> str:
        """For people."""
        return f"{self.path.name}, byte {self.position}"


def files_of(data: Path, kind: str) -> list[Path]:
    """The files of one kind that hold anything; the largest first."""
    found = [path for pattern in KINDS[kind] for path in data.glob(pattern)]
    names = ("sealed-", "from-", "quarantined-", ".tmp")
    held = [path for path in found if not any(name in path.name for name in names)]
    return sorted((path for path in held if path.stat().st_size), key=os.path.getsize)[::-1]


def turn(data: Path, kind: str, chance: random.Random) -> Rot | None:
    """Turn one bit somewhere in a file of a kind; None if there is no such file."""
    files: Sequence[Path] = files_of(data, kind)
    if not files:
        return None
    path = chance.choice(files[:4])
    rot = Rot(path, chance.randrange(path.stat().st_size), 1 << chance.randrange(8))
    rot.apply()
    return rot
