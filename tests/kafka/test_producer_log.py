"""The session that a node writes for its Kafka clients: whole nodes in one event loop."""

from __future__ import annotations

import asyncio
import uuid
from pathlib import Path

from kio.schema.errors import ErrorCode

from samelog.kafka.any_broker import AppendResult
from samelog.kafka.producer_log import NOT_TAKEN, ProducerLog
from samelog.sequencer.node import Node
from samelog.sequencer.state.commands import CloseRun, CreateTopicCommand, DeleteTopicCommand
from samelog.sequencer.state.types import Topic
from tests.kafka.batches import batch
from tests.patience import PATIENCE_S
from tests.sequencer.cluster import leader_of, merged, run_with, until


async def make_topic(node: Node) -> Topic:
    await node.raft.proposer.propose(CreateTopicCommand(uuid.uuid4().hex, "t", 1, {}, 1))
    topic = node.raft.replica.machine.topic_named("t")
    assert topic is not None
    return topic


async def opened(node: Node, topic: Topic) -> ProducerLog:
    log = ProducerLog(node.member.config.name, node.peers.number, node.logs)
    log.start()
    await log.open(topic, 0)
    return log


async def outcome(future: asyncio.Future[AppendResult] | None) -> AppendResult:
    assert future is not None, "the partition is not open"
    async with asyncio.timeout(PATIENCE_S):
        return await future


def test_batches_are_answered_in_order_with_their_offsets(tmp_path: Path) -> None:
    async def body(nodes: list[Node]) -> None:
        node = await leader_of(nodes)
        topic = await make_topic(node)
        log = await opened(node, topic)
        batches = [batch(b"a"), batch(b"b", b"c"), batch(b"d")]
        futures = [
            log.append(topic, 0, memoryview(b), n) for b, n in zip(batches, (1, 2, 1), strict=True)
        ]
        found = [await outcome(future) for future in futures]
        assert found == [AppendResult(ErrorCode.none, offset) for offset in (0, 1, 3)]
        log.close()

    run_with(tmp_path, 1, body)


def test_a_follower_takes_records_and_the_others_follow_at_once(tmp_path: Path) -> None:
    async def body(nodes: list[Node]) -> None:
        leader = await leader_of(nodes)
        topic = await make_topic(leader)
        follower = next(node for node in nodes if node is not leader)
        await until(lambda: follower.raft.replica.machine.topic_named("t") is not None, "the topic")
        log = await opened(follower, topic)
        for count in range(5):
            future = log.append(topic, 0, memoryview(batch(b"%d" % count)), 1)
            assert await outcome(future) == AppendResult(ErrorCode.none, count)
        await until(lambda: len({merged(node) for node in nodes}) == 1, "the same everywhere")
        log.close()

    run_with(tmp_path, 3, body)


def test_what_a_closed_run_did_not_merge_is_not_taken(tmp_path: Path) -> None:
    async def body(nodes: list[Node]) -> None:
        node = await leader_of(nodes)
        topic = await make_topic(node)
        log = await opened(node, topic)
        session = node.raft.replica.machine.state.sessions[f"kafka-{node.peers.number}"]
        _, closing = node.raft.group.ask([CloseRun(session.name, session.runs[-1].run_id)])
        lost = log.append(topic, 0, memoryview(batch(b"lost")), 1)
        await closing
        assert await outcome(lost) == NOT_TAKEN
        assert not log.is_open(topic, 0)
        assert log.append(topic, 0, memoryview(batch(b"x")), 1) is None
        await log.open(topic, 0)
        again = log.append(topic, 0, memoryview(batch(b"lost")), 1)
        assert await outcome(again) == AppendResult(ErrorCode.none, 0)
        assert merged(node).count(b"lost") == 1
        log.close()

    run_with(tmp_path, 1, body)


def test_a_deleted_topic_is_said(tmp_path: Path) -> None:
    async def body(nodes: list[Node]) -> None:
        node = await leader_of(nodes)
        topic = await make_topic(node)
        log = await opened(node, topic)
        _, deleting = node.raft.group.ask([DeleteTopicCommand(topic.topic_id)])
        future = log.append(topic, 0, memoryview(batch(b"x")), 1)
        await deleting
        found = await outcome(future)
        assert found.error in (ErrorCode.none, ErrorCode.unknown_topic_or_partition)
        assert log.append(topic, 0, memoryview(batch(b"x")), 1) is None
        log.close()

    run_with(tmp_path, 1, body)
