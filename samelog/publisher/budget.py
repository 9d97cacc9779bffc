"""How much disk a session may take: the bytes of its log files that were not released yet.

Counting exactly would need a look at every release, which another process may do; so bytes are
promised in steps, and only when the promises reach the limit is the directory measured again.
Invariant: what lies on disk never exceeds `limit_bytes`.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress

from samelog.format.directory_files import RunByte, ShippingFile
from samelog.format.errors import LogFormatError
from samelog.format.file_names import SHIPPING_FILE, data_name, parse_names
from samelog.replicator.client_errors import PublisherError
from samelog.runtime.inotify import Inotify, Mask, open_or_warn
from samelog.store.disk.files import FileSystem, NoSuchFile
from samelog.store.disk.json_files import read_json_file
from samelog.store.session.directory import SessionDirectory

RELEASE_CHECK_S = 0.2
BLIND_CHECK_S = 0.05
_START: RunByte = (0, 0, 0)


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

    def reserve(self, needed: int, wanted: int) -> int:
        """Reserve at least `needed` bytes, up to `wanted`; 0 if there is no room."""
        room = self.limit_bytes - self._promised
        if needed > room:
            return 0
        taken = max(needed, min(wanted, room // 4))
        self._promised += taken
        return taken

    def recount(self, used: int) -> None:
        """Replace all reservations: `used` bytes are on disk."""
        self._promised = used


def measure(fs: FileSystem, directory: SessionDirectory) -> int:
    """The bytes in the log files of a session."""
    return sum(_bytes_behind(fs, directory.input_path(*name)) for name in directory.inputs())


def held_bytes(fs: FileSystem, directory: SessionDirectory) -> int:
    """The bytes that are held because their topic was deleted, until that is decided."""
    total = 0
    for name in directory.inputs():
        path = directory.input_path(*name)
        with suppress(LogFormatError):  # the process that ships the session reports it
            shipping = read_json_file(fs, os.path.join(path, SHIPPING_FILE), ShippingFile)
            if shipping is not None and shipping.held is not None and not shipping.decision:
                total += _bytes_behind(fs, path, shipping.held)
    return total


def _bytes_behind(fs: FileSystem, path: str, begin: RunByte = _START) -> int:
    """The bytes in an input's files from a position on."""
    total = 0
    try:
        names = parse_names(fs.list_directory(path))
    except NoSuchFile:
        return 0  # it was just removed
    for run, facts in names.items():
        for roll in facts.data:
            if (run, roll) >= begin[:2]:
                size = _size(fs, os.path.join(path, data_name(run, roll)))
                total += max(0, size - begin[2] * ((run, roll) == begin[:2]))
    return total


def _size(fs: FileSystem, path: str) -> int:
    try:
        return fs.size(path)
    except NoSuchFile:
        return 0  # released meanwhile


def wait_for_release(directory: SessionDirectory) -> None:
    """Return when this process or a sidecar has removed a file of the session, or after
    RELEASE_CHECK_S: inotify may miss one.
    """
    inotify = open_or_warn(Inotify)
    if inotify is None:
        time.sleep(BLIND_CHECK_S)
        return
    try:
        for topic, partition in directory.inputs():
            path = directory.input_path(topic, partition)
            if os.path.isdir(path):
                inotify.add(path, Mask.DELETE)
        inotify.wait(RELEASE_CHECK_S)
    finally:
        inotify.close()
