"""Directories: made durable, held while they are in use, watched for new names.

Files are made by their paths. If a directory is moved away and another one takes its place, new
files come to be in the new one, beside those of another log, and each directory holds a part. So
whoever writes holds the directory open, and checks before it makes a file.

Invariant: while a directory is held, no other one can get its identity.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable

from samelog.format.errors import LogFormatError
from samelog.store.disk.disk_errors import DirectoryGone
from samelog.store.disk.files import FileSystem

GRAIN_S = 0.1
"""Longer than the clock tick that file systems stamp their times with."""
REMOVED_PREFIX = "~removed-"
"""Of the name of a directory whose removal has begun. The grammar of names knows no `~`, so that no
partition, input or session has a directory of such a name.
"""


def make_durable_directory(fs: FileSystem, directory: str) -> None:
    """Make a directory, as the file system does; if it is there, make sure that it is durable:
    whoever made it may have died, or failed, before that. Raises DiskFault, CorruptLog.
    """
    if fs.exists(directory):
        fs.sync_directory(os.path.dirname(directory) or ".")
    fs.make_directory(directory)


def remove_whole(fs: FileSystem, directory: str) -> None:
    """Remove a directory durably. A crash leaves all of it or nothing at its path; what it leaves
    under another name waits for `clear_removed`. Raises DiskFault.
    """
    parent, name = os.path.split(directory)
    digest = hashlib.blake2b(name.encode(), digest_size=16).hexdigest()
    aside = os.path.join(parent, REMOVED_PREFIX + digest)  # the name may be as long as names can be
    if fs.exists(aside):
        fs.remove_tree(aside, is_durable=False)
    fs.rename(directory, aside)
    fs.sync_directory(parent)
    fs.remove_tree(aside, is_durable=False)


def clear_removed(fs: FileSystem, folder: str) -> None:
    """Remove the rest of directories whose removal a crash has cut short. Raises DiskFault."""
    for name in fs.list_directory(folder):
        if name.startswith(REMOVED_PREFIX):
            fs.remove_tree(os.path.join(folder, name), is_durable=False)


class HeldDirectory:
    """One directory that is held open."""

    def __init__(self, fs: FileSystem, path: str) -> None:
        """Raises NoSuchFile, CorruptLog, DiskFault."""
        self._fs = fs
        self._path = path
        self._file = fs.open_directory(path)
        self.identity = fs.identity(path)

    def is_in_place(self) -> bool:
        """Whether it is still found where it was."""
        try:
            return self._fs.identity(self._path) == self.identity
        except LogFormatError:
            return False

    def check(self) -> None:
        """Raises DirectoryGone if the directory was moved or removed."""
        if not self.is_in_place():
            raise DirectoryGone(self._path)

    def close(self) -> None:
        """Close the directory."""
        self._file.close()


class DirectoryWatch:
    """Tells a reader that follows a directory whether it must be listed again.

    A directory's modification time is coarse: a name made right after a listing may leave it
    unchanged. So a listing counts as final only when it was made a little later than that time was
    first seen. Once `needs_listing` says no, the last listing saw every name that is there.
    """

    def __init__(
        self, fs: FileSystem, path: str, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._fs = fs
        self._path = path
        self._now = now
        self._modified_ns = -1
        self._first_seen = 0.0
        self._is_final = False

    def needs_listing(self) -> bool:
        """Whether names may have changed since the last listing; the caller lists now if so."""
        modified_ns = self._fs.modified_ns(self._path)
        now = self._now()
        if modified_ns != self._modified_ns:
            self._modified_ns, self._first_seen, self._is_final = modified_ns, now, False
            return True
        if self._is_final:
            return False
        self._is_final = now - self._first_seen >= GRAIN_S
        return True
