"""The log that the replicas of all groups share: whatever happened, each gets its own records back;
damage is damage of those whose records it hit; files go once nobody needs them.
"""

from __future__ import annotations

import asyncio
import errno
import os
import random
import sys
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from samelog.consensus import Effects, Entry, HardState, Snapshot
from samelog.consensus.wal import (
    Base,
    Cut,
    GroupLog,
    ReplicaKey,
    SnapshotMark,
    WalEncoder,
    WalRecord,
)
from samelog.consensus.wal.group_log import carried_bytes
from samelog.sequencer.raft import member_log
from samelog.sequencer.raft.member_log import MemberLog
from samelog.sequencer.raft.raft_errors import RaftStoreError
from samelog.sequencer.raft.store import RaftStore
from samelog.store.disk.append_file import AppendFile
from samelog.store.disk.disk_errors import DiskFault, NoSpace
from samelog.store.disk.files import OsFileSystem
from tests.cluster_sim.disk import Disk
from tests.cluster_sim.files import SimFileSystem
from tests.cluster_sim.process import Process
from tests.examples import at_most

FS = OsFileSystem()
KEYS: tuple[ReplicaKey, ...] = ((0, 0), (1, 0), (1, 7), (9, 2))
Kept = tuple[int, tuple[Entry, ...], HardState, SnapshotMark | None]
NOTHING: Kept = (0, (), HardState(0, None, 0), None)


def open_log(path: Path) -> MemberLog:
    return MemberLog.open(FS, str(path / "raft"), cluster="c", node=0)


def files(path: Path) -> list[Path]:
    return sorted((path / "raft").glob("wal.*"))


def kept(group: GroupLog) -> Kept:
    """What a replica has."""
    return group.base, tuple(group.entries), group.hard_state, group.mark


class Model:
    """Replicas as simply as they can be said: a list of entries each, and three facts."""

    def __init__(self) -> None:
        self.kept: dict[ReplicaKey, Kept] = dict.fromkeys(KEYS, NOTHING)

    def write(self, key: ReplicaKey, records: list[WalRecord]) -> None:
        for record in records:
            self.kept[key] = _after(self.kept[key], record)


def _after(known: Kept, record: WalRecord) -> Kept:
    base, entries, state, mark = known
    if isinstance(record, Entry):
        return base, (*(e for e in entries if e.index < record.index), record), state, mark
    if isinstance(record, HardState):
        return base, entries, record, mark
    if isinstance(record, SnapshotMark):
        return base, entries, state, record
    if isinstance(record, Base):
        return record.index, tuple(e for e in entries if e.index > record.index), state, mark
    return base, tuple(e for e in entries if e.index < record.index), state, mark


class History:
    """Random writes of some replicas, syncs, losses of power and restarts on a simulated disk.

    What was synced is there after a loss of power; of the rest, all up to some record.
    """

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.disk = Disk(f"history {seed}")
        self.fs = SimFileSystem(self.disk, Process("n", "n"))
        self.model = Model()
        self.term = 1
        self.possible = [dict(self.model.kept)]
        """What may be found after a loss of power: the states since the last sync."""
        self.busy = self.chance.choice(KEYS)
        self.log = self.open()

    def open(self) -> MemberLog:
        return MemberLog.open(cast(Any, self.fs), "/raft", cluster="c", node=0)

    def write(self) -> None:
        """The busy one writes most of the time, the others now and then."""
        chance = self.chance
        key = self.busy if chance.random() < 0.9 else chance.choice(KEYS)
        records = self._records(key)
        for record in records:
            self.model.write(key, [record])
            self.possible.append(dict(self.model.kept))
        self.log.write(self.log.group(key), records)

    def _records(self, key: ReplicaKey) -> list[WalRecord]:
        base, entries, state, _ = self.model.kept[key]
        chance, last = self.chance, base + len(entries)
        kind = chance.random()
        if kind < 0.6:
            self.term += chance.random() < 0.2
            first = last + 1 if chance.random() < 0.8 else chance.randint(base + 1, last + 1)
            data = chance.randbytes(chance.randint(0, 80))
            added = [Entry(first + i, self.term, data) for i in range(chance.randint(1, 4))]
            return [*added, HardState(self.term, None, state.commit + 1)]
        if kind < 0.8:
            return [HardState(self.term, chance.choice((None, 1)), state.commit + 1)]
        if kind < 0.95:
            return [Base(chance.randint(base, last)), SnapshotMark(last, self.term)]
        ahead = last + chance.randint(1, 5)
        return [Cut(base + 1), Base(ahead), SnapshotMark(ahead, self.term)]

    def sync(self) -> None:
        self.log.sync()
        self.possible = [dict(self.model.kept)]

    def lose_power(self) -> None:
        """And start again: everybody has what was synced, and a part of the rest, the same part."""
        self.disk.lose_power()
        self.restart()

    def restart(self) -> None:
        self.log = self.open()
        found = self.found()
        assert found in self.possible
        self.model.kept = found
        self.sync()

    def found(self) -> dict[ReplicaKey, Kept]:
        return {key: kept(self.log.group(key)) for key in KEYS}

    def check(self) -> None:
        """The running log knows what a start would find, and no file too many is there."""
        assert self.found() == self.model.kept
        counted = dict.fromkeys(self.log._replay.live, 0)
        for key in KEYS:
            group = self.log.group(key)
            for entry, place in zip(group.entries, group.places, strict=True):
                counted[place] += carried_bytes([entry])
            for place in filter(None, group._facts):
                counted[place] += carried_bytes([Base(0)])
        assert self.log._replay.live == counted


