"""Whole nodes are reset: one command, on all of them, also where one was away meanwhile."""

from __future__ import annotations

import os
import uuid
from pathlib import Path

import pytest

from samelog.admin.answers import NodeState
from samelog.admin.requests import ResetCluster
from samelog.format.file_names import segment_bases
from samelog.sequencer.admin.resets import reset_cluster
from samelog.sequencer.node import Node
from samelog.sequencer.raft.coordinator import Coordinator
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


async def reset(nodes: list[Node], *, hard: bool) -> int:
    """Have it done, by all of these nodes; the entry."""
    leader = await leader_of(nodes)
    request = ResetCluster(hard, uuid.uuid4().hex, confirm="test")
    index = (await reset_cluster(leader, request)).index
    await until(lambda: all(node.raft.group.applied_index >= index for node in nodes), "reset")
    return index


async def write(nodes: list[Node], session: Session, *values: bytes) -> None:
    """Send, and wait until it is merged everywhere."""
    goal = offset(nodes[0]) + len(values)
    await session.send(nodes, batch(*values))
    await until(lambda: all(offset(node) == goal for node in nodes), f"merged up to {goal}")


async def start_again(path: Path, nodes: list[Node], at: int) -> Node:
    """A node that was stopped, until it is Live."""
    nodes[at] = back = make_node(path, 3, at, bootstrap=False)
    await back.start()
    await until(lambda: back.member.status.state is NodeState.LIVE, "back")
    return back


def log_id(node: Node) -> str:
    topic = node.raft.replica.machine.state.topics.named("t")
    return "" if topic is None else topic.log_id


def parked(node: Node) -> dict[str, bytes]:
    """The old logs that a node keeps."""
    folder = Path(node.member.config.data, "merged", "replaced")
    if not folder.exists():
        return {}
    return {
        each.name: b"".join(
            (each / f"{base:020d}.log").read_bytes() for base in segment_bases(os.listdir(each))
        )
        for each in folder.iterdir()
    }


def test_a_hard_reset_begins_anew_and_keeps_the_old_log(tmp_path: Path, run_with: RunWith) -> None:
    async def body(nodes: list[Node]) -> None:
        session = Session("a")
        await write(nodes, session, b"one", b"two")
        before, old = merged(nodes[0]), log_id(nodes[0])
        await reset(nodes, hard=True)
        await until(lambda: all(log_id(node) != old for node in nodes), "reset everywhere")
        assert [offset(node) for node in nodes] == [0, 0, 0]
        assert all(parked(node) == {f"{old}-0": before} for node in nodes)
        await write(nodes, session, b"three")
        logs = {merged(node) for node in nodes}
        assert len(logs) == 1
        (log,) = logs
        assert b"three" in log
        assert b"one" not in log
        epoch = int.from_bytes(log[12:16], "big")
        assert epoch > 1000

    run_with(tmp_path, 3, body)


def test_what_was_not_merged_before_is_merged_after_it(
    tmp_path: Path, run_with: RunWith, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def body(nodes: list[Node]) -> None:
        session = Session("a")
        await write(nodes, session, b"one")
        leader = await leader_of(nodes)
        # Planned as by reports, which a minority cannot have; else the followers would fetch it.
        monkeypatch.setattr(Coordinator, "_plans_directly", property(lambda self: False))
        await session.send([leader], batch(b"two"))
        await reset(nodes, hard=True)
        followers = [node for node in nodes if node is not leader]
        session.data = session.data[: -len(batch(b"two"))]
        await session.send(followers, batch(b"two"))
        await until(lambda: all(offset(node) == 1 for node in nodes), "merged into the new log")
        for node in nodes:
            assert b"two" in merged(node)
            assert b"one" not in merged(node)

    run_with(tmp_path, 3, body)


def test_a_node_that_was_away_does_it_too(tmp_path: Path, run_with: RunWith) -> None:
    async def body(nodes: list[Node]) -> None:
        session = Session("a")
        await write(nodes, session, b"one", b"two")
        before, old = merged(nodes[0]), log_id(nodes[0])
        leader = await leader_of(nodes)
        away = next(node for node in nodes if node is not leader)
        at = nodes.index(away)
        await away.stop()
        rest = [node for node in nodes if node is not away]
        await write(rest, session, b"three")
        await reset(rest, hard=True)
        await write(rest, session, b"four")
        back = await start_again(tmp_path, nodes, at)
        await until(lambda: merged(back) == merged(rest[0]), "the same")
        assert parked(back)[f"{old}-0"].startswith(before)
        for _ in range(2):  # what it applies again when it starts parks and takes back
            await back.stop()
            back = await start_again(tmp_path, nodes, at)
            assert set(parked(back)) == {f"{old}-0"}
            assert merged(back) == merged(rest[0])
        await write(rest, session, b"five")
        await until(lambda: merged(back) == merged(rest[0]), "goes on")

    run_with(tmp_path, 3, body)


def test_a_soft_reset_lets_go_of_the_raft_log_and_of_nothing_else(
    tmp_path: Path, run_with: RunWith
) -> None:
    async def body(nodes: list[Node]) -> None:
        session = Session("a")
        await write(nodes, session, b"one", b"two")
        before, old = merged(nodes[0]), log_id(nodes[0])
        index = await reset(nodes, hard=False)

        def is_cut(node: Node) -> bool:
            names = os.listdir(Path(node.member.config.data, "raft"))
            files = [name for name in names if name.startswith("wal.")]
            return node.raft.group.raft.first_index >= index and len(files) == 1

        assert {log_id(node) for node in nodes} == {old}
        assert {merged(node) for node in nodes} == {before}
        await write(nodes, session, b"three")
        await until(lambda: all(map(is_cut, nodes)), "the log is cut")
        await nodes[0].stop()
        back = await start_again(tmp_path, nodes, 0)
        assert merged(back) == merged(nodes[1])

    run_with(tmp_path, 3, body)
