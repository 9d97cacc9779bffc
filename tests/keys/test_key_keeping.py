"""The keeper of one partition, over a log in a directory and with a clock of its own."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from samelog.format.errors import CorruptLog
from samelog.placement.values import PartitionPass, PassStage
from samelog.runtime.at_work import AtWork
from samelog.sequencer.cluster.archiving import MemberViews
from samelog.sequencer.cluster.repair.merged import NowhereElse
from samelog.sequencer.host import Host
from samelog.sequencer.keys import coverage, fetching, keeper
from samelog.sequencer.keys.coverage import KeyCoverage
from samelog.sequencer.keys.fetching import Fetched, IndexHolders, KeyFetches
from samelog.sequencer.keys.keeper import KeeperParts, KeyKeeper
from samelog.sequencer.keys.key_filter import KeyFilter
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.tables.keys import KeyedPartition
from samelog.sequencer.state.tables.topics import CreateTopicCommand
from samelog.store.disk.disk_errors import DiskFault
from samelog.store.disk.files import OsFileSystem
from samelog.store.keys.key_store import FOLDER, KeyStore, open_keys
from samelog.store.merged.log import MergedLog
from samelog.wire.peer_messages import KeysCovered
from tests.keys.looking import at_once, offsets
from tests.keys.test_key_filter import batch
from tests.store.storage import open_merged


class Elsewhere(NowhereElse):
    """The members of another group from which the partition comes."""

    def __init__(self) -> None:
        self.there: list[int] = []

    def members(self, number: int) -> Sequence[int]:
        return self.there

    def group(self, number: int) -> int:
        return 7


class Kept:
    """A follower's keeper; what it takes of its replica that this does not need is left out."""

    def __init__(self, path: Path) -> None:
        self.machine = StateMachine()
        self.machine.apply(CreateTopicCommand("t", "t", 1, {"dedup.key": "first"}, 0))
        self.log: MergedLog = open_merged(path)
        self.now, self.leader = 0.0, 2
        self.clock = cast(Any, SimpleNamespace(now=lambda: self.now))
        self.elsewhere = Elsewhere()
        self.told: list[tuple[int, KeysCovered]] = []
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
            clock=self.clock,
            machine=self.machine,
            merging=cast(Any, self.merging),
            group=cast(Any, self.group),
            coordinator=cast(Any, SimpleNamespace(plan_again=lambda number: None)),
            proposer=cast(Any, None),
            filter=self.filter,
            fetches=KeyFetches(1, lambda node, message: None, self.holders, at_once),
            ask=self.ask,
            elsewhere=self.elsewhere,
            coverage=KeyCoverage(self.clock, lambda: self.leader, self.tell),
            number=1,
            at_work=AtWork(),
        )

    def ask(self) -> list[int]:
        return [2] if self.group.is_leader else []

    def holders(self, number: int) -> IndexHolders:
        return fetching.holders_of(1, self.ask, self.elsewhere, number)

    def tell(self, node: int, message: KeysCovered) -> None:
        self.told.append((node, message))

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
    assert sorted(offsets(known, [b"\x00a", b"\x00c", b"\x00d"])) == [b"\x00a", b"\x00c"]
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
    assert offsets(known, [b"\x00lost", b"\x00a"]) == {b"\x00a": 0}
    kept.keeper.close()


def lead(kept: Kept) -> None:
    """Let the log begin at offset 10, and its node lead another voter."""
    kept.log.start_at(10, checksum=0)
    kept.append(b"a")
    kept.machine.state.partitions.by_number[1].next_offset = 11
    kept.group.is_leader = True
    kept.group.pump = lambda: None
    kept.group.raft = SimpleNamespace(
        voters=[1, 2],
        counts=lambda voter: True,
        progress=lambda voter: SimpleNamespace(match=5),
        transfer_leadership=lambda to, now: kept.transferred.append(to),
    )


def test_a_leader_that_cannot_know_gives_the_leadership_away(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "log")
    lead(kept)
    kept.keeper._fetches._holders = lambda number: (1, ())  # no peer answers
    kept.look()
    assert kept.keeper.troubles
    assert not kept.transferred
    kept.now += keeper.GIVE_AWAY_AFTER_S + 1
    kept.look()
    assert kept.transferred == [2]
    kept.now += keeper.GIVE_AWAY_AFTER_S + 1
    kept.look()
    assert kept.transferred == [2], "where all lack keys, one has to get them"
    kept.keeper.close()


def test_a_leader_gives_the_leadership_away_while_it_fetches(tmp_path: Path) -> None:
    async def body() -> None:
        kept, never = Kept(tmp_path / "log"), asyncio.Event()
        lead(kept)

        async def fetch(*_: object) -> None:
            await never.wait()

        kept.keeper._fetches.fetch = fetch  # type: ignore[assignment]
        for _ in range(2):
            looking = asyncio.ensure_future(kept.keeper.look())
            for _ in range(10):
                await asyncio.sleep(0)
            assert looking.done(), "a round does not wait for a peer"
            kept.now += keeper.GIVE_AWAY_AFTER_S
        assert kept.transferred == [2]
        kept.keeper.close()
        await asyncio.sleep(0)

    asyncio.run(body())


