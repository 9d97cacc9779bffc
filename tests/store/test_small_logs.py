"""What a log costs that holds next to nothing: a node has thousands of them."""

from __future__ import annotations

import os
from pathlib import Path

from samelog.format.file_names import MARKS_FILE
from samelog.store.merged.log import MergedLog
from samelog.store.session.log import InputLog
from tests.store.merged_parts import INDEX_0, LOG_0, ONE, TWO, merge
from tests.store.storage import (
    batch,
    contents,
    open_below,
    open_input,
    open_merged,
    sync_input,
    sync_merged,
)

RUN = 0
SESSION_FILE = "log.0.0"


def open_names(log: MergedLog | InputLog) -> list[str]:
    """The open files of a log."""
    return sorted(os.path.basename(path) for path in open_below(log.path))


def test_a_log_that_is_synced_has_one_open_file(tmp_path: Path) -> None:
    merged, session = open_merged(tmp_path / "t-0"), open_input(tmp_path / "t-1")
    merge(merged, ONE)
    session.append(RUN, 0, 0, ONE)
    sync_merged(merged)
    sync_input(session, RUN)
    merged.save_marks()
    assert merged.dirty(), "the marks are yet to be synced"
    sync_merged(merged)
    sync_input(session, RUN)
    for log, name in ((merged, LOG_0), (session, SESSION_FILE)):
        assert not log.dirty()
        assert open_names(log) == [name]


def test_what_is_taken_to_be_synced_stays_open_until_it_is(tmp_path: Path) -> None:
    merged, session = open_merged(tmp_path / "t-0"), open_input(tmp_path / "t-1")
    merge(merged, ONE)
    session.append(RUN, 0, 0, ONE)
    for log in (merged, session):
        names = sorted(os.path.basename(file.path) for file in log.take_dirty())
        assert (MARKS_FILE in names) == (log is merged)
        assert os.path.basename(log.path) in names
        assert open_names(log) == names


def test_a_log_whose_directory_was_removed_has_no_names_to_sync(tmp_path: Path) -> None:
    for log in (open_merged(tmp_path / "t-0"), open_input(tmp_path / "t-1")):
        os.rename(log.path, tmp_path / "away")
        assert log.take_dirty() == []
        os.rename(tmp_path / "away", log.path)


def test_index_files_are_open_once_they_have_entries(tmp_path: Path) -> None:
    log = open_merged(tmp_path / "t-0")
    merge(log, ONE)
    sync_merged(log)
    assert (tmp_path / "t-0" / INDEX_0).read_bytes() == b""
    for seed in range(3):
        merge(log, batch(seed, size=4096))
    sync_merged(log)
    assert INDEX_0 in open_names(log)
    assert len((tmp_path / "t-0" / INDEX_0).read_bytes()) == 2 * 8


def test_a_session_log_rests_and_goes_on(tmp_path: Path) -> None:
    log = open_input(tmp_path / "t-0")
    log.append(RUN, 0, 0, ONE)
    log.rest()
    assert SESSION_FILE in open_names(log), "it is to be synced"
    taken = log.take_dirty()
    log.rest()
    assert SESSION_FILE in open_names(log), "it is being synced"
    for file in taken:
        file.datasync()
    log.synced(ends={RUN: log.end(RUN)})
    log.rest()
    assert open_names(log) == []
    assert not log.dirty()
    assert log.read(RUN, 0, 0, len(ONE)) == ONE
    log.append(RUN, 0, len(ONE), TWO)
    sync_input(log, RUN)
    log.seal(RUN, 0, len(ONE) + len(TWO))
    assert contents(tmp_path / "t-0")[SESSION_FILE] == ONE + TWO


def test_a_session_log_does_not_rest_while_it_alone_has_the_bytes(tmp_path: Path) -> None:
    log = open_input(tmp_path / "t-0")
    log.append(RUN, 0, 0, ONE)
    sync_input(log, RUN)
    os.rename(tmp_path / "t-0" / SESSION_FILE, tmp_path / "away")
    log.rest()
    assert log.read(RUN, 0, 0, len(ONE)) == ONE
    os.rename(tmp_path / "away", tmp_path / "t-0" / SESSION_FILE)
    log.rest()
    assert open_names(log) == []
