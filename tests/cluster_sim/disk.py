"""The disk of one simulated machine, and what goes wrong with disks.

Invariant: what processes see is always the page cache; what survives a power failure is decided by
the files and directories themselves (`inode`).
"""

from __future__ import annotations

import copy
import os
import random
import zlib
from collections.abc import Callable, Iterator
from functools import lru_cache

from tests.cluster_sim.inode import Directory, Inode
from tests.cluster_sim.process import Process

NO_LIMIT_BYTES = 1 << 40


@lru_cache(maxsize=1 << 12)
def parts(path: str) -> tuple[str, str]:
    """(directory, name): the same few paths are looked up all the time."""
    return os.path.split(path)


class Disk:
    """One machine's file system, from `/` on."""

    def __init__(self, seed: str) -> None:
        self.chance = random.Random(seed)
        self.root = Directory()
        self.capacity_bytes = NO_LIMIT_BYTES
        self.used_bytes = 0
        self.is_lossy = False
        """Whether it has ever lost or damaged anything that was written to it."""
        self.failing: str | None = None
        """The next sync of a file whose path holds this fails."""
        self.failed: set[str] = set()
        """Paths of files whose sync has ever failed."""
        self.sync_s = 0.001
        self.locks: dict[int, tuple[Process, object]] = {}
        """id of a file -> who holds its lock."""
        self.watchers: dict[str, list[Callable[[str, int], None]]] = {}
        """Directory -> who is told (name, mask) of changes in it."""
        self.on_unlink: Callable[[Process, str, Inode], None] = lambda *args: None
        self.on_cut: Callable[[str, Inode, int], None] = lambda *args: None
        self.note: Callable[[str, str], None] = lambda *args: None
        """(name of a process, what it does)."""
        self.changes = 0
        """How often anything in it was changed."""
        self.number = zlib.crc32(seed.encode())
        """Of the file system."""
        self._births = 0
        self._flat: dict[str, Inode | Directory] = {"/": self.root}

    # --- names ------------------------------------------------------------------------------------

    def find(self, path: str) -> Inode | Directory | None:
        """What has this name."""
        return self._flat.get(path)

    def directory_of(self, path: str) -> Directory | None:
        """The directory that a path is in."""
        found = self._flat.get(parts(path)[0])
        return found if isinstance(found, Directory) else None

    def link(self, path: str, to: Inode | Directory) -> None:
        """A new name, in a directory that is there."""
        parent = self.directory_of(path)
        if parent is None:
            raise FileNotFoundError(path)
        parent.link(parts(path)[1], to)
        self._flat[path] = to
        self.stamp(parent)

    def unlink(self, path: str) -> None:
        """A name goes; what it named lives on in who has it open."""
        parent = self.directory_of(path)
        if parent is None:
            raise FileNotFoundError(path)
        parent.unlink(parts(path)[1])
        gone = self._flat.pop(path)
        if isinstance(gone, Inode):
            self.used_bytes -= len(gone.data)
        self.stamp(parent)

    def rename(self, source: str, target: str) -> None:
        """What had one name has another one, with everything in it."""
        parent, to = self.directory_of(source), self.directory_of(target)
        if parent is None or to is None:
            raise FileNotFoundError(source)
        if to is parent:
            parent.rename(parts(source)[1], parts(target)[1])
        else:
            parent.move(parts(source)[1], to, parts(target)[1])
        if isinstance(self._flat[source], Directory):
            self._flat = self._names()
        else:
            self._flat[target] = self._flat.pop(source)
        self.stamp(parent)
        self.stamp(to)

    def _names(self) -> dict[str, Inode | Directory]:
        return {"/": self.root, **dict(_walk("", self.root))}

    def next_birth(self) -> int:
        """For a file that is made now."""
        self._births += 1
        return self._births

    def stamp(self, changed: Inode | Directory) -> None:
        """It has changed: times are never equal, so nothing depends on their grain."""
        self.changes += 1
        changed.modified = self.changes

    def is_named_durably(self, path: str) -> bool:
        """Whether no name on the way to a file would go with the power."""
        while path != "/":
            above, name = parts(path)
            parent = self._flat.get(above)
            if not isinstance(parent, Directory) or not parent.is_durable(name):
                return False
            path = above
        return True

    def tell(self, path: str, mask: int) -> None:
        """Something has happened to a file or a name."""
        if self.watchers:
            directory, name = parts(path)
            for watcher in tuple(self.watchers.get(directory, ())):
                watcher(name, mask)

    def files(self, under: str = "/") -> Iterator[tuple[str, Inode]]:
        """All regular files, by path."""
        for path in sorted(self._flat):
            found = self._flat[path]
            if isinstance(found, Inode) and path.startswith(under):
                yield path, found

    # --- failures ---------------------------------------------------------------------------------

    def lose_power(self) -> None:
        """What was not synced may vanish, tear, or be there."""
        self.root.lose_power(self.chance)
        self.is_lossy = True
        self._settle()

    def drop_unsyncable(self) -> None:
        """What a sync has failed on is read from the disk by the next process: it is not there."""
        for _, inode in self.files():
            inode.drop_doomed()

    def _settle(self) -> None:
        """The names are others now, and nobody has anything open."""
        self._flat = self._names()
        self.used_bytes = sum(len(inode.data) for _, inode in self.files())
        self.locks.clear()
        self.watchers.clear()
        self.failing = None

    def wipe(self) -> None:
        """A new, empty disk."""
        self.root = Directory()
        self.is_lossy = True
        self._settle()

    def copy_of(self, under: str) -> Directory:
        """A copy of a directory as it is now, as a backup tool makes it."""
        found = self._flat[under]
        if not isinstance(found, Directory):
            raise NotADirectoryError(under)
        return copy.deepcopy(found)

    def bring_back(self, under: str, backup: Directory) -> None:
        """Put a copy in the place of a directory, durably."""
        restored = copy.deepcopy(backup)
        _make_durable(restored)
        parent = self.directory_of(under)
        if parent is None:
            raise FileNotFoundError(under)
        for _, file in _walk("", restored):
            file.born = self.next_birth()
        parent.link(parts(under)[1], restored)
        parent.sync()
        self.is_lossy = True
        self._settle()


def _walk(path: str, directory: Directory) -> Iterator[tuple[str, Inode | Directory]]:
    for name in sorted(directory.children):
        child = directory.children[name]
        yield f"{path}/{name}", child
        if isinstance(child, Directory):
            yield from _walk(f"{path}/{name}", child)


def _make_durable(directory: Directory) -> None:
    directory.sync()
    for child in directory.children.values():
        if isinstance(child, Directory):
            _make_durable(child)
        else:
            child.end_sync(child.begin_sync())
