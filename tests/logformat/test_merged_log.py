"""A merged log: what it refuses, what it finds damaged, cuts, and how a reader follows it."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from shiplog.logformat import _kernels as kernels
from shiplog.logformat import merged_log
from shiplog.logformat.errors import (
    CorruptBatch,
    CorruptLog,
    LogFormatError,
    NotContiguous,
    UnsupportedFormat,
)
from shiplog.logformat.files import Bytes, DiskFull, NoSuchFile, OsFileSystem, StrPath
from shiplog.logformat.json_files import OtherTopic
from shiplog.logformat.merged_log import MergedLog, OffsetNotHeld
from shiplog.logformat.os_file import OsFile
from tests.logformat.full_disk import small_disk
from tests.logformat.merged import Oracle
from tests.logformat.storage import (
    FS,
    TOPIC_ID,
    batch,
    contents,
    open_merged,
    sync_merged,
)

ONE, TWO, THREE = batch(1), batch(2, records=3), batch(3, size=500, records=2)
SEGMENTS = ([ONE, TWO], [THREE, ONE], [TWO, THREE])
"""Offsets 0..3, 4..6, 7..11."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the log is."""
    return tmp_path / "flights-0"


def merge(log: MergedLog, *data: bytes) -> None:
    """Append batches, each by itself."""
    for one in data:
        log.append(bytearray(one), base_offset=log.next_offset, leader_epoch=3)


def write(path: Path, *segments: list[bytes]) -> tuple[MergedLog, Oracle]:
    """A durable log of these segments."""
    log, oracle = open_merged(path), Oracle()
    for several in segments:
        log.roll()
        oracle.roll()
        merge(log, *several)
        for data in several:
            oracle.append(data, epoch=3)
    sync_merged(log)
    log.save_marks()
    return log, oracle


# --- refusing ------------------------------------------------------------------------------------


def test_only_the_next_offset_can_be_appended(path: Path) -> None:
    log, _ = write(path, [ONE, TWO])
    for offset in (0, 3, 5):
        with pytest.raises(NotContiguous, match=rf"offset {offset}, the next is 4"):
            log.append(bytearray(ONE), base_offset=offset, leader_epoch=0)
    with pytest.raises(CorruptBatch):
        log.append(bytearray(ONE[:-1]), base_offset=4, leader_epoch=0)
    assert log.next_offset == 4
    log.close()


def test_a_copy_takes_only_what_comes_next(path: Path, tmp_path: Path) -> None:
    log, oracle = write(path, *SEGMENTS)
    copy = open_merged(tmp_path / "copy")
    first = oracle.segments[0].data
    copy.append_copy(0, 0, first)
    size = len(first)
    second = oracle.segments[1].data
    spoilt = bytearray(second)
    spoilt[100] ^= 1
    refused: list[tuple[tuple[int, int, bytes], type[LogFormatError]]] = [
        ((0, 0, first), NotContiguous),
        ((0, size + 1, second), NotContiguous),
        ((5, 0, second), NotContiguous),
        ((4, 0, second[:-3]), CorruptBatch),
        ((4, 0, bytes(spoilt)), CorruptBatch),
        ((0, size, first), CorruptBatch),  # offsets seen before
    ]
    for place, error in refused:
        with pytest.raises(error):
            copy.append_copy(*place)
    assert (copy.end(), copy.next_offset) == ((0, size), 4)
    copy.append_copy(4, 0, second)
    assert copy.segments()[:1] == log.segments()[:1]
    copy.close()
    log.close()


def test_what_a_copy_refuses_rolls_nothing(path: Path, tmp_path: Path) -> None:
    log, oracle = write(path, *SEGMENTS)
    copy = open_merged(tmp_path / "copy")
    copy.append_copy(0, 0, oracle.segments[0].data)
    with pytest.raises(CorruptBatch):
        copy.append_copy(4, 0, oracle.segments[2].data)
    assert [segment.base_offset for segment in copy.segments()] == [0]
    copy.close()
    log.close()


