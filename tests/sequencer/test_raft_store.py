"""Raft's files: what was written is there again, torn tails are cut, damage stops a replica and
removes nothing.
"""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from samelog.consensus import Effects, Entry, HardState, Snapshot
from samelog.sequencer.raft import member_log
from samelog.sequencer.raft.member_log import MemberLog
from samelog.sequencer.raft.raft_errors import RaftStoreError
from samelog.sequencer.raft.store import RaftStore
from samelog.store.disk.append_file import AppendFile
from samelog.store.disk.disk_errors import DiskFault, NoSpace
from samelog.store.disk.files import OsFileSystem
from samelog.store.disk.os_file import OsFile
from tests.cluster_sim.disk import Disk
from tests.cluster_sim.files import SimFileSystem
from tests.cluster_sim.process import Process


def open_store(path: Path, *, cluster: str = "c", node: int = 0) -> RaftStore:
    fs = OsFileSystem()
    return RaftStore.open(fs, MemberLog.open(fs, str(path / "raft"), cluster=cluster, node=node))


def effects(
    *entries: Entry, hard_state: HardState | None = None, snapshot: Snapshot | None = None
) -> Effects:
    return Effects([], snapshot, list(entries), hard_state, True, 1, [], [], [], False)


def wal_files(path: Path) -> list[Path]:
    return sorted((path / "raft").glob("wal.*"))


def fill(store: RaftStore, first: int, last: int, size: int = 10) -> None:
    for index in range(first, last + 1):
        store.write(effects(Entry(index, 1, b"x" * size), hard_state=HardState(1, 0, index)))


def snapshot(index: int, data: bytes = b"state") -> Snapshot:
    return Snapshot(index, 1, (0, 1, 2), (), data)