def test_what_no_index_has_is_not_archived(tmp_path: Path) -> None:
    """All members had archived records whose keys none had read: the partition stood still."""
    kept = Kept(tmp_path / "log")
    others = 2
    coordinator = SimpleNamespace(
        majority_merged=lambda numbers: dict.fromkeys(numbers, 2),
        majority_indexed=lambda number: others,
    )
    nothing = cast(Any, None)
    views = MemberViews(
        kept.machine,
        nothing,
        cast(Any, coordinator),
        nothing,
        nothing,
        cluster=nothing,
        peers=nothing,
        indexed=kept.filter.indexed,
    )
    kept.append(b"a", b"b")
    assert views.majority_merged([1, 2]) == {1: 0, 2: 2}
    kept.look()
    assert views.majority_merged([1]) == {1: 0}, "the keys are in memory only"
    kept.sync()
    kept.now += keeper.STORE_AFTER_S
    kept.look()
    assert views.majority_merged([1]) == {1: 2}
    assert (kept.keeper.take_moved(), kept.keeper.indexed) == ({1}, {1: 2})
    others = 1
    assert views.majority_merged([1]) == {1: 1}, "the only member with the keys may be lost"
    kept.filter.partitions[1].fault = CorruptLog("keys", 0, "rotten")
    assert views.majority_merged([1]) == {1: 0}
    kept.keeper.close()


def test_of_a_partition_that_comes_its_old_group_is_asked_and_the_leader_is_told(
    tmp_path: Path,
) -> None:
    """A leader that has not fetched all keys yet leads on: it plans nothing of it anyway."""
    kept, asked = Kept(tmp_path / "log"), list[IndexHolders]()
    lead(kept)
    kept.elsewhere.there = [4, 5]
    kept.machine.state.transfers.passing = PartitionPass(9, 1, PassStage.COPYING)
    found = Fetched({}, is_different=False)

    async def fetch(number: int, store: KeyStore, below: int, keyed: KeyedPartition) -> Fetched:
        asked.append(kept.keeper._fetches._holders(number))
        return found

    kept.keeper._fetches.fetch = fetch  # type: ignore[method-assign]

    async def rounds() -> None:
        for _ in range(3):
            await kept.keeper.look()
            await asyncio.sleep(0)
            kept.now += keeper.GIVE_AWAY_AFTER_S

    asyncio.run(rounds())
    assert asked == [(7, [4, 5])]
    assert kept.told == [
        (2, KeysCovered(1, 0)),
        (2, KeysCovered(1, 11)),
        (2, KeysCovered(1, 11)),
    ]
    assert not kept.transferred
    kept.elsewhere.there = []
    kept.look()
    assert len(kept.told) == 3, "it has come"
    kept.keeper.close()


def test_what_a_member_said_long_ago_counts_no_more(tmp_path: Path) -> None:
    """Its disk may be another one since."""
    kept = Kept(tmp_path / "log")
    covers = kept.keeper.coverage.has_covered
    kept.keeper.receive(3, KeysCovered(1, 20))
    assert [covers(3, 1, 20), covers(3, 1, 21), covers(3, 2, 20), covers(4, 1, 0)] == [
        True,
        False,
        False,
        False,
    ]
    kept.now += coverage.COUNTS_S
    assert not covers(3, 1, 20)


def test_what_is_archived_and_counts_no_more_is_not_fetched(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "log")
    lead(kept)
    kept.machine.state.keys.by_partition[1].floor = 10
    kept.look()
    kept.look()
    known = kept.filter.partitions[1]
    assert (known.covered_to, offsets(known, [b"\x00a"])) == (11, {b"\x00a": 10})
    assert not kept.keeper.troubles
    kept.keeper.close()


def test_an_index_that_rots_while_it_is_used_is_made_anew(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "log")
    kept.append(b"a")
    kept.sync()
    kept.look()
    known = kept.filter.partitions[1]
    known.fault = CorruptLog("keys", 0, "rotten")
    assert not kept.filter.is_ready(1, 1)
    kept.look()
    assert 1 not in kept.filter.partitions
    kept.look()
    again = kept.filter.partitions[1]
    assert again is not known
    assert offsets(again, [b"\x00a"]) == {b"\x00a": 0}
    kept.keeper.close()


def test_an_index_that_a_disk_does_not_give_stays_and_is_tried_again(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "log")
    kept.append(b"a")
    kept.sync()
    kept.now += keeper.STORE_AFTER_S
    kept.look()
    kept.filter.partitions[1].fault = DiskFault("keys", "read", errno.EIO)
    kept.look()
    assert 1 not in kept.filter.partitions
    assert any("cannot read" in each for each in kept.keeper.troubles)
    kept.now += keeper.AGAIN_AFTER_S
    kept.look()
    assert not kept.keeper.troubles
    assert offsets(kept.filter.partitions[1], [b"\x00a"]) == {b"\x00a": 0}
    kept.keeper.close()
