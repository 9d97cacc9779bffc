"""Topics that are in use are not deleted, unless the request says that it knows."""

from __future__ import annotations

import asyncio
import struct
from dataclasses import replace
from pathlib import Path

import pytest

from samelog import Subscriber
from samelog.admin.requests import CreateTopic, DeleteTopic, FinalizeUpgrade, GetUpgrade
from samelog.cli.local_cluster import ClusterOptions, LocalCluster
from samelog.config.tables.client import ClientConfig
from samelog.sequencer.admin.schemas import delete_topic_or_view
from samelog.sequencer.admin.topic_users import users_in_state
from samelog.sequencer.admin.topics import create_topic
from samelog.sequencer.admin.upgrades import finalize_upgrade, upgrade_status
from samelog.sequencer.cluster.changes import ChangeRefused
from samelog.sequencer.node import Node
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.tables.groups import (
    ClassicMember,
    CommitOffsets,
    CommittedOffset,
    ConsumerMember,
    Phase,
    SaveConsumerGroup,
    SaveGroup,
)
from samelog.sequencer.state.tables.sessions import CloseRun
from samelog.sequencer.state.tables.topics import CreateTopicCommand
from tests.patience import PATIENCE_S
from tests.sequencer.cluster import RunWith, Session, batch, leader_of, offset, until
from tests.sequencer.test_ending import group_0

DELETE = DeleteTopic("t", confirm="t")


def subscription(topic: str) -> bytes:
    """A ConsumerProtocolSubscription."""
    name = struct.pack(f">h{len(topic)}s", len(topic), topic.encode())
    return struct.pack(">hi", 0, 1) + name + struct.pack(">i", -1)


def test_members_count_whether_or_not_they_committed() -> None:
    machine = StateMachine()
    machine.apply(CreateTopicCommand("t1", "t", 1, {}, 1))
    offsets = CommitOffsets([("left", [(1, CommittedOffset(3, -1, "", 1))])])
    machine.apply(offsets)
    assert list(users_in_state(machine.state, "t")) == []  # positions of no member
    new = ConsumerMember("m", None, "c", "/h", 60_000, ["t"], None, 1, 0, [])
    machine.apply(SaveConsumerGroup("new", 1, [new], [], [], 5))
    protocols = [("range", subscription("t"))]
    classic = ClassicMember("m", None, "c", "/h", 10_000, 60_000, protocols)
    machine.apply(SaveGroup("old", 1, Phase.STABLE, "consumer", "range", "m", [classic], [], [], 5))
    assert list(users_in_state(machine.state, "t")) == ["group new", "group old"]
    assert list(users_in_state(machine.state, "other")) == []


def test_a_topic_that_parts_of_runs_are_yet_to_come_to_is_in_use() -> None:
    """The publisher has records for it, and newer runs elsewhere."""
    machine = group_0()
    machine.apply(CloseRun("s", "0", 2, [(2, 0, 9)], [2]))
    assert list(users_in_state(machine.state, "t")) == ["publisher s"]
    machine.apply(CloseRun("s", "0", 3, [(2, 0, 9)]))
    assert list(users_in_state(machine.state, "t")) == []


def test_a_topic_with_an_open_run_stays(tmp_path: Path, run_with: RunWith) -> None:
    async def body(nodes: list[Node]) -> None:
        session, leader = Session("a"), await leader_of(nodes)
        await session.send(nodes, batch(b"1"))
        await until(lambda: offset(leader) == 1, "it is merged")
        with pytest.raises(ChangeRefused, match="in use by publisher a; nothing was changed"):
            await delete_topic_or_view(leader, DELETE)
        await delete_topic_or_view(leader, replace_in_use(DELETE))
        assert leader.logs.machine.state.topics.named("t") is None

    run_with(tmp_path, 1, body)


def replace_in_use(request: DeleteTopic) -> DeleteTopic:
    return DeleteTopic(request.topic, in_use=True, confirm=request.confirm)


def test_a_reader_at_any_node_keeps_a_topic(tmp_path: Path, run_with: RunWith) -> None:
    def reading(config: ClientConfig) -> Subscriber:
        place = tmp_path / "copies"
        subscriber = Subscriber("t", directory=place, config=config, start="earliest")
        subscriber.wait_caught_up(PATIENCE_S)
        return subscriber

    async def body(nodes: list[Node]) -> None:
        leader = await leader_of(nodes)
        await until(lambda: not upgrade_status(leader, GetUpgrade()).waits_for, "all report")
        await finalize_upgrade(leader, FinalizeUpgrade())
        await create_topic(leader, CreateTopic("t", 1, {}))
        other = next(node for node in nodes if node is not leader)
        subscriber = await asyncio.to_thread(reading, client_of(tmp_path, other))
        for node in nodes:
            with pytest.raises(ChangeRefused, match="in use by subscriber samelog://"):
                await delete_topic_or_view(node, DELETE)
        await asyncio.to_thread(subscriber.close)
        await until(lambda: not other.member.connections.pulls, "it is gone")
        await delete_topic_or_view(leader, DELETE)

    run_with(tmp_path, 3, body)


def client_of(path: Path, node: Node, nodes: int = 3) -> ClientConfig:
    """Knows this node only, of so many."""
    cluster = LocalCluster(str(path), ClusterOptions(nodes=nodes))
    cluster.prepare()
    config = node.member.config
    return replace(cluster.client_config(), nodes=(config.advertise,), node_names=(config.name,))
