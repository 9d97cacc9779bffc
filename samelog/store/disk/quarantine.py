"""What is damaged is set aside, never deleted: an operator, or a repair, may still need it.

Invariant: a set-aside file has a name of its own, `<name>.quarantined-<n>`; a copy of what is
behind byte b of a file is `<name>.from-<b>.quarantined-<n>`. Nothing takes them for logs.
"""

from __future__ import annotations

import os
from itertools import count

from samelog.store.disk.batch_walk import valid_extent
from samelog.store.disk.files import NAME_BYTES_MAX, File, FileSystem, NoSuchFile

FOLDER = "quarantine"
_PIECE_BYTES = 4 << 20
_NAME_KEPT = NAME_BYTES_MAX - len(".quarantined-") - 9
"""Characters of a directory's name that its quarantine name has."""


def free_name(fs: FileSystem, path: str) -> str:
    """The first quarantine name for `path` that is not taken."""
    return next(name for n in count(1) if not fs.exists(name := f"{path}.quarantined-{n}"))


def set_aside(fs: FileSystem, path: str) -> str | None:
    """Rename a file out of the way; its new name, None if there is no such file."""
    target = free_name(fs, path)
    try:
        fs.rename(path, target)
    except NoSuchFile:
        return None
    return target


def set_partition_aside(fs: FileSystem, path: str) -> str:
    """Move a partition's directory into `quarantine/` beside it, durably; its new path.

    Renamed in place it would look like a partition of another topic.
    """
    parent, name = os.path.split(path)
    folder = os.path.join(parent, FOLDER)
    fs.make_directory(folder)
    target = free_name(fs, os.path.join(folder, name[:_NAME_KEPT]))
    fs.rename(path, target)
    fs.sync_directory(folder)
    fs.sync_directory(parent)
    return target


def keep_copy(fs: FileSystem, file: File, start: int) -> str | None:
    """Copy what `file` holds from `start` on, before it is cut; the copy's name, if any."""
    stop = file.size()
    if start >= stop:
        return None
    name = free_name(fs, f"{file.path}.from-{start}")
    copy = fs.open(name, create=True)
    try:
        copy_bytes(file, copy, start, stop, shift=start)
        copy.datasync()
    finally:
        copy.close()
    return name


def copy_bytes(source: File, target: File, start: int, stop: int, *, shift: int = 0) -> None:
    """Copy bytes [start, stop) to the same position less `shift`."""
    while start < stop:
        data = source.pread(min(_PIECE_BYTES, stop - start), start)
        if not data:
            return
        target.pwrite(data, start - shift)
        start += len(data)


def restore_prefix(fs: FileSystem, source: str | None, path: str, begin: int) -> int:
    """Write the valid batches of `source` from `begin` on to a new file; where they end."""
    file = fs.open(path, create=True)
    try:
        end = begin
        if source is not None:
            damaged = fs.open(source)
            try:
                end = valid_extent(damaged, begin, damaged.size()).end
                copy_bytes(damaged, file, begin, end)
            finally:
                damaged.close()
        file.datasync()
    finally:
        file.close()
    return end
