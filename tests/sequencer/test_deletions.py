"""Topics that are deleted, and dropped by the data groups that have them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from samelog.admin.answers import DeletingTopic, Topics
from samelog.admin.requests import DeleteTopic, ListTopics
from samelog.config.authorisation import ANONYMOUS
from samelog.kafka.apis import topic_admin
from samelog.kafka.codec.error_codes import ErrorCode
from samelog.kafka.codec.errors import ApiError
from samelog.placement.changes import TopicsDropped
from samelog.placement.values import DroppedTopic
from samelog.runtime.slices import paced
from samelog.sequencer.admin import deletions, topics
from samelog.sequencer.cluster.changes import ChangeRefused
from samelog.sequencer.node import Node
from samelog.sequencer.state.command_base import Rejection
from samelog.sequencer.state.tables.placement import (
    ChangePlacement,
    DropTopics,
    OpenPartition,
    PlaceTopic,
)
from samelog.sequencer.state.tables.topics import DeleteTopicCommand
from samelog.wire.errors import FaultCode
from tests.sequencer.cluster import RunWith, make_node, until
from tests.sequencer.test_data_groups import led, make_groups
from tests.sequencer.test_ending import TOPIC, data_group, group_0

OLD, NEW = "e" * 32, "f" * 32


async def place(node: Node, topic_id: str, *groups: int) -> None:
    """A topic named t in these groups."""
    since = node.cluster.placement.version
    command = PlaceTopic(since, topic_id, "t", {}, 1, [], list(groups))
    outcome = await node.raft.proposer.propose(command)
    assert not isinstance(outcome, Rejection), outcome


def topics_in(node: Node, group: int) -> list[str]:
    """What a node's replica of a group has; nothing if it has ended."""
    replica = node.data_groups.replicas.get(group)
    return [] if replica is None else sorted(replica.group_replica.logs.machine.state.topics.by_id)


async def listed(node: Node) -> Topics:
    return await paced(topics.list_topics(node, ListTopics(), ANONYMOUS))


def deletion(name: str = "t") -> DeleteTopic:
    return DeleteTopic(name, in_use=True, confirm=name)


def test_a_deletion_is_answered_once_majorities_have_dropped_the_topic(
    tmp_path: Path, run_with: RunWith
) -> None:
    async def body(nodes: list[Node]) -> None:
        await make_groups(nodes, [0, 1, 2], [1, 2, 0])
        await place(nodes[0], OLD, 1, 2)
        for group in (1, 2):
            await until(lambda g=group: all(topics_in(n, g) for n in nodes), "it is there")  # type: ignore[misc]
        await topics.delete_topic(nodes[2], deletion())
        for group in (1, 2):
            left = [node for node in nodes if topics_in(node, group)]
            assert len(left) <= 1, "a majority has dropped it"
        assert (await listed(nodes[2])).deleting == ()

    run_with(tmp_path, 3, body)


def test_a_group_without_a_majority_drops_the_topic_when_it_is_back(
    tmp_path: Path, run_with: RunWith, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its name is free meanwhile; members that restart know what is owed."""
    monkeypatch.setattr(topics, "DROP_S", 0.2)

    async def body(nodes: list[Node]) -> None:
        await make_groups(nodes, [2], [0, 1], [0, 1])
        await place(nodes[0], OLD, 1, 2)
        await until(lambda: topics_in(nodes[2], 1) == [OLD], "it is there")
        await until(lambda: len(led(nodes, 2)) == 1, "the other group has a leader")
        await nodes[2].stop()
        with pytest.raises(ChangeRefused) as refused:
            await topics.delete_topic(nodes[0], deletion())
        assert refused.value.code is FaultCode.TIMEOUT
        assert "have yet to drop it" in str(refused.value).replace("has", "have")
        owed = [DeletingTopic("t", OLD, (1,))]
        table = nodes[0].cluster.placement
        await until(lambda: deletions.still_deleting(table) == owed, "the other group drops it")
        found = await listed(nodes[0])
        assert (found.topics, [*found.deleting]) == ((), owed)

        await place(nodes[0], NEW, 3)
        found = await listed(nodes[0])
        assert [each.topic_id for each in found.topics] == [NEW]
        assert [*found.deleting] == owed

        await nodes[1].stop()
        nodes[1] = make_node(tmp_path, 3, 1)
        await nodes[1].start()
        known = nodes[1].cluster.placement.groups
        await until(lambda: 1 in known and bool(known[1].owed), "it knows what is owed")

        nodes[2] = make_node(tmp_path, 3, 2)
        await nodes[2].start()
        await until(lambda: topics_in(nodes[2], 1) == [], "it drops the topic")
        await until(lambda: 1 not in nodes[0].cluster.placement.groups, "and the group ends")
        assert (await listed(nodes[0])).deleting == ()
        assert nodes[0].logs.machine.state.topics.by_name["t"] == NEW
        await until(lambda: topics_in(nodes[0], 3) == [NEW], "the new topic stays")

    run_with(tmp_path, 3, body)


@pytest.mark.parametrize("has_dropped", [False, True])
def test_kafka_answers_timed_out_for_topics_that_a_group_still_has(*, has_dropped: bool) -> None:
    async def body() -> None:
        machine = group_0()
        (topic,) = machine.state.topics.by_id.values()
        groups = deletions.groups_of(machine.state, topic)
        assert groups == {1, 2}
        command = DeleteTopicCommand(topic.topic_id)
        machine.apply(command)
        owed = DroppedTopic(TOPIC, topic.name, machine.state.placement.version)
        assert machine.state.placement.groups[1].owed == (owed,)
        if has_dropped:
            dropped: list[Any] = [TopicsDropped(group, owed.version) for group in groups]
            machine.apply(ChangePlacement(-1, dropped))

        async def never(index: int) -> None:
            await asyncio.Event().wait()

        replica = SimpleNamespace(machine=machine, applied_index=1, wait_applied=never)
        broker: Any = SimpleNamespace(parts=SimpleNamespace(raft=SimpleNamespace(replica=replica)))
        over_at = asyncio.get_running_loop().time() + 0.01
        wanted = {topic.topic_id: groups}
        unknown = ApiError(ErrorCode.unknown_topic_id, "no")
        first, second = await topic_admin._until_dropped(
            broker, wanted, [topic, None], [command, unknown], over_at
        )
        assert second is unknown
        if has_dropped:
            assert first is command
        else:
            assert isinstance(first, ApiError)
            assert first.code is ErrorCode.request_timed_out
            assert "groups 1, 2 have yet to drop it" in str(first.message)

    asyncio.run(body())


def test_a_group_opens_nothing_by_a_table_that_is_older_than_what_it_dropped() -> None:
    group = data_group()
    opening = OpenPartition(1, TOPIC, "t", {}, 1, [1, 2], since=6)
    assert not isinstance(group.apply(opening), Rejection)
    group.apply(DeleteTopicCommand(TOPIC))
    group.apply(DropTopics(7))
    group.apply(DropTopics(5))
    refused: Any = group.apply(opening)
    assert refused.code == "OVERTAKEN"
    assert group.state.topics.by_id == {}
    later = OpenPartition(3, NEW, "t", {}, 1, [3], since=7)
    assert not isinstance(group.apply(later), Rejection)
