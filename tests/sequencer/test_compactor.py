"""One node compacts: beside who mends, with room, and when disks fail or hold what is damaged."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock, patch

import pytest
from msgspec import structs

from samelog.archiver.compaction import Compactions
from samelog.config.tables.node import NodeConfig
from samelog.format import _kernels as kernels
from samelog.format.compaction import CompactedSegment
from samelog.format.errors import LogFormatError
from samelog.format.file_names import LOG, segment_name
from samelog.sequencer.compaction import compactor
from samelog.sequencer.compaction.compactor import Compactor
from samelog.sequencer.node import Node
from samelog.sequencer.raft.member_log import MemberLog
from samelog.sequencer.raft.replica import read_body
from samelog.sequencer.raft.store import RaftStore
from samelog.sequencer.recovery import begin_anew
from samelog.store.disk.disk_errors import DiskFault
from samelog.store.disk.files import OsFileSystem, StrPath
from samelog.store.merged.log import MergedLog
from tests.patience import PATIENCE_S
from tests.sequencer.cluster import RunWith, Session, offset, until
from tests.store.compacting import Kept, read_all

RECORDS = 6
NUMBER = 1
"""Of the partition."""
LEFT: list[Kept] = [(3, b"1", b"3"), (4, b"0", b"4"), (5, b"1", b"5")]
"""Of the records below, once the first two segments of two are compacted."""


@pytest.fixture(autouse=True)
def by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounds are made by the tests alone."""
    monkeypatch.setattr(compactor, "INTERVAL_S", 1e6)


async def publish(node: Node) -> None:
    """Records of two keys in turn, two in a segment."""
    session = Session("a")
    for number in range(RECORDS):
        if number in (2, 4):
            log_of(node).roll()
        data = kernels.build_batches(
            [b"%d" % number],
            keys=[b"%d" % (number % 2)],
            timestamps=1,
            batch_bytes=1 << 16,
            max_record_bytes=1 << 20,
        )
        await session.send([node], data)
        await until(lambda: offset(node) == number + 1, "merged")  # noqa: B023
    merged = node.raft.coordinator.majority_merged
    await until(lambda: merged([NUMBER]).get(NUMBER) == RECORDS, "durable on a majority")
    state = node.logs.machine.state
    settings = next(iter(state.topics.by_id.values())).settings
    settings.update({"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"})
    state.partitions.by_number[NUMBER].rolls = ((2, 1), (4, 1))


def log_of(node: Node) -> MergedLog:
    return node.logs.merging.partitions[NUMBER].log


def room_of(node: Node, size: int) -> None:
    node.logs.intake.room.set(size, promised_bytes=0, resume_at_bytes=0)


def compactions_of(node: Node) -> Compactions:
    return node.logs.machine.state.partitions.by_number[NUMBER].compactions


def is_compacted(node: Node) -> bool:
    return log_of(node).generations.number == 1


def folders(node: Node) -> list[Path]:
    """Those of compactions under way."""
    return list(Path(log_of(node).path).glob("compacting.*"))


def change_leader_epoch(node: Node, base: int) -> None:
    """Of the first batch of a segment."""
    path = Path(log_of(node).path, segment_name(base, LOG))
    data = bytearray(path.read_bytes())
    data[15] ^= 1
    path.write_bytes(data)


