"""Merged logs that differ are found when the leader changes, however little was merged."""

from __future__ import annotations

import errno
from pathlib import Path
from unittest.mock import patch

from samelog.sequencer.admin.status import trouble
from samelog.sequencer.admin.topics import partition_info
from samelog.sequencer.merge.merging import Merging
from samelog.sequencer.node import Node
from samelog.store.disk.disk_errors import DiskFault
from samelog.store.merged.log import MergedLog
from tests.sequencer.cluster import RunWith, Session, batch, leader_of, merged, offset, until


async def begin(nodes: list[Node]) -> Session:
    """Three records everywhere, far below the next multiple at which checksums are sampled."""
    session = Session("a")
    await session.send(nodes, batch(b"1", b"2", b"3"))
    await until(lambda: all(offset(node) == 3 for node in nodes), "merged everywhere")
    return session


def spoil(node: Node, by: int = 1) -> None:
    """As if other bytes had been merged here."""
    (partition,) = node.logs.merging.partitions.values()
    partition.log._chain.checksum ^= by


def checked(node: Node) -> int:
    """Up to where a majority is known to agree."""
    return node.logs.machine.state.partitions.by_number[1].checked_offset


async def change_leader(nodes: list[Node]) -> Node:
    """The new one, of these."""
    old = await leader_of(nodes)
    new = next(node for node in nodes if node is not old)
    group = old.raft.group
    group.raft.transfer_leadership(new.peers.number, old.member.clock.now())
    group.pump()
    await until(lambda: new.raft.group.is_leader, "another leader")
    return new


def test_who_differs_is_found_at_a_change_of_leader(tmp_path: Path, run_with: RunWith) -> None:
    async def body(nodes: list[Node]) -> None:
        await begin(nodes)
        leader = await leader_of(nodes)
        odd, other = (node for node in nodes if node is not leader)
        spoil(odd)
        before = odd.logs.merging.partitions[1]
        await change_leader([leader, other])
        await until(lambda: odd.logs.merging.partitions[1] is not before, "copied again")
        await until(lambda: offset(odd) == 3, "copied")
        assert len({merged(node) for node in nodes}) == 1
        assert [node.logs.merging.divergences for node in (leader, other, odd)] == [0, 0, 1]
        assert "a majority has" in trouble(odd)
        events = other.logs.machine.state.events.remembered
        await until(lambda: any(each.kind == "divergence" for each in events), "an event")
        (event,) = (each for each in events if each.kind == "divergence")
        assert event.text == f"{odd.member.config.name}: {trouble(odd)}"

    run_with(tmp_path, 3, body)


def test_where_no_majority_agrees_nobody_serves(tmp_path: Path, run_with: RunWith) -> None:
    """Until an operator leaves the copy that is right alone."""

    async def differ(nodes: list[Node]) -> None:
        await begin(nodes)
        for number, node in enumerate(nodes):
            spoil(node, number)
        parts = [node.logs.merging.partitions[1] for node in nodes]
        await change_leader(nodes)
        await until(lambda: all(part.fault is not None for part in parts), "halted everywhere")
        for node, part in zip(nodes, parts, strict=True):
            assert node.logs.merging.partitions[1] is part, "nothing is set aside"
            assert "no majority of nodes has the same bytes below offset 3" in trouble(node)
            assert node.logs.merging.divergences == 1
        others.extend(Path(part.log.path) for part in parts[1:])

    async def agree(nodes: list[Node]) -> None:
        await until(lambda: all(offset(node) == 3 for node in nodes), "copied")
        await until(lambda: all(checked(node) == 3 for node in nodes), "agreed")
        assert len({merged(node) for node in nodes}) == 1
        assert [trouble(node) for node in nodes] == [""] * 3

    others: list[Path] = []
    run_with(tmp_path, 3, differ)
    for path in others:
        path.rename(path.with_name("away"))
    run_with(tmp_path, 3, agree)


def test_what_is_agreed_on_is_not_asked_for_again(tmp_path: Path, run_with: RunWith) -> None:
    async def body(nodes: list[Node]) -> None:
        await begin(nodes)
        await change_leader(nodes)
        await until(lambda: all(checked(node) == 3 for node in nodes), "agreed")
        for node in nodes:
            node.logs.merging.partitions[1].merger.samples.clear()
        new = await change_leader(nodes)
        assert new.logs.merging.partitions[1].merger.samples == {}

    run_with(tmp_path, 3, body)


def test_who_lags_is_compared_when_it_gets_there(tmp_path: Path, run_with: RunWith) -> None:
    async def body(nodes: list[Node]) -> None:
        session = await begin(nodes)
        leader = await leader_of(nodes)
        slow, other = (node for node in nodes if node is not leader)
        before = slow.logs.merging.partitions[1]
        spoil(slow)
        before.waits_for_room = True
        await session.send(nodes, batch(b"4"))
        await until(lambda: all(offset(node) == 4 for node in (leader, other)), "merged")
        await change_leader([leader, other])
        await until(lambda: checked(slow) == 4, "the others agree")
        assert (offset(slow), before.fault) == (3, None)
        slow.logs.merging._try_again(1)
        await until(lambda: slow.logs.merging.partitions[1] is not before, "copied again")
        await until(lambda: offset(slow) == 4, "copied")
        assert len({merged(node) for node in nodes}) == 1

    run_with(tmp_path, 3, body)


def test_what_was_agreed_on_counts_no_more_when_records_were_given_up(
    tmp_path: Path, run_with: RunWith
) -> None:
    async def body(nodes: list[Node]) -> None:
        (node,) = nodes
        await begin(nodes)
        merging, partition = node.logs.merging, node.logs.merging.partitions[1]
        merging.compare([(1, 8, 99)])
        merging.follow_voids(1)
        assert partition.agreed == (8, 99)
        node.logs.machine.state.partitions.by_number[1].checked_sum = None
        merging.follow_voids(1)
        assert partition.agreed is None

    run_with(tmp_path, 1, body)


def test_a_halted_partition_executes_nothing_more(tmp_path: Path, run_with: RunWith) -> None:
    async def body(nodes: list[Node]) -> None:
        (node,) = nodes
        session, merging = await begin(nodes), node.logs.merging
        with patch.object(Merging, "_turn", lambda self: None):
            await session.send(nodes, batch(b"4"))
            await until(lambda: bool(merging.pending()), "it waits to be executed")
        merging.halt(1, "a test")
        merging._turn()
        assert (offset(node), len(merging.pending())) == (3, 1)

    run_with(tmp_path, 1, body)


def test_a_partition_that_its_disk_halts_says_what_to_do(tmp_path: Path, run_with: RunWith) -> None:
    async def body(nodes: list[Node]) -> None:
        (node,) = nodes
        session = await begin(nodes)
        fails = DiskFault("00000000000000000000.log", "write", errno.EIO)
        with patch.object(MergedLog, "append", side_effect=fails):
            await session.send(nodes, batch(b"4"))
            await until(lambda: bool(trouble(node)), "it is halted")
        remedy = "start the node again when its disk is well"
        assert remedy in trouble(node)
        assert partition_info(node, 1).halted.endswith(
            f"cannot write: Input/output error; {remedy}"
        )

    run_with(tmp_path, 1, body)
