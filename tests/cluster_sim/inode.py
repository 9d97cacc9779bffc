"""Files and directories of a simulated disk, each with what is in the page cache and what a power
failure may leave of it.

Invariant: a power failure never takes what was synced; of the rest it leaves any part.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

SECTOR_BYTES = 512


@dataclass(slots=True)
class _Change:
    """One write or cut that is not known to be on disk, and how to take it back."""

    serial: int
    position: int
    size: int
    """Bytes written; of a cut: 0."""
    old: bytes
    old_size: int
    is_cut: bool = False
    is_doomed: bool = False
    """A sync of it failed: it will never reach the disk, whatever later syncs say."""


class Inode:
    """A regular file. `data` is what reads see."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.fails_syncs = False
        self.was_damaged = False
        """Whether bytes of it have rotted."""
        self.promised_bytes = 0
        """So much of it was durable once."""
        self.modified = 0
        self.born = 0
        """Another number for each file that was ever made on a machine."""
        self._changes: list[_Change] = []
        self._serial = 0

    def write(self, position: int, data: bytes | bytearray | memoryview) -> None:
        """Change the page cache."""
        held = self.data
        size = len(held)
        self._serial += 1
        if position == size:
            self._changes.append(_Change(self._serial, position, len(data), b"", size))
            held += data
            return
        if position > size:
            held.extend(bytes(position - size))
        old = bytes(held[position : position + len(data)])
        self._changes.append(_Change(self._serial, position, len(data), old, size))
        held[position : position + len(data)] = data

    def cut(self, size: int) -> None:
        """Cut or extend it in the page cache."""
        old_size = len(self.data)
        if size == old_size:
            return
        self._serial += 1
        old = bytes(self.data[size:])
        self._changes.append(_Change(self._serial, size, 0, old, old_size, is_cut=True))
        if size < old_size:
            del self.data[size:]
        else:
            self.data.extend(bytes(size - old_size))

    # --- syncing ----------------------------------------------------------------------------------

    def begin_sync(self) -> int:
        """A sync that begins now covers everything up to here."""
        return self._serial

    def end_sync(self, serial: int) -> None:
        """What was written before the sync began is on disk."""
        if self._changes:
            self._changes = [c for c in self._changes if c.serial > serial or c.is_doomed]
        self.promised_bytes = max(self.promised_bytes, self.durable_size())

    def fail_sync(self, serial: int, chance: random.Random) -> None:
        """Some of what was written is lost for good, and the kernel forgets that it was dirty."""
        for change in self._changes:
            if change.serial <= serial:
                change.is_doomed = chance.random() < 0.8

    @property
    def is_clean(self) -> bool:
        """Whether a power failure would take nothing."""
        return not self._changes

    def durable_size(self) -> int:
        """How long the file is sure to be after a power failure."""
        size = len(self.data)
        return min(size, *[c.position for c in self._changes]) if self._changes else size

    # --- power failures ---------------------------------------------------------------------------

    def lose_power(self, chance: random.Random) -> None:
        """Keep what was synced, and any part of the rest."""
        redo: list[tuple[_Change, bytes]] = []
        for change in reversed(self._changes):
            redo.append((change, bytes(self.data[change.position :][: change.size])))
            self._undo(change)
        redo.reverse()
        self._changes = []
        self.fails_syncs = False
        kept = _choose([change for change, _ in redo], chance)
        for (change, data), keep in zip(redo, kept, strict=True):
            if keep and not change.is_doomed:
                self._redo(change, data, chance)

    def drop_doomed(self) -> None:
        """Forget what a failed sync has lost."""
        for change in reversed(self._changes):
            if change.is_doomed:
                self._undo(change)
        self._changes = [change for change in self._changes if not change.is_doomed]

    def _undo(self, change: _Change) -> None:
        if change.is_cut:
            del self.data[change.position :]
            self.data.extend(change.old)
            del self.data[change.old_size :]
            return
        end = change.position + change.size
        if end >= len(self.data) > change.old_size:
            del self.data[max(change.old_size, min(change.position, change.old_size)) :]
        old = change.old.ljust(change.size, b"\0")[: max(0, len(self.data) - change.position)]
        self.data[change.position : change.position + len(old)] = old

    def _redo(self, change: _Change, data: bytes, chance: random.Random) -> None:
        """Let a write reach the disk, whole, in part, or some sectors of it."""
        if change.is_cut:
            if change.position < len(self.data):
                del self.data[change.position :]
            return
        way = chance.random()
        if way < 0.5 or len(data) < 2:
            self._put(change.position, data)
        elif way < 0.8:
            self._put(change.position, data[: chance.randrange(1, len(data))])
        else:
            for start in range(0, len(data), SECTOR_BYTES):
                if chance.random() < 0.6:
                    self._put(change.position + start, data[start : start + SECTOR_BYTES])

    def _put(self, position: int, data: bytes) -> None:
        if position > len(self.data):
            self.data.extend(bytes(position - len(self.data)))
        self.data[position : position + len(data)] = data

    def rot(self, chance: random.Random) -> bool:
        """Change some bytes of a sector, on disk and as read; False: there is nothing to rot."""
        if not self.data:
            return False
        start = chance.randrange(0, len(self.data))
        stop = min(len(self.data), start + chance.choice((1, 8, SECTOR_BYTES)))
        for position in range(start, stop):
            self.data[position] ^= chance.randrange(1, 256)
        self.was_damaged = True
        return True


