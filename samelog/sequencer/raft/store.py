"""One replica's part of the member's Raft files: its records in the shared log, and its two newest
snapshots, which are files of its own.

It knows nothing of other replicas. What is written counts for it at once, and is durable after the
next sync of the log.

Invariant: a snapshot is durable before the log names it; none is removed that the log needs. What
is unreadable is never removed: it stops the replica with a message that names the file.
"""

from __future__ import annotations

import asyncio
import logging
import os

import msgspec

from samelog.consensus import CorruptRecord, Effects, Entry, HardState, Snapshot
from samelog.consensus.snapshot_file import StoredSnapshot, decode_snapshot, encode_snapshot
from samelog.consensus.types import FileOwner
from samelog.consensus.wal import Base, SnapshotMark, WalRecord
from samelog.format.errors import LogFormatError, UnsupportedFormat
from samelog.runtime.log import log_event
from samelog.sequencer.raft.log_files import damaged, numbers_of, path_of
from samelog.sequencer.raft.member_log import MemberLog
from samelog.sequencer.raft.raft_errors import RaftStoreError
from samelog.store.disk.files import FileSystem

_log = logging.getLogger(__name__)

GROUP = 0
REPLICA = 0
SNAPSHOTS_KEPT = 2
SNAPSHOT_LIMIT_BYTES = 4 << 30


