"""A simulated disk of one node: the real codecs, and a page cache that forgets.

What was written but not synced survives a crash up to a random byte; behind it there may be
garbage. A snapshot file is durable when written, as drivers must have it before its mark goes into
the log.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from samelog.consensus import Effects, Entry, HardState, Membership, Snapshot
from samelog.consensus.membership import configurations_in
from samelog.consensus.snapshot_file import StoredSnapshot, decode_snapshot, encode_snapshot
from samelog.consensus.types import FileOwner
from samelog.consensus.wal import (
    Base,
    Cut,
    GroupLog,
    LogReplay,
    SnapshotMark,
    WalEncoder,
    WalHeader,
    WalRecord,
    WalScan,
    scan_wal,
)
from tests.sim.shipping import Stored

CLUSTER = "simulated"
KEY = (0, 0)


class Disk:
    """One log file and one snapshot file. `durable_terms`: the entries a crash cannot take."""

    def __init__(self, node: int) -> None:
        self.node = node
        self.owner = FileOwner(CLUSTER, 0, node, 0)
        self.sequence = 0
        self.snapshot: bytes | None = None
        self.durable_terms: dict[int, int] = {}
        self.durable_last = 0
        self._members: dict[int, Membership] = {}
        self._mark = (0, 0)
        self._unsynced: list[tuple[int, Sequence[WalRecord]]] = []
        self.bytes = Stored()
        self.wal = bytearray()
        self.synced = 0
        self._start_file([HardState(0, None, 0)])

    # --- while the node runs ----------------------------------------------------------------------

    def write(self, effects: Effects) -> None:
        """Everything of one batch, in the order the core asks for."""
        records: list[WalRecord] = []
        if effects.snapshot is not None:
            self._store(effects.snapshot)
            snapshot = effects.snapshot
            mark = SnapshotMark(snapshot.last_index, snapshot.last_term)
            records += self.log.installing(mark)
        records += effects.entries
        if effects.hard_state is not None:
            records.append(effects.hard_state)
        self._append(records)
        self._unsynced.append((len(self.wal), records))

    def end_sync(self, position: int) -> None:
        """A sync that began when the file had `position` bytes is done."""
        self.synced = position
        self.trust(position)

    def trust(self, position: int) -> None:
        """What was written up to there counts as durable, and is but for a loss of power."""
        while self._unsynced and self._unsynced[0][0] <= position:
            for record in self._unsynced.pop(0)[1]:
                self._make_durable(record)

    def holds(self, index: int, term: int) -> bool:
        """Whether the entry is durable here, by itself or within a snapshot."""
        return self.durable_terms.get(index) == term or index <= self._mark[1]

    def last(self) -> tuple[int, int]:
        """(term, index) of the last durable entry: what a restarted node would campaign with."""
        mark_term, mark_index = self._mark
        known_term = self.durable_terms.get(mark_index, mark_term)
        if mark_index >= self.durable_last or known_term != mark_term:
            return self._mark
        return self.durable_terms[self.durable_last], self.durable_last

    def membership(self, first: Membership) -> Membership:
        """By whom a restarted node would go; `first` if the disk says nothing."""
        newest = max((index for index in self._members if index in self.durable_terms), default=-1)
        if newest > self._mark[1]:
            return self._members[newest]
        if self.snapshot is None:
            return first
        snapshot = decode_snapshot(self.snapshot).snapshot
        return Membership(snapshot.voters, snapshot.learners)

    def compact(self, index: int, snapshot: Snapshot) -> None:
        """Write the snapshot and a new log file with the entries behind `index`; nothing may be
        unsynced.
        """
        self._store(snapshot)
        tail = [entry for entry in self.log.entries if entry.index > index]
        mark = SnapshotMark(snapshot.last_index, snapshot.last_term)
        self._start_file([Base(index), self.log.hard_state, *tail, mark])

    def keep_commit(self, commit: int) -> None:
        """Make the commit index durable; nothing may be unsynced."""
        known = self.log.hard_state
        self._append([HardState(known.term, known.vote, max(known.commit, commit))])
        self.synced = len(self.wal)

    # --- crash and restart ------------------------------------------------------------------------

    def end_process(self) -> None:
        """The node dies, its host goes on: what was written stays; the log is synced at the
        start, bytes that entries name are not.
        """
        self._unsynced.clear()
        self.synced = len(self.wal)

    def crash(self, chance: random.Random) -> None:
        """Power fails: unsynced bytes survive up to a random one, and garbage may follow."""
        keep = chance.randint(self.synced, len(self.wal))
        if chance.random() < 0.5:
            keep = self.synced
        lost = len(self.wal) - keep
        del self.wal[keep:]
        if lost and chance.random() < 0.3:
            self.wal += chance.randbytes(chance.randint(1, lost))
        self._unsynced.clear()
        self.bytes.crash(chance)

    def recover(self) -> tuple[Snapshot | None, list[Entry], HardState]:
        """What a restarted node is made of."""
        scan = scan_wal(self.wal)
        if scan.corrupt is not None:
            raise AssertionError(f"a crash looks like corruption: {scan.corrupt}")
        if scan.end < self.synced:
            raise AssertionError(f"log file ends at {scan.end}, but {self.synced} were synced")
        del self.wal[scan.end :]
        self.synced = len(self.wal)
        self.encoder = WalEncoder.resume(scan)
        log = self.log = replayed(scan)
        entries = list(log.entries)
        self.durable_terms = {entry.index: entry.term for entry in entries}
        self.durable_last = entries[-1].index if entries else 0
        self._members = dict(configurations_in(entries))
        snapshot = None if self.snapshot is None else decode_snapshot(self.snapshot).snapshot
        if snapshot is not None and not log.holds(snapshot.last_index, snapshot.last_term):
            mark = SnapshotMark(snapshot.last_index, snapshot.last_term)
            records = log.installing(mark)
            self._append(records)
            self._unsynced.append((len(self.wal), records))
        return snapshot, log.entries, log.hard_state

    # --- helpers ----------------------------------------------------------------------------------

    def _append(self, records: Sequence[WalRecord]) -> None:
        self.wal += self.encoder.encode(KEY, self.log.count, records, synced=self.synced)
        for record in records:
            self.log.note(record, self.sequence)

    def _start_file(self, records: Sequence[WalRecord]) -> None:
        self.sequence += 1
        self.log = GroupLog(KEY, {self.sequence: 0})
        self.encoder = WalEncoder(WalHeader(CLUSTER, self.node, self.sequence))
        self.wal = bytearray(self.encoder.header_bytes)
        self.synced = len(self.wal)
        self._append(records)
        self.synced = len(self.wal)
        self._unsynced.clear()

    def _store(self, snapshot: Snapshot) -> None:
        self.snapshot = encode_snapshot(StoredSnapshot(self.owner, snapshot))
        self._mark = (snapshot.last_term, snapshot.last_index)

    def _make_durable(self, record: WalRecord) -> None:
        if isinstance(record, Cut):
            self.durable_terms.clear()
            self.durable_last = 0
        elif isinstance(record, Base):
            self.durable_last = max(self.durable_last, record.index)
        elif isinstance(record, Entry):
            for index in range(record.index, self.durable_last + 1):
                self.durable_terms.pop(index, None)
                self._members.pop(index, None)
            self.durable_terms[record.index] = record.term
            self._members.update(configurations_in([record]))
            self.durable_last = record.index


def replayed(scan: WalScan) -> GroupLog:
    """What a file of one replica adds up to."""
    replay, number = LogReplay(), scan.header.sequence
    replay.begin_file(number)
    for piece in scan.pieces:
        replay.add(piece, number)
    replay.end()
    if (damage := replay.damage(KEY)) is not None:
        raise AssertionError(damage)
    return replay.groups.get(KEY) or GroupLog(KEY, replay.live)
