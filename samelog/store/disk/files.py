"""The narrow seam between the log directories and a file system; a simulated twin takes its place
in simulations.

What a data directory holds may have been planted there: nothing but regular files and real
directories is ever opened, no symbolic link is followed, and no open waits for the other end of a
pipe.

Invariant: errors of the operating system leave this seam as typed errors, translated once.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Protocol, TypeAlias

from samelog.format.batch import Bytes
from samelog.format.errors import CorruptLog, DirectoryInUse
from samelog.store.disk.birth import Birth, birth_of
from samelog.store.disk.disk_errors import (
    LINK,
    DirectoryGone,
    DiskFault,
    NoSpace,
    NoSuchFile,
    fault_of,
    translated,
)
from samelog.store.disk.open_files import OpenFiles
from samelog.store.disk.os_file import OsFile, SyncTarget

__all__ = [
    "DiskFault",
    "File",
    "FileSystem",
    "NoSuchFile",
    "OsFileSystem",
    "StrPath",
    "SyncTarget",
]

StrPath: TypeAlias = "str | os.PathLike[str]"

DIRECTORY_MODE = 0o700
FILE_MODE = 0o600
TEMPORARY_SUFFIX = ".tmp"
NAME_BYTES_MAX = 255
"""The longest name of a file or directory on Linux."""

_SAFE = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


class File(Protocol):
    """An open file. Only `datasync` may be called from another thread than the owner's."""

    @property
    def path(self) -> str:
        """Where it was opened."""

    def fileno(self) -> int:
        """The descriptor."""

    def size(self) -> int:
        """Bytes in the file; what is reserved beyond does not count."""

    def pread(self, size: int, position: int) -> bytes:
        """Up to `size` bytes; fewer only at the end of the file."""

    def pread_into(self, buffer: bytearray | memoryview, position: int) -> int:
        """Fill the buffer; the number of bytes read, fewer only at the end of the file."""

    def pwrite(self, data: Bytes, position: int) -> None:
        """Write all of `data`. Raises NoSpace, DiskFault: a part may have been written."""

    def truncate(self, size: int) -> None:
        """Cut or extend to `size`, and give back what is reserved beyond it."""

    def preallocate(self, position: int, length: int) -> None:
        """Reserve blocks without changing the size; does nothing where that cannot be done."""

    def datasync(self) -> None:
        """Return when what was written is durable; on a directory, when its names are.

        On a closed file it does nothing: its owner gave the file up. Raises DiskFault; the file is
        then never usable again.
        """

    def begin_sync(self) -> SyncTarget | None:
        """`datasync` in two halves, for who has the descriptor synced elsewhere; None: the file is
        closed, there is nothing to do. Raises DiskFault after an earlier failure.
        """

    def end_sync(self, error: int) -> None:
        """The sync that `begin_sync` began is over; `error` is its errno, 0 for success. Raises
        DiskFault; the file is then never usable again.
        """

    def device(self) -> int:
        """The number of the file system that the file is on."""

    @property
    def is_left_unsynced(self) -> bool:
        """Whether `close_unsynced` has closed the file."""

    def close(self) -> None:
        """Let go of the file; a sync under way in another thread is finished first."""

    def close_unsynced(self) -> None:
        """Close the file although a sync of it is to come. That sync has to cover its whole file
        system: `datasync` and `begin_sync` raise LeftUnsynced.
        """


