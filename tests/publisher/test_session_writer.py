"""Runs, rolls and their ends in a session's directory; and what is left after a crash."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import pytest

from samelog import Publisher
from samelog.format import _kernels as kernels
from samelog.format.errors import DirectoryInUse
from samelog.format.file_names import parse_names
from samelog.publisher import DiskFull, output
from samelog.publisher.session_writer import SessionWriter
from samelog.replicator.push.session_tail import PieceCache, RunTail
from samelog.store.disk.disk_errors import NoSpace
from samelog.store.disk.files import OsFileSystem, StrPath
from samelog.store.disk.os_file import OsFile
from tests.cluster_sim.determinism import simulated_kernels
from tests.cluster_sim.disk import Disk
from tests.cluster_sim.files import SimFileSystem
from tests.cluster_sim.process import Process
from tests.publisher import reading

WRITE_UNTIL_KILLED = """
import sys
from samelog import Publisher
publisher = Publisher("t", session="s", directory=sys.argv[1])
number = 0
while True:
    publisher.append(b"%d" % number)
    publisher.append_many([b"%d" % n for n in range(number + 1, number + 10)])
    number += 10
    if number == 1000:
        print("ready", flush=True)
"""

HOLD = """
import sys
from samelog import Publisher
with Publisher("t", session="s", directory=sys.argv[1]):
    print("ready", flush=True)
    sys.stdin.read()
