"""The file system of one process on a simulated disk: `samelog.store.disk.files` as simulated.

Invariant: every change is an effect of the process, at which it may die; a dead process changes
nothing.
"""

from __future__ import annotations

import errno
import itertools
import os

from samelog.format.batch import Bytes
from samelog.format.errors import CorruptLog, DirectoryInUse
from samelog.runtime.inotify import Mask
from samelog.store.disk.birth import Birth
from samelog.store.disk.disk_errors import DirectoryGone, DiskFault, NoSpace, NoSuchFile
from samelog.store.disk.files import TEMPORARY_SUFFIX, StrPath, SyncTarget
from samelog.store.disk.open_files import OpenFiles
from tests.cluster_sim.disk import Disk
from tests.cluster_sim.inode import Directory, Inode
from tests.cluster_sim.process import Process, ProcessDied

_descriptors = itertools.count(1_000_000)
open_files: dict[int, SimFile] = {}
"""Descriptor -> file, for those who write through descriptors."""


class SimFile:
    """An open file or directory."""

    def __init__(self, fs: SimFileSystem, path: str, inode: Inode | Directory) -> None:
        self.inode = inode
        self._fs = fs
        self._path = path
        self._failed = False
        self._closed = False
        self.is_left_unsynced = False
        self._descriptor = -1

    @property
    def path(self) -> str:
        return self._path

    def fileno(self) -> int:
        """A number that only `open_files` knows."""
        if self._descriptor < 0:
            self._descriptor = next(_descriptors)
            open_files[self._descriptor] = self
        return self._descriptor

    def _file(self, operation: str) -> Inode:
        if self._closed:
            raise DiskFault(self._path, f"{operation} a closed file", errno.EBADF)
        if self._failed:
            raise DiskFault(self._path, f"{operation} after a failed sync", errno.EIO)
        self._fs.require_alive()
        if isinstance(self.inode, Directory):
            raise DiskFault(self._path, operation, errno.EISDIR)
        return self.inode

    def size(self) -> int:
        return len(self._file("measure").data)

    def pread(self, size: int, position: int) -> bytes:
        return bytes(self._file("read").data[position : position + size])

    def pread_into(self, buffer: bytearray | memoryview, position: int) -> int:
        data = self._file("read").data[position : position + len(buffer)]
        buffer[: len(data)] = data
        return len(data)

    def pwrite(self, data: Bytes, position: int) -> None:
        inode = self._file("write")
        self._fs.effect("write", self._path, position, len(data))
        disk = self._fs.disk
        grows = max(0, position + len(data) - len(inode.data))
        if disk.used_bytes + grows > disk.capacity_bytes:
            fits = disk.chance.randrange(len(data) + 1) if grows == 0 else 0
            inode.write(position, data[:fits])
            raise NoSpace(self._path, "write", errno.ENOSPC)
        inode.write(position, data)
        disk.used_bytes += grows
        disk.stamp(inode)
        disk.tell(self._path, Mask.MODIFY)

    def truncate(self, size: int) -> None:
        inode = self._file("truncate")
        if size == len(inode.data):
            return
        self._fs.effect("truncate", self._path, size)
        self._fs.disk.on_cut(self._path, inode, size)
        self._fs.disk.used_bytes += size - len(inode.data)
        inode.cut(size)
        self._fs.disk.stamp(inode)
        self._fs.disk.tell(self._path, Mask.MODIFY)

    def preallocate(self, position: int, length: int) -> None:
        self._file("reserve")

    def datasync(self) -> None:
        if self.begin_sync() is not None:
            serial = self.sync_mark()
            self.finish_sync(serial, self._fs.next_sync_fails(self._path))

    def begin_sync(self) -> SyncTarget | None:
        """Of what was left unsynced, too: the simulated syncer covers it as `syncfs` does."""
        if self._closed and not self.is_left_unsynced:
            return None
        if self._failed:
            raise DiskFault(self._path, "sync after a failed sync", errno.EIO)
        self._fs.effect("sync", self._path)
        return SyncTarget(-1, isinstance(self.inode, Directory))

    def end_sync(self, error: int) -> None:
        raise NotImplementedError("the simulated syncer does without")

    def sync_mark(self) -> int:
        """What a sync that begins now covers."""
        return 0 if isinstance(self.inode, Directory) else self.inode.begin_sync()

    def finish_sync(self, serial: int, fails: bool) -> None:
        """The sync is over. Raises DiskFault."""
        self._fs.require_alive()
        if fails:
            self._failed = True
            self._fs.disk.is_lossy = True
            self._fs.disk.failed.add(self._path)
            if isinstance(self.inode, Inode):
                self.inode.fail_sync(serial, self._fs.disk.chance)
            raise DiskFault(self._path, "sync", errno.EIO)
        if isinstance(self.inode, Directory):
            self.inode.sync()
        else:
            self.inode.end_sync(serial)

    def device(self) -> int:
        return self._fs.disk.number

    def close_unsynced(self) -> None:
        self.is_left_unsynced = self.is_left_unsynced or not self._closed
        self.close()

    def close(self) -> None:
        self._closed = True
        open_files.pop(self._descriptor, None)
        locks = self._fs.disk.locks
        if locks.get(id(self.inode), (None, None))[1] is self:
            del locks[id(self.inode)]


