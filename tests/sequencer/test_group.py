"""The driver of a Raft group: what a failed sync leaves of a node's promises, and what groups of
one member have in common.
"""

from __future__ import annotations

import asyncio
import errno
import random
from collections.abc import Iterable, Sequence
from math import inf
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from samelog.consensus import Effects, Entry, HardState, HistoryConflict, Raft, RaftConfig, Snapshot
from samelog.consensus.effects import NOTHING
from samelog.runtime.clock import ManualClock
from samelog.sequencer.raft.group import CommitNotKept, ProposalLost, RaftGroup
from samelog.sequencer.raft.member_log import MemberLog
from samelog.sequencer.raft.store import RaftStore
from samelog.sequencer.state.commands import encode_commands
from samelog.sequencer.state.tables.sessions import RetireSessionCommand
from samelog.store.disk.append_file import AppendFile
from samelog.store.disk.disk_errors import NoSpace
from samelog.store.disk.files import DiskFault, File, OsFileSystem
from tests.runtime.peers import until


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
        self.rounds = 0

    async def sync(self, files: Iterable[File]) -> None:
        if not list(files):
            return
        self.rounds += 1
        await asyncio.sleep(0)
        if self.fails:
            self.fails = False
            raise DiskFault("wal", "sync", errno.EIO)


class NoBytes:
    """Of entries that name none."""

    sync_always = True

    def __init__(self, syncer: Syncer) -> None:
        self._syncer = syncer
        self.rounds_s: list[float] = []
        self.synced: list[int] = []
        """Indexes of entries whose bytes were synced."""

    def is_kept(self, entry: Entry) -> bool:
        return True

    async def sync(self, entries: Sequence[Entry], also: list[File]) -> None:
        self.synced += [entry.index for entry in entries]
        await self._syncer.sync(also)


def open_log(path: Path) -> MemberLog:
    return MemberLog.open(OsFileSystem(), str(path / "raft"), cluster="c", node=0)


def make_group(
    log: MemberLog,
    applied: Applied,
    syncer: Syncer,
    group: int = 0,
    *,
    clock: ManualClock | None = None,
) -> RaftGroup:
    store = RaftStore.open(OsFileSystem(), log, group)
    raft = Raft(
        0,
        (0,),
        config=RaftConfig(),
        random=random.Random(1),
        now=0.0,
        snapshot=None,
        entries=store.entries,
        hard_state=store.hard_state,
    )
    no_bytes: Any = NoBytes(syncer)
    return RaftGroup(
        raft,
        store,
        clock=clock or ManualClock(now=1.0),
        send=lambda to, messages: None,
        applier=applied,
        entry_bytes=no_bytes,
        on_fault=lambda error: None,
    )


def test_nothing_is_committed_behind_a_failed_sync(tmp_path: Path) -> None:
    """Also when somebody else had asked for the sync that failed."""
    applied, syncer = Applied(), Syncer()

    async def main() -> None:
        group = make_group(open_log(tmp_path), applied, syncer)
        saver = asyncio.ensure_future(group.run_saver())
        group.tick()
        await until(lambda: group.is_leader)
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


