"""Keeps files open that are read or written again and again, and few of the others.

Invariant: a held file stays open, because a sync of it may be under way or to come, unless its
owner gives it up (`OpenFiles`); of the rest, the least recently used ones are closed.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable

from samelog.store.disk.files import File, FileSystem
from samelog.store.disk.open_files import bound_of

READ_FILES = 8


class FileCache:
    """Open files by key. Implements open_files.Crowded."""

    def __init__(self, fs: FileSystem) -> None:
        self._fs = fs
        self._held: dict[Hashable, File] = {}
        self._read: OrderedDict[Hashable, File] = OrderedDict()
        self._bound = bound_of(fs)
        self.may_close: Callable[[], bool] = lambda: False
        """Prepares the owner for the closing of held files; False if they must stay open."""

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
        self._opened()
        return file

    def held(self, key: Hashable) -> File | None:
        """The file that is kept open for writing; None if there is none."""
        return self._held.get(key)

    def hold(self, key: Hashable, file: File) -> None:
        """Keep a file that is written to open."""
        self.drop(key)
        self._held[key] = file
        self._opened()

    def release(self, key: Hashable) -> None:
        """Keep a file that is complete and synced open only as long as it is read."""
        file = self._held.pop(key, None)
        if file is not None:
            self._add(key, file)

    def _add(self, key: Hashable, file: File) -> None:
        self._read[key] = file
        if len(self._read) > READ_FILES:
            self._close([self._read.popitem(last=False)[1]])

    def drop(self, key: Hashable) -> None:
        """Close a file: it is gone or renamed."""
        for files in (self._held, self._read):
            file = files.pop(key, None)
            if file is not None:
                self._close([file])

    def close(self) -> None:
        """Close all."""
        files = [*self._held.values(), *self._read.values()]
        self._held.clear()
        self._read.clear()
        self._close(files)

    def _opened(self) -> None:
        if self._bound is not None:
            self._bound.opened(self)

    def _close(self, files: list[File]) -> None:
        for file in files:
            file.close()
        if self._bound is not None and files:
            self._bound.closed(self, len(files))

    def give_up(self, device: int) -> None:
        """Close files until they are needed again: those that are only read, and held ones if the
        owner agrees and a sync of their whole file system covers what is unsynced.
        """
        files = [*self._read.values()]
        self._read.clear()
        held = [*self._held.values()]
        if held and all(file.device() == device for file in held) and self.may_close():
            self._held.clear()
            for file in held:
                file.close_unsynced()
            files += held
        self._close(files)
