"""The Raft log of a directory that an older version has written: group 0 had files of its own.

It is carried over whole into the first file of the shared log, which appears at once (a rename).
Only then its files go. The newest one makes room for a *placeholder*: an older version that is
started on the directory must refuse it, for it would find an empty log, and vote as if it had
promised nothing.

Invariant: at any moment either version's log is complete, and an older program that starts finds
its own one whole, or the placeholder.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from samelog.consensus import CorruptRecord, UnfinishedFile
from samelog.consensus.wal import MAX_FILE_BYTES, WalEncoder, WalHeader, WalRecord, scan_wal
from samelog.consensus.wal.first_version import carried_over
from samelog.format.errors import UnsupportedFormat
from samelog.sequencer.raft.raft_errors import RaftStoreError
from samelog.store.disk.files import FileSystem

PLACEHOLDER_TEXT = (
    b"The log is in wal.* one directory up. This file keeps older versions from starting.\n"
)


class FirstLog:
    """The files of group 0, below the directory of the shared log."""

    def __init__(self, fs: FileSystem, directory: str, cluster: str, node: int) -> None:
        self._fs = fs
        self._directory = os.path.join(directory, "0")
        self._owner = cluster, node
        fs.make_directory(self._directory)
        header = WalEncoder(WalHeader(cluster, node, 0)).header_bytes
        self._placeholder = header + PLACEHOLDER_TEXT
        self._paths = self._find()

    def _find(self) -> list[str]:
        numbers = numbers_of(self._fs, self._directory, "wal.")
        paths = [path_of(self._directory, "wal.", number) for number in numbers]
        self._is_retired = any(map(self._is_placeholder, paths))
        return [path for path in paths if not self._is_placeholder(path)]

    def _is_placeholder(self, path: str) -> bool:
        size = len(self._placeholder)
        return self._fs.size(path) == size and self._fs.read_file(path, size) == self._placeholder

    def records(self) -> Sequence[WalRecord]:
        """All that counts of it. Raises RaftStoreError if it is damaged; or if only the
        placeholder is there, for then the shared log was.
        """
        if self._is_retired:
            raise RaftStoreError(damaged(os.path.dirname(self._directory), "its log is missing"))
        found: list[WalRecord] = []
        for path in self._paths:
            found += self._records_of(path, is_last=path == self._paths[-1])
        if not found:
            return []
        try:
            return carried_over(found)
        except CorruptRecord as error:
            raise RaftStoreError(damaged(self._paths[0], str(error))) from error

    def _records_of(self, path: str, *, is_last: bool) -> list[WalRecord]:
        try:
            scan = scan_wal(self._fs.read_file(path, MAX_FILE_BYTES))
        except (CorruptRecord, UnsupportedFormat) as error:
            if is_last and isinstance(error, UnfinishedFile):
                return []  # a crash came before it had its header
            raise RaftStoreError(damaged(path, str(error))) from error
        if (scan.header.cluster, scan.header.node) != self._owner:
            text = f"{path} belongs to node {scan.header.node} of cluster {scan.header.cluster!r}"
            raise RaftStoreError(f"{text}, this is node {self._owner[1]} of {self._owner[0]!r}")
        if scan.corrupt is not None or (scan.torn and not is_last):
            raise RaftStoreError(damaged(path, scan.corrupt or "it ends in the middle"))
        return scan.records

    def retire(self) -> None:
        """The shared log has it: write the placeholder in the place of the newest file, then remove
        the others.
        """
        if not self._is_retired:
            newest = self._paths.pop() if self._paths else path_of(self._directory, "wal.", 1)
            self._fs.write_atomically(newest, self._placeholder)
        for path in self._paths:
            self._fs.unlink(path)
        if self._paths:
            self._fs.sync_directory(self._directory)


def numbers_of(fs: FileSystem, directory: str, prefix: str) -> list[int]:
    """The numbers of the files of a kind, in order."""
    names = fs.list_directory(directory)
    tails = (name.removeprefix(prefix) for name in names if name.startswith(prefix))
    return sorted(int(tail) for tail in tails if tail.isdigit())


def path_of(directory: str, prefix: str, number: int) -> str:
    """Where a numbered file is."""
    return os.path.join(directory, f"{prefix}{number:020d}")


def damaged(path: str, reason: str) -> str:
    """For an operator."""
    return (
        f"{path} is damaged: {reason}. Nothing was changed. Remedy: keep a copy of the data "
        "directory, then start this node with an empty one, to be filled from its peers"
    )
