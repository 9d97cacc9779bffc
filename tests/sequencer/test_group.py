"""The driver of a Raft group: what a failed sync leaves of a node's promises."""

from __future__ import annotations

import asyncio
import errno
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from samelog.consensus import Entry, HardState, Raft, RaftConfig, Snapshot
from samelog.runtime.clock import ManualClock
from samelog.sequencer.raft.group import RaftGroup
from samelog.sequencer.raft.store import RaftStore
from samelog.sequencer.state.commands import RetireSessionCommand
from samelog.store.disk.files import DiskFault, File, OsFileSystem


class Applied:
    """Notes what is applied. Implements group.Applier."""

    def __init__(self) -> None:
        self.indexes: list[int] = []
        self.level = 0

    def apply(self, entry: Entry) -> list[Any]:
        self.indexes.append(entry.index)
        return []

    def install(self, snapshot: Snapshot) -> None:
        raise NotImplementedError

    def role_changed(self) -> None:
        pass


class Syncer:
    """Fails the next sync, once; a failing one takes a while, as on a dying disk."""

    def __init__(self) -> None:
        self.fails = False

    async def sync(self, files: Iterable[File]) -> None:
        await asyncio.sleep(0)
        if self.fails:
            self.fails = False
            raise DiskFault("wal", "sync", errno.EIO)


class NoBytes:
    """Of entries that name none."""

    sync_always = True

    def __init__(self, syncer: Syncer) -> None:
        self._syncer = syncer

    async def sync(self, entries: object, also: list[File]) -> None:
        await self._syncer.sync(also)


def make_group(path: Path, applied: Applied, syncer: Syncer) -> RaftGroup:
    store = RaftStore.open(OsFileSystem(), str(path / "raft" / "0"), cluster="c", node=0)
    raft = Raft(
        0,
        (0,),
        config=RaftConfig(),
        random=random.Random(1),
        now=0.0,
        snapshot=None,
        entries=[],
        hard_state=HardState(0, None, 0),
    )
    no_bytes: Any = NoBytes(syncer)
    return RaftGroup(
        raft,
        store,
        clock=ManualClock(now=1.0),
        send=lambda to, messages: None,
        applier=applied,
        entry_bytes=no_bytes,
        on_fault=lambda error: None,
    )


def test_nothing_is_committed_behind_a_failed_sync(tmp_path: Path) -> None:
    """Also when somebody else had asked for the sync that failed."""
    applied, syncer = Applied(), Syncer()

    async def main() -> None:
        group = make_group(tmp_path, applied, syncer)
        saver = asyncio.ensure_future(group.run_saver())
        group.tick()
        while not group.is_leader:  # noqa: ASYNC110 - the group tells nobody
            await asyncio.sleep(0)
        before = list(applied.indexes)
        syncer.fails = True
        group.propose([RetireSessionCommand("s")])
        with pytest.raises(DiskFault):
            await group.sync_now()
        with pytest.raises(DiskFault):
            await saver
        assert applied.indexes == before
        assert not group.is_leader

    asyncio.run(main())
