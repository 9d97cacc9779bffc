"""Planted bugs in how archived files are told from others, and emptied."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from samelog.archiver.history import ArchiveHistory
from samelog.format.directory_files import PartitionFile
from samelog.format.errors import CorruptLog
from samelog.format.file_names import LOG, segment_bases
from samelog.store.disk.files import FileSystem, OsFileSystem
from samelog.store.merged import log as merged_log
from samelog.store.merged import partition_file, truncation
from samelog.store.merged.recovery import MergedRecovery


@contextmanager
def unreadable_is_archived() -> Iterator[None]:
    """A log whose start cannot be read restarts behind all its files."""
    original = partition_file.claim

    def claim(fs: FileSystem, directory: str, wanted: PartitionFile, **how: Any) -> PartitionFile:
        try:
            return original(fs, directory, wanted, **how)
        except CorruptLog:
            names = fs.list_directory(directory)
            truncation.truncate_segments(fs, directory, segment_bases(names))
            return wanted

    with patch.object(merged_log, "claim", claim):
        yield


@contextmanager
def empty_is_archived() -> Iterator[None]:
    """A segment without bytes counts as archived, whatever Raft says."""
    original = MergedRecovery.recover

    def recover(self: MergedRecovery, bases: list[int]) -> None:
        sizes = {base: self.fs.size(self.segments.path(base, LOG)) for base in bases}
        original(self, [base for base in bases if sizes[base] or base == bases[-1]])

    with patch.object(MergedRecovery, "recover", recover):
        yield


@contextmanager
def truncate_in_place() -> Iterator[None]:
    """Archived files are cut, under whoever reads them."""

    def write_atomically(self: OsFileSystem, path: str, data: bytes, **how: Any) -> None:
        file = self.open(path, writable=True, create=True)
        file.truncate(0)
        file.pwrite(data, 0)
        file.close()

    with patch.object(OsFileSystem, "write_atomically", write_atomically):
        yield


@contextmanager
def truncate_by_path() -> Iterator[None]:
    """Files are truncated in any directory at the path of a copy."""

    def empty(self: OsFileSystem, path: str, *, within: tuple[int, int]) -> None:
        del within
        self.write_atomically(path, b"", durable=False)

    with patch.object(OsFileSystem, "empty", empty):
        yield


@contextmanager
def lose_the_name_of_a_history() -> Iterator[None]:
    """The file that says what was archived goes with the power, though it was synced."""

    def append(self: ArchiveHistory, number: int, files: Any) -> bool:
        file = self._file(number)
        if not file.append(files):
            return False
        self._ends[number] = file.end
        self._dirty.add(number)
        return True

    with patch.object(ArchiveHistory, "_append", append):
        yield


_COPIES = "tests/replicator/test_copy_upkeep.py::"
_ARCHIVE = "tests/store/test_archive.py::"
ARCHIVING = (
    ("archive.1", unreadable_is_archived, _ARCHIVE + "test_an_unreadable_start_archives_nothing"),
    ("archive.1", empty_is_archived, _ARCHIVE + "test_an_empty_file_above_the_start_is_damage"),
    (
        "archive.8",
        lose_the_name_of_a_history,
        "tests/archiver/test_history.py::test_the_name_of_a_new_history_is_durable",
    ),
    ("logs.2", truncate_in_place, _ARCHIVE + "test_who_reads_a_file_goes_on_reading_it"),
    (
        "logs.13",
        truncate_by_path,
        _COPIES + "test_files_of_a_directory_that_takes_the_place_of_a_copy_are_not_truncated",
    ),
)
"""Rule, bug, and the test that finds it."""