async def compact(node: Node, is_done: Callable[[Node], bool] = is_compacted) -> None:
    """As many rounds as it takes."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + PATIENCE_S
    while not is_done(node):
        assert loop.time() < deadline
        await node.care.compactor.look_at(NUMBER)
        await asyncio.sleep(0.01)


async def decide(node: Node) -> None:
    """Until the cluster has decided, and nothing is in place yet."""
    with patch.object(Compactor, "_follow", AsyncMock()):
        await compact(node, lambda node: compactions_of(node).clean == 4)


def test_the_newest_of_each_key_stays(tmp_path: Path, run_with: RunWith) -> None:
    async def body(nodes: list[Node]) -> None:
        await publish(nodes[0])
        room_of(nodes[0], 1 << 20)
        await compact(nodes[0])
        assert [record for record in read_all(log_of(nodes[0])) if record[0] > 2] == LEFT
        assert compactions_of(nodes[0]).clean == 4

    run_with(tmp_path, 1, body)


def test_who_has_not_what_was_decided_is_busy(tmp_path: Path, run_with: RunWith) -> None:
    """A data group that rests looks again a minute later only."""

    async def body(nodes: list[Node]) -> None:
        await publish(nodes[0])
        room_of(nodes[0], 1 << 20)
        compactor = nodes[0].care.compactor
        assert not compactor.is_busy
        await decide(nodes[0])
        with patch.object(Compactor, "_follow", AsyncMock()):
            await compactor.look()
        assert compactor.is_busy
        await compact(nodes[0])
        await compactor.look()
        assert not compactor.is_busy

    run_with(tmp_path, 1, body)


def test_who_wrote_what_was_decided_has_it(tmp_path: Path, run_with: RunWith) -> None:
    """Where one compaction follows the other, the last one is never in place for long."""

    async def body(nodes: list[Node]) -> None:
        await publish(nodes[0])
        room_of(nodes[0], 1 << 20)
        compactor = nodes[0].care.compactor
        await decide(nodes[0])
        with patch.object(Compactor, "_follow", AsyncMock()):
            await compactor.look()
        assert log_of(nodes[0]).generations.number == 0
        compactor.take_moved()
        assert compactor.complete == {NUMBER: 1}
        known = compactions_of(nodes[0])
        known.segments = [structs.replace(each, number=2) for each in known.segments]
        await compactor.look()
        assert compactor.take_moved() == set()
        assert compactor.complete == {NUMBER: 1}

    run_with(tmp_path, 1, body)


def test_nothing_is_swapped_in_while_somebody_mends(tmp_path: Path, run_with: RunWith) -> None:
    """What is got for a damaged segment would be written into the one that took its place."""
    original, found = Compactor._has_written, list[bool]()

    async def has_written(*given: Any) -> bool:
        found.append(await original(*given))
        return found[-1]

    async def body(nodes: list[Node]) -> None:
        await publish(nodes[0])
        room_of(nodes[0], 1 << 20)
        async with nodes[0].care.scrubber.mending:
            with patch.object(Compactor, "_has_written", has_written):
                rounds = asyncio.ensure_future(compact(nodes[0]))
                await until(lambda: True in found, "nothing but the swap is left")
            for _ in range(100):
                await asyncio.sleep(0)
            assert not is_compacted(nodes[0])
        await rounds

    run_with(tmp_path, 1, body)


def test_without_room_nothing_is_written(tmp_path: Path, run_with: RunWith) -> None:
    async def body(nodes: list[Node]) -> None:
        await publish(nodes[0])
        room_of(nodes[0], 100)
        await compact(nodes[0], lambda node: compactions_of(node).order is not None)
        await nodes[0].care.compactor.look_at(NUMBER)
        assert not folders(nodes[0])
        room_of(nodes[0], 1 << 20)
        await compact(nodes[0])

    run_with(tmp_path, 1, body)


def test_damage_makes_nothing_go(tmp_path: Path, run_with: RunWith) -> None:
    """And whoever mends is told where."""

    async def body(nodes: list[Node]) -> None:
        await publish(nodes[0])
        room_of(nodes[0], 1 << 20)
        change_leader_epoch(nodes[0], 2)
        told: list[int] = []
        here = nodes[0].logs.merging.partitions[NUMBER]
        with (
            patch.object(type(here), "suspect", lambda self, base: told.append(base)),
            pytest.raises(LogFormatError, match="not what was merged"),
        ):
            await compact(nodes[0])
        assert told == [2]
        assert not is_compacted(nodes[0])
        assert log_of(nodes[0]).number_of(2) == 0

    run_with(tmp_path, 1, body)


def test_what_was_decided_survives_a_restart_of_all(tmp_path: Path, run_with: RunWith) -> None:
    """Nobody had it in place yet."""

    async def body(nodes: list[Node]) -> None:
        await publish(nodes[0])
        room_of(nodes[0], 1 << 20)
        await decide(nodes[0])
        assert not is_compacted(nodes[0])
        nodes[0].logs.merging.reopen(NUMBER, "as after a restart")
        room_of(nodes[0], 1 << 20)
        await compact(nodes[0])
        assert [record for record in read_all(log_of(nodes[0])) if record[0] > 2] == LEFT

    run_with(tmp_path, 1, body)


def test_who_goes_on_alone_has_the_segments_that_are_here(
    tmp_path: Path, run_with: RunWith
) -> None:
    """What the others had of a compaction is lost with them, and must be wanted by nobody."""
    configs: list[NodeConfig] = []

    async def body(nodes: list[Node]) -> None:
        await publish(nodes[0])
        room_of(nodes[0], 1 << 20)
        await decide(nodes[0])
        assert compactions_of(nodes[0]).segments
        assert not is_compacted(nodes[0])
        await nodes[0].raft.snapshotter.take()
        configs.append(nodes[0].member.config)

    run_with(tmp_path, 1, body)
    begin_anew(OsFileSystem(), configs[0], kind="test", wall_ms=1)
    assert segments_known_to(configs[0]) == []


def segments_known_to(config: NodeConfig) -> list[CompactedSegment]:
    """To the Raft files of a stopped node."""
    directory = os.path.join(config.data, "raft")
    log = MemberLog.open(OsFileSystem(), directory, cluster=config.cluster, node=0)
    snapshot = RaftStore.open(OsFileSystem(), log).snapshot
    log.close()
    machine, _ = read_body(snapshot.data if snapshot else b"")
    return machine.state.partitions.by_number[NUMBER].compactions.segments


class BadNames(OsFileSystem):
    """No segment gets its name."""

    def rename(self, source: StrPath, target: StrPath) -> None:
        if os.fspath(target).endswith(LOG):
            raise DiskFault(os.fspath(target), "rename", 5)
        super().rename(source, target)


def test_a_swap_that_fails_half_way_is_finished_at_once(tmp_path: Path, run_with: RunWith) -> None:
    async def body(nodes: list[Node]) -> None:
        await publish(nodes[0])
        room_of(nodes[0], 1 << 20)
        await decide(nodes[0])
        before = log_of(nodes[0])
        before.generations._fs = BadNames()
        await nodes[0].care.compactor.look_at(NUMBER)
        assert log_of(nodes[0]) is not before
        assert [record for record in read_all(log_of(nodes[0])) if record[0] > 2] == LEFT

    run_with(tmp_path, 1, body)