def test_another_partition_is_refused(path: Path) -> None:
    write(path, [ONE])[0].close()
    with pytest.raises(OtherTopic, match=f"{TOPIC_ID}, not to other"):
        MergedLog.open(FS, path, topic="flights", topic_id="other", partition=0)
    for topic, partition in (("flights", 1), ("trains", 0)):
        with pytest.raises(UnsupportedFormat, match="belongs to flights-0"):
            MergedLog.open(FS, path, topic=topic, topic_id=TOPIC_ID, partition=partition)


def test_a_newer_format_is_left_alone(path: Path) -> None:
    write(path, [ONE])[0].close()
    (path / "partition.json").write_text('{"format_version": 2}')
    before = contents(path)
    with pytest.raises(UnsupportedFormat, match="format version 2"):
        open_merged(path)
    assert contents(path) == before


def test_segments_without_their_partition_file_are_not_touched(path: Path) -> None:
    write(path, [ONE])[0].close()
    (path / "partition.json").unlink()
    with pytest.raises(CorruptLog, match=r"partition\.json.*missing beside segments"):
        open_merged(path)
    with pytest.raises(NoSuchFile):
        open_merged(path, read_only=True)


LOG_0, INDEX_0 = f"{0:020d}.log", f"{0:020d}.index"


@pytest.mark.parametrize("name", [LOG_0, INDEX_0, "partition.json"])
def test_planted_things_are_not_followed(path: Path, name: str) -> None:
    write(path, [ONE])[0].close()
    (path / name).rename(path.parent / "outside")
    before = (path.parent / "outside").read_bytes()
    for plant in (lambda p: p.symlink_to(path.parent / "outside"), os.mkfifo):
        plant(path / name)
        with pytest.raises(CorruptLog, match=name.replace(".", r"\.")):
            open_merged(path)
        (path / name).unlink()
    assert (path.parent / "outside").read_bytes() == before


def test_a_reader_changes_nothing(path: Path) -> None:
    log, _ = write(path, [ONE])
    log.close()
    (path / LOG_0).write_bytes((path / LOG_0).read_bytes() + b"torn")
    before = contents(path)
    reader = open_merged(path, read_only=True)
    changes: list[Callable[[], object]] = [
        lambda: reader.append(bytearray(TWO), base_offset=1, leader_epoch=0),
        lambda: reader.append_copy(0, len(ONE), TWO),
        reader.roll,
        reader.save_marks,
        lambda: reader.cut_to(0),
        lambda: reader.start_at(7, checksum=0),
    ]
    for change in changes:
        with pytest.raises(LogFormatError):
            change()
    reader.close()
    assert contents(path) == before


# --- looking -------------------------------------------------------------------------------------


def test_offsets_outside_the_log_have_an_error_with_the_bounds(path: Path) -> None:
    log, _ = write(path, [ONE, TWO])
    for offset in (-1, 5):
        with pytest.raises(OffsetNotHeld, match=rf"offset {offset} is not in \[0, 4\)") as error:
            log.locate(offset)
        assert (error.value.start, error.value.end) == (0, 4)
    with pytest.raises(NoSuchFile, match="no segment 3"):
        log.read(3, 0, 100)
    with pytest.raises(CorruptLog, match="no record batch starts here"):
        log.read(0, 7, 10)
    log.close()


def test_an_empty_log_has_an_end(path: Path) -> None:
    log = open_merged(path)
    assert (log.end(), log.next_offset, log.start_offset) == ((0, 0), 0, 0)
    assert (log.locate(0), log.locate_timestamp(5), log.last_batch()) == ((0, 0), 0, None)
    assert (log.checksum, log.read(0, 0, 100)) == (0, b"")
    log.roll()
    assert log.end() == (0, 0)
    log.close()


