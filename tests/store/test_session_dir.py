"""A session's directory: whose it is, its runs, its lock."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

from samelog.format.directory_files import RunFile
from samelog.format.errors import CorruptLog, DirectoryInUse, InvalidName, UnsupportedFormat
from samelog.format.file_names import input_name, parse_input_name
from samelog.store.disk.disk_errors import NoHardLinks
from samelog.store.disk.files import NoSuchFile
from samelog.store.session.directory import RunExists, SessionDirectory
from tests.store.storage import FS, batch, open_input

ID = "6f1c0f3e-0000-4000-8000-00000000000a"


def open_session(path: Path, *, session: str = "ewr", session_id: str = ID) -> SessionDirectory:
    """The directory of a session, made if needed."""
    return SessionDirectory.open_or_create(
        FS, path, session=session, session_id=session_id, identity="dns:ewr", cluster="demo"
    )


def test_the_record_is_written_once(tmp_path: Path) -> None:
    open_session(tmp_path / "ewr")
    again = open_session(tmp_path / "ewr", session_id="other")
    record = json.loads((tmp_path / "ewr" / "session.json").read_text())
    assert record.pop("again") == record
    record.pop("crc32c")
    assert record == {
        "format_version": 1,
        "session": "ewr",
        "id": ID,
        "identity": "dns:ewr",
        "cluster": "demo",
    }
    assert again.record == SessionDirectory.open(FS, tmp_path / "ewr").record
    assert again.record.id == ID


def test_the_wrong_directory_is_refused(tmp_path: Path) -> None:
    open_session(tmp_path / "ewr")
    with pytest.raises(UnsupportedFormat, match="belongs to session 'ewr', not 'jfk'"):
        open_session(tmp_path / "ewr", session="jfk")
    with pytest.raises(InvalidName):
        open_session(tmp_path / "x", session="../x")
    assert not (tmp_path / "x").exists()
    with pytest.raises(NoSuchFile):
        SessionDirectory.open(FS, tmp_path / "nothing")


def test_a_newer_format_is_left_alone(tmp_path: Path) -> None:
    open_session(tmp_path / "ewr")
    file = tmp_path / "ewr" / "session.json"
    file.write_text('{"format_version": 2, "other": "fields"}')
    with pytest.raises(UnsupportedFormat, match="format version 2; this program reads 1"):
        open_session(tmp_path / "ewr")
    assert "other" in file.read_text()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format_version": 1}', '{"session": "ewr"}'])
def test_an_unreadable_record_is_named(tmp_path: Path, text: str) -> None:
    open_session(tmp_path / "ewr")
    (tmp_path / "ewr" / "session.json").write_text(text)
    with pytest.raises(CorruptLog, match=r"session\.json"):
        open_session(tmp_path / "ewr")


def test_one_process_writes(tmp_path: Path) -> None:
    first, second = open_session(tmp_path / "ewr"), open_session(tmp_path / "ewr")
    first.lock()
    with pytest.raises(DirectoryInUse, match=str(os.getpid())):
        second.lock()
    first.close()
    second.lock()
    second.close()


def test_runs_are_noted_in_order_and_ended(tmp_path: Path) -> None:
    session = open_session(tmp_path / "ewr")
    assert (session.runs(), session.next_run()) == ([], 0)
    for number in (0, 1, 10):
        session.begin_run(number, run_id=f"{number:032x}", started_ms=5, dedup_id="d", dedup_base=7)
    ended = session.end_run(1, {"flights-0": (2, 345)})
    assert [run.run for run in session.runs()] == [0, 1, 10]
    assert (
        session.run(1)
        == ended
        == RunFile(
            run=1,
            run_id=f"{1:032x}",
            dedup_id="d",
            dedup_base=7,
            started_ms=5,
            end={"flights-0": (2, 345)},
        )
    )
    assert session.next_run() == 11
    session.forget_run(10)
    assert session.run(10) is None


def test_a_run_number_is_never_used_twice(tmp_path: Path) -> None:
    session = open_session(tmp_path / "ewr")
    session.begin_run(0, run_id="a" * 32, started_ms=0)
    with pytest.raises(RunExists):
        session.begin_run(0, run_id="b" * 32, started_ms=0)
    log = open_input(Path(session.input_path("flights", 0)))
    log.append(0, 0, 0, batch(1))
    log.seal(0, 0, len(batch(1)))
    log.close()
    session.forget_run(0)
    assert session.next_run() == 1  # its bytes are still there


@pytest.mark.parametrize("has_links", [True, False])
def test_two_processes_never_begin_one_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, has_links: bool
) -> None:
    """The process that ships begins a run in the instant in which the writer begins it."""
    writer, beside = open_session(tmp_path / "ewr"), open_session(tmp_path / "ewr")
    writer.lock()
    link, begun = os.link, list[RunFile]()

    def refused(*_: object, **__: object) -> None:
        raise OSError(errno.EPERM, "no hard links")

    def overtaken(source: str, target: str, **how: bool) -> None:
        monkeypatch.setattr(os, "link", link)
        begun.append(beside.begin_run(0, run_id="b" * 32, started_ms=0, end={}))
        link(source, target, **how)

    monkeypatch.setattr(os, "link", overtaken if has_links else refused)
    if has_links:
        with pytest.raises(RunExists):
            writer.begin_run(0, run_id="a" * 32, started_ms=0)
    else:
        with pytest.raises(NoHardLinks):
            beside.begin_run(0, run_id="b" * 32, started_ms=0, end={})
        begun.append(writer.begin_run(0, run_id="a" * 32, started_ms=0))
        with pytest.raises(RunExists):
            writer.begin_run(0, run_id="c" * 32, started_ms=0)
    assert writer.runs() == begun
    assert sorted(each.name for each in (tmp_path / "ewr").iterdir()) == [
        "run-again.0.json",
        "run.0.json",
        "session.json",
        "session.lock",
    ]
    writer.close()


def test_a_run_without_a_copy_of_its_record_is_forgotten(tmp_path: Path) -> None:
    """There was no room for the copy."""
    session = open_session(tmp_path / "ewr")
    session.lock()
    session.begin_run(0, run_id="a" * 32, started_ms=0)
    (tmp_path / "ewr" / "run-again.0.json").unlink()
    session.forget_run(0)
    assert session.runs() == []


def test_a_run_file_of_another_number_is_corrupt(tmp_path: Path) -> None:
    session = open_session(tmp_path / "ewr")
    session.begin_run(0, run_id="a" * 32, started_ms=0)
    (tmp_path / "ewr" / "run.0.json").rename(tmp_path / "ewr" / "run.3.json")
    with pytest.raises(CorruptLog, match=r"run\.3\.json.*says it is run 0"):
        session.runs()


def test_inputs_are_found_by_name(tmp_path: Path) -> None:
    session = open_session(tmp_path / "ewr")
    for name in ("flights-0", "a-b-12", "x-01", "-3", "plain", "..-1"):
        (tmp_path / "ewr" / name).mkdir()
    assert session.inputs() == [("a-b", 12), ("flights", 0)]
    assert parse_input_name(input_name("a.b-c", 7)) == ("a.b-c", 7)
    with pytest.raises(InvalidName):
        session.input_path("../x", 0)
