"""What a log has written and not yet handed to a sync: files, and the directory with its names.

A group of logs is synced together, by others: this only says what there is to sync. The marks file
is among it, so that marks reach the disk one round after they are written, at no cost of their own.

Invariant: whatever was touched is handed out by the next `take`, once.
"""

from __future__ import annotations

import os
from typing import TypeVar

from samelog.format.errors import CorruptLog, LogFormatError
from samelog.format.file_names import MARKS_FILE
from samelog.format.marks import Marks, decode_marks, encode_marks
from samelog.store.disk.file_cache import FileCache
from samelog.store.disk.files import File, FileSystem, NoSuchFile

_MARKS_LIMIT_BYTES = 64 << 20

_Marks = TypeVar("_Marks", bound=Marks)


class ReadOnly(LogFormatError):
    """A log that is open for reading only was asked to change, or one for writing to refresh."""


def read_marks(fs: FileSystem, directory: str, kind: type[_Marks]) -> _Marks | None:
    """The marks of a log directory; None when there are none, or none that can be trusted."""
    try:
        data = fs.read_file(os.path.join(directory, MARKS_FILE), _MARKS_LIMIT_BYTES)
    except (NoSuchFile, CorruptLog):
        return None
    return decode_marks(data, kind)


class DirtyFiles:
    """The dirty files of one log directory."""

    def __init__(self, fs: FileSystem, directory: str, files: FileCache) -> None:
        self._fs = fs
        self._path = directory
        self._files = files
        self._dirty: dict[File, None] = {}
        self._directory: File | None = None
        self._marks: bytes | None = None
        """What the marks file holds, if this wrote it."""

    def __len__(self) -> int:
        return len(self._dirty)

    def touch(self, file: File) -> None:
        """Note that a file was written to."""
        self._dirty[file] = None

    def touch_directory(self) -> None:
        """Note that a name was made or changed."""
        if self._directory is None:
            self._directory = self._fs.open_directory(self._path)
        self._dirty[self._directory] = None

    def forget(self, path: str) -> None:
        """Note that a file is gone."""
        for file in [file for file in self._dirty if file.path == path]:
            del self._dirty[file]

    def drain(self) -> list[File]:
        """All files that are not synced, to be synced together."""
        files = list(self._dirty)
        self._dirty.clear()
        return files

    def write_marks(self, marks: Marks) -> None:
        """Replace the marks file, if it would change. Raises DiskFault."""
        data = encode_marks(marks)
        if data == self._marks:
            return
        path = os.path.join(self._path, MARKS_FILE)
        self._fs.write_atomically(path, data, durable=False)
        self._marks = data
        file = self._fs.open(path)
        self._files.hold(MARKS_FILE, file)
        self.touch(file)
        self.touch_directory()

    def clear(self) -> None:
        """Forget all files: nothing is to be synced any more."""
        self._dirty.clear()
        self._marks = None

    def close(self) -> None:
        """Forget all files, and close the directory."""
        self._dirty.clear()
        if self._directory is not None:
            self._directory.close()
            self._directory = None
