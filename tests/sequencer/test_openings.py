"""Topics are created once each of their partitions is open in a group that has a leader."""

from __future__ import annotations

import uuid
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from samelog.admin.requests import CreatePartitions, CreateTopic
from samelog.consensus import Role
from samelog.kafka.apis import topic_admin
from samelog.kafka.codec.error_codes import ErrorCode
from samelog.placement.changes import SetDefaultCopies
from samelog.sequencer.admin import topics
from samelog.sequencer.cluster.changes import ChangeRefused
from samelog.sequencer.data_groups.leaders import KnownLeaders, Led
from samelog.sequencer.data_groups.upkeep import DataGroupUpkeep
from samelog.sequencer.node import Node
from samelog.sequencer.state.tables.placement import ChangePlacement
from samelog.wire.errors import FaultCode
from tests.kafka.test_creating_together import call_to, create, wanted
from tests.sequencer.cluster import RunWith, leader_of, until

PARTITIONS = 4


def check_taken(node: Node, nodes: list[Node], name: str, partitions: int = PARTITIONS) -> None:
    """A client that asks the node is sent to leaders, and each takes what it brings at once."""
    broker = call_to(node).broker
    topic = broker.topic(name)
    assert topic is not None
    assert topic.partitions == partitions
    for index, number in enumerate(topic.partition_numbers):
        leader = broker.leader_of(topic, index)
        assert leader is not None, f"no leader of partition {index}"
        replica = nodes[leader].data_groups.holding(number)
        assert replica is not None
        assert replica.raft.raft.role is Role.LEADER
        call_to(nodes[leader]).broker.machine_of(topic, index)  # it raises nothing


async def have_default(nodes: list[Node], copies: int) -> None:
    """Topics get so many copies unless their creator names a number."""
    leader = await leader_of(nodes)
    await leader.raft.proposer.until_begun()
    await leader.raft.proposer.propose(ChangePlacement(-1, [SetDefaultCopies(copies)]))


def test_operators_are_answered_once_all_partitions_are_open(
    tmp_path: Path, run_with: RunWith
) -> None:
    async def body(nodes: list[Node]) -> None:
        await (await leader_of(nodes)).raft.proposer.until_begun()
        for number, node in enumerate(nodes):
            name, copies = f"t{number}", 1 + number % 2
            await topics.create_topic(node, CreateTopic(name, PARTITIONS, {}, copies))
            check_taken(node, nodes, name)
            await topics.add_partitions(node, CreatePartitions(name, 2 * PARTITIONS))
            check_taken(node, nodes, name, 2 * PARTITIONS)

    run_with(tmp_path, 3, body)


def test_kafka_clients_are_answered_once_all_partitions_are_open(
    tmp_path: Path, run_with: RunWith
) -> None:
    async def body(nodes: list[Node]) -> None:
        await (await leader_of(nodes)).raft.proposer.until_begun()
        for number, node in enumerate(nodes):
            name = f"t{number}"
            made = await create(call_to(node), wanted(name, PARTITIONS, 1 + number % 2))
            assert made == [ErrorCode.none]
            check_taken(node, nodes, name)

    run_with(tmp_path, 3, body)


def test_who_publishes_to_a_topic_that_is_created_by_default_is_not_sent_away(
    tmp_path: Path, run_with: RunWith
) -> None:
    """Every member has a replica: the node that creates the topic opens the input at once."""

    async def body(nodes: list[Node]) -> None:
        await have_default(nodes, 3)
        for number, node in enumerate(nodes):
            name, run_id = f"native{number}", uuid.uuid4().hex
            whom: Any = {"identity": "samelog://publisher/x", "session": f"s{number}"}
            await node._intake.open_run(
                **whom,
                session_id=str(uuid.uuid4()),
                run=0,
                run_id=run_id,
                dedup_id=None,
                dedup_base=None,
            )
            opened = await node._intake.open_input(
                **whom, run_id=run_id, topic=name, partition=PARTITIONS - 1
            )
            assert opened.partitions == PARTITIONS
            check_taken(node, nodes, name)
            await call_to(node).broker.create_by_default(f"kafka{number}")
            check_taken(node, nodes, f"kafka{number}", 1)

    run_with(tmp_path, 3, body)