def test_a_save_without_room_waits_and_later_ones_behind_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node continues by itself when there is room."""
    applied, faults = Applied(), list[Exception]()

    def full(self: AppendFile, data: bytes) -> int:
        raise NoSpace("wal", "write", errno.ENOSPC)

    async def main() -> None:
        group = make_group(open_log(tmp_path), applied, Syncer())
        group._on_fault = faults.append
        saver = asyncio.ensure_future(group.run_saver())
        group.tick()
        await until(lambda: group.is_leader)
        with monkeypatch.context() as patch:
            patch.setattr(AppendFile, "append", full)
            _, first = group.ask([RetireSessionCommand("s")])
            _, second = group.ask([RetireSessionCommand("t")])
            group.pump()
            assert group.raft.applied == 1
            assert not first.done()
        await second
        assert first.done()
        assert applied.indexes == [1, 2, 3]
        saver.cancel()

    asyncio.run(main())
    assert not faults
    reopened = RaftStore.open(OsFileSystem(), open_log(tmp_path), 0)
    assert [entry.index for entry in reopened.entries] == [1, 2, 3]


def test_entries_that_cannot_be_applied_without_room_are_applied_once_later(tmp_path: Path) -> None:
    """Before files go, it must be durable that the entry that removes them is committed."""
    faults = list[Exception]()

    class Refusing(Applied):
        refusals = 2

        def apply(self, entry: Entry) -> list[Any]:
            if entry.index == 3 and self.refusals:
                self.refusals -= 1
                raise CommitNotKept("wal", "write", errno.ENOSPC)
            return super().apply(entry)

    async def main() -> None:
        applied = Refusing()
        group = make_group(open_log(tmp_path), applied, Syncer())
        group._on_fault = faults.append
        saver = asyncio.ensure_future(group.run_saver())
        group.tick()
        await until(lambda: group.is_leader)
        _, first = group.ask([RetireSessionCommand("s")])
        _, second = group.ask([RetireSessionCommand("t")])
        await asyncio.gather(first, second)
        assert applied.indexes == [1, 2, 3]
        assert not applied.refusals
        saver.cancel()

    asyncio.run(main())
    assert not faults


def test_a_save_without_room_sends_what_needs_no_save_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Answers to what was sent again would have it sent again."""
    sent: list[int] = []

    def full(self: AppendFile, data: bytes) -> int:
        raise NoSpace("wal", "write", errno.ENOSPC)

    async def main() -> None:
        group = make_group(open_log(tmp_path), Applied(), Syncer())
        group._send = lambda to, messages: sent.append(to)
        state = HardState(1, 0, 0)
        saved = replace(NOTHING, send=[(1, "append")], hard_state=state, must_sync=True)
        waiting = [saved]
        core: Any = SimpleNamespace(
            touched=True,
            take_effects=lambda: waiting.pop() if waiting else NOTHING,
            next_deadline=lambda: inf,
        )
        group.raft = core
        with monkeypatch.context() as patch:
            patch.setattr(AppendFile, "append", full)
            for _ in range(3):
                group.pump()
            assert group._store.unwritten is not None
        group.pump()
        assert group._store.unwritten is None
        group._room.cancel()

    asyncio.run(main())
    assert sent == [1]


def test_what_a_restarted_node_keeps_counts_once_its_bytes_are_durable(tmp_path: Path) -> None:
    """The process before may have written them, and was killed before it synced them."""
    commands = encode_commands([RetireSessionCommand("s")])

    async def main() -> None:
        log = open_log(tmp_path)
        written = replace(
            NOTHING,
            entries=[Entry(index, 1, commands) for index in (1, 2, 3)],
            hard_state=HardState(1, 0, 1),
        )
        RaftStore.open(OsFileSystem(), log, 0).write(written)
        log.sync()
        applied = Applied()
        group = make_group(open_log(tmp_path), applied, Syncer())
        group.begin()
        assert (group.raft.durable_index, applied.indexes) == (1, [1])
        assert group.raft.saves.on_disk == 3  # or it would seem to have forgotten the others
        saver = asyncio.ensure_future(group.run_saver())
        await until(lambda: group.raft.durable_index == 3)
        assert group.entry_bytes.synced == [2, 3]  # type: ignore[attr-defined]
        saver.cancel()

    asyncio.run(main())


def test_a_node_without_room_for_what_is_committed_forgets_nothing_at_its_start(
    tmp_path: Path,
) -> None:
    """What it has acknowledged may name inputs that the entries it could not apply open."""
    commands = encode_commands([RetireSessionCommand("s")])

    class Refusing(Applied):
        def apply(self, entry: Entry) -> list[Any]:
            raise CommitNotKept("wal", "write", errno.ENOSPC)

    async def main() -> None:
        log = open_log(tmp_path)
        entries = [Entry(index, 1, commands) for index in (1, 2, 3)]
        RaftStore.open(OsFileSystem(), log, 0).write(
            replace(NOTHING, entries=entries, hard_state=HardState(1, 0, 1))
        )
        log.sync()
        group = make_group(open_log(tmp_path), Refusing(), Syncer())
        group.entry_bytes.is_kept = lambda entry: False  # type: ignore[method-assign]
        with pytest.raises(NoSpace):
            group.begin()
        group._room.cancel()
        assert group.raft.last_index == 3

    asyncio.run(main())


