"""Rounds of session bytes: what one vouches for, while others are under way, and behind one that
failed.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Iterable
from pathlib import Path

import pytest

from samelog.format import _kernels as kernels
from samelog.format.positions import SessionPosition
from samelog.sequencer.ingest.room import Room
from samelog.sequencer.ingest.session_rounds import SessionRounds
from samelog.store.disk.files import DiskFault, File
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
        self.rounds = SessionRounds(
            self.store, self.syncs, self.room, pause_s=0, on_synced=self.synced.extend
        )

    @property
    def durable(self) -> SessionPosition:
        return self.store.durable(self.machine.state.inputs[1])

    def write(self, roll: int, byte: int) -> None:
        self.store.log(1).append(0, roll, byte, DATA)
        self.rounds.dirty.add(1)

    def seal(self) -> None:
        self.store.log(1).seal(0, *self.store.log(1).end(0))

    async def begin(self) -> asyncio.Task[None]:
        """A round that somebody else asks for."""
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


@pytest.mark.parametrize("is_full", [False, True])
def test_a_disk_that_fails_leaves_no_room(tmp_path: Path, *, is_full: bool) -> None:
    """Also if it was full before, and no more."""
    held = Held(tmp_path)

    async def main() -> None:
        work = asyncio.create_task(held.rounds.run())
        held.write(0, 0)
        await asyncio.sleep(0)
        if is_full:
            held.room.set(0, resume_at_bytes=1)
        held.syncs.end(fails=True)
        await work
        held.room.set(1 << 30, resume_at_bytes=1)
        assert "cannot sync" in str(held.room.stopped)

    asyncio.run(main())
