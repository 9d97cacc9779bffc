"""How many files the logs of a process keep open, and that closing some loses nothing."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from samelog.runtime import descriptors as descriptors_module
from samelog.runtime.descriptors import Descriptors, open_descriptors, shortage
from samelog.runtime.disk.syncer import GroupSync
from samelog.runtime.disk.threads import DiskCall, DiskThreads
from samelog.store.disk.disk_errors import DiskFault, LeftUnsynced, NoSpace, fault_of
from samelog.store.disk.file_cache import FileCache
from samelog.store.disk.files import OsFileSystem
from samelog.store.disk.open_files import OpenFiles, bound_of
from samelog.store.merged.log import MergedLog
from samelog.store.session.log import InputLog
from tests.runtime.peers import in_loop
from tests.store.merged_parts import merge
from tests.store.storage import TOPIC_ID, batch

LIMIT = 12
LOGS = 40
RUN = 1


def bounded(path: Path, *, device: int | None = None) -> OsFileSystem:
    return OsFileSystem(OpenFiles(LIMIT, os.stat(path).st_dev if device is None else device))


def open_inputs(fs: OsFileSystem, path: Path) -> list[InputLog]:
    return [InputLog.open(fs, path / f"i{n}", topic_id=TOPIC_ID) for n in range(LOGS)]


def open_merged_logs(fs: OsFileSystem, path: Path) -> list[MergedLog]:
    return [
        MergedLog.open(fs, path / f"m{n}", topic="t", topic_id=TOPIC_ID, partition=n)
        for n in range(LOGS)
    ]


def append(log: InputLog, data: bytes) -> None:
    run, (roll, byte) = RUN, log.end(RUN)
    log.append(run, roll, byte, data)


def calls_of(path: Path, logs: list[InputLog]) -> list[DiskCall]:
    """Sync all logs in one round; which calls it took."""
    made: list[DiskCall] = []

    class Disk(DiskThreads):
        def submit(self, calls: Sequence[tuple[int, DiskCall, int]]) -> None:
            made.extend(call for _, call, _ in calls)
            super().submit(calls)

    async def main() -> None:
        group = GroupSync(str(path), Disk)
        group._pace.took(1.0)
        await group.sync([file for log in logs for file in log.take_dirty()])
        await group.close()

    in_loop(main)
    return made


def test_logs_that_are_written_in_turn_keep_few_files_open(tmp_path: Path) -> None:
    fs = bounded(tmp_path)
    before = open_descriptors()
    inputs, merged = open_inputs(fs, tmp_path), open_merged_logs(fs, tmp_path)
    for turn in range(3):
        for number in range(LOGS):
            data = batch(turn * LOGS + number)
            append(inputs[number], data)
            merge(merged[number], data)
            assert open_descriptors() - before <= LIMIT + 1
    assert fs.open_files is not None
    assert fs.open_files.count <= LIMIT
    assert {log.next_offset for log in merged} == {3}
    for written in merged:
        written.close()
    for log in inputs:
        log.close()
    assert fs.open_files.count == 0
    again = open_inputs(fs, tmp_path)
    assert {log.end(RUN) for log in again} == {log.end(RUN) for log in inputs}


def test_a_round_of_many_logs_opens_few_directories(tmp_path: Path) -> None:
    fs = bounded(tmp_path)
    inputs = open_inputs(fs, tmp_path)
    for number, log in enumerate(inputs):
        append(log, batch(number))
    before = open_descriptors()
    files = [file for log in inputs for file in log.take_dirty()]
    assert len(files) > LOGS
    assert open_descriptors() - before <= LIMIT
    for log in inputs:
        log.synced()
        log.close()
    assert fs.open_files is not None
    assert fs.open_files.count == 0


def test_what_was_closed_unsynced_is_covered_by_a_sync_of_the_file_system(tmp_path: Path) -> None:
    fs = bounded(tmp_path)
    first, *others = open_inputs(fs, tmp_path)
    calls_of(tmp_path, [first])
    append(first, batch(0))
    for number, log in enumerate(others):
        append(log, batch(number))
    (file,) = (file for file in first.take_dirty() if file.is_left_unsynced)
    with pytest.raises(LeftUnsynced):
        file.datasync()
    append(first, batch(1))
    assert calls_of(tmp_path, [first]) == [DiskCall.FDATASYNC]
    append(first, batch(2))
    for number, log in enumerate(others):
        append(log, batch(number))
    assert calls_of(tmp_path, [first]) == [DiskCall.SYNCFS]


def test_files_of_another_file_system_stay_open_until_they_are_synced(tmp_path: Path) -> None:
    fs = bounded(tmp_path, device=-1)
    inputs = open_inputs(fs, tmp_path)
    for number, log in enumerate(inputs):
        append(log, batch(number))
    assert fs.open_files is not None
    assert fs.open_files.count == LOGS
    assert not any(file.is_left_unsynced for log in inputs for file in log.take_dirty())


def test_a_file_whose_name_is_gone_stays_open(tmp_path: Path) -> None:
    fs = bounded(tmp_path)
    first, *others = open_merged_logs(fs, tmp_path)
    merge(first, batch(0))
    for name in (tmp_path / "m0").glob("*.log"):
        name.unlink()
    for number, log in enumerate(others):
        merge(log, batch(number))
    assert first.open_file(0) is not None


def test_caches_of_other_threads_do_not_count(tmp_path: Path) -> None:
    fs = bounded(tmp_path)
    found: list[object] = []
    thread = threading.Thread(target=lambda: found.append(bound_of(fs)))
    thread.start()
    thread.join()
    assert found == [None]
    assert bound_of(fs) is fs.open_files


def test_a_fault_of_another_log_is_not_that_of_the_one_that_opens(tmp_path: Path) -> None:
    def fails() -> bool:
        raise DiskFault("elsewhere", "list", 5)

    fs = bounded(tmp_path)
    caches = [FileCache(fs) for _ in range(LIMIT + 3)]
    for number, cache in enumerate(caches):
        cache.may_close = fails
        cache.hold(0, fs.open(tmp_path / str(number), create=True))
    assert all(cache.held(0) is not None for cache in caches)


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
def test_a_lack_of_descriptors_passes(number: int) -> None:
    fault = fault_of("path", "open", OSError(number, os.strerror(number)))
    assert isinstance(fault, NoSpace)


def test_a_shortage_names_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shortage() is None
    monkeypatch.setattr(descriptors_module, "descriptors", lambda: Descriptors(32))
    assert "LimitNOFILE" in (shortage() or "")


def test_a_process_without_standard_input_can_ask_for_a_shortage() -> None:
    """Asking duplicated descriptor 0, which ended the nodes of services that close it."""
    program = "import os; os.close(0); from samelog.runtime.descriptors import *; shortage()"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_no_free_descriptor_at_all_is_a_shortage(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(value: int) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(os, "eventfd", fails)
    assert "clients are refused" in (shortage() or "")


@pytest.mark.parametrize(
    ("limit", "clients_below", "peers_below"),
    [(256, 160, 192), (1024, 640, 768), (64, 16, 48), (32, 0, 24)],
)
def test_connections_leave_a_reserve(limit: int, clients_below: int, peers_below: int) -> None:
    known = Descriptors(limit)
    assert (known.clients_below, known.peers_below) == (clients_below, peers_below)
    assert known.refusal(clients_below - 1) is None
    assert f"of {limit}" in (known.refusal(clients_below) or "")
    assert known.refusal(peers_below - 1, is_peer=True) is None
    assert known.refusal(peers_below, is_peer=True) is not None
