"""The keeper of one partition, over a log in a directory and with a clock of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from samelog.runtime.at_work import AtWork
from samelog.sequencer.host import Host
from samelog.sequencer.keys import keeper
from samelog.sequencer.keys.keeper import KeeperParts, KeyKeeper
from samelog.sequencer.keys.key_filter import KeyFilter
from samelog.sequencer.state.commands import CreateTopicCommand
from samelog.sequencer.state.machine import StateMachine
from samelog.store.disk.files import OsFileSystem
from samelog.store.keys.key_store import FOLDER, open_keys
from samelog.store.merged.log import MergedLog
from tests.keys.test_key_filter import batch
from tests.store.storage import open_merged


async def at_once(work: Callable[..., Any], /, *arguments: Any) -> Any:
    return work(*arguments)


class Kept:
    """A follower's keeper; what it takes of its replica that this does not need is left out."""

    def __init__(self, path: Path) -> None:
        self.machine = StateMachine()
        self.machine.apply(CreateTopicCommand("t", "t", 1, {"dedup.key": "first"}, 0))
        self.log: MergedLog = open_merged(path)
        self.now = 0.0
        self.transferred: list[int] = []
        self.here = SimpleNamespace(log=self.log, fault=None, topic="t", index=0)
        self.merging = SimpleNamespace(partitions={1: self.here})
        self.group = SimpleNamespace(is_leader=False, raft=SimpleNamespace(voters=[1]))
        self.filter = KeyFilter(self.machine, lambda number: True)
        self.keeper = KeyKeeper(self._parts())

    def _parts(self) -> KeeperParts:
        return KeeperParts(
            fs=OsFileSystem(),
            host=Host(in_thread=at_once),
            clock=cast(Any, SimpleNamespace(now=lambda: self.now)),
            machine=self.machine,
            merging=cast(Any, self.merging),
            group=cast(Any, self.group),
            coordinator=cast(Any, SimpleNamespace(plan_again=lambda number: None)),
            proposer=cast(Any, None),
            filter=self.filter,
            send=lambda node, message: None,
            ask=lambda: [2] if self.group.is_leader else [],
            number=1,
            at_work=AtWork(),
        )

    def append(self, *keys: bytes) -> None:
        data = bytearray(batch(*keys))
        self.log.append(data, base_offset=self.log.next_offset, leader_epoch=1)

    def sync(self) -> None:
        for file in self.log.take_dirty():
            file.datasync()
        self.log.mark_durable(self.log.next_offset)

    def look(self) -> None:
        asyncio.run(self.keeper.look())


def test_only_what_is_durable_is_indexed(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "log")
    kept.append(b"a", b"b")
    kept.look()
    known = kept.filter.partitions[1]
    assert (known.read_to, known.store.end) == (2, 0)
    kept.sync()
    kept.append(b"c")
    kept.look()
    assert (known.read_to, known.store.end) == (3, 2)
    assert sorted(known.find([b"\x00a", b"\x00c", b"\x00d"])) == [b"\x00a", b"\x00c"]
    kept.keeper.close()


def test_an_index_beyond_its_log_is_made_anew(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "log")
    kept.append(b"a")
    kept.sync()
    ahead = open_keys(OsFileSystem(), f"{kept.log.path}/{FOLDER}")
    ahead.advance([(b"\x00lost", 7)], 8, {0: 1})
    ahead.close()
    kept.look()
    known = kept.filter.partitions[1]
    assert known.store.end == 1
    assert known.find([b"\x00lost", b"\x00a"]) == {b"\x00a": 0}
    kept.keeper.close()


def test_a_leader_that_cannot_know_gives_the_leadership_away(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "log")
    kept.log.start_at(10, checksum=0)
    kept.append(b"a")
    partition = kept.machine.state.partitions[1]
    partition.next_offset = 11
    kept.group.is_leader = True
    kept.group.pump = lambda: None
    kept.group.raft = SimpleNamespace(
        voters=[1, 2],
        counts=lambda voter: True,
        progress=lambda voter: SimpleNamespace(match=5),
        transfer_leadership=lambda to, now: kept.transferred.append(to),
    )
    kept.keeper._fetches._ask = list  # no peer answers
    kept.look()
    assert kept.keeper.troubles
    assert not kept.transferred
    kept.now += keeper.GIVE_AWAY_AFTER_S + 1
    kept.look()
    assert kept.transferred == [2]
    kept.keeper.close()