class FileSystem(Protocol):
    """What the log directories need of a file system. Names are durable once their directory is
    synced.
    """

    @property
    def open_files(self) -> OpenFiles | None:
        """The bound of the files that logs keep open; None if there is none."""

    def open(self, path: StrPath, *, writable: bool = False, create: bool = False) -> File:
        """Open a regular file; `create` makes it if it is not there. Raises NoSuchFile, CorruptLog,
        DiskFault.
        """

    def open_directory(self, path: StrPath) -> File:
        """Open a directory for syncing the names in it."""

    def exists(self, path: StrPath) -> bool:
        """Whether the name exists, whatever kind of file it is."""

    def list_directory(self, path: StrPath) -> list[str]:
        """The names in a directory, sorted. Raises NoSuchFile, CorruptLog when it is not a real
        directory.
        """

    def make_directory(self, path: StrPath, *, durable: bool = True) -> None:
        """Make a directory, private and durable, if it is not there; its parent must be."""

    def rename(self, source: StrPath, target: StrPath) -> None:
        """Give a file another name in the same file system, replacing what has it."""

    def unlink(self, path: StrPath, *, within: tuple[int, int] | None = None) -> None:
        """Remove a name; if `within` is given, only from the directory that has this identity.
        Raises NoSuchFile; DirectoryGone: another directory is in its place.
        """

    def empty(self, path: StrPath, *, within: tuple[int, int]) -> None:
        """Put an empty file in the place of a file, in the directory that has this identity only.
        Raises DirectoryGone: another directory is in its place.
        """

    def remove_tree(self, path: StrPath, *, is_durable: bool = True) -> None:
        """Remove a directory and all in it; no link is followed. A crash may leave some of it."""

    def sync_directory(self, path: StrPath) -> None:
        """Make the names in a directory durable."""

    def size(self, path: StrPath) -> int:
        """The size of a file in bytes. Raises NoSuchFile."""

    def modified_ns(self, path: StrPath) -> int:
        """When a file or the names in a directory last changed, as coarse as the file system's
        clock.
        """

    def identity(self, path: StrPath) -> tuple[int, int]:
        """What tells a file or directory from another one of the same name, as long as it is there.
        Raises NoSuchFile.
        """

    def birth(self, path: StrPath) -> Birth:
        """What tells a file from its copies, also after a restart. Raises NoSuchFile."""

    def free_bytes(self, path: StrPath) -> int:
        """What may still be written to the file system of `path`."""

    def read_file(self, path: StrPath, limit_bytes: int) -> bytes:
        """A small file whole. Raises NoSuchFile, CorruptLog when it is longer."""

    def write_atomically(self, path: StrPath, data: Bytes, *, durable: bool = True) -> None:
        """Replace a small file: after a crash it holds the old or the new contents (only if
        `durable`).
        """

    def create_atomically(self, path: StrPath, data: Bytes, *, temporary: StrPath) -> bool:
        """Create a small file, durably and with all its contents; False if the name is taken. It is
        written as `temporary`, which no other process may use. Raises NoHardLinks.
        """

    def lock(self, path: StrPath) -> File:
        """Hold a lock until the file is closed or the process ends, also on a full disk. Raises
        DirectoryInUse naming the holder.
        """