"""


def start(program: str, directory: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(directory)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    if process.stdout is None or process.stdout.readline() != "ready\n":
        raise AssertionError("the process did not begin")
    return process


def kill(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGKILL)
    process.communicate()


def publish(root: Path, *values: bytes) -> None:
    with Publisher("t", session="s", directory=root) as publisher:
        for value in values:
            publisher.append(value)


def test_a_publisher_that_appends_nothing_leaves_no_run(tmp_path: Path) -> None:
    publish(tmp_path)
    assert reading.runs(tmp_path / "s") == []


def test_the_run_is_noted_before_its_first_byte(tmp_path: Path) -> None:
    with Publisher("t", session="s", directory=tmp_path) as publisher:
        publisher.append(b"a")
        (run,) = reading.runs(tmp_path / "s")
        assert (run.run, run.end, len(run.run_id)) == (0, None, 32)


def test_a_closed_run_says_where_it_ends(tmp_path: Path) -> None:
    with Publisher("t", session="s", directory=tmp_path, partitions=2) as publisher:
        publisher.append(b"a", partition=1)
        size = (tmp_path / "s" / "t-1" / "log.0.0").stat().st_size
    (run,) = reading.runs(tmp_path / "s")
    assert run.end == {"t-1": (0, size)}
    assert reading.log_names(tmp_path / "s", partition=1) == ["log.0.0", f"log.0.0.sealed-{size}"]


def test_every_life_is_a_run_of_its_own(tmp_path: Path) -> None:
    for value in (b"a", b"b", b"c"):
        publish(tmp_path, value)
    runs = reading.runs(tmp_path / "s")
    assert [run.run for run in runs] == [0, 1, 2]
    assert len({run.run_id for run in runs}) == 3
    assert [reading.raw(tmp_path / "s", run=run)[-2:-1] for run in range(3)] == [b"a", b"b", b"c"]


def test_a_full_file_is_sealed_and_the_next_follows(tmp_path: Path) -> None:
    value = bytes(1000)
    with Publisher("t", session="s", directory=tmp_path, roll_bytes=4096) as publisher:
        for _ in range(10):
            publisher.append(value)
        names = reading.log_names(tmp_path / "s")
    sizes = [(tmp_path / "s" / "t-0" / f"log.0.{roll}").stat().st_size for roll in range(4)]
    assert names == sorted(
        [f"log.0.{roll}" for roll in range(4)]
        + [f"log.0.{roll}.sealed-{sizes[roll]}" for roll in range(3)]
    )
    assert all(3000 < size <= 4096 for size in sizes[:3])
    assert reading.values(tmp_path / "s") == [value] * 10


def test_a_file_has_its_name_for_good_before_the_next_one_has_any(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[list[str]] = []
    sync = OsFileSystem.sync_directory

    def note(self: OsFileSystem, path: StrPath) -> None:
        synced.append(sorted(name for name in os.listdir(path) if name.startswith("log.")))
        sync(self, path)

    monkeypatch.setattr(OsFileSystem, "sync_directory", note)
    with Publisher("t", session="s", directory=tmp_path, roll_bytes=1 << 12) as publisher:
        for _ in range(2):
            publisher.append(bytes(3000))
    sealed = next(name for name in reading.log_names(tmp_path / "s") if "log.0.0.sealed" in name)
    assert ["log.0.0", sealed] in synced


def test_a_power_failure_leaves_no_gap_in_a_run_that_nothing_shows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(output, "kernels", simulated_kernels())
    damaged = 0
    for seed in range(100):
        fs = SimFileSystem(disk := Disk(f"gap {seed}"), Process("p", "p"))
        written = bytearray()
        lane = simulated(fs).output("t", 0)
        for number in range(4):  # two files: later rolls would sync the first sealed name
            value = b"%d" % number + bytes(1500)
            lane.write(batch := kernels.build_record(value, None, None, 1, 1 << 20))
            written += batch
        disk.lose_power()
        fs = SimFileSystem(disk, Process("p", "p"))
        run = simulated(fs).directory.runs()[0]
        tail = RunTail(cast(Any, fs), "/s/t-0", 0, PieceCache())
        names = fs.list_directory("/s/t-0") if run.end else []
        tail.look(parse_names(names))
        tail.reaches = (run.end or {}).get("t-0", (0, 0))
        while tail.advance():
            pass
        damaged += tail.is_damaged
        data = b""
        for roll in [roll for roll in tail.rolls if roll <= tail.end[0]]:
            stop = tail.end[1] if roll == tail.end[0] else None
            data += fs.open(f"/s/t-0/log.0.{roll}").pread(1 << 20, 0)[:stop]
        assert written.startswith(data), seed
    assert damaged


def simulated(fs: SimFileSystem) -> SessionWriter:
    """Open a session on a simulated disk."""
    how: dict[str, Any] = {"session": "s", "budget_bytes": 1 << 20, "roll_bytes": 1 << 12}
    return SessionWriter.open(cast(Any, fs), "/s", **how)


def test_what_is_reserved_ahead_is_given_back(tmp_path: Path) -> None:
    publish(tmp_path, b"a")
    facts = (tmp_path / "s" / "t-0" / "log.0.0").stat()
    assert facts.st_blocks * 512 <= 8192


def test_after_a_kill_an_intact_prefix_is_there_and_the_next_run_follows(tmp_path: Path) -> None:
    process = start(WRITE_UNTIL_KILLED, tmp_path)
    kill(process)
    publish(tmp_path, b"next")
    found = reading.values(tmp_path / "s")
    assert len(found) > 1000
    assert found == [b"%d" % number for number in range(len(found) - 1)] + [b"next"]
    dead, alive = reading.runs(tmp_path / "s")
    size = (tmp_path / "s" / "t-0" / f"log.{dead.run}.0").stat().st_size
    assert dead.end == {"t-0": (0, size)}
    assert alive.end is not None


@pytest.mark.parametrize("torn", [b"\0" * 100, b"\0" * 7, bytes(range(256))])
def test_a_torn_tail_is_cut_and_never_appended_to(tmp_path: Path, torn: bytes) -> None:
    with Publisher("t", session="s", directory=tmp_path) as publisher:
        publisher.append(b"whole")
        shutil.copytree(tmp_path / "s", tmp_path / "crashed" / "s")
    file = tmp_path / "crashed" / "s" / "t-0" / "log.0.0"
    whole = file.read_bytes()
    file.write_bytes(whole + torn)
    publish(tmp_path / "crashed", b"next")
    assert file.read_bytes() == whole
    assert reading.values(tmp_path / "crashed" / "s") == [b"whole", b"next"]
    assert reading.runs(tmp_path / "crashed" / "s")[0].end == {"t-0": (0, len(whole))}
    assert not list(file.parent.glob("*quarantined*"))


def test_a_batch_torn_in_the_middle_goes_as_a_whole(tmp_path: Path) -> None:
    with Publisher("t", session="s", directory=tmp_path) as publisher:
        publisher.append(b"whole")
        publisher.append(b"torn")
        shutil.copytree(tmp_path / "s", tmp_path / "crashed" / "s")
    file = tmp_path / "crashed" / "s" / "t-0" / "log.0.0"
    os.truncate(file, file.stat().st_size - 1)
    publish(tmp_path / "crashed", b"next")
    assert reading.values(tmp_path / "crashed" / "s") == [b"whole", b"next"]


def test_a_copied_directory_has_runs_of_its_own(tmp_path: Path) -> None:
    publish(tmp_path, b"both")
    shutil.copytree(tmp_path / "s", tmp_path / "copy" / "s")
    publish(tmp_path, b"original")
    publish(tmp_path / "copy", b"copy")
    original, copy = (reading.runs(root / "s") for root in (tmp_path, tmp_path / "copy"))
    assert original[0].run_id == copy[0].run_id
    assert (original[1].run, copy[1].run) == (1, 1)
    assert original[1].run_id != copy[1].run_id


def test_two_processes_cannot_write_one_session(tmp_path: Path) -> None:
    holder = start(HOLD, tmp_path)
    with pytest.raises(DirectoryInUse, match=str(holder.pid)):
        Publisher("t", session="s", directory=tmp_path)
    kill(holder)
    publish(tmp_path, b"a")


def test_a_number_whose_run_file_is_lost_is_not_used_again(tmp_path: Path) -> None:
    publish(tmp_path, b"a")
    for path in (tmp_path / "s").glob("run*.0.json"):
        path.unlink()
    publish(tmp_path, b"b")
    assert [run.run for run in reading.runs(tmp_path / "s")] == [1]
    assert reading.values(tmp_path / "s") == [b"a", b"b"]


@pytest.mark.parametrize("lost", ["log.0.1", "log.0.0.sealed", "log.0.2", "log.0.1.sealed"])
def test_a_roll_that_fails_for_want_of_room_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    really_open = OsFileSystem.open
    left = [lost]

    def open_or_fail(fs: OsFileSystem, path: StrPath, **options: bool) -> OsFile:
        if left and Path(path).name.startswith(left[0]):
            left.clear()
            raise NoSpace(str(path), "open", errno.ENOSPC)
        return really_open(fs, path, **options)

    values = [b"%04d" % number + b"x" * 100 for number in range(80)]
    failures = 0
    with Publisher("t", session="s", directory=tmp_path, roll_bytes=4096) as publisher:
        monkeypatch.setattr(OsFileSystem, "open", open_or_fail)
        for value in values:
            try:
                publisher.append(value)
            except DiskFull:
                failures += 1
                publisher.append(value)
    assert failures == 1
    assert reading.values(tmp_path / "s") == values


def test_a_run_ends_where_its_sealed_file_does_if_the_next_one_cannot_be_created(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    really_open = OsFileSystem.open

    def open_or_fail(fs: OsFileSystem, path: StrPath, **options: bool) -> OsFile:
        if Path(path).name == "log.0.1":
            raise NoSpace(str(path), "open", errno.ENOSPC)
        return really_open(fs, path, **options)

    with Publisher("t", session="s", directory=tmp_path, roll_bytes=4096) as publisher:
        publisher.append(bytes(3000))
        monkeypatch.setattr(OsFileSystem, "open", open_or_fail)
        with pytest.raises(DiskFull):
            publisher.append(bytes(3000))
    size = (tmp_path / "s" / "t-0" / "log.0.0").stat().st_size
    assert reading.runs(tmp_path / "s")[0].end == {"t-0": (0, size)}
    assert f"log.0.0.sealed-{size}" in reading.log_names(tmp_path / "s")
