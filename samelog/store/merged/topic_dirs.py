"""Directories that bear a topic's name but belong to an owner, which is what counts.

A name can be used again, and a partition can leave a group and come back: the owner is the topic id
or, at a node, that with what tells one stay in the group from the next. A node that replays its log
after a restart meets the older owner of a name first, while the directory is the newer one's
already: so another owner's directory is never removed, but parked until its owner is met, or known
to be gone.

Removing a directory takes a disk some milliseconds and a topic has thousands, so they go one by one
(`remove_next`).

Invariant: a directory is removed only for the owner it belongs to, once it is committed that the
topic is deleted, or that its partition is in another group. What waits to be removed at a path is
gone before the path is given to another owner.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Container

from samelog.store.disk.directories import clear_removed, remove_whole
from samelog.store.disk.files import FileSystem

PARKED = "replaced"


class TopicDirs:
    """Directories `<topic>-<partition>` of one kind; `read_owner` tells whose one is (None: it was
    never claimed).

    All methods raise DiskFault, and CorruptLog when whose a directory is cannot be read.
    """

    def __init__(self, fs: FileSystem, read_owner: Callable[[str], str | None]) -> None:
        self._fs = fs
        self._read_owner = read_owner
        self._leaving: dict[str, tuple[str, int]] = {}
        """Path -> owner and partition of directories that wait to be removed."""

    def make_way(self, path: str, owner: str, index: int) -> None:
        """Park another owner's directory at `path`; put this one's there if it was parked."""
        self._finish(path)
        present = self._owner(path)
        if present is not None and present != owner:
            self.park(path, present, index)
        parked = _parked(path, owner, index)
        if present != owner and self._fs.exists(parked):
            if self._fs.exists(path):
                remove_whole(self._fs, path)  # made, but never given to a log
            self._move(parked, path)

    def is_there(self, path: str, owner: str, index: int) -> bool:
        """Whether `path` may be this owner's, or its directory is parked."""
        leaving = self._leaving.get(path)
        is_in_place = self._fs.exists(path)
        if is_in_place and leaving is not None:  # a restarted node repeats an older removal
            is_in_place = self._owner(path) != leaving[0]
        return is_in_place or self._fs.exists(_parked(path, owner, index))

    def indexes(self, folder: str, topic: str, owners: Container[str]) -> set[int]:
        """Return the partitions of a topic for which `is_there` may be true, by its owners."""
        parked = os.path.join(folder, PARKED)
        names = self._fs.list_directory(folder)
        numbers = [name.removeprefix(f"{topic}-") for name in names if name.startswith(topic)]
        if self._fs.exists(parked):
            names = self._fs.list_directory(parked)
            parts = [name.rpartition("-") for name in names]
            numbers += [number for owner, _, number in parts if owner in owners]
        return {int(number) for number in numbers if number.isdecimal()}

    def park(self, path: str, owner: str, index: int) -> str:
        """Keep this owner's directory, but out of the way of a newer one's: where."""
        parked = _parked(path, owner, index)
        if self._owner(path) == owner:
            self._fs.make_directory(os.path.join(os.path.dirname(path), PARKED))
            self._move(path, parked)
        return parked

    def remove_later(self, path: str, owner: str, index: int) -> None:
        """It is to go: `remove_next` removes its directory, wherever it is."""
        self._finish(path)
        self._leaving[path] = owner, index

    def remove_next(self) -> bool:
        """Remove one of the directories that wait for it; whether there was any."""
        path = next(iter(self._leaving), None)
        if path is not None:
            self._finish(path)
        return path is not None

    def _finish(self, path: str) -> None:
        if path in self._leaving:
            self._remove(path, *self._leaving.pop(path))

    def _remove(self, path: str, owner: str, index: int) -> None:
        for place in (path, _parked(path, owner, index)):
            if self._owner(place) == owner:
                remove_whole(self._fs, place)

    def forget_others(self, folder: str, is_known: Callable[[str, int], bool]) -> None:
        """Remove what is parked in `folder` unless its owner and partition are known, and the rest
        of directories that were being removed; to be called when everything that was ever committed
        is applied.
        """
        clear_removed(self._fs, folder)
        parked = os.path.join(folder, PARKED)
        if not self._fs.exists(parked):
            return
        clear_removed(self._fs, parked)
        for name in self._fs.list_directory(parked):
            owner, _, number = name.rpartition("-")
            if not (number.isdecimal() and is_known(owner, int(number))):
                remove_whole(self._fs, os.path.join(parked, name))

    def _owner(self, path: str) -> str | None:
        return self._read_owner(path) if self._fs.exists(path) else None

    def _move(self, source: str, target: str) -> None:
        self._fs.rename(source, target)
        self._fs.sync_directory(os.path.dirname(target))
        self._fs.sync_directory(os.path.dirname(source))


def _parked(path: str, owner: str, index: int) -> str:
    return os.path.join(os.path.dirname(path), PARKED, f"{owner}-{index}")