def test_a_new_store_is_empty(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    assert (store.entries, store.snapshot, store.hard_state) == ([], None, HardState(0, None, 0))


def test_entries_and_hard_state_come_back(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    fill(store, 1, 5)
    store.write(effects(Entry(4, 2, b"other"), hard_state=HardState(2, 1, 3)))
    store.log.close()
    again = open_store(tmp_path)
    assert [entry.index for entry in again.entries] == [1, 2, 3, 4]
    assert again.entries[-1] == Entry(4, 2, b"other")
    assert again.hard_state == HardState(2, 1, 3)


@pytest.mark.parametrize("cut", [1, 5, 20])
def test_a_torn_tail_is_cut(tmp_path: Path, cut: int) -> None:
    store = open_store(tmp_path)
    fill(store, 1, 5)
    store.log.close()
    (file,) = wal_files(tmp_path)
    os.truncate(file, file.stat().st_size - cut)
    again = open_store(tmp_path)
    assert [entry.index for entry in again.entries] in ([1, 2, 3, 4], [1, 2, 3, 4, 5])
    fill(again, 5, 6)
    again.log.close()
    assert [entry.index for entry in open_store(tmp_path).entries] == [1, 2, 3, 4, 5, 6]


def test_damage_below_what_was_durable_stops_the_node_and_changes_nothing(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    for index in range(1, 6):
        store.write(effects(Entry(index, 1, b"x" * 50), hard_state=HardState(1, 0, index)))
        store.log.sync()
    store.log.close()
    (file,) = wal_files(tmp_path)
    damaged = bytearray(file.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    file.write_bytes(damaged)
    with pytest.raises(RaftStoreError, match="is damaged"):
        open_store(tmp_path)
    assert file.read_bytes() == damaged


def test_files_roll_and_are_removed_behind_the_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(member_log, "FILE_BYTES", 1000)
    store = open_store(tmp_path)
    fill(store, 1, 50, size=100)
    assert len(wal_files(tmp_path)) > 3
    asyncio.run(store.save_snapshot(snapshot(40)))
    before = len(wal_files(tmp_path))
    store.cut(30)
    assert len(wal_files(tmp_path)) == before
    store.log.sync()
    assert len(wal_files(tmp_path)) < before
    store.log.close()
    again = open_store(tmp_path)
    assert again.entries[0].index == 31
    assert again.entries[-1].index == 50
    assert again.hard_state == HardState(1, 0, 50)
    assert again.snapshot is not None
    assert again.snapshot.last_index == 40


def test_a_log_whose_first_file_begins_with_a_snapshots_mark_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The snapshot was taken while newer entries were in the file before, which was removed."""
    monkeypatch.setattr(member_log, "FILE_BYTES", 1000)
    store = open_store(tmp_path)
    fill(store, 1, 10, size=150)
    assert len(wal_files(tmp_path)) == 2
    in_first = store._group.places.count(1)
    asyncio.run(store.save_snapshot(snapshot(in_first - 2)))
    monkeypatch.setattr(member_log, "FILE_BYTES", 100_000)
    fill(store, 11, 20)
    asyncio.run(store.save_snapshot(snapshot(15)))
    store.cut(10)
    store.log.sync()
    store.log.close()
    assert len(wal_files(tmp_path)) == 1
    again = open_store(tmp_path)
    assert again.entries[-1].index == 20
    assert again.applied_index == 15


def test_the_log_goes_on_when_a_record_found_no_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(tmp_path)
    fill(store, 1, 5)

    def full(self: AppendFile, data: bytes) -> int:
        raise NoSpace("wal", "write", errno.ENOSPC)

    with monkeypatch.context() as patch:
        patch.setattr(AppendFile, "append", full)
        with pytest.raises(NoSpace):
            asyncio.run(store.save_snapshot(snapshot(3)))
    fill(store, 6, 8)
    store.log.close()
    assert [entry.index for entry in open_store(tmp_path).entries] == list(range(1, 9))


@pytest.mark.parametrize("size", [10, 400])
def test_the_log_goes_on_in_its_file_when_there_is_no_room_for_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    """Return whether it is restarted, or too large."""
    monkeypatch.setattr(member_log, "FILE_BYTES", 1000)
    store = open_store(tmp_path)
    fill(store, 1, 2, size)
    append = AppendFile.append

    def full(self: AppendFile, data: bytes) -> int:
        if not self.size:
            raise NoSpace("wal", "write", errno.ENOSPC)
        return append(self, data)

    with monkeypatch.context() as patch:
        patch.setattr(AppendFile, "append", full)
        with pytest.raises(NoSpace):
            store.log.roll()
        fill(store, 3, 5, size)
        assert len(wal_files(tmp_path)) == 1
        assert open_store(tmp_path).entries[-1].index == 5
    fill(store, 6, 6, size)
    store.log.close()
    assert len(wal_files(tmp_path)) == 1 + (size > 200)
    assert [entry.index for entry in open_store(tmp_path).entries] == list(range(1, 7))


@pytest.mark.parametrize("number", [1, 2])
def test_a_sync_that_finds_no_room_is_no_lack_of_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """Of the old file, or of the new one: whoever waits for room must not go on."""
    store = open_store(tmp_path)
    fill(store, 1, 2)
    syncs = iter(range(1, 9))

    def full(self: OsFile) -> None:
        if next(syncs) == number:
            raise NoSpace("wal", "sync", errno.ENOSPC)

    monkeypatch.setattr(OsFile, "datasync", full)
    with pytest.raises(DiskFault, match="wal: cannot sync") as caught:
        store.log.roll()
    assert not isinstance(caught.value, NoSpace)


def test_a_loss_of_power_during_a_cut_leaves_no_hole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(member_log, "FILE_BYTES", 1000)
    for seed in range(30):
        disk = Disk(f"cut {seed}")
        fs = SimFileSystem(disk, Process("n", "n"))
        log = MemberLog.open(cast(Any, fs), "/raft", cluster="c", node=0)
        store = RaftStore.open(cast(Any, fs), log)
        fill(store, 1, 60, size=100)
        log.sync()
        asyncio.run(store.save_snapshot(snapshot(50)))
        store.cut(45)
        log.sync()
        disk.lose_power()
        log = MemberLog.open(cast(Any, fs), "/raft", cluster="c", node=0)
        again = RaftStore.open(cast(Any, fs), log)
        assert again.entries[-1].index == 60


@pytest.mark.parametrize("number", range(1, 5))
def test_what_follows_a_kill_between_a_new_name_and_its_sync_survives_a_loss_of_power(
    monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    sync = SimFileSystem.sync_directory
    for seed in range(30):
        fs = SimFileSystem(disk := Disk(f"name {seed}"), Process("n", "n"))
        fs.make_directory("/raft")  # whose name the node syncs, in its data directory
        syncs = iter(range(1, 99))

        def killed(self: SimFileSystem, path: str, syncs: Iterator[int] = syncs) -> None:
            if next(syncs) == number:
                raise InterruptedError
            sync(self, path)

        with monkeypatch.context() as patched:
            patched.setattr(SimFileSystem, "sync_directory", killed)
            with pytest.raises(InterruptedError):
                begin(fs).log.roll()
        store = begin(fs)
        file, _ = store.log.unsynced()
        assert file is not None
        file.datasync()
        disk.lose_power()
        again = RaftStore.open(cast(Any, fs), open_log(fs))
        assert again.entries == store.entries


def open_log(fs: SimFileSystem) -> MemberLog:
    return MemberLog.open(cast(Any, fs), "/raft", cluster="c", node=0)


def begin(fs: SimFileSystem) -> RaftStore:
    store = RaftStore.open(cast(Any, fs), open_log(fs))
    last = store.entries[-1].index if store.entries else 0
    fill(store, last + 1, last + 5)
    return store


def test_two_snapshots_are_kept_and_the_older_serves_when_the_newer_is_damaged(
    tmp_path: Path,
) -> None:
    store = open_store(tmp_path)
    fill(store, 1, 10)
    for index in (3, 6, 9):
        asyncio.run(store.save_snapshot(snapshot(index, b"%d" % index)))
    store.log.close()
    files = sorted((tmp_path / "raft" / "0").glob("snapshot.*"))
    assert [int(file.name[-2:]) for file in files] == [6, 9]
    files[-1].write_bytes(files[-1].read_bytes()[:-1])
    again = open_store(tmp_path)
    assert again.snapshot == snapshot(6, b"6")
    assert files[-1].exists()


def test_what_is_sent_is_the_newest_snapshot_that_is_whole(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = open_store(tmp_path)
    assert store.read_snapshot() is None
    fill(store, 1, 10)
    for index in (3, 6, 9):
        asyncio.run(store.save_snapshot(snapshot(index, b"%d" % index)))
    assert store.read_snapshot() == snapshot(9, b"9")
    files = sorted((tmp_path / "raft" / "0").glob("snapshot.*"))
    files[-1].write_bytes(b"garbage")
    assert [store.read_snapshot() for _ in range(3)] == [snapshot(6, b"6")] * 3
    files[0].unlink()
    assert store.read_snapshot() is None
    told = [each for each in caplog.messages if "a snapshot cannot be sent" in each]
    assert len(told) == 1
    assert files[-1].name in told[0]


def test_of_a_snapshot_that_is_in_use_only_the_mark_is_kept(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.drop_data()
    fill(store, 1, 5)
    asyncio.run(store.save_snapshot(snapshot(4)))
    store.log.close()
    again = open_store(tmp_path)
    assert again.snapshot == snapshot(4)
    again.drop_data()
    assert again.snapshot == snapshot(4, b"")
    assert again.applied_index == 4
    assert again.read_snapshot() == snapshot(4)


def test_a_lost_snapshot_that_the_log_does_not_reach_back_to_stops_the_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(member_log, "FILE_BYTES", 1000)
    store = open_store(tmp_path)
    fill(store, 1, 50, size=100)
    asyncio.run(store.save_snapshot(snapshot(40)))
    store.cut(40)
    store.log.close()
    (file,) = (tmp_path / "raft" / "0").glob("snapshot.*")
    file.write_bytes(b"garbage")
    with pytest.raises(RaftStoreError, match="is lost"):
        open_store(tmp_path)


def test_an_own_snapshot_that_comes_too_late_takes_no_leaders_away(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    fill(store, 1, 5)
    for index in (20, 30):
        store.write(effects(snapshot=snapshot(index)))
    asyncio.run(store.save_snapshot(snapshot(20, b"own")))
    store.write(effects(snapshot=snapshot(40)))
    files = sorted((tmp_path / "raft" / "0").glob("snapshot.*"))
    assert [int(file.name[-2:]) for file in files] == [30, 40]


def test_a_lost_snapshot_that_replaced_the_log_stops_the_node(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    fill(store, 1, 5)
    asyncio.run(store.save_snapshot(snapshot(4)))
    store.write(effects(snapshot=snapshot(20)))
    store.log.close()
    newest = sorted((tmp_path / "raft" / "0").glob("snapshot.*"))[-1]
    newest.write_bytes(b"garbage")
    with pytest.raises(RaftStoreError, match="is lost"):
        open_store(tmp_path)


def test_an_installed_snapshot_replaces_the_log(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    fill(store, 1, 5)
    store.write(effects(Entry(21, 1, b"next"), snapshot=snapshot(20)))
    store.log.close()
    again = open_store(tmp_path)
    assert again.snapshot == snapshot(20)
    assert [entry.index for entry in again.entries] == [21]


@pytest.mark.parametrize(("cluster", "node"), [("other", 0), ("c", 1)])
def test_anothers_files_are_refused(tmp_path: Path, cluster: str, node: int) -> None:
    open_store(tmp_path).log.close()
    with pytest.raises(RaftStoreError, match="belongs to"):
        open_store(tmp_path, cluster=cluster, node=node)


@pytest.mark.parametrize("left", [b"", b"\0" * 100, b"SHIP"])
def test_a_file_that_a_crash_left_without_a_header_is_begun_again(
    tmp_path: Path, left: bytes
) -> None:
    store = open_store(tmp_path)
    fill(store, 1, 3)
    store.log.close()
    unfinished = wal_files(tmp_path)[0].with_name(f"wal.{2:020d}")
    unfinished.write_bytes(left)
    again = open_store(tmp_path)
    assert [entry.index for entry in again.entries] == [1, 2, 3]
    assert not unfinished.exists()
    fill(again, 4, 4)
    again.log.close()
    assert [entry.index for entry in open_store(tmp_path).entries] == [1, 2, 3, 4]


@pytest.mark.parametrize("before", [5, 0])
def test_a_snapshot_whose_mark_was_lost_leaves_no_gap(tmp_path: Path, before: int) -> None:
    """Power failed when the snapshot was durable, and the end of the log was not."""
    store = open_store(tmp_path)
    fill(store, 1, 5)
    if before == 0:
        store.write(effects(snapshot=snapshot(7)))
    store.log.close()
    (file,) = wal_files(tmp_path)
    size = file.stat().st_size
    store = open_store(tmp_path)
    store.write(effects(snapshot=snapshot(9)))
    store.log.close()
    os.truncate(file, size)
    again = open_store(tmp_path)
    assert again.snapshot == snapshot(9)
    fill(again, 10, 11)
    again.log.close()
    last = open_store(tmp_path)
    assert (last.snapshot, [entry.index for entry in last.entries]) == (snapshot(9), [10, 11])


def test_the_end_of_a_replica_waits_for_the_snapshot_that_a_thread_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though the task is cancelled: the next replica of the group could not read the file."""
    store, may_write = open_store(tmp_path), threading.Event()
    fill(store, 1, 5)
    write = store._write_snapshot

    def write_late(late: Snapshot) -> None:
        may_write.wait()
        write(late)

    async def body() -> None:
        saving = asyncio.ensure_future(store.save_snapshot(snapshot(4)))
        await asyncio.sleep(0)
        saving.cancel()
        await asyncio.gather(saving, return_exceptions=True)
        ending = asyncio.ensure_future(store.until_written())
        await asyncio.sleep(0)
        assert not ending.done()
        may_write.set()
        await ending

    monkeypatch.setattr(store, "_write_snapshot", write_late)
    asyncio.run(body())
    assert list(tmp_path.glob("**/snapshot.*4"))
