"""A merged log: what it refuses, and how it is looked at."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from samelog.format.errors import (
    CorruptBatch,
    CorruptLog,
    LogFormatError,
    NotContiguous,
    OtherTopic,
    UnsupportedFormat,
)
from samelog.store.disk.disk_errors import DirectoryGone
from samelog.store.disk.files import NoSuchFile
from samelog.store.merged.log import MergedLog
from samelog.store.merged.reader import OffsetNotHeld
from samelog.store.merged.truncation import LogStart
from tests.store.merged_parts import INDEX_0, LOG_0, ONE, SEGMENTS, TWO, merge, write
from tests.store.storage import (
    FS,
    TOPIC_ID,
    batch,
    contents,
    open_merged,
    sync_merged,
    unwritten_merged,
)

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


def test_a_log_that_is_held_makes_nothing_in_a_directory_that_took_its_place(
    path: Path, tmp_path: Path
) -> None:
    log, oracle = write(path, *SEGMENTS)
    log.close()
    at = tmp_path / "copy"
    copy = MergedLog.open(FS, at, topic="flights", topic_id=TOPIC_ID, partition=0, hold=True)
    copy.append_copy(0, 0, oracle.segments[0].data)
    assert copy.is_in_place()
    shutil.copytree(at, tmp_path / "other")
    at.rename(tmp_path / "aside")
    (tmp_path / "other").rename(at)
    before = contents(at)
    for change in (
        copy.roll,
        copy.save_marks,
        lambda: copy.append_copy(4, 0, oracle.segments[1].data),
        lambda: copy.archive(LogStart(4, 4, 0)),
    ):
        with pytest.raises(DirectoryGone):
            change()
    assert not copy.is_in_place()
    copy.close()
    assert contents(at) == before


def test_what_a_copy_refuses_rolls_nothing(path: Path, tmp_path: Path) -> None:
    log, oracle = write(path, *SEGMENTS)
    copy = open_merged(tmp_path / "copy")
    copy.append_copy(0, 0, oracle.segments[0].data)
    with pytest.raises(CorruptBatch):
        copy.append_copy(4, 0, oracle.segments[2].data)
    assert [segment.base_offset for segment in copy.segments()] == [0]
    copy.close()
    log.close()


def test_a_log_has_no_directory_before_its_first_record(path: Path) -> None:
    log = unwritten_merged(path)
    log.save_marks()
    assert (log.next_offset, log.segments()[0].size, log.take_dirty()) == (0, 0, [])
    assert list(log.spares.read_new()) == []
    assert not path.exists()
    log.append(bytearray(batch(1)), base_offset=0, leader_epoch=1)
    touched = {Path(file.path).name for file in log.take_dirty()}
    log.close()
    assert touched >= {LOG_0, "marks", path.name}
    again = open_merged(path)
    assert (again.next_offset, again.damaged) == (1, [])
    again.close()


def test_a_directory_of_another_topic_stays_as_it_is(path: Path) -> None:
    log = unwritten_merged(path)
    MergedLog.open(FS, path, topic="flights", topic_id="0" * 32, partition=0).close()
    with pytest.raises(OtherTopic):
        log.append(bytearray(batch(1)), base_offset=0, leader_epoch=1)
    assert not list(path.glob("*.log"))


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
    (path / "marks").unlink()
    with pytest.raises(CorruptLog, match=r"partition\.json.*missing beside segments"):
        open_merged(path)
    with pytest.raises(NoSuchFile):
        open_merged(path, read_only=True)


@pytest.mark.parametrize("is_missing", [False, True])
def test_a_damaged_partition_file_is_made_again_from_the_marks(
    path: Path, is_missing: bool, caplog: pytest.LogCaptureFixture
) -> None:
    log, oracle = write(path, [ONE])
    log.close()
    file = path / "partition.json"
    before = file.read_bytes()
    file.write_bytes(bytes(len(before)))
    if is_missing:
        file.unlink()
    again = open_merged(path)
    assert again.next_offset == oracle.next_offset
    again.close()
    assert file.read_bytes() == before
    assert f"{file}: " in caplog.text
    file.unlink()
    with pytest.raises(OtherTopic):
        MergedLog.open(FS, path, topic="flights", topic_id="other", partition=0)


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


def test_epochs_and_the_youngest_record_are_found(path: Path) -> None:
    log = open_merged(path)
    assert (log.end_of_epoch(3), log.highest_timestamp(), log.locate_record(1)) == (0, None, None)
    for seed, epoch in enumerate([2, 2, 2, 5, 5, 9]):
        data = batch(seed, timestamp=1000 - abs(seed - 3))
        log.append(bytearray(data), base_offset=log.next_offset, leader_epoch=epoch)
        if seed == 3:
            log.roll()
    ends = [log.end_of_epoch(epoch) for epoch in (1, 2, 3, 5, 8, 9, 10)]
    assert ends == [0, 3, 3, 5, 5, 6, 6]
    assert [log.epoch_at(offset) for offset in range(6)] == [2, 2, 2, 5, 5, 9]
    assert log.locate_record(log.highest_timestamp() or 0) == (3, 1000)
    assert log.locate_record(999) == (2, 999)
    assert log.locate_record(1001) is None
    log.close()