def test_a_lost_index_of_a_sealed_segment_is_rebuilt(path: Path) -> None:
    log = open_merged(path)
    for seed in range(40):
        merge(log, batch(seed, size=600, timestamp=1000 + seed))
    log.roll()
    sync_merged(log)
    log.save_marks()
    log.close()
    before = contents(path)
    times_0 = f"{0:020d}.timeindex"
    wrong = bytes(len(before[times_0]) - 12) + before[times_0][:12]
    for damage in ({}, {INDEX_0: b"", times_0: b""}, {**before, times_0: wrong}):
        for name in (INDEX_0, times_0):
            (path / name).unlink()
            if name in damage:
                (path / name).write_bytes(damage[name])
        reader = open_merged(path, read_only=True)
        assert reader.locate_timestamp(1030) == 30
        reader.close()
        assert contents(path) != before
        log = open_merged(path)
        assert log.locate(30) == (0, 30 * len(batch(0, size=600)))
        log.close()
        assert contents(path) == before


def test_index_entries_of_lost_batches_are_lost_with_them(path: Path) -> None:
    log, oracle = write(path, [batch(n, size=3000, timestamp=1000 + n) for n in range(6)])
    merge(log, *(batch(n, size=3000, timestamp=2000 + n) for n in range(6)))
    log.save_marks()  # they vouch for the entries above the durable offset too
    log.close()
    os.truncate(path / LOG_0, len(oracle.segments[0].data))
    log = open_merged(path)
    assert log.segments()[0].max_timestamp == 1005
    for number in range(6):
        data = batch(number, size=3000, timestamp=1003 + number)
        oracle.append(data, epoch=3)
        merge(log, data)
    log.save_marks()
    expected = oracle.files()
    assert {name: (path / name).read_bytes() for name in expected} == expected
    log.close()


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
            raise DiskFull(os.fspath(path), "open", errno.ENOSPC)
        return super().open(path, writable=writable, create=create)

    def write_atomically(self, path: StrPath, data: Bytes, *, durable: bool = True) -> None:
        """Replace a file, unless the disk is full."""
        if self.is_full:
            raise DiskFull(os.fspath(path), "replace", errno.ENOSPC)
        super().write_atomically(path, data, durable=durable)


def test_a_roll_without_room_is_taken_up_later(path: Path) -> None:
    fs, oracle = FullFileSystem(), Oracle()
    log = MergedLog.open(fs, path, topic="flights", topic_id=TOPIC_ID, partition=0)
    for number in range(30):
        data = batch(number, size=700, timestamp=number)
        fs.is_full = number % 3 == 1
        if number % 5 == 4:
            oracle.roll()
            with suppress(DiskFull):
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
    with pytest.raises(DiskFull):
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
        except DiskFull:
            return count
    raise AssertionError("the disk never filled up")


# --- cutting -------------------------------------------------------------------------------------


def test_what_is_not_durable_can_be_cut(path: Path) -> None:
    log, oracle = write(path, [ONE, TWO])
    checksum, files = log.checksum, contents(path)
    merge(log, THREE, ONE)
    log.roll()
    merge(log, TWO, THREE)
    log.cut_to(10)  # between the last two
    assert log.next_offset == 10
    log.cut_to(4)
    assert (log.next_offset, log.checksum, log.durable_offset) == (4, checksum, 4)
    log.save_marks()
    assert contents(path) == files
    merge(log, THREE)
    oracle.append(THREE, epoch=3)
    assert log.checksum == oracle.checksum
    log.close()


def test_what_is_durable_is_never_cut(path: Path) -> None:
    log, _ = write(path, [ONE, TWO])
    merge(log, TWO)
    for offset in (0, 1, 3, 5, 6):  # durable, or inside a batch
        with pytest.raises(NotContiguous, match="durable up to 4"):
            log.cut_to(offset)
    with pytest.raises(OffsetNotHeld):
        log.cut_to(8)
    log.cut_to(7)
    assert log.next_offset == 7
    log.close()


def test_a_reader_follows_a_cut(path: Path) -> None:
    log, _ = write(path, [ONE, TWO])
    merge(log, THREE)
    log.roll()
    merge(log, TWO, THREE)
    reader = open_merged(path, read_only=True)
    for offset, more in ((9, ONE), (6, TWO), (4, ONE)):
        log.cut_to(offset)
        assert reader.refresh()
        assert reader.segments() == log.segments()
        merge(log, more)
        assert reader.refresh()
        assert (reader.next_offset, reader.checksum) == (log.next_offset, log.checksum)
    reader.close()
    log.close()


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