def test_at_its_deadline_a_creation_says_what_has_no_leader_yet(
    tmp_path: Path, run_with: RunWith, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The topic exists, and is opened later."""

    async def body(nodes: list[Node]) -> None:
        await (await leader_of(nodes)).raft.proposer.until_begun()
        node, call = nodes[0], call_to(nodes[0])
        await topics.create_topic(node, CreateTopic("open", PARTITIONS, {}, 1))
        with monkeypatch.context() as patched:
            patched.setattr(DataGroupUpkeep, "_follow_topics", lambda _: None)
            patched.setattr(topics, "PLACE_S", 0.1)
            with pytest.raises(ChangeRefused) as refused:
                await topics.create_topic(node, CreateTopic("native", 7, {}, 1))
            assert refused.value.code is FaultCode.TIMEOUT
            text = "'native' exists with 7 partitions, but partitions 0, 1, 2, 3, 4 and 2 more have"
            assert text in str(refused.value)
            request = SimpleNamespace(
                topics=[wanted("kafka"), wanted("open")], timeout_ms=500, validate_only=False
            )
            create_topics: Any = topic_admin.create_topics.handle
            made, known = (await create_topics(call, request)).topics
            assert made.error_code is ErrorCode.request_timed_out
            assert "'kafka' exists with 1 partition, but partition 0 has no" in made.error_message
            assert known.error_code is ErrorCode.topic_already_exists
            more = SimpleNamespace(name="open", count=PARTITIONS + 1, assignments=None)
            request = SimpleNamespace(topics=[more], timeout_ms=500, validate_only=False)
            add: Any = topic_admin.create_partitions.handle
            (grown,) = (await add(call, request)).results
            assert grown.error_code is ErrorCode.request_timed_out
            assert "but partition 4 has no leader yet" in grown.error_message
        for name in ("native", "kafka", "open"):
            topic = call.broker.topic(name)
            assert topic is not None
            numbers = tuple(topic.partition_numbers)
            await until(lambda n=numbers: not node.data_groups.unopened(n), "it is open")  # type: ignore[misc]

    run_with(tmp_path, 3, body)


def test_a_creation_that_is_only_looked_at_waits_for_nothing(
    tmp_path: Path, run_with: RunWith
) -> None:
    async def body(nodes: list[Node]) -> None:
        await (await leader_of(nodes)).raft.proposer.until_begun()
        request = SimpleNamespace(topics=[wanted("t")], timeout_ms=0, validate_only=True)
        create_topics: Any = topic_admin.create_topics.handle
        (looked_at,) = (await create_topics(call_to(nodes[1]), request)).topics
        assert looked_at.error_code is ErrorCode.none
        assert call_to(nodes[1]).broker.topic("t") is None

    run_with(tmp_path, 3, body)


def test_a_leader_is_known_with_what_it_has_opened() -> None:
    known = KnownLeaders()
    assert known.note(1, Led(3, 0, 10))
    assert not known.note(1, Led(3, 0, 10, 5)), "the term is no news"
    assert known.get(1) == Led(3, 0, 10, 5)
    assert not known.note(1, Led(3, 0, 10)), "it came late"
    assert known.get(1) == Led(3, 0, 10, 5)
    assert known.note(1, Led(4, 2, 11)), "the next leader has yet to say what it has opened"
    assert known.get(1) == Led(4, 2, 11, 0)
    assert not known.note(1, Led(3, 0, 10, 9))
    assert known.take([1]) == {1: 2}


def test_a_leader_announces_only_what_is_in_the_table_that_it_went_by(
    tmp_path: Path, run_with: RunWith, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It goes by another table a moment after group 0 has changed it."""

    async def body(nodes: list[Node]) -> None:
        await (await leader_of(nodes)).raft.proposer.until_begun()
        await topics.create_topic(nodes[0], CreateTopic("open", PARTITIONS, {}, 1))
        with monkeypatch.context() as patched:
            patched.setattr(topics, "PLACE_S", 0.1)
            for node in nodes:
                patched.setattr(node.data_groups._keeper, "_on_table", lambda: None)
            with pytest.raises(ChangeRefused):
                await topics.add_partitions(nodes[0], CreatePartitions("open", PARTITIONS + 1))
            for node in nodes:
                await node.raft.proposer.catch_up()
                for number, replica in node.data_groups.replicas.items():
                    node.data_groups._leaders.opening.add(number)
                    node.data_groups.moved(replica)
            topic = call_to(nodes[0]).broker.topic("open")
            assert topic is not None
            new = topic.partition_numbers[-1]
            assert [node.data_groups.unopened([new]) for node in nodes] == [[new]] * 3
        for node in nodes:
            node.data_groups.follow()
        await until(lambda: not nodes[0].data_groups.unopened([new]), "it is open")

    run_with(tmp_path, 3, body)