async def two_leaders(path: Path, applied: list[Applied], syncer: Syncer) -> list[RaftGroup]:
    """Two groups of one member, each with this one voter."""
    log = open_log(path)
    groups = [make_group(log, applied[number], syncer, number) for number in range(2)]
    for group in groups:
        group.tick()
        while not group.is_leader:
            await group.sync_now()
            group._finish(group._saves.pop(0)[0])
            group.pump()
    return groups


def test_one_sync_makes_the_entries_of_all_groups_durable(tmp_path: Path) -> None:
    """The second group finds that there is nothing to sync any more."""
    applied, syncer = [Applied(), Applied()], Syncer()

    async def main() -> None:
        groups = await two_leaders(tmp_path, applied, syncer)
        before = syncer.rounds
        for group in groups:
            group.propose([RetireSessionCommand("s")])
        for group in groups:
            await group._sync(())
            group._finish(group._saves.pop(0)[0])
            group.pump()
        assert syncer.rounds == before + 1
        assert [len(each.indexes) for each in applied] == [2, 2]

    asyncio.run(main())


def test_a_failed_sync_of_one_group_fails_all(tmp_path: Path) -> None:
    """What another one wrote meanwhile may be lost with it, whoever asks next."""
    applied, syncer = [Applied(), Applied()], Syncer()

    async def main() -> None:
        groups = await two_leaders(tmp_path, applied, syncer)
        for group in groups:
            group.propose([RetireSessionCommand("s")])
        syncer.fails = True
        for group in groups:
            with pytest.raises(DiskFault):
                await group.sync_now()
        assert not any(group.is_leader for group in groups)
        assert [len(each.indexes) for each in applied] == [1, 1]

    asyncio.run(main())


def test_who_waits_for_an_entry_hears_of_the_end_of_the_replica_and_of_the_term(
    tmp_path: Path,
) -> None:
    """A group of one may step down and lead again in one step: its older proposals are lost."""
    applied, syncer = [Applied(), Applied()], Syncer()

    async def main() -> None:
        group, other = await two_leaders(tmp_path, applied, syncer)
        _, kept = group.ask([RetireSessionCommand("s")])
        lost: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
        group._waiting[1000] = group.raft.term - 1, lost
        group._fail_lost_proposals()
        assert isinstance(lost.exception(), ProposalLost)
        assert not kept.done()
        reads = asyncio.ensure_future(other.read_index())
        _, waits = other.ask([RetireSessionCommand("s")])
        other.end()
        assert isinstance(waits.exception(), ProposalLost)
        group.halt(HistoryConflict("it differs"))
        assert isinstance(kept.exception(), ProposalLost)
        await reads

    asyncio.run(main())


def test_a_round_ends_with_its_sync_and_not_with_its_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Followers may hold an entry back for long: that does not make it usual."""
    clock, applied = ManualClock(now=1.0), Applied()

    async def sync(self: Syncer, files: Iterable[File]) -> None:
        await asyncio.sleep(0)
        clock.advance(0.02)

    def finish(self: RaftGroup, effects: Effects) -> None:
        clock.advance(5.0)
        original(self, effects)

    original = RaftGroup._finish
    monkeypatch.setattr(Syncer, "sync", sync)

    async def main() -> None:
        group = make_group(open_log(tmp_path), applied, Syncer(), clock=clock)
        saver = asyncio.ensure_future(group.run_saver())
        group.tick()
        while not group.is_leader:  # noqa: ASYNC110
            await asyncio.sleep(0)
        monkeypatch.setattr(RaftGroup, "_finish", finish)
        for count in range(2, 6):
            group.propose([RetireSessionCommand("s")])
            while len(applied.indexes) < count:  # noqa: ASYNC110
                await asyncio.sleep(0)
        saver.cancel()
        assert max(group.rounds_s) == pytest.approx(0.02)

    asyncio.run(main())
