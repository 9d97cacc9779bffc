"""Whole nodes: a key counts once whoever leads, and after restarts; indexes are alike."""

from __future__ import annotations

import os
import uuid
from pathlib import Path

import pytest

from samelog.format import _kernels as kernels
from samelog.format.compression import decompress
from samelog.sequencer.keys import keeper
from samelog.sequencer.node import Node
from samelog.sequencer.state.tables import keys as key_table
from samelog.sequencer.state.tables.topics import CreateTopicCommand
from samelog.store.keys.key_store import FOLDER, LmdbKeys
from tests.keys.test_key_filter import batch
from tests.sequencer.cluster import (
    RunWith,
    Session,
    leader_of,
    merged,
    offset,
    until,
)

Keys = list[bytes | None]


async def keyed_topic(nodes: list[Node], **settings: str) -> None:
    node = await leader_of(nodes)
    wanted = {"dedup.key": "first"} | settings
    await node.raft.proposer.propose(CreateTopicCommand(uuid.uuid4().hex, "t", 1, wanted, 1))
    await until(
        lambda: all(each.logs.machine.state.topics.named("t") for each in nodes), "the topic"
    )


def keys_in(node: Node) -> Keys:
    data = merged(node)
    return kernels.keys_of(data, 0, len(data), decompress)


async def reach(nodes: list[Node], stop: int) -> None:
    await until(lambda: all(offset(node) == stop for node in nodes), f"offset {stop}")


async def indexed(nodes: list[Node], stop: int) -> None:
    """All indexes have what is merged."""

    def done() -> bool:
        known = [node.raft.keys.partitions.get(1) for node in nodes]
        return all(each is not None and each.store.end == stop for each in known)

    await until(done, f"indexes up to {stop}")


@pytest.mark.parametrize("is_in_memory", [True, False])
def test_a_key_counts_once_whoever_leads(
    tmp_path: Path, is_in_memory: bool, monkeypatch: pytest.MonkeyPatch, run_with: RunWith
) -> None:
    if not is_in_memory:
        monkeypatch.setattr(LmdbKeys, "glance", lambda self, keys: {})

    async def body(nodes: list[Node]) -> None:
        await keyed_topic(nodes)
        first, second = Session("a"), Session("b")
        await first.send(nodes, batch(b"x", b"y", None))
        await reach(nodes, 3)
        await second.send(nodes, batch(b"y", b"z", b"x"))
        await reach(nodes, 4)
        leader = await leader_of(nodes)
        other = next(node for node in nodes if node is not leader)
        await leader.peers.changes.transfer(other.member.config.name)
        await until(lambda: other.raft.group.is_leader, "another leader")
        await first.send(nodes, batch(b"z", b"w"))
        await reach(nodes, 5)
        await indexed(nodes, 5)
        for node in nodes:
            assert keys_in(node) == [b"x", b"y", None, b"z", b"w"]
        assert len({merged(node) for node in nodes}) == 1
        assert len({tuple(node.raft.keys.partitions[1].sums.items()) for node in nodes}) == 1

    run_with(tmp_path, 3, body)


def test_keys_are_known_after_a_restart_of_all(tmp_path: Path, run_with: RunWith) -> None:
    async def before(nodes: list[Node]) -> None:
        await keyed_topic(nodes)
        await Session("a").send(nodes, batch(b"x", b"y"))
        await reach(nodes, 2)
        await indexed(nodes, 2)

    async def after(nodes: list[Node]) -> None:
        await Session("b").send(nodes, batch(b"y", b"x", b"z"))
        await reach(nodes, 3)
        assert [keys_in(node) for node in nodes] == [[b"x", b"y", b"z"]]

    run_with(tmp_path, 1, before)
    run_with(tmp_path, 1, after)


def test_an_index_that_is_lost_is_made_anew_from_the_log(tmp_path: Path, run_with: RunWith) -> None:
    async def before(nodes: list[Node]) -> None:
        await keyed_topic(nodes)
        await Session("a").send(nodes, batch(b"x", b"y"))
        await indexed(nodes, 2)

    async def after(nodes: list[Node]) -> None:
        await Session("b").send(nodes, batch(b"y", b"z"))
        await reach(nodes, 3)
        assert keys_in(nodes[0]) == [b"x", b"y", b"z"]

    run_with(tmp_path, 1, before)
    (index,) = tmp_path.glob(f"**/{FOLDER}/data.mdb")
    index.write_bytes(os.urandom(len(index.read_bytes())))
    run_with(tmp_path, 1, after)


def test_an_index_that_differs_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_with: RunWith
) -> None:
    monkeypatch.setattr(key_table, "BLOCK_RECORDS", 4)
    monkeypatch.setattr(keeper, "INTERVAL_S", 0.02)

    async def body(nodes: list[Node]) -> None:
        await keyed_topic(nodes)
        await Session("a").send(nodes, batch(b"a", b"b", b"c", b"d", b"e"))
        await indexed(nodes, 5)
        state = nodes[0].logs.machine.state
        await until(lambda: 0 in state.keys.by_partition[1].agreed, "a digest that is agreed")
        damaged = nodes[1].raft.keys.partitions[1]
        damaged.sums[0] ^= 1
        await until(lambda: nodes[1].raft.keys.partitions.get(1) is not damaged, "a new index")
        await indexed(nodes, 5)
        found = [node.raft.keys.partitions[1].sums for node in nodes]
        assert found[0] == found[1] == found[2]

    run_with(tmp_path, 3, body)


def test_nodes_without_such_topics_have_no_index(tmp_path: Path, run_with: RunWith) -> None:
    async def body(nodes: list[Node]) -> None:
        node = await leader_of(nodes)
        await node.raft.proposer.propose(CreateTopicCommand(uuid.uuid4().hex, "t", 1, {}, 1))
        await Session("a").send(nodes, batch(b"x", b"x"))
        await reach(nodes, 2)
        assert not node.raft.keys.partitions

    run_with(tmp_path, 1, body)
    assert not list(tmp_path.glob(f"**/{FOLDER}"))
