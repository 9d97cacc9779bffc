"""The only replica of a topic is away while the topic is deleted and created again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest

from samelog import Publisher, Subscriber, TopicDeleted
from samelog.admin.requests import (
    ContinueSession,
    CreateTopic,
    DeleteTopic,
    FinalizeUpgrade,
    GetUpgrade,
)
from samelog.cli.local_cluster import ClusterOptions, LocalCluster
from samelog.config.tables.client import ClientConfig
from samelog.sequencer.admin.schemas import delete_topic_or_view
from samelog.sequencer.admin.sessions import decide_holds, held_records
from samelog.sequencer.admin.topics import create_topic
from samelog.sequencer.admin.upgrades import finalize_upgrade, upgrade_status
from samelog.sequencer.cluster.changes import ChangeRefused
from samelog.sequencer.node import Node
from tests.patience import PATIENCE_S
from tests.sequencer.cluster import RunWith, leader_of, make_node, until

Found = TypeVar("Found")


async def away(call: Callable[[], Found]) -> Found:
    """Wait for a call of a client beside the nodes' loop."""
    return await asyncio.to_thread(call)


def client_of_all(path: Path) -> ClientConfig:
    cluster = LocalCluster(str(path), ClusterOptions(nodes=3))
    cluster.prepare()
    return cluster.client_config()


def holder_of(nodes: list[Node], topic: str) -> Node:
    """The member with the only replica of a topic."""
    state = nodes[0].cluster
    [number] = state.topics.by_id[state.topics.by_name[topic]].partition_numbers
    [member] = state.placement.groups[state.placement.group_of(number)].members
    return next(node for node in nodes if node.peers.number == member)


async def begin(nodes: list[Node]) -> tuple[str, Node]:
    """A topic, and its only holder, which does not lead group 0."""
    leader = await leader_of(nodes)
    await until(lambda: not upgrade_status(leader, GetUpgrade()).waits_for, "all report")
    await finalize_upgrade(leader, FinalizeUpgrade())
    for number in range(6):
        topic = f"t{number}"
        await create_topic(leader, CreateTopic(topic, 1, {}, replication_factor=1))
        await until(lambda t=topic: t in nodes[0].cluster.topics.by_name, "it is known")  # type: ignore[misc]
        holder = holder_of(nodes, topic)
        if holder is not leader:
            return topic, holder
    raise AssertionError("the leader has all topics")


def read(path: Path, config: ClientConfig, topic: str, count: int) -> list[bytes | None]:
    found: list[bytes | None] = []
    with Subscriber(topic, directory=path, config=config, start="earliest") as subscriber:
        while len(found) < count:
            got = subscriber.batch(timeout=PATIENCE_S)
            assert got, f"{found} within {PATIENCE_S} s"
            found += [each.value for each in got]
        found += [each.value for each in subscriber.batch(timeout=0.2)]
    return found


@pytest.mark.parametrize("unmerged", [[], [b"held"]])
def test_a_publisher_goes_on_or_holds_while_the_only_holder_is_away(
    tmp_path: Path, run_with: RunWith, caplog: pytest.LogCaptureFixture, unmerged: list[bytes]
) -> None:
    async def body(nodes: list[Node]) -> None:
        topic, holder = await begin(nodes)
        config = client_of_all(tmp_path)
        place = str(tmp_path / "publishers")
        publisher = await away(
            lambda: Publisher(topic, session="p", directory=place, config=config)
        )
        publisher.append(b"old")
        await away(lambda: publisher.wait_merged(timeout=PATIENCE_S))
        await holder.stop()
        others = [node for node in nodes if node is not holder]
        leader = await leader_of(others)
        for value in unmerged:
            publisher.append(value)
        with pytest.raises(ChangeRefused, match="is deleted and its name free"):
            await delete_topic_or_view(leader, DeleteTopic(topic, in_use=True, confirm=topic))
        assert topic not in leader.cluster.topics.by_name, "its publisher has brought it back"
        await create_topic(leader, CreateTopic(topic, 1, {}, replication_factor=1))
        await until(lambda: topic in others[0].cluster.topics.by_name, "it is known")
        assert holder_of(others, topic) is not holder
        if unmerged:
            with pytest.raises(TopicDeleted):
                await away(lambda: publisher.wait_merged(timeout=PATIENCE_S))
            await until(lambda: "p" in held_records(leader), "it is held")
            decide_holds(leader, ContinueSession("p"))
            await until(lambda: "p" not in held_records(leader), "it continues")
        else:
            await until(lambda: "was deleted" in caplog.text, "the publisher knows of it")
        publisher.append(b"new")
        await away(lambda: publisher.wait_merged(timeout=PATIENCE_S))
        number = nodes.index(holder)
        nodes[number] = back = make_node(tmp_path, 3, number)
        await back.start()
        await until(lambda: not back.data_groups.replicas, "its replica of the old topic ends")
        publisher.append(b"last")
        await away(lambda: publisher.wait_merged(timeout=PATIENCE_S))
        await away(publisher.close)
        for node in nodes:
            known = replace(
                config, nodes=(node.member.config.advertise,), node_names=(node.member.config.name,)
            )
            copies = tmp_path / f"copies-{node.member.config.name}"
            found = await away(lambda c=copies, k=known: read(c, k, topic, len(unmerged) + 2))  # type: ignore[misc]
            assert found == [*unmerged, b"new", b"last"]

    run_with(tmp_path, 3, body)
