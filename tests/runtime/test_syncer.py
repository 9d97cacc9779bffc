"""Group commit: who waits for which round, and that no error is ever lost."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from samelog.runtime.disk.pace import GAINED_AFTER
from samelog.runtime.disk.syncer import GroupSync
from samelog.runtime.disk.threads import DiskCall, DiskThreads
from samelog.store.disk.files import DiskFault, File, OsFileSystem
from tests.patience import PATIENCE_S
from tests.runtime.peers import in_loop, until


class Disk:
    """Stands in for the disk's threads: calls are counted, held back or failed."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.synced: list[str] = []
        self.gate = threading.Event()
        self.gate.set()
        self.failing: set[str] = set()
        self.took_s = 1.0
        self._names: dict[int, str] = {}
        self._on_answer: Callable[[int, int, float], None] = lambda *args: None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._threads = ThreadPoolExecutor(2)

    def __call__(self, count: int) -> DiskThreads:
        return self  # type: ignore[return-value]

    def file(self, name: str) -> File:
        file = OsFileSystem().open(self.directory / name, create=True)
        self._names[file.fileno()] = name
        return file

    def files(self, count: int) -> list[File]:
        return [self.file(f"f{number}") for number in range(count)]

    def group(self) -> GroupSync:
        return GroupSync(str(self.directory), self)

    # --- as DiskThreads -----------------------------------------------------------------------

    def attach(
        self, loop: asyncio.AbstractEventLoop, on_answer: Callable[[int, int, float], None]
    ) -> None:
        self._loop, self._on_answer = loop, on_answer

    def submit(self, calls: Sequence[tuple[int, DiskCall, int]]) -> None:
        for number, call, descriptor in calls:
            name = "*" if call is DiskCall.SYNCFS else self._names[descriptor]
            self._threads.submit(self._carry_out, number, name)

    def _carry_out(self, number: int, name: str) -> None:
        self.gate.wait(PATIENCE_S)
        self.synced.append(name)
        error = errno.EIO if name in self.failing else 0
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._on_answer, number, error, self.took_s)

    def close(self) -> None:
        self._threads.shutdown()


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(tmp_path)


@pytest.mark.parametrize(
    ("count", "synced"), [(1, ["f0"]), (2, ["f0", "f1"]), (3, ["*"]), (9, ["*"])]
)
def test_few_files_are_synced_each_many_at_once(disk: Disk, count: int, synced: list[str]) -> None:
    async def main() -> None:
        group = disk.group()
        await group.sync(disk.files(count))
        await group.close()

    in_loop(main)
    assert sorted(disk.synced) == synced


def test_nothing_to_sync(disk: Disk) -> None:
    async def main() -> None:
        group = disk.group()
        await group.sync([])
        await group.close()

    in_loop(main)
    assert disk.synced == []


def test_requests_during_a_round_share_the_next(disk: Disk) -> None:
    async def main() -> None:
        group = disk.group()
        one, two = disk.files(2)
        disk.gate.clear()
        first = asyncio.create_task(group.sync([one]))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        later = [asyncio.create_task(group.sync([file])) for file in (one, two, one)]
        await asyncio.sleep(0)
        assert disk.synced == []
        disk.gate.set()
        await asyncio.gather(first, *later)
        await group.close()

    in_loop(main)
    assert disk.synced[0] == "f0"
    assert sorted(disk.synced[1:]) == ["f0", "f1"]


def test_the_loop_runs_on_while_the_disk_is_slow(disk: Disk) -> None:
    async def main() -> None:
        group = disk.group()
        disk.gate.clear()
        task = asyncio.create_task(group.sync(disk.files(1)))
        turns = 0
        while turns < 100:
            await asyncio.sleep(0)
            turns += 1
        assert not task.done()
        disk.gate.set()
        await task
        await group.close()

    in_loop(main)


@pytest.mark.parametrize(("count", "failing"), [(1, "f0"), (2, "f0"), (2, "f1"), (3, "*")])
def test_an_error_fails_everyone_in_the_round_and_only_them(
    disk: Disk, count: int, failing: str
) -> None:
    async def main() -> None:
        group = disk.group()
        files = disk.files(count)
        disk.failing.add(failing)
        outcomes = await asyncio.gather(
            *(group.sync([file]) for file in files), return_exceptions=True
        )
        assert len(outcomes) == count
        assert all(isinstance(outcome, DiskFault) for outcome in outcomes)
        disk.failing.clear()
        await group.sync([disk.file("fresh")])
        await group.close()

    in_loop(main)


