"""Compacted and keyed partitions move from group 0 to data groups, and on, in real nodes."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from samelog.format import _kernels as kernels
from samelog.format.compaction import CompactedSegment
from samelog.placement.changes import WantGroup
from samelog.replicator.interfaces import HeldElsewhere
from samelog.sequencer.compaction import compactor
from samelog.sequencer.data_groups.intake import RoutedIntake
from samelog.sequencer.group_replica import GroupReplica
from samelog.sequencer.keys import keeper
from samelog.sequencer.node import Node
from samelog.sequencer.state.tables import keys as key_table
from samelog.sequencer.state.tables.placement import ChangePlacement
from samelog.sequencer.state.tables.topics import CreateTopicCommand
from samelog.store.merged.log import MergedLog
from tests.sequencer.cluster import RunWith, Session, leader_of, taken, until
from tests.sequencer.test_data_groups import make_groups
from tests.store.compacting import Kept, read_all

SEGMENT_BYTES = 1 << 16
VALUE_BYTES = 20_000
KEYS, RECORDS = 3, 12
KEYED = {
    "dedup.key": "first",
    "segment.bytes": str(SEGMENT_BYTES),
    "retention.bytes": str(2 * SEGMENT_BYTES),
}
COMPACTED = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0",
    "segment.bytes": str(SEGMENT_BYTES),
}


class Publisher(Session):
    """Sends to the members that have the partition now."""

    async def open(self, node: Node, *, run: int = 0) -> Any:
        await self.open_run(node, run=run)
        return await routed(node).open_input(
            identity="samelog://publisher/x",
            session=self.name,
            run_id=self.run_id,
            topic=self.topic,
            partition=0,
        )

    async def send(self, nodes: list[Node], data: bytes, *, run: int = 0) -> None:
        start = len(self.data)
        self.data += data
        for node in nodes:
            with suppress(HeldElsewhere):
                opened = await self.open(node, run=run)
                await taken(routed(node).append(opened.input, run, 0, start, data))


def routed(node: Node) -> RoutedIntake:
    return RoutedIntake(node.logs.intake, node.logs.machine, node.data_groups, node.peers.presence)


def value(number: int) -> bytes:
    return b"%06d" % number * (VALUE_BYTES // 6)


def record(number: int, key: int) -> bytes:
    """One batch of one record."""
    return kernels.build_batches(
        [value(number)],
        keys=[b"%d" % key],
        timestamps=1,
        batch_bytes=1 << 16,
        max_record_bytes=1 << 20,
    )


async def create(nodes: list[Node], settings: dict[str, str]) -> int:
    """The topic `t`, of one partition: its number."""
    leader = await leader_of(nodes)
    command = CreateTopicCommand(uuid.uuid4().hex, "t", 1, settings, 1)
    await leader.raft.proposer.propose(command)
    await until(
        lambda: all(each.logs.machine.state.topics.named("t") for each in nodes), "the topic"
    )
    topic = leader.logs.machine.state.topics.named("t")
    assert topic is not None
    return topic.partition_numbers[0]


def replica(node: Node, group: int) -> GroupReplica | None:
    return node.data_groups.replica_of(group)


def log_in(node: Node, group: int, number: int) -> MergedLog | None:
    """What a member's replica of a group has of the partition."""
    there = replica(node, group)
    found = None if there is None else there.logs.merging.partitions.get(number)
    return None if found is None else found.log


def every(nodes: list[Node], look: Callable[[Node], object]) -> Callable[[], bool]:
    return lambda: all(map(look, nodes))


async def publish(
    nodes: list[Node], group: int, numbers: range, session: Publisher, *, keys: int = KEYS
) -> None:
    """Records with these numbers: each is merged before the next one is sent, so that segments are
    closed between them.
    """
    topic = nodes[0].logs.machine.state.topics.named("t")
    assert topic is not None
    for number in numbers:
        await session.send(nodes, record(number, number % keys))
        await reach(nodes, group, topic.partition_numbers[0], number + 1, enough=any)


async def reach(
    nodes: list[Node],
    group: int,
    number: int,
    end: int,
    enough: Callable[[Iterable[bool]], bool] = all,
) -> None:
    """Wait until the replicas of a group, or one of them, have merged so much."""
    await until(lambda: enough(end_of(node, group, number) == end for node in nodes), f"{end}")


def end_of(node: Node, group: int, number: int) -> int:
    log = log_in(node, group, number)
    return -1 if log is None else log.next_offset


