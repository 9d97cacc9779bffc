"""Whole nodes archive: what Raft says, everywhere, also where a node was away meanwhile."""

from __future__ import annotations

from pathlib import Path

import pytest

from samelog.admin.answers import ArchivePlan, NodeState
from samelog.admin.requests import PlanArchive
from samelog.archiver.command import ArchiveCommand, ArchivedSegment
from samelog.archiver.policy import Policy
from samelog.format.file_names import segment_bases
from samelog.sequencer.admin import status
from samelog.sequencer.admin.archiving import plan_archive
from samelog.sequencer.node import Node
from samelog.sequencer.state.command_base import Rejection
from samelog.sequencer.state.tables.topics import CreateTopicCommand
from tests.sequencer.cluster import (
    RunWith,
    Session,
    batch,
    leader_of,
    make_node,
    merged,
    offset,
    until,
)

BATCH = batch(b"x" * 40_000)
"""Two of them fill a segment."""


async def write(nodes: list[Node], session: Session, count: int) -> None:
    """Send so many batches of one record, each merged by itself everywhere."""
    if not nodes[0].raft.replica.machine.state.topics.by_id:
        settings = {"segment.bytes": "65536"}
        await nodes[0].raft.proposer.propose(CreateTopicCommand("0" * 32, "t", 1, settings, 1))
    for _ in range(count):
        goal = offset(nodes[0]) + 1
        await session.send(nodes, BATCH)
        await until(lambda goal=goal: all(offset(node) == goal for node in nodes), "merged")  # type: ignore[misc]


def command_for(node: Node, below: int) -> ArchiveCommand:
    """Archive what is below an offset, and the files of it."""
    log = node.logs.merging.partitions[1].log
    segment, checksum = log.segment_of(below)
    files = [
        ArchivedSegment(each.base_offset, each.next_offset, each.size, 1, 2, 3, b"s" * 32)
        for each in log.segments()
        if each.base_offset < segment
    ]
    return ArchiveCommand(1, below, segment, checksum, 1, "test", files)


async def archive(nodes: list[Node], below: int) -> None:
    """Archive by the leader's own log, and wait until it is carried out."""
    node = await leader_of(nodes)
    outcome = await node.raft.proposer.propose(command_for(node, below))
    assert not isinstance(outcome, Rejection)
    await until(lambda: all(is_archived(node, below) for node in nodes), "archived everywhere")


def sizes(node: Node) -> list[tuple[int, int]]:
    """(base, bytes) of every segment file."""
    place = Path(node.logs.merging.partitions[1].log.path)
    bases = segment_bases(path.name for path in place.iterdir())
    return [(base, (place / f"{base:020d}.log").stat().st_size) for base in bases]


def is_archived(node: Node, below: int) -> bool:
    """Whether a node has nothing left that may go."""
    log = node.logs.merging.partitions[1].log
    segment = node.raft.replica.machine.state.partitions.by_number[1].start_segment
    is_empty = all(size == 0 for base, size in sizes(node) if base < segment)
    return log.log_start.offset == below and log.log_start.segment == segment and is_empty


def test_every_node_truncates_the_same_files_and_keeps_their_names(
    tmp_path: Path, run_with: RunWith
) -> None:
    async def body(nodes: list[Node]) -> None:
        session = Session("a")
        await write(nodes, session, 7)
        before = sizes(nodes[0])
        assert [size for _, size in before] == [len(BATCH)] * 7
        await archive(nodes, 4)
        after = [(base, 0 if base < 4 else size) for base, size in before]
        assert [sizes(node) for node in nodes] == [after] * 3
        assert {node.logs.merging.partitions[1].log.start_offset for node in nodes} == {4}
        await archive(nodes, 7)  # all there is: the growing segment stays
        assert [sizes(node)[-1] for node in nodes] == [before[-1]] * 3
        await write(nodes, session, 2)
        for node in nodes:
            await node.care.scrubber.scrub()
            assert not node.care.scrubber.troubles
            await node.raft.snapshotter.take()

    async def again(nodes: list[Node]) -> None:
        for node in nodes:
            state, log = (
                node.raft.replica.machine.state.partitions.by_number[1],
                node.logs.merging.partitions[1].log,
            )
            await until(lambda log=log: log.next_offset == 9, "all is there")  # type: ignore[misc]
            assert (state.log_start, log.start_offset, log.damaged) == (7, 7, [])
            await until(lambda node=node: is_archived(node, 7), "still archived")  # type: ignore[misc]

    run_with(tmp_path, 3, body)
    run_with(tmp_path, 3, again)