def test_a_caller_that_gave_up_disturbs_nobody(disk: Disk) -> None:
    async def main() -> None:
        group = disk.group()
        files = disk.files(2)
        disk.gate.clear()
        tasks = [asyncio.create_task(group.sync([file])) for file in files]
        await asyncio.sleep(0)
        tasks[0].cancel()
        await until(tasks[0].done)
        disk.gate.set()
        await tasks[1]
        await group.close()

    in_loop(main)


def test_a_file_on_another_file_system_is_synced_by_itself(disk: Disk) -> None:
    elsewhere = Path("/dev/shm")
    if not elsewhere.is_dir() or elsewhere.stat().st_dev == disk.directory.stat().st_dev:
        pytest.skip("there is no second file system")
    name = f"samelog-test-{os.getpid()}"
    stranger = Disk.__new__(Disk)
    stranger.__dict__.update(disk.__dict__, directory=elsewhere)

    async def main() -> None:
        group = disk.group()
        await group.sync([*disk.files(3), stranger.file(name)])
        await group.close()

    try:
        in_loop(main)
    finally:
        (elsewhere / name).unlink()
    assert sorted(disk.synced) == ["*", name]


def test_a_file_closed_meanwhile_is_no_error(disk: Disk) -> None:
    async def main() -> None:
        group = disk.group()
        files = disk.files(3)
        files[1].close()
        await group.sync(files)
        await group.close()

    in_loop(main)
    assert disk.synced == ["*"]


def test_a_fast_disk_is_waited_for_until_it_is_slow_once(disk: Disk) -> None:
    async def main() -> None:
        group = disk.group()
        (file,) = disk.files(1)
        disk.took_s = 0.0001
        for _ in range(GAINED_AFTER):
            await group.sync([file])
        handed_over = len(disk.synced)
        assert handed_over == GAINED_AFTER
        await group.sync([file])
        assert len(disk.synced) == handed_over, "waited for, not handed to a thread"
        await group.sync(disk.files(3))
        assert disk.synced[handed_over:] == ["*"], "a whole file system is never waited for"
        await group.close()

    in_loop(main)


def test_an_error_of_a_fast_disk_reaches_the_caller(disk: Disk) -> None:
    async def main() -> None:
        group = disk.group()
        one, other = disk.files(2)
        disk.took_s = 0.0001
        for _ in range(GAINED_AFTER):
            await group.sync([one])
        other.begin_sync()
        with pytest.raises(DiskFault):
            other.end_sync(errno.EIO)
        with pytest.raises(DiskFault):
            await group.sync([one, other])
        await group.close()

    in_loop(main)


def test_a_failed_sync_is_heard_of_before_a_later_one_succeeds(disk: Disk) -> None:
    """Also if the later one begins between the failure and the waking."""
    woken: list[str] = []

    async def sync(group: GroupSync, name: str, files: list[File]) -> None:
        with suppress(DiskFault):
            await group.sync(files)
        woken.append(name)

    async def main() -> None:
        group = disk.group()
        files = disk.files(3)
        disk.took_s = 0.0001
        for _ in range(GAINED_AFTER):
            await group.sync(files[:1])
        disk.failing.add("*")
        answered, later = disk._on_answer, list[asyncio.Task[None]]()

        def answer(number: int, error: int, seconds: float) -> None:
            disk._on_answer = answered
            later.append(asyncio.create_task(sync(group, "later", files[:1])))
            answered(number, error, seconds)

        disk._on_answer = answer
        await sync(group, "failed", files)
        await later[0]
        await group.close()

    in_loop(main)
    assert woken == ["failed", "later"]


def test_a_real_disk(tmp_path: Path) -> None:
    async def main() -> None:
        group = GroupSync(str(tmp_path))
        fs = OsFileSystem()
        for count in (1, 2, 5):
            files = [fs.open(tmp_path / f"r{number}", create=True) for number in range(count)]
            for file in files:
                file.pwrite(b"x" * 100, 0)
            await group.sync(files)
            for file in files:
                file.close()
        await group.close()

    in_loop(main)


def test_a_directory_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="not there"):
        GroupSync(str(tmp_path / "no"))
