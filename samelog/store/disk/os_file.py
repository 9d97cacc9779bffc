"""One open file of the operating system, with the kernel's rules about failed syncs made impossible
to forget.

Invariant: after a failed sync a file is never used again. The kernel has forgotten which pages it
could not write, so a second sync that succeeds would prove nothing. A descriptor is closed once,
and never while a sync still uses it.
"""

from __future__ import annotations

import ctypes
import errno
import os
import threading
from collections.abc import Callable

import msgspec

from samelog.store.disk.disk_errors import DiskFault, LeftUnsynced, fault_of, translated

_sync_data = getattr(os, "fdatasync", os.fsync)

FALLOC_FL_KEEP_SIZE = 1  # linux/falloc.h
_NOT_RESERVED = frozenset(
    {
        errno.ENOSPC,
        errno.EDQUOT,
        errno.EFBIG,
        errno.EOPNOTSUPP,
        errno.ENOSYS,
        errno.EINVAL,
        errno.EINTR,
    }
)
"""Reserving is an optimisation: what cannot be reserved is not, and the plain write that follows
finds out whether there is room.
"""

RESERVED_SHARE = 16
"""At most this part of the free space is reserved at once."""


class SyncTarget(msgspec.Struct, frozen=True):
    """What is to be synced. `names`: it is a directory, whose names count: fsync, not fdatasync,
    which may leave out new names that did not change the directory's size.
    """

    descriptor: int
    names: bool


class OsFile:
    """A file of the operating system."""

    __slots__ = (
        "_closed",
        "_descriptor",
        "_failed",
        "_is_directory",
        "_left_unsynced",
        "_lock",
        "_path",
        "_syncing",
    )

    def __init__(self, path: str, descriptor: int, *, is_directory: bool = False) -> None:
        self._path = path
        self._descriptor = descriptor
        self._is_directory = is_directory
        self._failed = 0
        self._closed = False
        self._left_unsynced = False
        self._syncing = 0
        self._lock = threading.Lock()

    @property
    def path(self) -> str:
        """Where it was opened."""
        return self._path

    def fileno(self) -> int:
        """The descriptor."""
        return self._descriptor

    def _require_sound(self, operation: str) -> None:
        if self._closed:
            raise DiskFault(self._path, f"{operation} a closed file", errno.EBADF)
        if self._failed:
            raise DiskFault(self._path, f"{operation} after a failed sync", self._failed)

    def size(self) -> int:
        """Bytes in the file."""
        if self._failed or self._closed:
            self._require_sound("measure")
        try:
            return os.fstat(self._descriptor).st_size
        except OSError as error:
            raise fault_of(self._path, "measure", error) from error

    def pread(self, size: int, position: int) -> bytes:
        """Up to `size` bytes; fewer only at the end of the file."""
        if self._failed or self._closed:
            self._require_sound("read")
        try:
            data = os.pread(self._descriptor, size, position)
        except OSError as error:
            raise fault_of(self._path, "read", error) from error
        if len(data) < size and data:
            data += self.pread(size - len(data), position + len(data))
        return data

    def pread_into(self, buffer: bytearray | memoryview, position: int) -> int:
        """Fill the buffer; the number of bytes read."""
        if self._failed or self._closed:
            self._require_sound("read")
        view = memoryview(buffer)
        done = 0
        try:
            while done < len(view):
                count = os.preadv(self._descriptor, [view[done:]], position + done)
                if count == 0:
                    break
                done += count
        except OSError as error:
            raise fault_of(self._path, "read", error) from error
        return done

    def pwrite(self, data: bytes | bytearray | memoryview, position: int) -> None:
        """Write all of `data`."""
        if self._failed or self._closed:
            self._require_sound("write")
        try:
            done = os.pwrite(self._descriptor, data, position)
            while done < len(data):
                done += os.pwrite(self._descriptor, memoryview(data)[done:], position + done)
        except OSError as error:
            raise fault_of(self._path, "write", error) from error

    def truncate(self, size: int) -> None:
        """Cut or extend to `size`; frees reserved blocks too, also when the size stays (ext4, xfs,
        tmpfs).
        """
        self._require_sound("truncate")
        with translated(self._path, "truncate"):
            os.ftruncate(self._descriptor, size)

    def preallocate(self, position: int, length: int) -> None:
        """Reserve blocks without changing the size; few of them when few are left, so that one
        file's reserve never takes the room that another one needs.
        """
        self._require_sound("reserve")
        with translated(self._path, "reserve"):
            disk = os.fstatvfs(self._descriptor)
            free = disk.f_bavail * disk.f_frsize
            _reserve_blocks(self._descriptor, position, min(length, free // RESERVED_SHARE))

    def datasync(self) -> None:
        """Return when what was written, or the names in the directory, are durable."""
        with self._lock:
            if self._closed:
                self._check_is_given_up()
                return
            if self._failed:
                self._require_sound("sync")
            self._syncing += 1
        error = 0
        try:
            (os.fsync if self._is_directory else _sync_data)(self._descriptor)
        except OSError as fault:
            error = fault.errno or errno.EIO
        self.end_sync(error)

    def begin_sync(self) -> SyncTarget | None:
        """The first half of `datasync`: what to sync, which stays open until the other half.

        None if the file is closed: its owner gave it up. Raises LeftUnsynced.
        """
        with self._lock:
            if self._closed:
                self._check_is_given_up()
                return None
            if self._failed:
                self._require_sound("sync")
            self._syncing += 1
        return SyncTarget(self._descriptor, self._is_directory)

    def end_sync(self, error: int) -> None:
        """The second half: what became of it."""
        if error:
            self._failed = error
        with self._lock:
            self._syncing -= 1
            if self._closed and self._syncing == 0:
                os.close(self._descriptor)
        if error:
            raise fault_of(self._path, "sync", OSError(error, os.strerror(error)))

    def _check_is_given_up(self) -> None:
        if self._left_unsynced:
            raise LeftUnsynced(self._path)

    def device(self) -> int:
        """The number of the file system that the file is on."""
        self._require_sound("look at")
        with translated(self._path, "look at"):
            return os.fstat(self._descriptor).st_dev

    @property
    def is_left_unsynced(self) -> bool:
        """Whether `close_unsynced` has closed the file."""
        return self._left_unsynced

    def close_unsynced(self) -> None:
        """Close the file although a sync of it is to come."""
        self._left_unsynced = self._left_unsynced or not self._closed
        self.close()

    def close(self) -> None:
        """Let go of the file."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            if self._syncing == 0:
                os.close(self._descriptor)


def _find_fallocate() -> Callable[[int, int, int, int], int] | None:
    """The one system call that reserves blocks without changing the size. `os.posix_fallocate`
    changes it, and writes zeros where the file system cannot reserve.
    """
    library = ctypes.CDLL(None, use_errno=True)
    function = getattr(library, "fallocate64", None) or getattr(library, "fallocate", None)
    if function is None:
        return None
    function.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
    function.restype = ctypes.c_int
    typed: Callable[[int, int, int, int], int] = function
    return typed


_fallocate = _find_fallocate()


def _reserve_blocks(descriptor: int, position: int, length: int) -> None:
    """Reserve blocks for `length` bytes from `position`, if the system and the disk can; the size
    does not change.

    Raises:
        OSError: the disk fails.
    """
    if _fallocate is None:
        return
    if _fallocate(descriptor, FALLOC_FL_KEEP_SIZE, position, length) != 0:
        number = ctypes.get_errno()
        if number not in _NOT_RESERVED:
            raise OSError(number, os.strerror(number))
