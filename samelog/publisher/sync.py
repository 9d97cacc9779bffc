"""Makes what a publisher wrote durable, on demand, while others go on appending.

Files are synced by name, through a descriptor of their own: the kernel syncs the file, whoever
wrote it, and a file that was released meanwhile needs no sync any more.

Invariant: `sync` returns only when everything in it is durable, or was merged and released.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from samelog.store.disk.files import FileSystem, NoSuchFile


@dataclass(slots=True)
class Unsynced:
    """Paths of files, and of directories with new names in them."""

    files: set[str] = field(default_factory=set)
    directories: set[str] = field(default_factory=set)


def sync(fs: FileSystem, unsynced: Unsynced) -> None:
    """Wait for the disk. Raises DiskFault."""
    for path in sorted(unsynced.files):
        try:
            file = fs.open(path)
        except NoSuchFile:
            continue
        try:
            file.datasync()
        finally:
            file.close()
    for path in sorted(unsynced.directories):
        fs.sync_directory(path)