class OsFileSystem:
    """The real file system."""

    def __init__(self, open_files: OpenFiles | None = None) -> None:
        self._open_files = open_files

    @property
    def open_files(self) -> OpenFiles | None:
        """The bound of the files that logs keep open."""
        return self._open_files

    def open(self, path: StrPath, *, writable: bool = False, create: bool = False) -> OsFile:
        """Open a regular file."""
        flags = os.O_RDWR if writable or create else os.O_RDONLY
        return self._open(os.fspath(path), flags | (os.O_CREAT if create else 0))

    def _open(self, path: str, flags: int) -> OsFile:
        with translated(path, "open"):
            descriptor = os.open(path, flags | _SAFE, FILE_MODE)
        file = OsFile(path, descriptor)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            file.close()
            raise CorruptLog(path, 0, "is not a regular file")
        return file

    def open_directory(self, path: StrPath) -> OsFile:
        """Open a directory for syncing the names in it."""
        name = os.fspath(path)
        with translated(name, "open"):
            descriptor = os.open(name, os.O_RDONLY | os.O_DIRECTORY | _SAFE)
        return OsFile(name, descriptor, is_directory=True)

    def exists(self, path: StrPath) -> bool:
        """Whether the name is taken."""
        return os.access(path, os.F_OK, follow_symlinks=False)

    def list_directory(self, path: StrPath) -> list[str]:
        """The names in a directory, sorted."""
        directory = self.open_directory(path)
        try:
            with translated(directory.path, "list"):
                return sorted(os.listdir(directory.fileno()))
        finally:
            directory.close()

    def make_directory(self, path: StrPath, *, durable: bool = True) -> None:
        """Make a directory, private and (`durable`) on the disk."""
        name = os.fspath(path)
        try:
            os.mkdir(name, DIRECTORY_MODE)
        except FileExistsError:
            self.open_directory(name).close()
        except OSError as error:
            raise fault_of(name, "make", error) from error
        else:
            if durable:
                self.sync_directory(os.path.dirname(name) or ".")

    def rename(self, source: StrPath, target: StrPath) -> None:
        """Give a file another name."""
        name = os.fspath(source)
        with translated(name, "rename"):
            os.replace(name, target)

    def unlink(self, path: StrPath, *, within: tuple[int, int] | None = None) -> None:
        """Remove a name."""
        name = os.fspath(path)
        if within is not None:
            return self._unlink_within(*os.path.split(name), within)
        with translated(name, "remove"):
            os.unlink(name)
        return None

    def _unlink_within(self, parent: str, name: str, identity: tuple[int, int]) -> None:
        with self._within(parent, identity) as at, translated(os.path.join(parent, name), "remove"):
            os.unlink(name, dir_fd=at)

    def empty(self, path: StrPath, *, within: tuple[int, int]) -> None:
        """Put an empty file in the place of a file."""
        parent, name = os.path.split(os.fspath(path))
        temporary = name + TEMPORARY_SUFFIX
        with self._within(parent, within) as at, translated(os.fspath(path), "replace"):
            with suppress(FileNotFoundError):
                os.unlink(temporary, dir_fd=at)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _SAFE
            os.close(os.open(temporary, flags, FILE_MODE, dir_fd=at))
            os.replace(temporary, name, src_dir_fd=at, dst_dir_fd=at)

    @contextmanager
    def _within(self, path: str, identity: tuple[int, int]) -> Iterator[int]:
        """Yield a descriptor of the directory that has this identity: what takes its place at the
        path is safe. Raises DirectoryGone.
        """
        directory = self.open_directory(path)
        try:
            facts = os.fstat(directory.fileno())
            if (facts.st_dev, facts.st_ino) != identity:
                raise DirectoryGone(path)
            yield directory.fileno()
        finally:
            directory.close()

    def remove_tree(self, path: StrPath, *, is_durable: bool = True) -> None:
        """Remove a directory and all in it."""
        name = os.fspath(path)
        self.open_directory(name).close()
        with translated(name, "remove"):
            shutil.rmtree(name)
        if is_durable:
            self.sync_directory(os.path.dirname(name) or ".")

    def sync_directory(self, path: StrPath) -> None:
        """Make the names in a directory durable."""
        directory = self.open_directory(path)
        try:
            directory.datasync()
        finally:
            directory.close()

    def size(self, path: StrPath) -> int:
        """The size of a file in bytes."""
        return self._facts(os.fspath(path)).st_size

    def modified_ns(self, path: StrPath) -> int:
        """When a file or the names in a directory last changed."""
        return self._facts(os.fspath(path)).st_mtime_ns

    @staticmethod
    def _facts(path: str) -> os.stat_result:
        try:
            return os.lstat(path)
        except OSError as error:
            raise fault_of(path, "look at", error) from error

    def identity(self, path: StrPath) -> tuple[int, int]:
        """What tells a file or directory from another one of the same name."""
        facts = self._facts(os.fspath(path))
        return facts.st_dev, facts.st_ino

    def birth(self, path: StrPath) -> Birth:
        """What tells a file from its copies."""
        name = os.fspath(path)
        with translated(name, "look at"):
            return birth_of(name)

    def free_bytes(self, path: StrPath) -> int:
        """What may still be written to the file system of `path`."""
        name = os.fspath(path)
        with translated(name, "look at"):
            facts = os.statvfs(name)
        return facts.f_bavail * facts.f_frsize

    def read_file(self, path: StrPath, limit_bytes: int) -> bytes:
        """A small file whole."""
        file = self._open(os.fspath(path), os.O_RDONLY)
        try:
            data = file.pread(limit_bytes + 1, 0)
        finally:
            file.close()
        if len(data) > limit_bytes:
            raise CorruptLog(file.path, limit_bytes, f"is longer than {limit_bytes} bytes")
        return data

    def write_atomically(self, path: StrPath, data: Bytes, *, durable: bool = True) -> None:
        """Replace a small file."""
        name = os.fspath(path)
        temporary = _temporary(name)
        self._write_new(temporary, data, durable=durable)
        self.rename(temporary, name)
        if durable:
            self.sync_directory(os.path.dirname(name) or ".")

    def create_atomically(self, path: StrPath, data: Bytes, *, temporary: StrPath) -> bool:
        """Create a small file unless the name is taken."""
        name, written = os.fspath(path), os.fspath(temporary)
        self._write_new(written, data, durable=True)
        try:
            with translated(name, LINK):
                os.link(written, name, follow_symlinks=False)
        except DiskFault as fault:
            if fault.error_number == errno.EEXIST:
                return False
            raise
        finally:
            self.unlink(written)
        self.sync_directory(os.path.dirname(name) or ".")
        return True

    def _write_new(self, path: str, data: Bytes, *, durable: bool) -> None:
        with translated(path, "replace"):
            if os.path.lexists(path):
                os.unlink(path)  # left by a crash, or planted
        file = self._open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        try:
            file.pwrite(data, 0)
            if durable:
                file.datasync()
        finally:
            file.close()

    def lock(self, path: StrPath) -> OsFile:
        """Hold a lock until the file is closed or the process ends."""
        file = self.open(path, create=True)
        try:
            fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = file.pread(32, 0).decode("ascii", "replace").strip() or "unknown"
            file.close()
            raise DirectoryInUse(f"{file.path} is held by process {holder}") from error
        with suppress(NoSpace):  # the lock holds all the same, and may be what makes room
            file.truncate(0)
            file.pwrite(f"{os.getpid()}\n".encode(), 0)
        return file


def _temporary(path: str) -> str:
    """The path at which a file is written before it gets its name, which may be as long as names
    can be.
    """
    folder, name = os.path.split(path)
    if len(name) + len(TEMPORARY_SUFFIX) > NAME_BYTES_MAX:
        name = hashlib.blake2b(name.encode(), digest_size=16).hexdigest()
    return os.path.join(folder, name + TEMPORARY_SUFFIX)