@pytest.mark.parametrize("has_inputs", [True, False])
def test_a_node_that_was_away_catches_up(
    tmp_path: Path, *, has_inputs: bool, run_with: RunWith
) -> None:
    """By merging if somebody still has the inputs, else behind what was archived."""

    async def body(nodes: list[Node]) -> None:
        session = Session("a")
        await write(nodes, session, 3)
        leader = await leader_of(nodes)
        away = next(node for node in nodes if node is not leader)
        there = [node for node in nodes if node is not away]
        await away.stop()
        await write(there, session, 6)
        await archive(there, 7)
        came = make_node(tmp_path, 3, nodes.index(away))
        nodes[nodes.index(away)] = came
        if not has_inputs:
            came.logs.repair.sessions.peer_reported = lambda node, places: None  # type: ignore[method-assign]
        await came.start()
        await until(lambda: came.member.status.state is NodeState.LIVE, "Live again")
        await until(lambda: is_archived(came, 7) and offset(came) == 9, "caught up")
        await write(there, session, 2)
        await until(lambda: offset(came) == 11, "goes on")
        assert len({merged(node) for node in nodes}) == 1
        archived = [size for base, size in sizes(came) if base < 7]
        assert archived == [0] * len(archived)
        assert has_inputs or len(archived) == 3
        assert (
            came.logs.merging.partitions[1].log.checksum
            == leader.logs.merging.partitions[1].log.checksum
        )

    run_with(tmp_path, 3, body)


def test_a_partition_that_is_begun_anew_begins_where_the_others_do(
    tmp_path: Path, run_with: RunWith
) -> None:
    async def body(nodes: list[Node]) -> None:
        await write(nodes, Session("a"), 6)
        await archive(nodes, 4)
        node = nodes[0]
        path = node.logs.merging.partitions[1].log.path
        node.logs.merging.compare([])
        node.logs.merging._rebuild(1, node.logs.merging.partitions[1], "test")
        await until(lambda: offset(node) == 6 and is_archived(node, 4), "copied again")
        log = node.logs.merging.partitions[1].log
        assert (log.path, log.start_offset) == (path, 4)
        assert log.checksum == nodes[1].logs.merging.partitions[1].log.checksum

    run_with(tmp_path, 3, body)


def test_a_halted_partition_keeps_everything(tmp_path: Path, run_with: RunWith) -> None:
    async def body(nodes: list[Node]) -> None:
        await write(nodes, Session("a"), 5)
        halted, others = nodes[0], nodes[1:]
        halted.logs.merging.halt(1, "test")
        before = sizes(halted)
        node = await leader_of(nodes)
        await node.raft.proposer.propose(command_for(nodes[1], 4))
        await until(lambda: all(is_archived(other, 4) for other in others), "archived elsewhere")
        await until(
            lambda: halted.raft.replica.machine.state.partitions.by_number[1].log_start == 4,
            "known",
        )
        assert sizes(halted) == before

    run_with(tmp_path, 3, body)


def test_nodes_whose_policy_is_another_one_are_named(tmp_path: Path, run_with: RunWith) -> None:
    async def body(nodes: list[Node]) -> None:
        leader = await leader_of(nodes)
        other = next(node for node in nodes if node is not leader)
        await until(lambda: not any(node.care.archive.disagreements() for node in nodes), "alike")
        other.care.archive.policy.policy = Policy(time=7)

        def is_named(node: Node) -> bool:
            (text,) = node.care.archive.disagreements() or [""]
            return text.startswith(f'{other.member.config.name} has {{"time": 7')

        await until(lambda: all(map(is_named, nodes)), "every node names it")
        assert "archiving policies differ" in status.trouble(leader)
        plan = plan_archive(leader, PlanArchive())
        assert isinstance(plan, ArchivePlan)
        assert (plan.policy, len(plan.differing)) == ("", 1)
        for node in nodes:
            node.care.archive.policy.policy = Policy(time=7)
        await until(
            lambda: not any(node.care.archive.disagreements() for node in nodes), "alike again"
        )

    run_with(tmp_path, 3, body)
