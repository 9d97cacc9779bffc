"""What a node lets go of when a snapshot comes in the place of entries."""

from __future__ import annotations

import asyncio
from pathlib import Path
from unittest.mock import Mock

import msgspec
import pytest

from samelog.consensus import Snapshot
from samelog.format import _kernels as kernels
from samelog.format.marks import find_session_marks
from samelog.sequencer.merge.merging import Merging
from samelog.sequencer.merge.session_store import SessionStore
from samelog.sequencer.raft.replica import Replica, SnapshotBody
from samelog.sequencer.state.command_base import Rejection
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.tables.sessions import (
    CloseRun,
    Expire,
    OpenInputCommand,
    RetireSessionCommand,
)
from samelog.sequencer.state.tables.topics import CreateTopicCommand, DeleteTopicCommand
from samelog.sequencer.state.tables.views import CreateViewCommand
from samelog.store.disk.files import OsFileSystem
from tests.sequencer.test_session_store import Rounds, machine_with_input, open_store

RECORD = kernels.build_batches([b"v"], timestamps=1, batch_bytes=1 << 14, max_record_bytes=1 << 20)


class World:
    """A replica that holds bytes of input 1, and the newer state of the others."""

    def __init__(self, path: Path) -> None:
        self.machine = machine_with_input()
        self.store: SessionStore = open_store(path, self.machine)
        self.store.log(1).append(0, 0, 0, RECORD)
        aside = {"syncer": Mock(), "events": Mock(), "measures": Mock()}
        fs = OsFileSystem()
        merging = Merging(fs, str(path / "merged"), self.store, self.machine, **aside)
        self.events = Mock()
        self.replica = Replica(self.machine, self.store, merging, self.events)
        self.newer = StateMachine.decode(self.machine.encode())
        self.directory = path / "sessions" / "s" / "t-0"

    def sync(self) -> None:
        """Make input 1 durable; its marks are to be saved later."""
        ends = self.store.ends([1])
        for file in self.store.take_dirty([1])[0]:
            file.datasync()
        self.store.mark_durable(ends)

    async def install(self) -> None:
        body = msgspec.msgpack.encode(SnapshotBody(self.newer.encode(), []))
        self.replica.install(
            Snapshot(last_index=9, last_term=1, voters=(0,), learners=(), data=body)
        )

    def recreate(self) -> None:
        """Topic t is deleted and created again."""
        self.newer.apply(DeleteTopicCommand("a" * 32))
        self.newer.apply(CreateTopicCommand("d" * 32, "t", 1, {}, 0))
        self.newer.apply(OpenInputCommand("s", "d" * 32, 0))


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_marks_of_a_deleted_topic_are_not_those_of_the_next(world: World) -> None:
    world.sync()
    world.recreate()

    async def main() -> None:
        await world.store.marks.save(Rounds())
        await world.install()
        world.store.log(2)
        await world.store.marks.save(Rounds())

    asyncio.run(main())
    assert world.store.opened.keys() == {2}
    marks = find_session_marks((world.directory.parents[1] / ".marks").read_bytes()).records
    assert [mark.number for record in marks for mark in record.inputs] == [1]


def test_no_marks_are_saved_where_a_directory_is_gone(world: World) -> None:
    world.sync()
    world.newer.apply(DeleteTopicCommand("a" * 32))

    async def main() -> None:
        await world.install()
        await world.replica.wait_tidied()
        await world.store.marks.save(Rounds())

    asyncio.run(main())
    assert not world.directory.exists()
    world.store.close()


def test_a_deleted_topic_is_told(world: World) -> None:
    world.recreate()
    asyncio.run(world.install())
    world.events.inputs_deleted.assert_called_once_with([1])
    world.events.inputs_removed.assert_called_once_with([1])


def test_a_session_that_expired_is_forgotten(world: World) -> None:
    world.newer.apply(CloseRun("s", "c" * 32, 5))
    world.newer.apply(Expire([], [("s", 5)]))
    assert not world.newer.state.sessions.inputs
    del world.newer.state.sessions.by_name["s"]
    world.replica.forget_deleted()
    asyncio.run(world.install())
    assert not world.directory.parent.exists()
    assert not world.store.opened


def test_fenced_directories_and_dropped_views_are_told(world: World) -> None:
    view = CreateViewCommand("e" * 32, "v", "a" * 32, "", [], 0, {}, "", "o", 1)
    assert not isinstance(world.machine.apply(view), Rejection)
    world.newer.apply(RetireSessionCommand("s"))
    asyncio.run(world.install())
    world.events.session_retired.assert_called_once_with("s")
    world.events.views_dropped.assert_called_once_with({"a" * 32})


def test_what_the_newer_state_has_stays(world: World) -> None:
    asyncio.run(world.install())
    assert world.store.log(1).end(0) == (0, len(RECORD))
    world.events.inputs_removed.assert_not_called()
