"""A directory that is held open, to notice that another one has taken its place.

Files are made by their paths: once a directory was moved away, new files would come to be beside
those of another one, and each would hold a part.

Invariant: while it is held, no other directory can get its identity.
"""

from __future__ import annotations

from samelog.format.errors import LogFormatError
from samelog.store.disk.disk_errors import DirectoryGone
from samelog.store.disk.files import FileSystem


class HeldDirectory:
    """One directory."""

    def __init__(self, fs: FileSystem, path: str) -> None:
        """Raises NoSuchFile, CorruptLog, DiskFault."""
        self._fs = fs
        self._path = path
        self._file = fs.open_directory(path)
        self._identity = fs.identity(path)

    def is_in_place(self) -> bool:
        """Whether it is still found where it was."""
        try:
            return self._fs.identity(self._path) == self._identity
        except LogFormatError:
            return False

    def check(self) -> None:
        """Raise DirectoryGone unless it is."""
        if not self.is_in_place():
            raise DirectoryGone(self._path)

    def close(self) -> None:
        """Hold it no more."""
        self._file.close()
