"""Whether a directory that programs share with a sidecar can be used: it can be removed, unmounted,
made read-only or filled up under a running process, and come back.

A directory that took the place of the first one (what lies under a mount, when that is gone) counts
as the same only if it holds what the first one did: a mount may come back under other numbers.

Invariant: looking changes nothing but what is said of it; news is told once.
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable
from enum import Enum, unique

from samelog.format.errors import LogFormatError
from samelog.runtime.errors import RuntimeFault
from samelog.runtime.log import log_event
from samelog.store.disk.files import FileSystem

log = logging.getLogger(__name__)

LEAST_FREE_BYTES = 1 << 20
"""A disk with less room is full: what is appended at once may take as much."""

FULL_ERRORS = (errno.ENOSPC, errno.EDQUOT)
NO_TMPFILE = (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL)
"""open(2): of file systems that cannot make files without names."""


@unique
class Trouble(Enum):
    """Why a directory cannot be used."""

    GONE = "it is not there: mount it, or make it"
    REPLACED = "another directory is in its place: mount it again, or restart the sidecar"
    UNWRITABLE = "it cannot be written: see its permissions, and whether its disk is read-only"
    FULL = f"its disk is full, with less than {LEAST_FREE_BYTES >> 20} MiB left: make room"


class DirectoryUnusable(RuntimeFault):
    """A directory cannot be used from the start."""


class UsedDirectory:
    """A directory, and what is wrong with it."""

    def __init__(
        self, fs: FileSystem, path: str, is_the_same: Callable[[], bool] = lambda: True
    ) -> None:
        """Make it if need be. `is_the_same`: whether what is in its place now holds what it held.

        Raises DirectoryUnusable.
        """
        self.path = path
        self.trouble: Trouble | None = None
        self._fs = fs
        self._is_the_same = is_the_same
        try:
            os.makedirs(path, mode=0o700, exist_ok=True)
            self._identity = fs.identity(path)
        except (OSError, LogFormatError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise self._unusable(f"cannot be made: {reason}") from error
        self.trouble = self._find()
        if self.trouble is Trouble.UNWRITABLE:
            raise self._unusable(f"cannot be written: {os.strerror(write_error(path))}")

    def _unusable(self, why: str) -> DirectoryUnusable:
        remedy = "give one, with --dir, that this process may make and write to"
        return DirectoryUnusable(f"the directory {self.path} {why} ({remedy})")

    @property
    def fault(self) -> str:
        """Why the directory cannot be used; empty if it can."""
        return "" if self.trouble is None else f"the directory {self.path}: {self.trouble.value}"

    @property
    def is_there(self) -> bool:
        """Whether what is at the path is what is meant, whatever else is wrong with it."""
        return self.trouble not in (Trouble.GONE, Trouble.REPLACED)

    def is_unchanged(self) -> bool:
        """Whether the path still names the directory that `check` saw last."""
        try:
            return self.is_there and self._fs.identity(self.path) == self._identity
        except LogFormatError:
            return False

    def check(self) -> bool:
        """Find out the state of the directory. Returns whether it has changed."""
        before, self.trouble = self.trouble, self._find()
        if self.trouble is before:
            return False
        if self.trouble is None:
            log_event(log, logging.WARNING, "directory usable again", path=self.path)
        else:
            why = self.trouble.value
            log_event(log, logging.ERROR, "directory unusable", path=self.path, why=why)
        return True

    def _find(self) -> Trouble | None:
        try:
            if not os.path.isdir(self.path):
                return Trouble.GONE
            if not self._is_in_place():
                return Trouble.REPLACED
            error = write_error(self.path)
            free = self._fs.free_bytes(self.path)
        except LogFormatError:
            return Trouble.GONE
        if error and error not in FULL_ERRORS:
            return Trouble.UNWRITABLE
        wanted = 2 if self.trouble is Trouble.FULL else 1  # not to and fro with every file
        return Trouble.FULL if error or free < wanted * LEAST_FREE_BYTES else None

    def _is_in_place(self) -> bool:
        found = self._fs.identity(self.path)
        if found != self._identity and self._is_the_same():
            self._identity = found
        return found == self._identity


def write_error(directory: str) -> int:
    """Why no file can be made in a directory, as errno; 0: one can. What is tried leaves no trace:
    a file without a name; whoever watches the directory notices. (An ext4 that met an error refuses
    writes, while access(2) still allows them.)
    """
    try:
        os.close(os.open(directory, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600))
    except OSError as error:
        if error.errno not in NO_TMPFILE:
            return error.errno or errno.EIO
        return 0 if os.access(directory, os.W_OK | os.X_OK) else errno.EACCES
    return 0
