"""A partition that returns to its group, and a session that returns after it was forgotten, keep
their files when a restarted node repeats the entry by which they went.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from unittest.mock import Mock

from samelog.consensus import Entry
from samelog.format import _kernels as kernels
from samelog.placement.tasks import Action
from samelog.sequencer.merge.merging import Merging
from samelog.sequencer.raft.replica import Replica
from samelog.sequencer.state.commands import AnyCommand, encode_commands
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.tables.sessions import (
    CloseRun,
    Expire,
    OpenInputCommand,
    OpenRunCommand,
)
from samelog.sequencer.state.tables.transfers import PassPartition
from samelog.sequencer.state.units.moves import carry
from samelog.store.disk.files import OsFileSystem
from tests.placement.passing_world import MOVING, Group
from tests.sequencer.test_session_store import machine_with_input, open_store

RECORD = kernels.build_batches([b"v"], timestamps=1, batch_bytes=1 << 14, max_record_bytes=1 << 20)


class Member:
    """One life of a group's replica, from the newest snapshot on."""

    def __init__(self, path: Path, snapshot: bytes) -> None:
        self.machine = StateMachine.decode(snapshot)
        self.store = open_store(path, self.machine)
        aside = {"syncer": Mock(), "events": Mock(), "measures": Mock()}
        fs = OsFileSystem()
        self.merging = Merging(fs, str(path / "merged"), self.store, self.machine, **aside)
        self.replica = Replica(self.machine, self.store, self.merging, Mock())

    async def live(self, *commands: AnyCommand) -> None:
        """Apply all that was ever committed, with turns of the loop in between."""
        self.replica.start([], 0)
        for index, command in enumerate(commands, 1):
            self.replica.apply(Entry(index, 1, encode_commands([command])))
            await asyncio.sleep(0)
        await self.replica.wait_tidied()
        self.replica.forget_deleted()


def test_a_session_that_was_forgotten_and_came_back_keeps_its_bytes(tmp_path: Path) -> None:
    snapshot = machine_with_input().encode()
    commands = (
        CloseRun("s", "c" * 32, 5),
        Expire([], [("s", 5)]),
        OpenRunCommand("s", "b" * 32, "samelog://publisher/p", 1, "d" * 32, None, None),
        OpenInputCommand("s", "a" * 32, 0),
    )

    async def main() -> None:
        before = Member(tmp_path, snapshot)
        await before.live(*commands)
        before.store.log(2).append(1, 0, 0, RECORD)
        before.store.close()
        after = Member(tmp_path, snapshot)
        await after.live(*commands)
        assert after.store.log(2).end(1) == (0, len(RECORD))
        after.store.close()

    asyncio.run(main())


def test_a_partition_that_came_back_keeps_its_log(tmp_path: Path) -> None:
    group = Group(1, MOVING)
    snapshot = group.machine.encode()
    sealed = carry(group.state, MOVING, is_sealed=True)
    commands = (
        PassPartition(1, Action.HOLD_PARTITION, MOVING, b""),
        PassPartition(1, Action.SEAL_PARTITION, MOVING, b""),
        PassPartition(1, Action.DROP_PARTITION, MOVING, b""),
        PassPartition(2, Action.COPY_PARTITION, MOVING, sealed),
        PassPartition(2, Action.OPEN_PARTITION, MOVING, sealed),
    )

    async def main() -> None:
        first = Member(tmp_path, snapshot)
        first.merging.partition(MOVING).log.append(bytearray(RECORD), base_offset=0, leader_epoch=0)
        before = Member(tmp_path, snapshot)
        await before.live(*commands)
        log = before.merging.partition(MOVING).log
        assert log.next_offset == 0, "the log of the first stay is gone"
        log.append(bytearray(RECORD), base_offset=0, leader_epoch=0)
        after = Member(tmp_path, snapshot)
        await after.live(*commands)
        assert after.merging.partition(MOVING).log.next_offset == 1

    asyncio.run(main())
