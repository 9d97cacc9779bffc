"""Damage in a publisher's directory: marks tell it from a torn tail, and waiting calls raise."""

from __future__ import annotations

import errno
import logging
import re
import shutil
from pathlib import Path

import pytest

from samelog import Publisher
from samelog.format import _kernels as kernels
from samelog.format.compression import decompress
from samelog.format.marks import InputMarks, RunMark, decode_marks
from samelog.publisher import RecordsDamaged, TopicPartition
from samelog.store.disk.disk_errors import DiskFault
from samelog.store.disk.os_file import OsFile
from tests.patience import PATIENCE_S
from tests.publisher import reading
from tests.publisher.nodes import Nodes, running


def marks(session: Path) -> list[RunMark]:
    """The durable marks of t-0."""
    found = decode_marks((session / "t-0" / "marks").read_bytes(), InputMarks)
    assert found is not None
    return found.runs


def crashed(root: Path, *, durable: bool) -> Path:
    """The session's directory of a publisher that died after three records."""
    with Publisher("t", session="s", directory=root) as publisher:
        for value in (b"0", b"1", b"2"):
            publisher.append(value)
        publisher.flush(durable=durable)
        shutil.copytree(root / "s", root / "crashed" / "s")
    return root / "crashed" / "s"


def flip(path: Path, at: int) -> None:
    """Turn a bit."""
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def merged_values(nodes: Nodes) -> list[bytes]:
    """What the node holds, run by run."""
    held = nodes.world.nodes[0].intake.held
    data = [bytes(file) for _, run in sorted(held.items()) for file in run.files.values()]
    found = kernels.decode_records(b"".join(data), 0, sum(map(len, data)), "t", 0, decompress)
    return [bytes(record.value or b"") for record in found]


def test_a_durable_flush_and_a_close_leave_marks(tmp_path: Path) -> None:
    with Publisher("t", session="s", directory=tmp_path) as publisher:
        publisher.append(b"a")
        publisher.flush(durable=True)
        first = publisher.positions.appended[TopicPartition("t", 0)]
        assert marks(tmp_path / "s") == [RunMark(0, 0, first.byte, 0)]
        publisher.append(b"b")
        last = publisher.positions.appended[TopicPartition("t", 0)]
    assert marks(tmp_path / "s") == [RunMark(0, 0, last.byte, first.byte)]


