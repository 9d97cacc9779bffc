"""The write-ahead log of a member: one file is appended to, for the replicas of all its groups.

`wal.<number>` files are rolled, and go oldest first, once no replica needs a record in them. If
idle replicas hold up the oldest file while others write, their records are written again at the end
(*moved*), a bounded part with each write. So the disk that the log takes follows what counts in it.

One sync makes durable what all replicas wrote before it. If one fails, nobody's records are called
durable any more: what was written since is unknown, and the process has to end.

Invariant: a file goes only when it is durable that it is not needed, and every older one is gone.
What is unreadable is never removed or cut, unless nothing behind it was ever promised (a torn
tail); as long as there is any, no file goes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

import msgspec

from samelog.consensus import CorruptRecord, UnfinishedFile
from samelog.consensus.wal import (
    MAX_FILE_BYTES,
    GroupLog,
    LogReplay,
    ReplicaKey,
    WalEncoder,
    WalHeader,
    WalRecord,
    WalScan,
    carried_bytes,
    scan_wal,
)
from samelog.format.errors import UnsupportedFormat
from samelog.sequencer.raft.log_files import damaged, numbers_of, path_of
from samelog.sequencer.raft.raft_errors import RaftStoreError
from samelog.store.disk.append_file import AppendFile
from samelog.store.disk.disk_errors import DiskFault, NoSpace
from samelog.store.disk.files import File, FileSystem

BEGUN = "begun"
"""Marker file of a directory that has a log: if it is alone, the log was lost."""
FILE_BYTES = 32 << 20
FILES_KEPT = 2
"""So many full files are not worth moving anything."""
SPARSE = 4
"""Records are moved when the full files are larger than so many times what counts."""
MOVED_BYTES = 64 << 10
"""About so much is moved with each write."""
UNFINISHED_BYTES = 4096
"""A header is shorter; a longer file without one had been more than begun."""


class SyncMark(msgspec.Struct, frozen=True):
    """How far the current file was written when a sync was asked for, and the oldest file that is
    needed once that is durable.
    """

    sequence: int
    position: int
    oldest: int


class MemberLog:
    """Reads everything on open; afterwards only appends, rolls and removes."""

    def __init__(self, fs: FileSystem, directory: str, *, cluster: str, node: int) -> None:
        self.directory = directory
        self.cluster = cluster
        self.node = node
        self._fs = fs
        self._replay = LogReplay()
        self._oldest = 1
        self._sequence = 1
        """Number of the current file."""
        self._file: AppendFile
        self._encoder: WalEncoder
        self._synced = 0
        """How much of the current file is durable."""
        self._moving: list[GroupLog] = []
        """Who has records in the oldest file that are to be moved."""
        self._fault: DiskFault | None = None

    @classmethod
    def open(cls, fs: FileSystem, directory: str, *, cluster: str, node: int) -> MemberLog:
        """Read what is there, cut a torn tail, and be ready to append. Names are synced again: who
        made them may have been killed before. Raises RaftStoreError.
        """
        log = cls(fs, directory, cluster=cluster, node=node)
        fs.make_directory(os.path.dirname(directory))
        fs.make_directory(directory)
        numbers = numbers_of(fs, directory, "wal.")
        if numbers and log._is_unfinished(numbers[-1]):
            fs.unlink(path_of(directory, "wal.", numbers.pop()))
        begun = os.path.join(directory, BEGUN)
        if not numbers:
            if fs.exists(begun):
                raise RaftStoreError(damaged(directory, "its log is missing"))
            log._begin()
            numbers = [1]
        log._load(numbers)
        if not fs.exists(begun):
            fs.write_atomically(begun, b"")
        fs.sync_directory(directory)
        return log

    def _begin(self) -> None:
        """Make the first file, whole or not at all."""
        header = WalEncoder(WalHeader(self.cluster, self.node, 1)).header_bytes
        self._fs.write_atomically(path_of(self.directory, "wal.", 1), header)

    # --- loading ----------------------------------------------------------------------------------

    def _is_unfinished(self, number: int) -> bool:
        """Whether a crash came before this file had its header: nothing was ever in it."""
        path = path_of(self.directory, "wal.", number)
        if self._fs.size(path) > UNFINISHED_BYTES:
            return False
        try:
            scan_wal(self._fs.read_file(path, UNFINISHED_BYTES))
        except UnfinishedFile:
            return True
        except (CorruptRecord, UnsupportedFormat):
            return False
        return False

    def _load(self, numbers: Sequence[int]) -> None:
        replay, last, scan = self._replay, numbers[-1], None
        for before, number in zip([numbers[0] - 1, *numbers[:-1]], numbers, strict=True):
            path = path_of(self.directory, "wal.", number)
            if number != before + 1:
                replay.add_hole(f"{path}: the file before it is missing")
            replay.begin_file(number)
            scan = self._scan(path, number, is_last=number == last)
        replay.end()
        self._oldest, self._sequence = numbers[0], last
        if scan is not None and scan.corrupt is None:
            self._resume(scan)
        else:
            self._start_file()

    def _scan(self, path: str, number: int, *, is_last: bool) -> WalScan | None:
        """Take in a file; None if it is damaged from its header on."""
        replay = self._replay
        try:
            scan = scan_wal(self._fs.read_file(path, MAX_FILE_BYTES))
        except CorruptRecord as error:
            replay.add_hole(damaged(path, str(error)))
            return None
        except UnsupportedFormat as error:
            raise RaftStoreError(damaged(path, str(error))) from error
        self._check_owner(path, scan.header)
        reason = damaged(path, scan.corrupt or "it ends in the middle")
        for position, piece in enumerate(scan.pieces):
            if position:
                replay.add_hole(reason)
            replay.add(piece, number)
        if (scan.corrupt and len(scan.pieces) == 1) or (scan.torn and not is_last):
            replay.add_hole(reason)
        return scan

    def _check_owner(self, path: str, header: WalHeader) -> None:
        if (header.cluster, header.node) != (self.cluster, self.node):
            text = f"{path} belongs to node {header.node} of cluster {header.cluster!r}"
            raise RaftStoreError(f"{text}, this is node {self.node} of {self.cluster!r}")

    def _resume(self, scan: WalScan) -> None:
        path = path_of(self.directory, "wal.", self._sequence)
        file = self._fs.open(path, writable=True)
        if file.size() != scan.end:
            file.truncate(scan.end)
        file.datasync()
        self._file = AppendFile(file, scan.end)
        self._encoder = WalEncoder.resume(scan)
        self._synced = scan.end

    def group(self, key: ReplicaKey) -> GroupLog:
        """One replica's log. Raises RaftStoreError if records of it are, or may be, lost."""
        damage = self._replay.damage(key)
        if damage is not None:
            raise RaftStoreError(f"group {key[0]} (replica {key[1]}): {damage}")
        return self._replay.groups.setdefault(key, GroupLog(key, self._replay.live))

    @property
    def replicas(self) -> list[ReplicaKey]:
        """Those of which there are records."""
        return list(self._replay.groups)

    def forget(self, key: ReplicaKey) -> None:
        """A replica has ended, and it is on the disk elsewhere that it never begins again: files
        that have nothing but its records may go.
        """
        group = self._replay.groups.pop(key, None)
        if group is not None:
            group.let_go()

    # --- writing ----------------------------------------------------------------------------------

    def write(
        self, group: GroupLog, records: Sequence[WalRecord], *, is_moved: bool = False
    ) -> None:
        """Append records of a replica; durable after the next sync. Raises DiskFault."""
        if self._file.size > FILE_BYTES:
            with suppress(NoSpace):  # this file may have room that is reserved
                self.roll()
        encoded = self._encoder.encode(
            group.key, group.count, records, synced=self._synced, moved=is_moved
        )
        try:
            self._file.append(encoded)
        except BaseException:  # the next record must follow what is in the file
            self._encoder.take_back()
            raise
        file, take = self._sequence, group.move if is_moved else group.note
        for record in records:
            take(record, file)
        if self._moving and not is_moved:
            with suppress(NoSpace):  # later, when there is room: what had to be written is
                self._move_some()

    def _move_some(self) -> None:
        """Write some records of the oldest file again."""
        left = MOVED_BYTES
        while self._moving and left > 0:
            group = self._moving[-1]
            records = group.held_in(self._oldest, left)
            if records:
                self.write(group, records, is_moved=True)
                left -= carried_bytes(records)
            else:
                self._moving.pop()

    def roll(self) -> None:
        """Begin another log file; what was written before is durable. Raises DiskFault: NoSpace
        if the log goes on in the file that there is.
        """
        ended = self._file
        with self._final():
            ended.file.datasync()
        self._start_file()
        ended.seal()
        ended.file.close()
        self._plan_moving()

    def _plan_moving(self) -> None:
        """Whose records are to be moved, if the full files are sparse."""
        full, live = self._sequence - self._oldest, self._replay.live
        is_sparse = full * FILE_BYTES > SPARSE * sum(live.values())
        if full > FILES_KEPT and is_sparse and not self._replay.holes:
            groups = self._replay.groups.values()
            self._moving = [group for group in groups if group.needs(self._oldest)]

    def _start_file(self) -> None:
        sequence = self._sequence + 1
        encoder = WalEncoder(WalHeader(self.cluster, self.node, sequence))
        path = path_of(self.directory, "wal.", sequence)
        begun = AppendFile(self._fs.open(path, writable=True, create=True), 0)
        try:
            begun.append(encoder.header_bytes)
        except NoSpace:
            begun.file.close()
            with self._final():  # or it follows one that ends in the middle
                self._fs.unlink(path)
                self._fs.sync_directory(self.directory)
            raise
        with self._final():
            begun.file.datasync()
            self._fs.sync_directory(self.directory)
        self._encoder, self._file, self._synced = encoder, begun, begun.size
        self._sequence = sequence
        self._replay.begin_file(sequence)

    @contextmanager
    def _final(self) -> Iterator[None]:
        """A sync that fails is the last one. One that finds no room is no lack of room: whoever
        waits for room must not go on.
        """
        try:
            yield
        except DiskFault as fault:
            self.fail(DiskFault(fault.path, fault.operation, fault.error_number))
            raise self._fault or fault from fault

    # --- durability -------------------------------------------------------------------------------

    def unsynced(self) -> tuple[File | None, SyncMark]:
        """What has to be synced, if anything, and the mark to give to `synced` afterwards. It is
        handed out to all who ask until a sync is done. Raises DiskFault once a sync has failed.
        """
        if self._fault is not None:
            raise self._fault
        oldest, live = self._oldest, self._replay.live
        while oldest < self._sequence and not live[oldest]:
            oldest += 1
        mark = SyncMark(self._sequence, self._file.size, oldest)
        return None if mark.position == self._synced else self._file.file, mark

    def synced(self, mark: SyncMark) -> None:
        """Everything up to the mark is durable, of all replicas. Raises DiskFault if another sync
        has failed.
        """
        if self._fault is not None:
            raise self._fault
        if mark.sequence == self._sequence:
            self._synced = max(self._synced, mark.position)
        if self._oldest < mark.oldest and not self._replay.holes:
            self._remove(mark.oldest)

    def _remove(self, oldest: int) -> None:
        """Remove the files before this one, the oldest first whatever a loss of power leaves of it:
        what lies between two files must never be missing.
        """
        while self._oldest < oldest:
            self._fs.unlink(path_of(self.directory, "wal.", self._oldest))
            self._fs.sync_directory(self.directory)
            del self._replay.live[self._oldest]
            self._oldest += 1
        self._plan_moving()

    def sync(self) -> None:
        """Make all that was written durable, at once. Raises DiskFault."""
        file, mark = self.unsynced()
        if file is not None:
            with self._final():
                file.datasync()
        self.synced(mark)

    def fail(self, fault: DiskFault) -> None:
        """A sync failed: nothing that any replica wrote may be called durable any more."""
        self._fault = self._fault or fault

    def close(self) -> None:
        """Close the current file."""
        self._file.file.close()