async def move(nodes: list[Node], number: int, group: int) -> None:
    """Have the partition moved to a group, and wait for it."""
    leader = await leader_of(nodes)
    await leader.raft.proposer.propose(ChangePlacement(-1, [WantGroup(number, group)]))

    def is_there(node: Node) -> bool:
        table = node.cluster.placement
        return table.group_of(number) == group and not table.tasks

    await until(every(nodes, is_there), f"it is in group {group}")


def generations(node: Node, group: int, number: int) -> list[CompactedSegment]:
    log = log_in(node, group, number)
    return [] if log is None else log.generations.segments


def records(node: Node, group: int, number: int) -> list[Kept]:
    log = log_in(node, group, number)
    assert log is not None
    return read_all(log)


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compactor, "INTERVAL_S", 0.1)
    monkeypatch.setattr(key_table, "BLOCK_RECORDS", 4)
    monkeypatch.setattr(keeper, "INTERVAL_S", 0.05)
    monkeypatch.setattr(keeper, "STORE_AFTER_S", 0.1)


def newest(found: list[Kept]) -> dict[bytes | None, bytes | None]:
    """What a reader knows at the end."""
    return {key: value for _, key, value in found}


def is_as_agreed(node: Node, group: int, number: int) -> bool:
    """Whether a member has the segments that the group's state names, to the byte."""
    there, log = replica(node, group), log_in(node, group, number)
    if there is None or log is None:
        return False
    agreed = there.logs.machine.state.partitions.by_number[number].compactions.segments
    if not agreed or log.generations.segments != agreed:
        return False
    files = [log.read(each.base, 0, each.sealed.size) for each in agreed]
    return [hashlib.sha256(data).digest() for data in files] == [each.sha256 for each in agreed]


async def compacted(nodes: list[Node], group: int, number: int, behind: int, end: int) -> None:
    """Wait until a group has compacted more than it had so far, and its members have that."""

    def has_it(node: Node) -> bool:
        there = replica(node, group)
        assert there is not None
        known = there.logs.machine.state.partitions.by_number[number].compactions
        is_there = known.clean > behind and is_as_agreed(node, group, number)
        return is_there and len(records(node, group, number)) < end

    await until(every(nodes, has_it), "the group compacts it")


def test_a_compacted_partition_moves_with_its_segments(tmp_path: Path, run_with: RunWith) -> None:
    """From every node to one, and to two others; each group compacts it again."""

    async def body(nodes: list[Node]) -> None:
        await make_groups(nodes, [0], [1, 2])
        number, session = await create(nodes, COMPACTED), Publisher("p")
        for group, members in ((0, nodes), (1, nodes[:1]), (2, nodes[1:])):
            first, end = group * RECORDS, (group + 1) * RECORDS
            if group:
                await move(nodes, number, group)
                agreed = partial(is_as_agreed, group=group, number=number)
                await until(every(members, agreed), "its segments are there")
            await publish(nodes, group, range(first, end), session)
            await compacted(members, group, number, max(0, first - RECORDS), end)
            for node in members:
                last = {value(each) for each in range(end - KEYS, end)}
                assert {*newest(records(node, group, number)).values()} == last

    run_with(tmp_path, 3, body)


def keys_in(node: Node, group: int, number: int) -> list[bytes | None]:
    return [key for _, key, _ in records(node, group, number)]


async def archive(nodes: list[Node], group: int, number: int) -> int:
    """Have the older records archived: the first offset that is left."""
    for node in nodes:
        there = replica(node, group)
        assert there is not None
        there.care.archive.rounds.start_soon()

    def has_archived(node: Node) -> bool:
        log = log_in(node, group, number)
        return log is not None and log.start_offset > 0

    await until(every(nodes, has_archived), "archived")
    log = log_in(nodes[0], group, number)
    assert log is not None
    return log.start_offset


def test_a_key_counts_once_wherever_its_partition_moves(tmp_path: Path, run_with: RunWith) -> None:
    """Also one of a record that is archived: nothing but an index has it."""

    async def body(nodes: list[Node]) -> None:
        await make_groups(nodes, [0], [1, 2])
        number, session = await create(nodes, KEYED), Publisher("p")
        await publish(nodes, 0, range(RECORDS), session, keys=RECORDS)
        await reach(nodes, 0, number, RECORDS)
        start, end = await archive(nodes, 0, number), RECORDS
        for group, members in ((1, nodes[:1]), (2, nodes[1:])):
            await move(nodes, number, group)
            for key in (0, start - 1, start, end - 1, end):
                await session.send(nodes, record(key, key))
            end += 1
            await reach(members, group, number, end)
            for node in members:
                found = keys_in(node, group, number)
                assert found == [b"%d" % key for key in range(start, end)]

    run_with(tmp_path, 3, body)
