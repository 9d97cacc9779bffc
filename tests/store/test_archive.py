"""Archiving of a merged log: where it begins afterwards, and what is left on the disk."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from samelog.format.errors import CorruptLog
from samelog.store.disk.files import NoSuchFile
from samelog.store.merged.log import MergedLog
from samelog.store.merged.reader import OffsetNotHeld
from samelog.store.merged.scrub import mend
from samelog.store.merged.truncation import LogStart, not_truncated, truncate_segments
from tests.store.merged_parts import LOG_0, ONE, SEGMENTS, TWO, merge, write
from tests.store.storage import FS, contents, open_merged, sync_merged

LOG_4, LOG_7 = f"{4:020d}.log", f"{7:020d}.log"


def archive(log: MergedLog, offset: int, segment: int, checksum: int = 0) -> None:
    """What a node does for an entry."""
    log.hide_below(offset)
    log.archive(LogStart(offset, segment, checksum))
    truncate_segments(FS, log.path, not_truncated(FS, log.path, segment))


def test_archived_segments_are_empty_files_and_the_rest_is_as_before(path: Path) -> None:
    log, oracle = write(path, *SEGMENTS)
    checksum = log.checksum
    archive(log, 7, 7)
    assert (log.start_offset, log.next_offset, log.checksum) == (7, 12, checksum)
    merge(log, ONE)
    oracle.append(ONE, epoch=3)
    sync_merged(log)
    log.close()
    for reopened in (open_merged(path), open_merged(path, read_only=True)):
        assert (reopened.start_offset, reopened.next_offset) == (7, 13)
        assert [segment.base_offset for segment in reopened.segments()] == [7]
        assert reopened.read(7, 0, 1 << 20) == oracle.segments[2].data
        assert reopened.checksum != checksum
        assert not reopened.damaged
        reopened.close()
    assert {name: len(data) for name, data in contents(path).items() if name < LOG_7[:20]} == {
        LOG_0: 0,
        LOG_4: 0,
    }


def test_a_start_inside_a_segment_hides_what_is_before_it(path: Path) -> None:
    log, _ = write(path, *SEGMENTS)
    archive(log, 5, 4)
    assert (log.start_offset, [each.base_offset for each in log.segments()]) == (5, [4, 7])
    for offset in (0, 4):
        with pytest.raises(OffsetNotHeld, match=r"is not in \[5, 12\)"):
            log.locate(offset)
    assert log.locate(5)[0] == 4
    assert log.locate_timestamp(0) == 5
    assert log.end_of_epoch(0) == 5
    assert log.segment_of(5)[0] == 4
    log.close()
    again = open_merged(path)
    assert again.start_offset == 5
    assert again.log_start == LogStart(5, 4, again.checksums(4)[0])
    again.close()


def test_everything_may_be_archived_but_the_growing_segment_stays(path: Path) -> None:
    log, oracle = write(path, *SEGMENTS)
    archive(log, 12, 7)
    assert log.start_offset == log.next_offset == 12
    assert (path / LOG_7).stat().st_size == len(oracle.segments[2].data)
    merge(log, ONE)
    assert log.locate(12)[0] == 7
    log.close()


@pytest.mark.parametrize("start", [LogStart(40, 33, 77), LogStart(12, 12, 77)])
def test_a_log_that_has_not_come_so_far_goes_on_there(path: Path, start: LogStart) -> None:
    log, _ = write(path, *SEGMENTS)
    if start.segment > 12:
        merge(log, ONE)
    archive(log, *start)
    assert log.end() == (start.segment, 0)
    assert (log.next_offset, log.durable_offset) == (start.segment, start.segment)
    assert log.checksum == 77
    assert log.start_offset == start.segment
    merge(log, TWO)
    assert log.next_offset == start.segment + 3
    sync_merged(log)
    log.close()
    again = open_merged(path)
    assert (again.next_offset, again.damaged) == (start.segment + 3, [])
    assert again.log_start.segment == start.segment
    again.close()
    sizes = {name: len(data) for name, data in contents(path).items() if name.endswith(".log")}
    assert [sizes[name] for name in (LOG_0, LOG_4, LOG_7)] == [0, 0, 0]


def test_marks_older_than_the_archiving_do_no_harm(path: Path) -> None:
    log, _ = write(path, *SEGMENTS)
    kept = (path / "marks").read_bytes()
    archive(log, 33, 33, 5)
    merge(log, ONE)
    log.close()
    (path / "marks").write_bytes(kept)
    again = open_merged(path)
    assert (again.start_offset, again.next_offset, again.damaged) == (33, 34, [])
    again.close()


def test_files_that_came_back_are_no_part_of_the_log_and_go_again(path: Path) -> None:
    """A power loss may undo what was renamed, but not partition.json."""
    log, _ = write(path, *SEGMENTS)
    shutil.copytree(path, path.with_name("kept"))
    archive(log, 7, 7)
    log.close()
    for name in (LOG_0, LOG_4):
        shutil.copy(path.with_name("kept") / name, path / name)
    again = open_merged(path)
    assert (again.start_offset, [each.base_offset for each in again.segments()]) == (7, [7])
    assert not_truncated(FS, again.path, 7) == [0, 4]
    again.close()


@pytest.mark.parametrize("lost", [("log",), ("log", "index", "timeindex")])
def test_older_segments_go_though_a_newer_one_lost_its_bytes(
    path: Path, lost: tuple[str, ...]
) -> None:
    """A power loss took them, and what was archived meanwhile is behind them."""
    log, _ = write(path, *SEGMENTS)
    log.close()
    for kind in lost:
        (path / LOG_7).with_suffix(f".{kind}").unlink()
    (path / LOG_7).touch()
    found = not_truncated(FS, str(path), 12)
    assert found[:2] == [0, 4]
    truncate_segments(FS, str(path), found)
    assert not_truncated(FS, str(path), 12) == []
    assert {len(contents(path)[name]) for name in (LOG_0, LOG_4, LOG_7)} == {0}


def test_the_oldest_go_first(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log, _ = write(path, *SEGMENTS)
    log.archive(LogStart(7, 7, 0))
    gone = []
    plain = FS.write_atomically

    def noted(name: str, data: bytes, *, durable: bool = True) -> None:
        gone.append(name[-24:-4])
        plain(name, data, durable=durable)

    monkeypatch.setattr(FS, "write_atomically", noted, raising=False)
    truncate_segments(FS, log.path, not_truncated(FS, log.path, 7))
    assert gone == sorted(gone)
    assert len(gone) == 2
    log.close()


def test_who_reads_a_file_goes_on_reading_it(path: Path) -> None:
    log, oracle = write(path, *SEGMENTS)
    with (path / LOG_0).open("rb") as reader:
        archive(log, 7, 7)
        assert reader.read() == oracle.segments[0].data
    log.close()


def test_an_unreadable_start_archives_nothing(path: Path) -> None:
    log, _ = write(path, *SEGMENTS)
    archive(log, 4, 4)
    log.close()
    (path / "partition.json").write_bytes(b'{"start_offset": 99')
    (path / "marks").unlink()
    before = contents(path)
    with pytest.raises(CorruptLog):
        open_merged(path)
    assert contents(path) == before


def test_an_unreadable_start_is_made_again_from_the_marks(path: Path) -> None:
    log, oracle = write(path, *SEGMENTS)
    archive(log, 4, 4)
    log.close()
    before = (path / "partition.json").read_bytes()
    (path / "partition.json").write_bytes(b'{"start_offset": 99')
    again = open_merged(path)
    assert (again.start_offset, again.next_offset) == (4, oracle.next_offset)
    assert not again.damaged
    again.close()
    assert (path / "partition.json").read_bytes() == before


def test_an_empty_file_above_the_start_is_damage(path: Path) -> None:
    log, _ = write(path, *SEGMENTS)
    archive(log, 4, 4)
    log.close()
    (path / LOG_4).write_bytes(b"")
    again = open_merged(path)
    assert again.damaged
    assert again.next_offset == 4
    assert any("quarantined" in name.name for name in path.iterdir())
    again.close()


def test_a_reader_in_another_process_follows(path: Path) -> None:
    log, oracle = write(path, *SEGMENTS)
    reader = open_merged(path, read_only=True)
    assert reader.start_offset == 0
    archive(log, 5, 4)
    reader.refresh()
    assert (reader.start_offset, reader.next_offset) == (5, 12)
    assert reader.read(4, 0, 1 << 20) == oracle.segments[1].data
    archive(log, 50, 50)
    merge(log, ONE)
    reader.refresh()
    assert (reader.start_offset, reader.next_offset) == (50, 51)
    reader.close()
    log.close()


def test_nothing_is_mended_into_a_file_that_was_archived(path: Path) -> None:
    log, _ = write(path, *SEGMENTS)
    archive(log, 4, 4)
    with pytest.raises(NoSuchFile):
        mend(FS, str(path / LOG_0), 0, ONE)
    assert (path / LOG_0).stat().st_size == 0
    log.close()