class RaftStore:
    """Reads everything on open; afterwards it only adds records and snapshots."""

    def __init__(self, fs: FileSystem, log: MemberLog, group: int, replica: int) -> None:
        self.log = log
        self.number = group
        """Of the group."""
        self.snapshot: Snapshot | None = None
        self.unwritten: Effects | None = None
        """What the disk had no room for."""
        self._fs = fs
        self._directory = os.path.join(log.directory, str(group))
        self._owner = FileOwner(log.cluster, group, log.node, replica)
        self._group = log.group((group, replica))
        self._snapshots: list[int] = []
        self._unreadable: set[int] = set()
        """Snapshots of which it was said."""
        self._writing: asyncio.Future[None] | None = None
        """The newest snapshot of this node's own, as a thread writes it."""

    @classmethod
    def open(
        cls, fs: FileSystem, log: MemberLog, group: int = GROUP, replica: int = REPLICA
    ) -> RaftStore:
        """What the member has of this replica. Raises RaftStoreError."""
        store = cls(fs, log, group, replica)
        if not fs.exists(store._directory):
            fs.make_directory(store._directory)
            fs.sync_directory(log.directory)
        store._load_snapshot()
        snapshot, kept = store.snapshot, store._group
        if snapshot is not None and not kept.holds(snapshot.last_index, snapshot.last_term):
            mark = SnapshotMark(snapshot.last_index, snapshot.last_term)
            log.write(kept, kept.installing(mark))  # a loss of power took the mark
        return store

    @property
    def entries(self) -> list[Entry]:
        """All that the log has, from the first one that is needed on."""
        return self._group.entries

    @property
    def hard_state(self) -> HardState:
        """As it was written last."""
        return self._group.hard_state

    @property
    def applied_index(self) -> int:
        """The last entry covered by the loaded snapshot."""
        return 0 if self.snapshot is None else self.snapshot.last_index

    @property
    def _newest_snapshot(self) -> int:
        return self._snapshots[-1] if self._snapshots else 0

    # --- loading ----------------------------------------------------------------------------------

    def _load_snapshot(self) -> None:
        """The newest snapshot that is whole; an older one does while the log reaches back to it."""
        self._snapshots = numbers_of(self._fs, self._directory, "snapshot.")
        reasons: list[str] = []
        self.snapshot = self._read_newest(reasons)
        self._check_no_gap(reasons)

    def _read_newest(self, reasons: list[str]) -> Snapshot | None:
        """The newest that is whole; why those that are newer are not is added to `reasons`."""
        for index in reversed(self._snapshots):
            path = path_of(self._directory, "snapshot.", index)
            try:
                stored = decode_snapshot(self._read(path))
            except (CorruptRecord, UnsupportedFormat) as error:
                reasons.append(f"{path}: {error}")
                continue
            self._check_owner(path, stored.owner)
            return stored.snapshot
        return None

    def _read(self, path: str) -> bytes:
        return self._fs.read_file(path, min(self._fs.size(path), SNAPSHOT_LIMIT_BYTES))

    def _check_owner(self, path: str, owner: FileOwner) -> None:
        if owner != self._owner:
            text = f"{path} belongs to node {owner.node} of cluster {owner.cluster!r}"
            raise RaftStoreError(f"{text}, this is {self._owner}")

    def _check_no_gap(self, reasons: list[str]) -> None:
        kept, wanted = self._group, self.applied_index + 1
        lost_snapshot = self.snapshot is None and bool(reasons) and not kept.entries
        if kept.base >= wanted or lost_snapshot:
            because = "; ".join(reasons) or f"the log begins at entry {kept.base + 1}"
            text = f"entry {wanted} is lost ({because})"
            raise RaftStoreError(damaged(self._directory, text))

    def drop_data(self) -> None:
        """The snapshot that was loaded is in use: of it no more than its mark is needed."""
        if self.snapshot is not None:
            self.snapshot = msgspec.structs.replace(self.snapshot, data=b"")

    def read_snapshot(self) -> Snapshot | None:
        """The newest one that is whole, to be sent to another member; None: there is none."""
        reasons: list[str] = []
        found: Snapshot | None = None
        try:
            found = self._read_newest(reasons)
        except (RaftStoreError, LogFormatError) as error:
            reasons.append(str(error))
        if reasons:
            self._say(reasons)
        return found

    def _say(self, reasons: list[str]) -> None:
        """Once for each snapshot: a follower asks again and again."""
        newest = self._newest_snapshot
        if newest not in self._unreadable:
            self._unreadable = {newest}
            text = "; ".join(reasons)
            log_event(_log, logging.ERROR, "a snapshot cannot be sent", reasons=text)

    # --- writing ----------------------------------------------------------------------------------

    def write(self, effects: Effects) -> None:
        """Append what the core wants saved; durable after the next sync. Raises DiskFault, NoSpace:
        nothing counts as written, and `unwritten` has the effects.
        """
        self.unwritten = effects
        records: list[WalRecord] = []
        if effects.snapshot is not None:
            records = self._install(effects.snapshot)
        records += effects.entries
        if effects.hard_state is not None:
            records.append(effects.hard_state)
        self.log.write(self._group, records)
        self.unwritten = None

    def _install(self, snapshot: Snapshot) -> list[WalRecord]:
        self._write_snapshot(snapshot)
        self._keep_newest(snapshot.last_index)
        return self._group.installing(SnapshotMark(snapshot.last_index, snapshot.last_term))

    def write_commit(self, commit: int) -> bool:
        """Append that so much is committed; False if the log says so already, and durably."""
        known = self.hard_state
        if commit > known.commit:
            self.log.write(self._group, [msgspec.structs.replace(known, commit=commit)])
        return self.log.unsynced()[0] is not None

    # --- snapshots and cutting --------------------------------------------------------------------

    async def save_snapshot(self, snapshot: Snapshot) -> None:
        """Write a snapshot of this node's own, off the event loop. Of no use when a leader's was
        installed meanwhile that is as new. Raises DiskFault.
        """
        if snapshot.last_index <= self._newest_snapshot:
            return
        loop = asyncio.get_running_loop()
        self._writing = loop.run_in_executor(None, self._write_snapshot, snapshot)
        await asyncio.shield(self._writing)
        self._writing = None
        if snapshot.last_index < self._newest_snapshot:
            self._fs.unlink(path_of(self._directory, "snapshot.", snapshot.last_index))
            return
        mark = SnapshotMark(snapshot.last_index, snapshot.last_term)
        self.log.write(self._group, self._group.installing(mark))
        self._keep_newest(snapshot.last_index)

    async def until_written(self) -> None:
        """Wait until no snapshot is being written, though the task that began it was cancelled:
        the file would appear behind the end of the replica.
        """
        if self._writing is not None:
            await asyncio.gather(self._writing, return_exceptions=True)

    def _write_snapshot(self, snapshot: Snapshot) -> None:
        stored = StoredSnapshot(self._owner, snapshot)
        path = path_of(self._directory, "snapshot.", snapshot.last_index)
        self._fs.write_atomically(path, encode_snapshot(stored))

    def _keep_newest(self, index: int) -> None:
        """A snapshot is written: note it, and remove those that are too old."""
        self._snapshots = sorted({*self._snapshots, index})
        while len(self._snapshots) > SNAPSHOTS_KEPT:
            self._fs.unlink(path_of(self._directory, "snapshot.", self._snapshots.pop(0)))

    def forget(self) -> None:
        """The replica is gone for good: none of its entries is needed. Raises DiskFault."""
        if self._group.entries:
            self.cut(self._group.entries[-1].index)

    def cut(self, index: int) -> None:
        """No entry up to `index` is needed any more; files go with the next sync."""
        if index > self._group.base:
            self.log.write(self._group, [Base(index)])
