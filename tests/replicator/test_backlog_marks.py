"""Bytes that wait long at a publisher are synced and marked by the process that ships them."""

from __future__ import annotations

import asyncio
import errno
import shutil
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from samelog.format.directory_files import RunFile
from samelog.format.file_names import SHIPPING_MARKS_FILE, RunNames, parse_names
from samelog.format.marks import RunMark
from samelog.format.positions import SessionPosition
from samelog.replicator.interfaces import InputName
from samelog.replicator.push import backlog_marks
from samelog.replicator.push.backlog_marks import BacklogMarks
from samelog.store.disk.disk_errors import DiskFault
from samelog.store.disk.files import OsFileSystem
from samelog.store.session.backlog_mark import mark_backlog, publisher_mark
from samelog.store.session.dead_runs import DeadRuns
from tests.patience import PATIENCE_S
from tests.replicator.fake_nodes import world
from tests.replicator.session_files import FLIGHTS, SessionFiles, batch
from tests.runtime.peers import in_loop, until

FS = OsFileSystem()
SIZE = len(batch(b"00"))


def mark(path: Path, before: RunMark | None = None) -> RunMark | None:
    names = parse_names(each.name for each in path.iterdir())
    return mark_backlog(FS, str(path), 0, names[0], before)


def test_a_mark_is_a_boundary_of_whole_batches(tmp_path: Path) -> None:
    file = tmp_path / "log.0.0"
    file.write_bytes(batch(b"00") + batch(b"01") + batch(b"02")[:-1])
    first = mark(tmp_path)
    assert first == publisher_mark(FS, str(tmp_path), 0) == RunMark(0, 0, 2 * SIZE, 0)
    file.write_bytes(batch(b"00") + batch(b"01") + batch(b"02"))
    second = mark(tmp_path, first)
    assert second == publisher_mark(FS, str(tmp_path), 0) == RunMark(0, 0, 3 * SIZE, 2 * SIZE)
    (tmp_path / f"log.0.0.sealed-{3 * SIZE}").touch()
    (tmp_path / "log.0.1").write_bytes(batch(b"03"))
    assert mark(tmp_path, second) == RunMark(0, 1, SIZE, 0)
    assert publisher_mark(FS, str(tmp_path), 1) is None


def test_a_marked_batch_that_is_damaged_is_no_torn_tail(tmp_path: Path) -> None:
    file = tmp_path / "log.0.0"
    file.write_bytes(batch(b"00") + batch(b"01"))
    mark(tmp_path)
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    runs = DeadRuns(FS, str(tmp_path), [])
    assert runs.end_of(0, parse_names(["log.0.0"])[0]) == (0, 2 * SIZE)
    assert len(runs.damaged) == 1
    assert file.read_bytes() == data


class FakeSession:
    """A session with one run of one input, which ends at `end`."""

    def __init__(self) -> None:
        self.end = 0
        self.runs = [RunFile(run=0, run_id="r", started_ms=1)]

    def inputs_of(self, run: int) -> list[InputName]:
        return [FLIGHTS]

    def file_end(self, run: int, name: InputName) -> SessionPosition:
        return SessionPosition(run, 0, self.end)


def test_only_bytes_that_were_not_merged_since_the_last_look_are_due() -> None:
    session, merged = FakeSession(), [0]
    place = lambda run, name: SessionPosition(run, 0, merged[0])  # noqa: E731
    marks = BacklogMarks(cast(Any, session), place, cast(Any, SimpleNamespace(now=lambda: 0.0)))

    def due(end: int, merged_now: int) -> bool:
        session.end, merged[0] = end, merged_now
        return bool(list(marks._due()))

    assert not due(0, 0)
    assert not due(10, 0)
    assert not due(20, 10)
    assert due(20, 15)
    assert not due(20, 20)
    assert not due(30, 20)
    session.runs = [RunFile(run=0, run_id="r", started_ms=1, end={"flights-0": (0, 30)})]
    assert not due(30, 20)


def test_bytes_that_wait_are_marked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backlog_marks, "MARK_EVERY_S", 0.1)

    async def main() -> None:
        files = SessionFiles(tmp_path / "s")
        files.begin()
        marks = files.file().parent / SHIPPING_MARKS_FILE
        async with world(tmp_path) as made:
            made.cluster.merges = False
            made.push(files.path, poll_s=0.02)
            for number in range(3):
                files.append(batch(b"%02d" % number))
            await until(marks.exists)
            assert publisher_mark(FS, str(marks.parent), 0) == RunMark(0, 0, 3 * SIZE, 0)

    in_loop(main)


class Directories:
    """A session whose inputs have a run each that is not over. Implements what marks ask of one."""

    def __init__(self, path: Path, *names: InputName) -> None:
        self.fs, self.path, self.names = FS, str(path), [*names]
        self.runs = [RunFile(run=0, run_id="r", started_ms=1)]
        for name in names:
            directory = Path(self.input_path(name))
            directory.mkdir()
            (directory / "log.0.0").write_bytes(batch(b"00"))

    def inputs_of(self, run: int) -> list[InputName]:
        return self.names

    def file_end(self, run: int, name: InputName) -> SessionPosition:
        return SessionPosition(run, 0, FS.size(f"{self.input_path(name)}/log.0.0"))

    def input_path(self, name: InputName) -> str:
        return f"{self.path}/{self.names[self.names.index(name)][0]}-{name[1]}"  # or it is gone

    def names_of(self, run: int, name: InputName) -> RunNames:
        return parse_names(["log.0.0"])[0]


def marking(session: Directories) -> BacklogMarks:
    """Marks that have seen what waits once."""
    clock = SimpleNamespace(now=lambda: time.monotonic() * 1e9)
    unmerged = lambda run, name: SessionPosition(run, 0, 0)  # noqa: E731
    marks = BacklogMarks(cast(Any, session), unmerged, cast(Any, clock))
    marks.look()
    return marks


A, B, C = ("a", 0), ("b", 0), ("c", 0)


def test_an_input_that_fails_or_goes_leaves_the_others_marked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    session = Directories(tmp_path, A, B, C)

    def failing(fs: Any, directory: str, *arguments: Any) -> RunMark | None:
        if directory.endswith("a-0"):
            session.names.remove(B)
            shutil.rmtree(tmp_path / "b-0")
            raise DiskFault(directory, "fdatasync", errno.EIO)
        return mark_backlog(fs, directory, *arguments)

    async def main() -> None:
        marks = marking(session)
        monkeypatch.setattr(backlog_marks, "mark_backlog", failing)
        marks.look()
        await until(lambda: publisher_mark(FS, session.input_path(C), 0))
        await marks.close()

    in_loop(main)
    assert "are not marked" in caplog.text


def test_nothing_is_marked_once_the_session_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The directory may be another process's then."""
    session, begun, goes_on = Directories(tmp_path, A, B), threading.Event(), threading.Event()
    marked: list[str] = []

    def slow(fs: Any, directory: str, *arguments: Any) -> RunMark | None:
        begun.set()
        goes_on.wait(PATIENCE_S)
        mark = mark_backlog(fs, directory, *arguments)
        marked.append(directory)
        return mark

    async def main() -> None:
        monkeypatch.setattr(backlog_marks, "mark_backlog", slow)
        marks = marking(session)
        marks.look()
        await until(begun.is_set)
        closing = asyncio.ensure_future(marks.close())
        for _ in range(5):
            await asyncio.sleep(0)
        assert not closing.done()
        goes_on.set()
        await closing
        assert len(marked) == 1

    in_loop(main)
