"""A merged log: what is durable, what may be cut, what is damage, how a reader follows."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path

import pytest

from samelog.format import _kernels as kernels
from samelog.format.batch import Bytes
from samelog.format.errors import (
    NotContiguous,
)
from samelog.store.disk.disk_errors import NoSpace
from samelog.store.disk.files import OsFileSystem, StrPath
from samelog.store.disk.os_file import OsFile
from samelog.store.merged import log as merged_log
from samelog.store.merged.log import MergedLog
from samelog.store.merged.lost_records import append_spare
from samelog.store.merged.reader import OffsetNotHeld
from tests.store.full_disk import small_disk
from tests.store.merged import Oracle
from tests.store.merged_parts import INDEX_0, LOG_0, ONE, SEGMENTS, THREE, TWO, merge, write
from tests.store.storage import (
    TOPIC_ID,
    batch,
    open_merged,
    sync_merged,
)

# --- durability ----------------------------------------------------------------------------------


def test_marks_follow_what_was_taken(path: Path) -> None:
    log = open_merged(path)
    merge(log, ONE)
    files = log.take_dirty()
    merge(log, TWO)
    for file in files:
        file.datasync()
    log.mark_durable(1)
    assert (log.durable_offset, log.next_offset, log.dirty()) == (1, 4, True)
    log.mark_durable(3)  # no sync was begun there
    assert log.durable_offset == 1
    sync_merged(log)
    assert (log.durable_offset, log.dirty()) == (4, False)
    log.close()
    log = open_merged(path)
    assert log.durable_offset == 0  # marks are lazy
    sync_merged(log)
    log.save_marks()
    log.close()
    log = open_merged(path)
    assert (log.durable_offset, log.dirty()) == (4, False)
    log.close()


def test_syncs_that_overlap_mark_what_each_began_with(path: Path) -> None:
    log = open_merged(path)
    for data in (ONE, TWO, THREE):
        merge(log, data)
        log.take_dirty()
    log.mark_durable(1)
    assert log.durable_offset == 1
    log.mark_durable(4)
    assert log.durable_offset == 4
    log.mark_durable(1)
    assert log.durable_offset == 4
    log.close()


def test_what_survived_a_crash_above_the_mark_is_synced_first(path: Path) -> None:
    log, _ = write(path, [ONE])
    merge(log, TWO)
    log.roll()
    merge(log, THREE)
    log.close()
    log = open_merged(path)
    assert (log.next_offset, log.durable_offset) == (6, 1)
    names = {os.path.basename(file.path) for file in log.take_dirty()}
    assert {"flights-0", LOG_0, INDEX_0, f"{4:020d}.log"} <= names
    log.mark_durable(6)
    log.save_marks()
    assert {os.path.basename(file.path) for file in log.take_dirty()} == {"marks", "flights-0"}
    log.close()
    log = open_merged(path)
    assert (log.durable_offset, log.dirty()) == (6, False)
    log.close()


def test_files_taken_for_a_sync_stay_open(path: Path) -> None:
    log = open_merged(path)
    merge(log, ONE)
    log.roll()
    merge(log, TWO)
    log.close()
    log = open_merged(path)
    taken = log.take_dirty()
    merge(log, THREE)
    log.roll()
    merge(log, ONE)
    for file in taken:
        file.size()  # raises if it were closed, and its sync would do nothing
    log.close()


def test_new_files_and_their_directory_are_synced_together(path: Path) -> None:
    log = open_merged(path)
    log.take_dirty()
    merge(log, ONE)
    log.roll()
    merge(log, TWO)
    names = {os.path.basename(file.path) for file in log.take_dirty()}
    assert names == {
        "flights-0",
        LOG_0,
        INDEX_0,
        f"{0:020d}.timeindex",
        f"{1:020d}.log",
    }
    merge(log, ONE)
    assert [os.path.basename(file.path) for file in log.take_dirty()] == [f"{1:020d}.log"]
    log.close()


def test_the_name_of_a_segment_without_bytes_is_synced_after_a_restart(path: Path) -> None:
    """It may have been made just before: what is written to it later must not lose it."""
    log = open_merged(path)
    merge(log, ONE)
    sync_merged(log)
    log.save_marks()
    log.roll()
    log.close()
    log = open_merged(path)
    log.take_dirty()
    merge(log, TWO)
    assert {os.path.basename(file.path) for file in log.take_dirty()} == {
        "flights-0",
        f"{1:020d}.log",
    }
    log.close()


def test_marks_are_saved_as_a_log_grows(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merged_log, "SAVE_MARKS_EVERY_BYTES", 2000)
    log = open_merged(path)
    for _ in range(6):
        merge(log, THREE)
        sync_merged(log)
    log.close()
    log = open_merged(path)
    assert log.durable_offset >= 8
    log.close()


def test_a_full_disk_loses_nothing_that_counted(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as disk:
        log = open_merged(disk / "flights-0")
        count = merge_until_full(log, batch(5, size=30_000))
        assert log.next_offset == count
        checksum = log.checksum
        log.close()
        log = open_merged(disk / "flights-0")
        assert (log.next_offset, log.checksum, log.damaged) == (count, checksum, [])
        log.close()


class FullFileSystem(OsFileSystem):
    """A file system that may have no room for new files, or for replacing small ones."""

    is_full = False

    def open(self, path: StrPath, *, writable: bool = False, create: bool = False) -> OsFile:
        """Open a file, unless it would be a new one."""
        if self.is_full and create and not self.exists(path):
            raise NoSpace(os.fspath(path), "open", errno.ENOSPC)
        return super().open(path, writable=writable, create=create)

    def write_atomically(self, path: StrPath, data: Bytes, *, durable: bool = True) -> None:
        """Replace a file, unless the disk is full."""
        if self.is_full:
            raise NoSpace(os.fspath(path), "replace", errno.ENOSPC)
        super().write_atomically(path, data, durable=durable)


def test_a_roll_without_room_is_taken_up_later(path: Path) -> None:
    fs, oracle = FullFileSystem(), Oracle()
    log = MergedLog.open(fs, path, topic="flights", topic_id=TOPIC_ID, partition=0)
    for number in range(30):
        data = batch(number, size=700, timestamp=number)
        fs.is_full = number % 3 == 1
        if number % 5 == 4:
            oracle.roll()
            with suppress(NoSpace):
                log.roll()
            fs.is_full = False
        oracle.append(data, epoch=3)
        merge(log, data)
        sync_merged(log)
    log.save_marks()
    assert log.checksum == oracle.checksum
    expected = oracle.files()
    assert {name: (path / name).read_bytes() for name in expected} == expected
    log.close()


def test_marks_may_lag_on_a_full_disk(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merged_log, "SAVE_MARKS_EVERY_BYTES", 1)
    fs = FullFileSystem()
    log = MergedLog.open(fs, path, topic="flights", topic_id=TOPIC_ID, partition=0)
    merge(log, ONE)
    sync_merged(log)
    before = (path / "marks").read_bytes()
    fs.is_full = True
    merge(log, TWO)
    sync_merged(log)
    assert log.durable_offset == 4
    assert (path / "marks").read_bytes() == before
    with pytest.raises(NoSpace):
        log.save_marks()
    fs.is_full = False
    merge(log, THREE)
    sync_merged(log)
    log.close()
    log = open_merged(path)
    assert log.durable_offset == 6
    log.close()


def merge_until_full(log: MergedLog, data: bytes) -> int:
    """Merge copies of `data` until the disk is full; how many there was room for."""
    for count in range(1000):
        try:
            merge(log, data)
        except NoSpace:
            return count
    raise AssertionError("the disk never filled up")


def test_a_reader_follows_to_a_file_that_replaced_another(path: Path) -> None:
    write(path, [ONE, TWO])[0].close()
    reader = open_merged(path, read_only=True)
    assert reader.read(0, 0, 1 << 20)
    os.truncate(path / LOG_0, len(ONE) + 9)
    log = open_merged(path)  # sets it aside, and makes a new one of its intact part
    assert len(log.damaged) == 1
    merge(log, TWO, THREE)
    assert reader.refresh()
    assert (reader.next_offset, reader.checksum) == (log.next_offset, log.checksum)
    assert reader.read(0, 0, 1 << 20) == log.read(0, 0, 1 << 20)
    reader.close()
    log.close()


def test_an_empty_copy_can_begin_later(path: Path, tmp_path: Path) -> None:
    log, oracle = write(path, *SEGMENTS)
    first, second, third = oracle.segments
    at = kernels.crc32c(first.data)
    copy = open_merged(tmp_path / "copy")
    copy.start_at(4, checksum=at)
    copy.append_copy(4, 0, second.data)
    copy.append_copy(7, 0, third.data)
    sync_merged(copy)
    copy.save_marks()
    copy.close()
    for read_only in (False, True):
        copy = open_merged(tmp_path / "copy", read_only=read_only)
        assert (copy.start_offset, copy.next_offset) == (4, 12)
        assert (copy.checksum, copy.damaged) == (log.checksum, [])
        assert copy.locate(5) == log.locate(5)
        with pytest.raises(OffsetNotHeld):
            copy.locate(3)
        copy.close()
    copy = open_merged(tmp_path / "copy")
    with pytest.raises(NotContiguous, match="holds records"):
        copy.start_at(0, checksum=0)
    copy.close()
    log.close()


# --- damage --------------------------------------------------------------------------------------


def check_rest(path: Path, log: MergedLog, oracle: Oracle, *, at: int) -> None:
    """The log ends at an offset; the rest can be copied again, and then all is as before."""
    assert log.next_offset == at == log.durable_offset
    for segment in oracle.segments:
        for data, start in zip(segment.batches, segment.starts(), strict=False):
            if data.first >= at:
                log.append_copy(segment.base, start, data.data)
    log.save_marks()
    assert log.checksum == oracle.checksum
    expected = oracle.files()
    assert {name: (path / name).read_bytes() for name in expected} == expected
    log.close()
    log = open_merged(path)
    assert (log.damaged, log.next_offset) == ([], oracle.next_offset)
    log.close()


def test_a_bad_batch_below_the_mark_is_set_aside(path: Path) -> None:
    log, oracle = write(path, *SEGMENTS)
    log.close()
    name = f"{7:020d}.log"
    spoilt = bytearray((path / name).read_bytes())
    spoilt[len(TWO) + 80] ^= 4
    (path / name).write_bytes(spoilt)
    log = open_merged(path)
    assert [error.position for error in log.damaged] == [len(TWO)]
    assert (path / f"{name}.quarantined-1").read_bytes() == spoilt
    check_rest(path, log, oracle, at=10)


def look(log: MergedLog) -> None:
    """Let it see what was set aside."""
    for _ in log.spares.read_new():
        pass


@pytest.mark.parametrize("bit", [7, 80])
@pytest.mark.parametrize(
    ("number", "with_marks"),
    [*((number, False) for number in range(6)), (4, True), (5, True)],  # marks spare old segments
)
def test_one_good_copy_of_a_bad_batch_brings_back_all_behind_it(
    path: Path, number: int, bit: int, with_marks: bool
) -> None:
    log, oracle = write(path, *SEGMENTS)
    log.close()
    batches = [
        (segment.base, start, bad)
        for segment in oracle.segments
        for bad, start in zip(segment.batches, segment.starts(), strict=False)
    ]
    base, start, bad = batches[number]
    file = path / f"{base:020d}.log"
    spoilt = bytearray(file.read_bytes())
    spoilt[start + min(bit, len(bad.data) - 1)] ^= 1
    file.write_bytes(spoilt)
    if not with_marks:
        (path / "marks").unlink()
    log = open_merged(path)
    look(log)
    while append_spare(log):
        assert log.next_offset <= bad.first
    if log.next_offset <= bad.first:
        assert log.next_offset == bad.first
        log.append_copy(base, start, bad.data)
        while append_spare(log):
            pass
    log.save_marks()
    assert (log.next_offset, log.checksum) == (oracle.next_offset, oracle.checksum)
    expected = oracle.files()
    assert {name: (path / name).read_bytes() for name in expected} == expected
    log.close()


def test_a_changed_offset_below_the_mark_is_damage(path: Path) -> None:
    """The offset lies outside the CRC."""
    log, oracle = write(path, *SEGMENTS)
    log.close()
    name = f"{7:020d}.log"
    spoilt = bytearray((path / name).read_bytes())
    spoilt[len(TWO) + 7] += 1
    (path / name).write_bytes(spoilt)
    log = open_merged(path)
    assert "its offset is not 10" in str(log.damaged[0])
    check_rest(path, log, oracle, at=10)


def test_a_changed_offset_where_the_index_points_is_damage_too(path: Path) -> None:
    """Opening starts at the last index entry, so the offset there has nothing before it."""
    data = [batch(seed, size=3000) for seed in range(5)]  # the last one has an entry
    log, oracle = write(path, data)
    log.close()
    indexed = int.from_bytes((path / INDEX_0).read_bytes()[-4:], "big")
    spoilt = bytearray((path / LOG_0).read_bytes())
    spoilt[indexed + 7] += 1
    (path / LOG_0).write_bytes(spoilt)
    log = open_merged(path)
    assert [error.position for error in log.damaged] == [indexed]
    check_rest(path, log, oracle, at=indexed // len(data[0]))


@pytest.mark.parametrize("how", ["missing", "shorter", "longer"])
def test_a_damaged_sealed_segment_takes_its_successors_with_it(path: Path, how: str) -> None:
    log, oracle = write(path, *SEGMENTS)
    log.close()
    middle = path / f"{4:020d}.log"
    found = middle.read_bytes()
    match how:
        case "missing":
            middle.unlink()
        case "shorter":
            os.truncate(middle, len(found) - 3)
        case "longer":
            middle.write_bytes(found + b"more")
    log = open_merged(path)
    assert {os.path.basename(error.path) for error in log.damaged} == {
        middle.name,
        f"{7:020d}.log",
    }
    assert (path / f"{7:020d}.log.quarantined-1").read_bytes() == oracle.segments[2].data
    check_rest(path, log, oracle, at={"missing": 4, "shorter": 6, "longer": 7}[how])


def test_a_log_goes_on_without_its_oldest_segments(path: Path) -> None:
    log, oracle = write(path, *SEGMENTS)
    checksum = log.checksum
    log.close()
    (path / LOG_0).unlink()
    for read_only in (True, False):
        log = open_merged(path, read_only=read_only)
        assert (log.start_offset, log.next_offset, log.checksum) == (4, 12, checksum)
        assert log.read(4, 0, 1 << 20) == oracle.segments[1].data
        assert len(log.damaged) == (0 if read_only else 1)
        log.close()


def test_all_files_gone_is_damage_too(path: Path) -> None:
    log, oracle = write(path, *SEGMENTS)
    log.close()
    for file in path.glob("*.log"):
        file.unlink()
    log = open_merged(path)
    assert len(log.damaged) == 1
    check_rest(path, log, oracle, at=0)


def test_a_torn_tail_means_not_yet(path: Path) -> None:
    log, oracle = write(path, [ONE])
    reader = open_merged(path, read_only=True)
    fresh = oracle.append(TWO, epoch=3) + oracle.append(THREE, epoch=3)
    whole = oracle.segments[0].data
    with open(path / LOG_0, "r+b", buffering=0) as file:
        for size in range(len(ONE), len(whole) + 1):
            file.seek(0)
            file.write(whole[:size])
            reader.refresh()
            end = max(end for end in oracle.segments[0].starts() if end <= size)
            assert reader.end() == (0, end)
    assert reader.read(0, len(ONE), 9999) == fresh
    reader.close()
    log.close()
