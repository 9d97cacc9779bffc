"""Rounds of session bytes: what one vouches for, while others are under way, and behind one that
failed.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from samelog.format import _kernels as kernels
from samelog.format.positions import SessionPosition
from samelog.sequencer.ingest import session_rounds
from samelog.sequencer.ingest.room import Room
from samelog.sequencer.ingest.session_rounds import SessionRounds
from samelog.sequencer.state.tables.sessions import OpenInputCommand
from samelog.sequencer.state.tables.topics import CreateTopicCommand
from samelog.store.disk.dirty_files import DirtyFiles
from samelog.store.disk.disk_errors import NoSpace
from samelog.store.disk.files import DiskFault, File
from tests.sequencer.cluster import until
from tests.sequencer.test_session_store import machine_with_input, open_store

DATA = kernels.build_batches([b"v"], timestamps=1, batch_bytes=1 << 14, max_record_bytes=1 << 20)
SIZE = len(DATA)


class Syncs:
    """Syncs end when told to, in the order in which they began."""

    def __init__(self) -> None:
        self.under_way: list[tuple[list[str], asyncio.Future[None]]] = []

    async def sync(self, files: Iterable[File]) -> None:
        names = [Path(file.path).name for file in files]
        if not names:
            return  # as GroupSync does
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.under_way.append((names, done))
        await done

    def end(self, *, fails: bool = False) -> list[str]:
        """End the one that began first: its data files."""
        names, done = self.under_way.pop(0)
        if fails:
            done.set_exception(DiskFault("log.0.0", "sync", errno.EIO))
        else:
            done.set_result(None)
        return sorted(name for name in names if name.startswith("log."))


class Held:
    """Rounds of one input."""

    def __init__(self, path: Path) -> None:
        self.machine, self.room, self.syncs = machine_with_input(), Room(), Syncs()
        self.store = open_store(path, self.machine)
        self.synced: list[int] = []
        self.failed: list[bool] = []
        self.rounds = SessionRounds(
            self.store,
            self.syncs,
            self.room,
            pause_s=0,
            on_synced=self.synced.extend,
            on_failed=lambda: self.failed.append(True),
        )

    @property
    def durable(self) -> SessionPosition:
        return self.store.durable(self.machine.state.sessions.inputs[1])

    def write(self, roll: int, byte: int, number: int = 1) -> None:
        self.store.log(number).append(0, roll, byte, DATA)
        self.rounds.dirty.add(number)

    def seal(self) -> None:
        self.store.log(1).seal(0, *self.store.log(1).end(0))

    async def begin(self) -> asyncio.Task[None]:
        """A round that another part asks for."""
        task = asyncio.create_task(self.rounds.sync({1}))
        await asyncio.sleep(0)
        return task


def test_a_round_vouches_for_what_was_there_when_it_began(tmp_path: Path) -> None:
    held = Held(tmp_path)

    async def main() -> None:
        held.write(0, 0)
        one = await held.begin()
        held.write(0, SIZE)
        assert held.syncs.end() == ["log.0.0"]
        await one
        assert held.durable == SessionPosition(0, 0, SIZE)
        assert (held.rounds.dirty, held.synced) == ({1}, [1])

    asyncio.run(main())


def test_a_round_that_comes_with_its_entry_leaves_no_timer(tmp_path: Path) -> None:
    """Else the loop wakes once more for each entry. Bytes of another input keep the timer."""
    held, timers = Held(tmp_path), list[asyncio.TimerHandle]()

    async def main() -> None:
        loop = asyncio.get_running_loop()
        call_later = loop.call_later

        def noted(*arguments: Any) -> asyncio.TimerHandle:
            timers.append(call_later(*arguments))
            return timers[-1]

        loop.call_later = noted  # type: ignore[assignment, method-assign]
        for others, is_over in ((set[int](), True), ({2}, False)):
            held.write(0, held.store.log(1).end(0)[1])
            held.rounds.dirty |= others
            held.rounds.begin_later()
            task = await held.begin()
            assert timers[-1].cancelled() == is_over
            held.syncs.end()
            await task
        assert len(timers) == 2

    asyncio.run(main())


def test_what_an_earlier_round_has_counts_with_a_later_one(tmp_path: Path) -> None:
    """The later one has the file that was begun since, or nothing at all."""
    held = Held(tmp_path)

    async def main() -> None:
        held.write(0, 0)
        held.seal()
        one = await held.begin()
        held.write(1, 0)
        two, three = await held.begin(), await held.begin()
        await asyncio.sleep(0)
        assert not three.done()
        assert held.durable == SessionPosition(0, 0, 0), "it has no file, and is not the first"
        assert [held.syncs.end(), held.syncs.end()] == [["log.0.0"], ["log.0.1"]]
        await asyncio.gather(one, two, three)
        assert held.durable == SessionPosition(0, 1, SIZE)

    asyncio.run(main())


def test_rounds_without_files_each_wait_for_all_before_them(tmp_path: Path) -> None:
    held = Held(tmp_path)

    async def main() -> None:
        held.write(0, 0)
        held.seal()
        one, follower = await held.begin(), await held.begin()
        held.write(1, 0)
        two, last = await held.begin(), await held.begin()
        held.syncs.end()
        await asyncio.gather(one, follower)
        await asyncio.sleep(0)
        assert not last.done()
        assert held.durable < SessionPosition(0, 1, SIZE), "the second round is under way"
        held.syncs.end()
        await asyncio.gather(two, last)
        assert held.durable == SessionPosition(0, 1, SIZE)

    asyncio.run(main())


def test_no_round_succeeds_behind_one_that_failed(tmp_path: Path) -> None:
    """The file that it has was synced; the bytes before were not."""
    held = Held(tmp_path)

    async def main() -> None:
        held.write(0, 0)
        held.seal()
        one = await held.begin()
        held.write(1, 0)
        two = await held.begin()
        held.syncs.end(fails=True)
        held.syncs.end()
        outcomes = await asyncio.gather(one, two, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [DiskFault, DiskFault]
        assert (held.durable, held.synced) == (SessionPosition(0, 0, 0), [])

    asyncio.run(main())


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
def test_inputs_without_descriptors_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """The round syncs the other files that it has, vouches for those alone, and ends with all."""
    held = Held(tmp_path)
    monkeypatch.setattr(session_rounds, "UNSYNCED_RETRY_S", 0)
    held.machine.apply(CreateTopicCommand("d" * 32, "u", 1, {}, 0))
    held.machine.apply(OpenInputCommand("s", "d" * 32, 0))

    def cannot_open(dirty: DirtyFiles) -> list[File]:
        if not short:
            return opens(dirty)
        raise NoSpace("directory", "open", number)

    short, opens = [True], DirtyFiles._open_changed

    async def main() -> None:
        held.write(0, 0)
        held.syncs.under_way.clear()
        held.store.log(1).settle()
        held.write(0, SIZE)
        held.write(0, 0, number=2)  # a new file: its directory changes, too
        work = asyncio.create_task(held.rounds.run())
        with patch.object(DirtyFiles, "_open_changed", only_of(held, 2, cannot_open)):
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert held.syncs.end() == ["log.0.0"]
            for _ in range(20):
                await asyncio.sleep(0)
            assert held.durable == SessionPosition(0, 0, 2 * SIZE)
            other = held.machine.state.sessions.inputs[2]
            assert (held.store.durable(other).byte, held.rounds.dirty) == (0, {2})
            assert not work.done()
            short.clear()
            await until(lambda: bool(held.syncs.under_way), "another round")
        assert held.syncs.end() == ["log.0.0"]
        await until(lambda: held.rounds.is_idle, "all is synced")
        assert (held.store.durable(other).byte, held.room.stopped) == (SIZE, None)
        work.cancel()

    asyncio.run(main())


def only_of(
    held: Held, number: int, instead: Callable[[DirtyFiles], list[File]]
) -> Callable[[DirtyFiles], list[File]]:
    """Replace the opening of one input's changed files."""
    opens, dirty = DirtyFiles._open_changed, held.store.log(number)._dirty
    return lambda each: instead(each) if each is dirty else opens(each)


@pytest.mark.parametrize("is_full", [False, True])
def test_a_disk_that_fails_leaves_no_room(tmp_path: Path, *, is_full: bool) -> None:
    """Also if it was full before, and no more."""
    held = Held(tmp_path)

    async def main() -> None:
        work = asyncio.create_task(held.rounds.run())
        held.write(0, 0)
        await asyncio.sleep(0)
        if is_full:
            held.room.set(0, promised_bytes=0, resume_at_bytes=1)
        held.syncs.end(fails=True)
        await work
        held.room.set(1 << 30, promised_bytes=0, resume_at_bytes=1)
        assert "cannot sync" in str(held.room.stopped)
        assert held.failed == [True]

    asyncio.run(main())
