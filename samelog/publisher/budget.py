"""How much disk a session may take: the bytes of its log files that were not released yet.

Counting exactly would need a look at every release, which another process may do; so bytes are
promised in steps, and only when the promises reach the limit is the directory measured again.
Invariant: what lies on disk never exceeds `limit_bytes`.
"""

from __future__ import annotations

import os

from samelog.format.errors import CorruptLog
from samelog.format.file_names import data_name, parse_names
from samelog.publisher.errors import PublisherError
from samelog.store.disk.files import FileSystem, NoSuchFile


class NoRoom(PublisherError):
    """The budget has no room for `size` bytes until something is released."""

    def __init__(self, size: int) -> None:
        super().__init__(f"no room for {size} bytes in the disk budget")
        self.size = size


class DiskBudget:
    """The budget of one session directory."""

    __slots__ = ("_promised", "limit_bytes")

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self._promised = limit_bytes  # nothing is promised before the first recount

    def take(self, needed: int, wanted: int) -> int:
        """Promise at least `needed` bytes, up to `wanted`; 0: there is no room."""
        room = self.limit_bytes - self._promised
        if needed > room:
            return 0
        taken = max(needed, min(wanted, room // 4))
        self._promised += taken
        return taken

    def recount(self, used: int) -> None:
        """Forget all promises: `used` bytes are on disk."""
        self._promised = used


def measure(fs: FileSystem, session: str) -> int:
    """The bytes in the log files of a session directory."""
    total = 0
    for folder in fs.list_directory(session):
        path = os.path.join(session, folder)
        try:
            names = parse_names(fs.list_directory(path))
        except (NoSuchFile, CorruptLog):
            continue  # a file beside the inputs, or one that was just removed
        for run, facts in names.items():
            total += sum(_size(fs, os.path.join(path, data_name(run, roll))) for roll in facts.data)
    return total


def _size(fs: FileSystem, path: str) -> int:
    try:
        return fs.size(path)
    except NoSuchFile:
        return 0  # released meanwhile
