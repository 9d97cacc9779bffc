"""Many clients create topics in data groups at once, and one client many topics at once."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from samelog.cli.node_process import _group_desk, _kafka_parts
from samelog.kafka.any_broker import KafkaClient
from samelog.kafka.api import CallTo
from samelog.kafka.apis import topic_admin
from samelog.kafka.broker import Broker
from samelog.kafka.codec.error_codes import ErrorCode
from samelog.kafka.producer_log import ProducerLog
from samelog.sequencer.node import Node
from tests.sequencer.cluster import RunWith, leader_of

OPERATOR = "samelog://client/operator"
ENTRIES = 20
"""Of one request: its own, and what groups say of themselves meanwhile."""


def call_to(node: Node) -> Any:
    """What a client asks of a node."""
    batches = ProducerLog(node.member.config.name, node.peers.number, node.logs)
    broker = Broker(_kafka_parts(node, _group_desk(node), batches))
    return CallTo(broker, KafkaClient(OPERATOR, "l", "h"), "c", 7)


def wanted(name: str, partitions: int = 1, copies: int = 1) -> Any:
    """A topic of CreateTopics."""
    return SimpleNamespace(
        name=name,
        num_partitions=partitions,
        replication_factor=copies,
        assignments=(),
        configs=(),
    )


async def create(call: Any, *topics: Any) -> list[ErrorCode]:
    """Ask a node to create topics: what it answers of each."""
    create_topics: Any = topic_admin.create_topics.handle
    request = SimpleNamespace(topics=topics, timeout_ms=30_000, validate_only=False)
    answer = await create_topics(call, request)
    return [each.error_code for each in answer.topics]


async def add(call: Any, name: str, count: int) -> list[ErrorCode]:
    """Ask a node for more partitions of a topic."""
    create_partitions: Any = topic_admin.create_partitions.handle
    topic = SimpleNamespace(name=name, count=count, assignments=None)
    request = SimpleNamespace(topics=[topic], timeout_ms=30_000, validate_only=False)
    answer = await create_partitions(call, request)
    return [each.error_code for each in answer.results]


def test_no_client_hears_of_the_race_with_others(tmp_path: Path, run_with: RunWith) -> None:
    async def body(nodes: list[Node]) -> None:
        calls = [call_to(node) for node in nodes]
        creating = [
            create(calls[number % 3], wanted(f"t{number}", copies=1 + number % 2))
            for number in range(24)
        ]
        assert await asyncio.gather(*creating) == [[ErrorCode.none]] * 24
        groups = (await leader_of(nodes)).cluster.placement.groups
        assert len(groups) < 12, "each request has made groups for itself"
        adding = [add(calls[number % 3], f"t{number}", 4) for number in range(24)]
        assert await asyncio.gather(*adding) == [[ErrorCode.none]] * 24

    run_with(tmp_path, 3, body)


def test_a_request_is_one_entry_and_its_topics_are_spread(
    tmp_path: Path, run_with: RunWith
) -> None:
    async def body(nodes: list[Node]) -> None:
        leader = await leader_of(nodes)
        call, raft = call_to(leader), leader.raft.group.raft
        assert await create(call, wanted("first")) == [ErrorCode.none]
        before = raft.commit_index
        many = [wanted(f"t{number}") for number in range(100)]
        assert await create(call, *many) == [ErrorCode.none] * 100
        assert raft.commit_index - before < ENTRIES
        placed = leader.cluster.placement.partitions.values()
        sizes = Counter(each.group for each in placed)
        assert len(sizes) >= 3
        assert max(sizes.values()) <= 25, "all topics are where the first one is"

    run_with(tmp_path, 3, body)


def test_one_bad_topic_of_a_request_is_refused_alone(tmp_path: Path, run_with: RunWith) -> None:
    async def body(nodes: list[Node]) -> None:
        call = call_to(nodes[0])
        topics = wanted("a"), wanted("b", copies=7), wanted("c", copies=3), wanted("a/b")
        assert await create(call, *topics) == [
            ErrorCode.none,
            ErrorCode.invalid_replication_factor,
            ErrorCode.none,
            ErrorCode.invalid_topic_exception,
        ]
        too_many = [wanted(f"t{number}", 1_000) for number in range(11)]
        assert set(await create(call, *too_many)) == {ErrorCode.policy_violation}

    run_with(tmp_path, 3, body)