@pytest.mark.parametrize("durable", [True, False])
def test_a_mark_tells_damage_from_a_torn_tail(
    tmp_path: Path, durable: bool, caplog: pytest.LogCaptureFixture
) -> None:
    session = crashed(tmp_path, durable=durable)
    file = session / "t-0" / "log.0.0"
    size = file.stat().st_size
    flip(file, size - 1)
    with caplog.at_level(logging.ERROR), Publisher("t", session="s", directory=session.parent):
        pass
    assert file.stat().st_size == (size if durable else size * 2 // 3)
    assert ("is damaged" in caplog.text) is durable


def test_an_intact_batch_behind_it_tells_damage_from_a_torn_tail(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    session = crashed(tmp_path, durable=False)
    file = session / "t-0" / "log.0.0"
    size = file.stat().st_size
    flip(file, size // 3 + 30)
    with caplog.at_level(logging.ERROR), Publisher("t", session="s", directory=session.parent):
        pass
    assert file.stat().st_size == size
    assert reading.runs(session)[0].end == {"t-0": (0, size)}
    assert f"a file of session 's' is damaged: {file}" in caplog.text


def test_a_publisher_appends_despite_an_unreadable_record_of_a_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    session = crashed(tmp_path, durable=False)
    record, file = session / "run.0.json", session / "t-0" / "log.0.0"
    record.write_bytes(b"")
    (session / "run-again.0.json").write_bytes(b"")
    data = file.read_bytes()
    with caplog.at_level(logging.ERROR), Publisher("t", session="s", directory=session.parent) as p:
        p.append(b"3")
    assert (record.read_bytes(), file.read_bytes()) == (b"", data)
    assert f"a run of session 's' is not shipped: {record}, byte 0: unreadable" in caplog.text
    assert (session / "run.1.json").exists()
    assert (session / "t-0" / "log.1.0").stat().st_size > 0


def test_a_publisher_appends_despite_a_run_whose_file_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    session = crashed(tmp_path, durable=False)
    failing = [str(session / "t-0" / "log.0.0")]
    read = OsFile.pread

    def pread(self: OsFile, size: int, position: int) -> bytes:
        if self.path in failing:
            raise DiskFault(self.path, "read", errno.EIO)
        return read(self, size, position)

    monkeypatch.setattr(OsFile, "pread", pread)
    with caplog.at_level(logging.ERROR), Publisher("t", session="s", directory=session.parent) as p:
        p.append(b"3")
    assert "run 0 of session 's' stays without an end" in caplog.text
    assert [run.end is None for run in reading.runs(session)] == [True, False]
    failing.clear()
    with Publisher("t", session="s", directory=session.parent):
        pass
    assert [run.end is None for run in reading.runs(session)] == [False, False]


def test_a_file_that_was_cut_below_its_mark_is_damaged(tmp_path: Path) -> None:
    session = crashed(tmp_path, durable=True)
    file = session / "t-0" / "log.0.0"
    size = file.stat().st_size
    file.write_bytes(file.read_bytes()[: size // 3])
    with running(tmp_path) as nodes:
        config = nodes.world.config()
        with Publisher("t", session="s", directory=session.parent, config=config) as publisher:
            publisher.append(b"3")
            with pytest.raises(RecordsDamaged, match=r"run 0 of t-0 .* from 0:\d+ to 0:\d+"):
                publisher.wait_merged(timeout=PATIENCE_S)
            publisher.wait_merged(timeout=PATIENCE_S)
        assert merged_values(nodes) == [b"0", b"3"]


def test_whoever_waits_is_told_once_and_all_else_is_merged(tmp_path: Path) -> None:
    """Case 01 of the list of defects."""
    with Publisher("t", session="s", directory=tmp_path, roll_bytes=4096) as publisher:
        for number in range(500):
            publisher.append(b"%06d" % number)
        publisher.flush(durable=True)
    file = tmp_path / "s" / "t-0" / "log.0.0"
    flip(file, 800)
    with running(tmp_path) as nodes:
        config = nodes.world.config()
        with Publisher("t", session="s", directory=tmp_path, config=config) as publisher:
            publisher.append(b"new")
            with pytest.raises(RecordsDamaged, match="a copy of the bytes is") as raised:
                publisher.wait_merged(timeout=PATIENCE_S)
            publisher.wait_merged(timeout=PATIENCE_S)
            copy = Path(str(raised.value).rpartition("the bytes is ")[2].partition(";")[0])
        found = merged_values(nodes)
    assert found[-1] == b"new"
    lost = [number for number in range(500) if b"%06d" % number not in found]
    assert len(lost) == 1
    assert found[:-1] == [b"%06d" % number for number in range(500) if number not in lost]
    assert copy.stat().st_size == 74


def test_each_later_publisher_reports_a_loss_until_its_copy_is_removed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The damaged run is released by a publisher that never waits. The directory is moved then."""
    old, root = tmp_path / "old", tmp_path / "new"
    with Publisher("t", session="s", directory=old, roll_bytes=4096) as publisher:
        for number in range(500):
            publisher.append(b"%06d" % number)
    flip(old / "s" / "t-0" / "log.0.1", 800)
    with running(tmp_path) as nodes:
        config = nodes.world.config()
        with (
            caplog.at_level(logging.WARNING, logger="samelog.publisher"),
            Publisher("t", session="s", directory=old, config=config) as publisher,
        ):
            publisher.append(b"new")
        assert "session 's': records of run 0 of t-0 were damaged on disk" in caplog.text
        assert not (old / "s" / "run.0.json").exists()
        old.rename(root)
        [copy] = (root / "s" / "t-0").glob("*.quarantined-1")
        told = f"; a copy of the bytes is {copy}; all other records are merged"
        for _ in range(2):
            with Publisher("t", session="s", directory=root, config=config) as publisher:
                with pytest.raises(RecordsDamaged, match=re.escape(told)):
                    publisher.wait_merged(timeout=PATIENCE_S)
                publisher.append(b"later")
                publisher.wait_merged(timeout=PATIENCE_S)
        copy.unlink()
        with Publisher("t", session="s", directory=root, config=config) as publisher:
            publisher.append(b"last")
            publisher.wait_merged(timeout=PATIENCE_S)