class SimFileSystem:
    """What one process sees of its machine's disk."""

    def __init__(self, disk: Disk, process: Process, *, most_open: int = 0) -> None:
        """`most_open`: how many files the logs keep open; 0: as many as they like."""
        self.disk = disk
        self.process = process
        self.open_files = OpenFiles(most_open, disk.number) if most_open else None

    def require_alive(self) -> None:
        """Raises ProcessDied."""
        if not self.process.is_alive:
            raise ProcessDied

    def effect(self, what: str, path: str, *numbers: int) -> None:
        """Something is about to change. Raises ProcessDied."""
        self.process.effect()
        self.disk.note(self.process.name, f"{what} {path} {' '.join(map(str, numbers))}")

    def next_sync_fails(self, path: str) -> bool:
        """Whether the next sync of a file is to fail; once."""
        if self.disk.failing is None or self.disk.failing not in path:
            return False
        self.disk.failing = None
        self.disk.note(self.process.name, f"the sync of {path} fails")
        return True

    # --- opening ----------------------------------------------------------------------------------

    def open(self, path: StrPath, *, writable: bool = False, create: bool = False) -> SimFile:
        name = os.fspath(path)
        found = self.disk.find(name)
        if found is None and create:
            found = self._create(name)
        if found is None:
            self.require_alive()
            raise NoSuchFile(f"{name} is not there")
        if isinstance(found, Directory):
            raise CorruptLog(name, 0, "is a directory")
        return SimFile(self, name, found)

    def _create(self, name: str) -> Inode:
        self.effect("create", name)
        if self.disk.directory_of(name) is None:
            raise NoSuchFile(f"{name} is not there")
        if self.disk.used_bytes >= self.disk.capacity_bytes:
            raise NoSpace(name, "open", errno.ENOSPC)
        inode = Inode()
        inode.born = self.disk.next_birth()
        self.disk.link(name, inode)
        self.disk.tell(name, Mask.CREATE)
        return inode

    def open_directory(self, path: StrPath) -> SimFile:
        name = os.fspath(path)
        return SimFile(self, name, self._directory(name))

    def _directory(self, name: str) -> Directory:
        self.require_alive()
        found = self.disk.find(name)
        if found is None:
            raise NoSuchFile(f"{name} is not there")
        if not isinstance(found, Directory):
            raise CorruptLog(name, 0, "is not a directory")
        return found

    # --- names ------------------------------------------------------------------------------------

    def exists(self, path: StrPath) -> bool:
        self.require_alive()
        return self.disk.find(os.fspath(path)) is not None

    def list_directory(self, path: StrPath) -> list[str]:
        return sorted(self._directory(os.fspath(path)).children)

    def make_directory(self, path: StrPath, *, durable: bool = True) -> None:
        name = os.fspath(path)
        if self.disk.find(name) is not None:
            self._directory(name)
            return
        self.effect("mkdir", name)
        if self.disk.directory_of(name) is None:
            raise NoSuchFile(f"{name} is not there")
        self.disk.link(name, Directory())
        self.disk.tell(name, Mask.CREATE | Mask.IS_DIR)
        if durable:
            self.sync_directory(os.path.dirname(name))

    def rename(self, source: StrPath, target: StrPath) -> None:
        self.effect(f"rename {source} to", os.fspath(target))
        if self.disk.find(os.fspath(source)) is None:
            raise NoSuchFile(f"{source} is not there")
        self.disk.rename(os.fspath(source), os.fspath(target))
        self.disk.tell(os.fspath(target), Mask.MOVED_TO)

    def unlink(self, path: StrPath, *, within: tuple[int, int] | None = None) -> None:
        name = os.fspath(path)
        if within is not None and self.identity(os.path.dirname(name)) != within:
            raise DirectoryGone(os.path.dirname(name))
        found = self.disk.find(name)
        if not isinstance(found, Inode):
            self.require_alive()
            raise NoSuchFile(f"{name} is not there")
        self.effect("unlink", name)
        self.disk.on_unlink(self.process, name, found)
        self.disk.unlink(name)
        self.disk.tell(name, Mask.DELETE)

    def empty(self, path: StrPath, *, within: tuple[int, int]) -> None:
        name = os.fspath(path)
        if self.identity(os.path.dirname(name)) != within:
            raise DirectoryGone(os.path.dirname(name))
        self.write_atomically(name, b"", durable=False)

    def remove_tree(self, path: StrPath, *, is_durable: bool = True) -> None:
        name = os.fspath(path)
        for child in list(self._directory(name).children):
            below = f"{name}/{child}"
            if isinstance(self.disk.find(below), Directory):
                self.remove_tree(below)
            else:
                self.unlink(below)
        self.effect("rmdir", name)
        self.disk.unlink(name)
        if is_durable:
            self.sync_directory(os.path.dirname(name))

    def sync_directory(self, path: StrPath) -> None:
        directory = self.open_directory(path)
        try:
            directory.datasync()
        finally:
            directory.close()

    # --- facts ------------------------------------------------------------------------------------

    def size(self, path: StrPath) -> int:
        found = self.disk.find(os.fspath(path))
        if not isinstance(found, Inode):
            raise NoSuchFile(f"{path} is not there")
        return len(found.data)

    def modified_ns(self, path: StrPath) -> int:
        found = self.disk.find(os.fspath(path))
        if found is None:
            raise NoSuchFile(f"{path} is not there")
        return found.modified

    def identity(self, path: StrPath) -> tuple[int, int]:
        found = self.disk.find(os.fspath(path))
        if found is None:
            raise NoSuchFile(f"{path} is not there")
        return 0, id(found)

    def birth(self, path: StrPath) -> Birth:
        found = self.disk.find(os.fspath(path))
        if found is None:
            raise NoSuchFile(f"{path} is not there")
        return Birth(self.disk.number, found.born, found.born)

    def free_bytes(self, path: StrPath) -> int:
        return max(0, self.disk.capacity_bytes - self.disk.used_bytes)

    def read_file(self, path: StrPath, limit_bytes: int) -> bytes:
        file = self.open(path)
        data = file.pread(limit_bytes + 1, 0)
        file.close()
        if len(data) > limit_bytes:
            raise CorruptLog(file.path, limit_bytes, f"is longer than {limit_bytes} bytes")
        return data

    def write_atomically(self, path: StrPath, data: Bytes, *, durable: bool = True) -> None:
        name = os.fspath(path)
        self._write_new(name + TEMPORARY_SUFFIX, data, durable=durable)
        self.rename(name + TEMPORARY_SUFFIX, name)
        if durable:
            self.sync_directory(os.path.dirname(name))

    def create_atomically(self, path: StrPath, data: Bytes, *, temporary: StrPath) -> bool:
        name, written = os.fspath(path), os.fspath(temporary)
        self._write_new(written, data, durable=True)
        if self.exists(name):
            self.unlink(written)
            return False
        self.rename(written, name)
        self.sync_directory(os.path.dirname(name))
        return True

    def _write_new(self, path: str, data: Bytes, *, durable: bool) -> None:
        if self.exists(path):
            self.unlink(path)
        file = self.open(path, create=True)
        try:
            file.pwrite(data, 0)
            if durable:
                file.datasync()
        finally:
            file.close()

    def lock(self, path: StrPath) -> SimFile:
        file = self.open(path, create=True)
        key = id(file.inode)
        holder = self.disk.locks.get(key)
        if holder is not None and holder[0].is_alive:
            raise DirectoryInUse(f"{file.path} is held by process {holder[0].name}")
        self.disk.locks[key] = (self.process, file)
        return file