@settings(deadline=None, max_examples=at_most(60))
@given(st.integers(0, 2**32))
def test_every_replica_gets_back_what_it_wrote_whatever_happened(seed: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(member_log, "FILE_BYTES", 600)
        patch.setattr(member_log, "MOVED_BYTES", 100)
        history = History(seed)
        steps = {history.write: 40, history.sync: 10, history.lose_power: 1, history.restart: 1}
        for step in history.chance.choices(list(steps), list(steps.values()), k=150):
            step()
            history.check()
        history.sync()
        history.lose_power()


def write(log: MemberLog, key: ReplicaKey, *records: WalRecord) -> None:
    log.write(log.group(key), records)


def entry(index: int, size: int = 50) -> Entry:
    return Entry(index, 1, bytes(size))


def test_idle_replicas_hold_up_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One writes for long; the records of fifty others are written forward."""
    monkeypatch.setattr(member_log, "FILE_BYTES", 20_000)
    monkeypatch.setattr(member_log, "MOVED_BYTES", 500)
    log = open_log(tmp_path)
    idle = [(number, number) for number in range(1, 51)]
    for key in idle:
        write(log, key, entry(1), entry(2), HardState(3, 1, 2))
    most = 0
    for index in range(1, 4000):
        write(log, (0, 0), entry(index))
        if index % 10 == 0:
            write(log, (0, 0), Base(index - 10))
            log.sync()
            most = max(most, len(files(tmp_path)))
    assert most <= member_log.FILES_KEPT + 3
    assert files(tmp_path)[0].name != f"wal.{1:020d}"
    log.close()
    again = open_log(tmp_path)
    for key in idle:
        assert kept(again.group(key)) == (0, (entry(1), entry(2)), HardState(3, 1, 2), None)


def test_files_that_became_sparse_all_at_once_go_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(member_log, "FILE_BYTES", 5_000)
    log = open_log(tmp_path)
    for index in range(1, 1001):  # nothing of this can go
        write(log, (0, 0), entry(index, 100))
        if index % 30 == 0:
            write(log, (index, 0), entry(1), HardState(1, None, 0))
    log.sync()
    assert len(files(tmp_path)) > 20
    write(log, (0, 0), Base(1000))
    for index in range(1001, 1060):
        write(log, (0, 0), entry(index, 100), Base(index))
        log.sync()
    assert len(files(tmp_path)) <= member_log.FILES_KEPT + 3
    log.close()
    again = open_log(tmp_path)
    for number in range(30, 1001, 30):
        assert kept(again.group((number, 0))) == (0, (entry(1),), HardState(1, None, 0), None)


def test_a_write_moves_no_more_than_a_bounded_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(member_log, "FILE_BYTES", 30_000)
    monkeypatch.setattr(member_log, "MOVED_BYTES", 500)
    log = open_log(tmp_path)
    for number in range(1, 101):
        write(log, (number, 0), HardState(1, None, 0))
    for index in range(1, 3000):
        before = sum(file.stat().st_size for file in files(tmp_path))
        write(log, (0, 0), Base(index - 1), entry(index))
        after = sum(file.stat().st_size for file in files(tmp_path))
        assert after - before < 1000


def test_what_finds_no_room_to_be_moved_is_moved_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(member_log, "FILE_BYTES", 5_000)
    log = open_log(tmp_path)
    write(log, (1, 0), entry(1), HardState(1, None, 0))
    encode, append, moves = WalEncoder.encode, AppendFile.append, [False]

    def noted(self: WalEncoder, *args: Any, moved: bool = False, **options: Any) -> bytes:
        moves.append(moved)
        return encode(self, *args, moved=moved, **options)

    def full(self: AppendFile, data: bytes) -> int:
        if moves[-1]:
            raise NoSpace("wal", "write", errno.ENOSPC)
        return append(self, data)

    with monkeypatch.context() as patch:
        patch.setattr(WalEncoder, "encode", noted)
        patch.setattr(AppendFile, "append", full)
        for index in range(1, 400):
            write(log, (0, 0), Base(index - 1), entry(index, 100))
            log.sync()
    assert log._moving
    write(log, (0, 0), entry(400))
    assert not log._moving
    log.close()
    again = open_log(tmp_path)
    assert kept(again.group((1, 0))) == (0, (entry(1),), HardState(1, None, 0), None)
    assert again.group((0, 0)).entries[-1].index == 400


def test_cutting_one_group_cuts_no_other(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for key in ((1, 0), (2, 0)):
        write(log, key, entry(1), entry(2), entry(3))
    write(log, (1, 0), Entry(2, 5, b"other"))
    write(log, (2, 0), Base(1))
    log.close()
    again = open_log(tmp_path)
    assert kept(again.group((1, 0)))[:2] == (0, (entry(1), Entry(2, 5, b"other")))
    assert kept(again.group((2, 0)))[:2] == (1, (entry(2), entry(3)))


def test_a_new_replica_of_a_group_has_nothing_of_the_one_before(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    write(log, (1, 3), entry(1), HardState(8, 1, 1))
    assert kept(log.group((1, 4))) == NOTHING
    write(log, (1, 4), HardState(1, 2, 0))
    log.close()
    again = open_log(tmp_path)
    assert kept(again.group((1, 4))) == (0, (), HardState(1, 2, 0), None)
    assert kept(again.group((1, 3))) == (0, (entry(1),), HardState(8, 1, 1), None)


def test_files_of_replicas_that_have_ended_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(member_log, "FILE_BYTES", 500)
    monkeypatch.setattr(member_log, "FILES_KEPT", 100)
    log = open_log(tmp_path)
    write(log, (1, 7), HardState(3, 1, 0), entry(1))
    for index in range(1, 20):
        write(log, (1, 8), Base(index - 1), entry(index))
        log.sync()
    assert len(files(tmp_path)) > 2, "one record of the first replica holds them up"
    assert sorted(log.replicas) == [(1, 7), (1, 8)]
    log.close()
    log = open_log(tmp_path)
    log.forget((1, 7))
    log.forget((5, 5))
    write(log, (1, 8), Base(19), entry(20))
    log.sync()
    assert len(files(tmp_path)) <= 2
    assert log.replicas == [(1, 8)]
    log.close()
    log = open_log(tmp_path)
    assert [each.index for each in log.group((1, 8)).entries] == [20]
    log.close()


def test_a_sync_covers_what_was_written_before_it_began(tmp_path: Path) -> None:
    """What another group writes meanwhile waits for the next one."""
    log = open_log(tmp_path)
    write(log, (1, 0), entry(1))
    file, mark = log.unsynced()
    assert file is not None
    write(log, (2, 0), entry(1))
    file.datasync()
    log.synced(mark)
    assert log.unsynced()[0] is not None


def test_one_sync_covers_all_groups(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for number in range(10):
        write(log, (number, 0), entry(1))
    log.sync()
    assert log.unsynced()[0] is None


def test_after_a_failed_sync_nothing_is_durable_for_anybody(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    write(log, (1, 0), entry(1))
    _, mark = log.unsynced()
    log.fail(DiskFault("wal", "sync", 5))
    with pytest.raises(DiskFault):
        log.synced(mark)
    with pytest.raises(DiskFault):
        log.unsynced()


def damaged_log(path: Path, at: Entry) -> tuple[Path, bytes]:
    """Three groups write in turns, all synced; then a byte of this entry is turned."""
    log = open_log(path)
    for index in range(1, 6):
        for group in (1, 2, 3):
            write(log, (group, 0), Entry(index, 1, b"group %d entry %d" % (group, index)))
            log.sync()
    log.close()
    (file,) = files(path)
    data = bytearray(file.read_bytes())
    data[data.index(at.data)] ^= 1
    file.write_bytes(data)
    return file, bytes(data)


def test_damage_is_damage_of_the_group_whose_record_is_hit(tmp_path: Path) -> None:
    file, data = damaged_log(tmp_path, Entry(3, 1, b"group 2 entry 3"))
    for start in range(2):  # it is the same at every start
        log = open_log(tmp_path)
        for group in (1, 3):
            assert [e.index for e in log.group((group, 0)).entries] == list(range(1, 6 + start))
            write(log, (group, 0), Entry(6 + start, 1, b"more"))
        with pytest.raises(RaftStoreError, match=rf"group 2 .*{file.name} is damaged"):
            log.group((2, 0))
        with pytest.raises(RaftStoreError, match="group 4"):  # its only records may be those
            log.group((4, 0))
        log.sync()
        log.close()
        assert file.read_bytes() == data


def test_whose_last_record_may_be_hit_is_damaged_too(tmp_path: Path) -> None:
    """Nobody can say whose the unreadable record was, if its owner has no later one."""
    damaged_log(tmp_path, Entry(5, 1, b"group 1 entry 5"))
    log = open_log(tmp_path)
    with pytest.raises(RaftStoreError, match="group 1 "):
        log.group((1, 0))
    assert len(log.group((3, 0)).entries) == 5


def test_no_file_goes_while_something_is_unreadable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even if all that can be read in it is not needed any more."""
    log = open_log(tmp_path)
    for key, data in (((1, 0), b"one"), ((2, 0), b"the only one of group 2"), ((1, 0), b"two")):
        write(log, key, Entry(log.group(key).count + 1, 1, data))
        log.sync()
    log.close()
    (file,) = files(tmp_path)
    rotten = file.read_bytes().replace(b"only", b"0nly")
    file.write_bytes(rotten)
    monkeypatch.setattr(member_log, "FILE_BYTES", 1000)
    again = open_log(tmp_path)
    for index in range(3, 100):
        write(again, (1, 0), Entry(index, 1, bytes(50)), Base(index))
        again.sync()
    assert file.read_bytes() == rotten
    with pytest.raises(RaftStoreError, match="group 2 "):
        again.group((2, 0))


def test_a_missing_file_is_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(member_log, "FILE_BYTES", 1000)
    log = open_log(tmp_path)
    write(log, (2, 0), entry(1))
    for index in range(1, 60):
        write(log, (1, 0), entry(index))
    log.close()
    files(tmp_path)[2].unlink()
    again = open_log(tmp_path)
    for group in (1, 2):
        with pytest.raises(RaftStoreError, match="the file before it is missing"):
            again.group((group, 0))


def test_a_log_that_is_gone_is_not_begun_anew(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    write(log, (0, 0), HardState(3, 1, 0))
    log.close()
    files(tmp_path)[0].unlink()
    with pytest.raises(RaftStoreError, match="its log is missing"):
        open_log(tmp_path)


def test_groups_snapshots_are_files_of_their_own(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for group in (3, 4):
        store = RaftStore.open(FS, log, group, 1)
        store.write(effects(*(entry(index) for index in range(1, 6))))
        asyncio.run(store.save_snapshot(Snapshot(group, 1, (0,), (), b"%d" % group)))
    log.close()
    again = open_log(tmp_path)
    for group in (3, 4):
        store = RaftStore.open(FS, again, group, 1)
        assert store.snapshot == Snapshot(group, 1, (0,), (), b"%d" % group)
        assert os.listdir(tmp_path / "raft" / str(group)) == [f"snapshot.{group:020d}"]
    with pytest.raises(RaftStoreError, match="belongs to"):
        RaftStore.open(FS, again, 3, 2)


def effects(*entries: Entry) -> Effects:
    return Effects([], None, list(entries), None, True, 1, [], [], [], False)


def test_an_idle_group_takes_some_hundred_bytes() -> None:
    live = {1: 0}
    group = GroupLog((1, 1), live)
    group.note(HardState(1, None, 0), 1)
    parts = (group, group.entries, group.places, group._facts, group.hard_state)
    assert sum(map(sys.getsizeof, parts)) < 700