def _choose(changes: list[_Change], chance: random.Random) -> list[bool]:
    """Which of the changes reach the disk: none, all, those up to some moment, or any."""
    way = chance.random()
    if way < 0.3:
        return [False] * len(changes)
    if way < 0.4:
        return [True] * len(changes)
    if way < 0.7:
        count = chance.randint(0, len(changes))
        return [place < count for place in range(len(changes))]
    return [chance.random() < 0.5 for _ in changes]


Entry = "Inode | Directory"


@dataclass(slots=True)
class _Renaming:
    """A name that appears, and one that goes with it."""

    name: str
    to: Inode | Directory | None
    gone: str | None = None


@dataclass(slots=True)
class Directory:
    """Names, apart from what they name."""

    children: dict[str, Inode | Directory] = field(default_factory=dict)
    modified: int = 0
    born: int = 0
    _durable: dict[str, Inode | Directory] = field(default_factory=dict)
    _changes: list[_Renaming] = field(default_factory=list)

    def link(self, name: str, to: Inode | Directory) -> None:
        """A new name."""
        self.children[name] = to
        self._changes.append(_Renaming(name, to))

    def unlink(self, name: str) -> None:
        """A name goes."""
        del self.children[name]
        self._changes.append(_Renaming(name, None))

    def rename(self, source: str, target: str) -> None:
        """A name becomes another one, at once."""
        moved = self.children.pop(source)
        self.children[target] = moved
        self._changes.append(_Renaming(target, moved, source))

    def move(self, source: str, to: Directory, target: str) -> None:
        """A name moves to another directory, which is on disk at once: both or neither are."""
        moved = self.children.pop(source)
        self._changes = [change for change in self._changes if change.name != source]
        self._durable.pop(source, None)
        to.children[target] = to._durable[target] = moved

    def sync(self) -> None:
        """All names are on disk."""
        if self._changes:
            self._durable = dict(self.children)
            self._changes.clear()

    @property
    def is_clean(self) -> bool:
        """Whether a power failure would change no name."""
        return not self._changes

    def is_durable(self, name: str) -> bool:
        """Whether a name survives a power failure."""
        return self.children.get(name) is self._durable.get(name)

    def lose_power(self, chance: random.Random) -> None:
        """Keep what was synced and, of the rest, the changes up to some moment, or any."""
        names = dict(self._durable)
        changes, self._changes = self._changes, []
        if chance.random() < 0.7:
            changes = changes[: chance.randint(0, len(changes))]
        else:
            changes = [change for change in changes if chance.random() < 0.5]
        for change in changes:
            if change.gone is not None:
                names.pop(change.gone, None)
            if change.to is None:
                names.pop(change.name, None)
            else:
                names[change.name] = change.to
        self.children = names
        self._durable = dict(names)
        for child in names.values():
            child.lose_power(chance)
