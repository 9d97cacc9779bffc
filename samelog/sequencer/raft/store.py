"""The files of one Raft group: log files, hard state in them, and the two newest snapshots.

`wal.<sequence>` files are appended to and rolled; each begins with the hard state of its moment, so
that older files can be removed one by one once their entries are behind the cut. `snapshot.<index>`
files are written aside and renamed.

Invariant: what is unreadable is never removed or cut, unless nothing behind it was ever promised (a
torn tail): a damaged log or snapshot stops the node with a message that names the file.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import msgspec

from samelog.consensus import CorruptRecord, Effects, Entry, HardState, Snapshot, UnfinishedFile
from samelog.consensus.snapshot_file import StoredSnapshot, decode_snapshot, encode_snapshot
from samelog.consensus.types import FileOwner
from samelog.consensus.wal import (
    MAX_FILE_BYTES,
    Recovered,
    SnapshotMark,
    WalEncoder,
    WalHeader,
    WalRecord,
    WalScan,
    mark_lost,
    replay,
    scan_wal,
)
from samelog.format.errors import UnsupportedFormat
from samelog.store.disk.append_file import AppendFile
from samelog.store.disk.disk_errors import DiskFault, NoSpace
from samelog.store.disk.files import File, FileSystem

GROUP = 0
REPLICA = 0
FILE_BYTES = 32 << 20
SNAPSHOTS_KEPT = 2
UNFINISHED_BYTES = 4096
"""A header is shorter; a longer file without one had been more than begun."""
SNAPSHOT_LIMIT_BYTES = 4 << 30


class RaftStoreError(Exception):
    """The Raft files cannot be trusted; an operator has to look. Names file, reason and remedy."""


@dataclass(slots=True)
class _LogFile:
    """One log file: its number and the highest entry index it has held."""

    sequence: int
    last_index: int


class SyncMark(msgspec.Struct, frozen=True):
    """How far the current file was written when a sync was asked for."""

    sequence: int
    position: int


@contextmanager
def _final() -> Iterator[None]:
    """A sync that finds no room has failed: nothing may go on as if there were only no room."""
    try:
        yield
    except NoSpace as fault:
        raise DiskFault(fault.path, "sync", errno.ENOSPC) from fault


class RaftStore:
    """Reads everything on open; afterwards only appends, rolls and removes."""

    def __init__(self, fs: FileSystem, directory: str, *, cluster: str, node: int) -> None:
        self.snapshot: Snapshot | None = None
        self.entries: list[Entry] = []
        self.hard_state = HardState(0, None, 0)
        self._fs = fs
        self._directory = directory
        self._owner = FileOwner(cluster, GROUP, node, REPLICA)
        self._files: list[_LogFile] = []
        self._snapshots: list[int] = []
        self._file: AppendFile
        self._encoder: WalEncoder
        self._marked = 0
        """Where the newest snapshot ended of which the log knew when it was opened."""
        self._synced = 0
        """How much of the current file is durable."""

    @classmethod
    def open(cls, fs: FileSystem, directory: str, *, cluster: str, node: int) -> RaftStore:
        """Read what is there, cut a torn tail, and be ready to append. Raises RaftStoreError."""
        store = cls(fs, directory, cluster=cluster, node=node)
        fs.make_directory(os.path.dirname(directory))
        fs.make_directory(directory)
        recovered = store._load_logs()
        store._load_snapshot()
        if recovered is not None and store.snapshot is not None:
            store._mark_again(recovered, store.snapshot)
        return store

    def _mark_again(self, recovered: Recovered, snapshot: Snapshot) -> None:
        mark = mark_lost(recovered, snapshot.last_index, snapshot.last_term)
        if mark is not None:
            self._append([mark])

    @property
    def applied_index(self) -> int:
        """The last entry covered by the loaded snapshot."""
        return 0 if self.snapshot is None else self.snapshot.last_index

    @property
    def _newest_snapshot(self) -> int:
        return self._snapshots[-1] if self._snapshots else 0

    # --- loading ----------------------------------------------------------------------------------

    def _load_logs(self) -> Recovered | None:
        sequences = self._numbers("wal.")
        if sequences and self._is_unfinished(sequences[-1]):
            self._fs.unlink(self._path("wal.", sequences.pop()))
        if not sequences:
            self._start_file(1, 1, [])
            return None
        scans = [self._scan(number, last=number == sequences[-1]) for number in sequences]
        try:
            recovered = replay(record for scan in scans for record in scan.records)
        except CorruptRecord as error:
            raise RaftStoreError(
                self._damaged(self._path("wal.", sequences[0]), str(error))
            ) from error
        self.hard_state = recovered.hard_state
        self.entries = recovered.entries
        self._marked = 0 if recovered.mark is None else recovered.mark.last_index
        self._files = [
            _LogFile(number, _last_index(scan))
            for number, scan in zip(sequences, scans, strict=True)
        ]
        self._resume(sequences[-1], scans[-1])
        return recovered

    def _is_unfinished(self, number: int) -> bool:
        """Whether a crash came before this file had its header: nothing was ever in it."""
        path = self._path("wal.", number)
        if self._fs.size(path) > UNFINISHED_BYTES:
            return False
        try:
            scan_wal(self._fs.read_file(path, UNFINISHED_BYTES))
        except UnfinishedFile:
            return True
        except (CorruptRecord, UnsupportedFormat):
            return False
        return False

    def _scan(self, number: int, *, last: bool) -> WalScan:
        path = self._path("wal.", number)
        try:
            scan = scan_wal(self._fs.read_file(path, MAX_FILE_BYTES))
        except (CorruptRecord, UnsupportedFormat) as error:
            raise RaftStoreError(self._damaged(path, str(error))) from error
        self._check_owner(path, scan.header.owner)
        if scan.corrupt is not None or (scan.torn and not last):
            raise RaftStoreError(self._damaged(path, scan.corrupt or "it ends in the middle"))
        return scan

    def _check_owner(self, path: str, owner: FileOwner) -> None:
        if owner != self._owner:
            text = f"{path} belongs to node {owner.node} of cluster {owner.cluster!r}"
            raise RaftStoreError(f"{text}, this is {self._owner}")

    def _resume(self, number: int, scan: WalScan) -> None:
        file = self._fs.open(self._path("wal.", number), writable=True)
        if file.size() != scan.end:
            file.truncate(scan.end)
        file.datasync()
        self._file = AppendFile(file, scan.end)
        self._encoder = WalEncoder.resume(scan)
        self._synced = scan.end

    def _load_snapshot(self) -> None:
        """The newest snapshot that is whole; an older one does while the log reaches back to it."""
        self._snapshots = self._numbers("snapshot.")
        reasons: list[str] = []
        for index in reversed(self._snapshots):
            path = self._path("snapshot.", index)
            try:
                stored = decode_snapshot(self._fs.read_file(path, SNAPSHOT_LIMIT_BYTES))
            except (CorruptRecord, UnsupportedFormat) as error:
                reasons.append(f"{path}: {error}")
                continue
            self._check_owner(path, stored.owner)
            self.snapshot = stored.snapshot
            break
        self._check_no_gap(reasons)

    def _check_no_gap(self, reasons: list[str]) -> None:
        wanted = self.applied_index + 1
        if self.entries:
            first: int | None = self.entries[0].index
        else:  # a snapshot that is no more may have taken the place of all of them
            first = self._marked + 1 if self._marked else None
        lost_log = first is not None and first > wanted
        lost_snapshot = self.snapshot is None and bool(reasons)
        if lost_log or (lost_snapshot and first != 1):
            because = "; ".join(reasons) or f"the log begins at entry {first}"
            raise RaftStoreError(
                self._damaged(self._directory, f"entry {wanted} is lost ({because})")
            )

    def _damaged(self, path: str, reason: str) -> str:
        return (
            f"{path} is damaged: {reason}. Nothing was changed. Remedy: keep a copy of the data "
            "directory, then start this node with an empty one, to be filled from its peers"
        )

    def _numbers(self, prefix: str) -> list[int]:
        names = self._fs.list_directory(self._directory)
        tails = (name.removeprefix(prefix) for name in names if name.startswith(prefix))
        return sorted(int(tail) for tail in tails if tail.isdigit())

    def _path(self, prefix: str, number: int) -> str:
        return os.path.join(self._directory, f"{prefix}{number:020d}")

    # --- writing ----------------------------------------------------------------------------------

    def write(self, effects: Effects) -> None:
        """Append what the core wants saved; durable after the next sync. Raises DiskFault."""
        records: list[WalRecord] = []
        if effects.snapshot is not None:
            self._write_snapshot(effects.snapshot)
            self._keep_newest(effects.snapshot.last_index)
            records.append(SnapshotMark(effects.snapshot.last_index, effects.snapshot.last_term))
        records.extend(effects.entries)
        if effects.hard_state is not None:
            self.hard_state = effects.hard_state
            records.append(effects.hard_state)
        self._append(records)
        if effects.entries:
            newest = self._files[-1]
            newest.last_index = max(newest.last_index, effects.entries[-1].index)

    def _append(self, records: list[WalRecord]) -> None:
        if self._file.size > FILE_BYTES:
            with suppress(NoSpace):  # this file may have room that is reserved
                self.roll()
        encoded = self._encoder.encode(records, synced=self._synced)
        try:
            self._file.append(encoded)
        except BaseException:  # the next record must follow what is in the file
            self._encoder.take_back()
            raise

    def write_commit(self, commit: int) -> bool:
        """Append that so much is committed; False if the file says so already, and durably."""
        known = self.hard_state
        if commit > known.commit:
            self.hard_state = msgspec.structs.replace(known, commit=commit)
            self._append([self.hard_state])
        return self.unsynced()[0] is not None

    def sync(self) -> None:
        """Make all that was written durable, at once. Raises DiskFault."""
        _, mark = self.unsynced()
        self._file.file.datasync()
        self.synced(mark)

    def roll(self) -> None:
        """Begin another log file; what was written before is durable. Raises DiskFault: NoSpace
        if the log goes on in the file that there is.
        """
        ended = self._file
        with _final():
            ended.file.datasync()
        sequence, first_index = self._files[-1].sequence + 1, self.hard_state.commit + 1
        self._start_file(sequence, first_index, [self.hard_state])
        ended.seal()
        ended.file.close()

    def _start_file(self, sequence: int, first_index: int, records: list[WalRecord]) -> None:
        encoder = WalEncoder(WalHeader(self._owner, sequence, first_index))
        path = self._path("wal.", sequence)
        begun = AppendFile(self._fs.open(path, writable=True, create=True), 0)
        try:
            begun.append(encoder.header_bytes + encoder.encode(records, synced=0))
        except NoSpace:
            begun.file.close()
            with _final():  # or it follows one that ends in the middle
                self._fs.unlink(path)
                self._fs.sync_directory(self._directory)
            raise
        with _final():
            begun.file.datasync()
            self._fs.sync_directory(self._directory)
        self._encoder, self._file, self._synced = encoder, begun, begun.size
        self._files.append(_LogFile(sequence, 0))

    def unsynced(self) -> tuple[File | None, SyncMark]:
        """What has to be synced, if anything, and the mark to give to `synced` afterwards. It is
        handed out to all who ask until a sync is done.
        """
        mark = SyncMark(self._files[-1].sequence, self._file.size)
        return None if mark.position == self._synced else self._file.file, mark

    def synced(self, mark: SyncMark) -> None:
        """Everything up to the mark is durable."""
        if mark.sequence == self._files[-1].sequence:
            self._synced = max(self._synced, mark.position)

    # --- snapshots and cutting --------------------------------------------------------------------

    async def save_snapshot(self, snapshot: Snapshot) -> None:
        """Write a snapshot of this node's own, off the event loop. Of no use when a leader's was
        installed meanwhile that is as new. Raises DiskFault.
        """
        if snapshot.last_index <= self._newest_snapshot:
            return
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, self._write_snapshot, snapshot)
        if snapshot.last_index < self._newest_snapshot:
            self._fs.unlink(self._path("snapshot.", snapshot.last_index))
            return
        self._append([SnapshotMark(snapshot.last_index, snapshot.last_term)])
        self._keep_newest(snapshot.last_index)

    def _write_snapshot(self, snapshot: Snapshot) -> None:
        stored = StoredSnapshot(self._owner, snapshot)
        path = self._path("snapshot.", snapshot.last_index)
        self._fs.write_atomically(path, encode_snapshot(stored))

    def _keep_newest(self, index: int) -> None:
        """A snapshot is written: note it, and remove those that are too old."""
        self._snapshots = sorted({*self._snapshots, index})
        while len(self._snapshots) > SNAPSHOTS_KEPT:
            self._fs.unlink(self._path("snapshot.", self._snapshots.pop(0)))

    def cut(self, index: int) -> None:
        """Remove log files whose entries all are at or below `index`, the oldest first whatever a
        loss of power leaves of it: what lies between two files must never be missing.
        """
        while len(self._files) > 1 and self._files[0].last_index <= index:
            self._fs.unlink(self._path("wal.", self._files.pop(0).sequence))
            self._fs.sync_directory(self._directory)

    def close(self) -> None:
        """Close the current file."""
        self._file.file.close()


def _last_index(scan: WalScan) -> int:
    return max((record.index for record in scan.records if isinstance(record, Entry)), default=0)
