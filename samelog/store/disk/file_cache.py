"""Keeps files open that are read or written again and again, and few of the others.

Invariant: a held file stays open, because a sync of it may be under way or to come; of the rest,
the least recently used ones are closed.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable

from samelog.store.disk.files import File, FileSystem

READ_FILES = 8


class FileCache:
    """Open files by key."""

    def __init__(self, fs: FileSystem) -> None:
        self._fs = fs
        self._held: dict[Hashable, File] = {}
        self._read: OrderedDict[Hashable, File] = OrderedDict()

    def find(self, key: Hashable) -> File | None:
        """The open file of a key, for reading or writing; None if there is none."""
        file = self._held.get(key)
        if file is None and (file := self._read.get(key)) is not None:
            self._read.move_to_end(key)
        return file

    def open(self, key: Hashable, path: str) -> File:
        """Open a file for reading that is not open. Raises as FileSystem.open."""
        file = self._fs.open(path)
        self._add(key, file)
        return file

    def held(self, key: Hashable) -> File | None:
        """The file that is kept open for writing; None if there is none."""
        return self._held.get(key)

    def hold(self, key: Hashable, file: File) -> None:
        """Keep a file that is written to open."""
        self.drop(key)
        self._held[key] = file

    def release(self, key: Hashable) -> None:
        """Keep a file that is complete and synced open only as long as it is read."""
        file = self._held.pop(key, None)
        if file is not None:
            self._add(key, file)

    def _add(self, key: Hashable, file: File) -> None:
        self._read[key] = file
        if len(self._read) > READ_FILES:
            self._read.popitem(last=False)[1].close()

    def drop(self, key: Hashable) -> None:
        """Close a file: it is gone or renamed."""
        for files in (self._held, self._read):
            file = files.pop(key, None)
            if file is not None:
                file.close()

    def close(self) -> None:
        """Close all."""
        for file in (*self._held.values(), *self._read.values()):
            file.close()
        self._held.clear()
        self._read.clear()
