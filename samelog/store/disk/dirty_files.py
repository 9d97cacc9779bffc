"""What a log has written and not yet handed to a sync: files, and the directory with its names.

A group of logs is synced together, by others: this only says what there is to sync. The marks file
is among it, so that marks reach the disk one round after they are written, at no cost of their own.
It and the directory are open only while they are synced: of thousands of logs, few are at a time.

Invariant: whatever was touched is handed out by the next `drain`, once, and stays open until that
round of syncs is over, also if other rounds end. Of two rounds the second is over last. A `drain`
that fails hands out nothing and forgets nothing.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Container, Mapping
from contextlib import suppress
from typing import Protocol, TypeVar

from samelog.format.errors import CorruptLog, LogFormatError
from samelog.format.file_names import MARKS_FILE
from samelog.format.marks import Marks, decode_marks, encode_marks
from samelog.store.disk.disk_errors import DiskFault, NoSpace
from samelog.store.disk.files import File, FileSystem, NoSuchFile
from samelog.store.disk.open_files import bound_of

_log = logging.getLogger(__name__)

UNSYNCED_RETRY_S = 0.1
"""How soon a round is repeated for logs whose files could not be opened."""
_MARKS_LIMIT_BYTES = 64 << 20

_Marks = TypeVar("_Marks", bound=Marks)


class ReadOnly(LogFormatError):
    """A log that is open for reading only was asked to change, or one for writing to refresh."""


def read_marks(
    fs: FileSystem, directory: str, kind: type[_Marks], *, name: str = MARKS_FILE
) -> _Marks | None:
    """The marks of a log directory; None when there are none, or none that can be trusted."""
    try:
        data = fs.read_file(os.path.join(directory, name), _MARKS_LIMIT_BYTES)
    except (NoSuchFile, CorruptLog):
        return None
    return decode_marks(data, kind)


class DirtyLog(Protocol):
    """A log that gives its written files to a round of syncs."""

    def take_dirty(self) -> list[File]:
        """Take the files written since the last call. Raises NoSpace: nothing was taken."""


RoundFiles = tuple[list[File], Mapping[int, NoSpace]]
"""The files of many logs for one round of syncs, and the logs for whose files the system lacks room
now: this round does not count for them.
"""


def take_dirty(logs: Mapping[int, DirtyLog]) -> RoundFiles:
    """Take the written files of all logs that have room to open theirs. Raises DiskFault."""
    files: list[File] = []
    left: dict[int, NoSpace] = {}
    for number, log in logs.items():
        try:
            files += log.take_dirty()
        except NoSpace as fault:
            left[number] = fault
    return files, left


def report_left(left: Mapping[int, NoSpace]) -> None:
    """Log that logs wait for room, which a round is repeated for until there is some."""
    _log.warning("%d logs wait for their sync: %s", len(left), next(iter(left.values())))


class DirtyFiles:
    """The dirty files of one log directory. Implements open_files.Crowded."""

    def __init__(self, fs: FileSystem, directory: str) -> None:
        self._fs = fs
        self._bound = bound_of(fs)
        self._path = directory
        self.files: dict[File, None] = {}
        """Files that were written to since the last `drain`; who writes adds the file."""
        self._names_changed = False
        self._marks_changed = False
        self._being_synced: list[File] = []
        """Opened by `drain`, to be closed."""
        self._marks: bytes | None = None
        """What the marks file holds, if this wrote it."""

    def __bool__(self) -> bool:
        return bool(self.files) or self._names_changed or self._marks_changed

    def touch_directory(self) -> None:
        """Note that a name was made or changed."""
        self._names_changed = True

    def forget(self, path: str) -> None:
        """Note that a file is gone."""
        for file in [file for file in self.files if file.path == path]:
            del self.files[file]

    def drain(self) -> list[File]:
        """All that is not synced, to be synced together; then `synced` is to be called. Raises
        DiskFault.
        """
        opened = self._open_changed() if self._marks_changed or self._names_changed else []
        self._being_synced += opened
        if self._bound is not None:
            for _ in opened:
                self._bound.opened(self)
        files = [*self.files, *opened]
        self.files.clear()
        return files

    def _open_changed(self) -> list[File]:
        """Of what somebody removed or replaced, there is nothing to sync."""
        opened: list[File] = []
        try:
            if self._marks_changed:
                with suppress(NoSuchFile, CorruptLog):
                    opened.append(self._fs.open(os.path.join(self._path, MARKS_FILE)))
            if self._names_changed:
                with suppress(NoSuchFile, CorruptLog):
                    opened.append(self._fs.open_directory(self._path))
        except DiskFault:
            for file in opened:
                file.close()
            raise
        self._marks_changed = self._names_changed = False
        return opened

    def synced(self, files: Container[File] | None = None) -> None:
        """A round of syncs is over that had these files; by default all that was drained."""
        if not self._being_synced:
            return
        over = [each for each in self._being_synced if files is None or each in files]
        for file in over:
            self._being_synced.remove(file)
        if over:
            self._close(over)

    def _close(self, files: list[File]) -> None:
        is_open = [file for file in files if not file.is_left_unsynced]
        for file in is_open:
            file.close()
        if self._bound is not None and is_open:
            self._bound.closed(self, len(is_open))

    def give_up(self, device: int) -> None:
        """Close what a round of syncs is to have: the whole file system is synced instead."""
        is_open = [file for file in self._being_synced if not file.is_left_unsynced]
        if self._bound is not None and all(file.device() == device for file in is_open):
            for file in is_open:
                file.close_unsynced()
            self._bound.closed(self, len(is_open))

    def write_marks(self, marks: Marks) -> None:
        """Replace the marks file, if it would change. Raises DiskFault."""
        data = encode_marks(marks)
        if data == self._marks:
            return
        path = os.path.join(self._path, MARKS_FILE)
        self._fs.write_atomically(path, data, durable=False)
        self._marks = data
        self._marks_changed = True
        self.touch_directory()

    def clear(self) -> None:
        """Forget all files: nothing is to be synced any more."""
        self.files.clear()
        self._names_changed = self._marks_changed = False
        self._marks = None

    def close(self) -> None:
        """Forget all files, and close what was opened here."""
        self.files.clear()
        self._names_changed = self._marks_changed = False
        self.synced()
