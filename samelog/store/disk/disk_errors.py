"""What a file system can refuse, as typed errors; the one place where the numbers of the operating
system are read.

Invariant: no OSError leaves the file system seam.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager

from samelog.format.errors import CorruptLog, LogFormatError

_FULL = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EMFILE, errno.ENFILE, errno.ENOMEM}
)
LINK = "link"
"""The operation of giving a file a second name."""
_NO_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV})
_NOT_REGULAR = {
    errno.ELOOP: "is a symbolic link",
    errno.ENXIO: "is not a regular file",
    errno.ENODEV: "is not a regular file",
    errno.EISDIR: "is a directory",
    errno.ENOTDIR: "is not a directory, or a symbolic link to one",
}


class DiskFault(LogFormatError):
    """The operating system refused or failed an operation on a file."""

    def __init__(self, path: str, operation: str, error_number: int) -> None:
        super().__init__(path, operation, error_number)
        self.path = path
        self.operation = operation
        self.error_number = error_number

    def __str__(self) -> str:
        return f"{self.path}: cannot {self.operation}: {os.strerror(self.error_number)}"


class NoSpace(DiskFault):
    """The system lacks room for now: the disk, the quota, the file size limit, the descriptors of
    the process or the system, or memory. The operation can be retried.
    """


class LeftUnsynced(DiskFault):
    """The file was closed before it was synced: a sync of its whole file system has to cover it."""

    def __init__(self, path: str) -> None:
        super().__init__(path, "sync by itself", errno.EBADF)


class NoHardLinks(DiskFault):
    """The file system cannot give a file a second name."""


class DirectoryGone(DiskFault):
    """A directory in use was removed, replaced or unmounted: what is written to its open files may
    never be found again.
    """

    def __init__(self, path: str) -> None:
        super().__init__(path, "find again", errno.ESTALE)

    def __str__(self) -> str:
        return f"{self.path} was removed, replaced or unmounted while it was in use"


class NoSuchFile(LogFormatError):
    """A file or directory is not there: never was, or was released meanwhile."""


def fault_of(path: str, operation: str, error: OSError) -> LogFormatError:
    """The typed error for what the operating system said."""
    number = error.errno or errno.EIO
    if number == errno.ENOENT:
        return NoSuchFile(f"{path} is not there")
    if number in _NOT_REGULAR:
        return CorruptLog(path, 0, _NOT_REGULAR[number])
    kind = NoSpace if number in _FULL else DiskFault
    if operation == LINK and number in _NO_LINKS:
        kind = NoHardLinks
    return kind(path, operation, number)


@contextmanager
def translated(path: str, operation: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise fault_of(path, operation, error) from error
