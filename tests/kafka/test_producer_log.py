"""The session that a node writes for its Kafka clients: whole nodes in one event loop."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence
from pathlib import Path

import pytest

from samelog.format import _kernels as kernels
from samelog.kafka.any_broker import AppendResult
from samelog.kafka.codec.error_codes import ErrorCode
from samelog.kafka.codec.errors import ApiError
from samelog.kafka.producer_log import (
    GATHERED_BYTES,
    LARGE_BYTES,
    NOT_TAKEN,
    UNKNOWN_FATE,
    ProducerLog,
)
from samelog.replicator.interfaces import RequestRefused
from samelog.sequencer.ingest.batch_check import Taken
from samelog.sequencer.merge.drafts import Draft
from samelog.sequencer.merge.filters import GivenBatch
from samelog.sequencer.node import Node
from samelog.sequencer.state.tables.sessions import CloseRun, Input
from samelog.sequencer.state.tables.topics import CreateTopicCommand, DeleteTopicCommand, Topic
from samelog.wire.errors import FaultCode
from tests.kafka.batches import batch
from tests.patience import PATIENCE_S
from tests.sequencer.cluster import RunWith, leader_of, merged, until


async def make_topic(node: Node, **settings: str) -> Topic:
    await node.raft.proposer.propose(CreateTopicCommand(uuid.uuid4().hex, "t", 1, settings, 1))
    topic = node.raft.replica.machine.state.topics.named("t")
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


def test_batches_are_answered_in_order_with_their_offsets(
    tmp_path: Path, run_with: RunWith
) -> None:
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


def test_a_follower_takes_records_and_the_others_follow_at_once(
    tmp_path: Path, run_with: RunWith
) -> None:
    async def body(nodes: list[Node]) -> None:
        leader = await leader_of(nodes)
        topic = await make_topic(leader)
        follower = next(node for node in nodes if node is not leader)
        await until(
            lambda: follower.raft.replica.machine.state.topics.named("t") is not None, "the topic"
        )
        log = await opened(follower, topic)
        for count in range(5):
            future = log.append(topic, 0, memoryview(batch(b"%d" % count)), 1)
            assert await outcome(future) == AppendResult(ErrorCode.none, count)
        await until(lambda: len({merged(node) for node in nodes}) == 1, "the same everywhere")
        log.close()

    run_with(tmp_path, 3, body)


def test_what_a_closed_run_did_not_merge_is_not_taken(tmp_path: Path, run_with: RunWith) -> None:
    async def body(nodes: list[Node]) -> None:
        node = await leader_of(nodes)
        topic = await make_topic(node)
        log = await opened(node, topic)
        session = node.raft.replica.machine.state.sessions.by_name[f"kafka-{node.peers.number}"]
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


def test_a_deleted_topic_is_said(tmp_path: Path, run_with: RunWith) -> None:
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


def test_batches_that_a_snapshot_decides_are_answered(tmp_path: Path, run_with: RunWith) -> None:
    """They waited until the run ended, and then took the offsets of later batches: a node that was
    cut off installed a snapshot (world 43505021).
    """

    async def body(nodes: list[Node]) -> None:
        node = await leader_of(nodes)
        topic = await make_topic(node)
        log = await opened(node, topic)
        first, second = memoryview(batch(b"a")), memoryview(batch(b"b"))
        log._intake.unwatch_verdicts(log)
        decided = log.append(topic, 0, first, 1)
        [entry] = node.raft.replica.machine.state.sessions.inputs.values()
        await until(lambda: entry.byte == len(first), "the first batch is merged")
        log.start()
        undecided = log.append(topic, 0, second, 1)
        log._write_gathered()
        node.group_replica.snapshot_installed()
        assert await outcome(decided) == UNKNOWN_FATE
        assert await outcome(undecided) == AppendResult(ErrorCode.none, 1)
        session = node.raft.replica.machine.state.sessions.by_name[f"kafka-{node.peers.number}"]
        closing = CloseRun(session.name, session.runs[-1].run_id)
        lost = log.append(topic, 0, first, 1)
        node.raft.replica.machine.apply(closing)
        node.group_replica.snapshot_installed()
        assert await outcome(lost) == NOT_TAKEN
        assert not log.is_open(topic, 0)
        log.close()

    run_with(tmp_path, 1, body)


def note_writes(node: Node, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The bytes of each piece that is written from now on."""
    sizes: list[int] = []
    write = node.logs.intake.append_checked

    def noted(number: int, run: int, taken: Taken, roll_bytes: int) -> tuple[int, int]:
        sizes.append(len(taken.data))
        return write(number, run, taken, roll_bytes)

    monkeypatch.setattr(node.logs.intake, "append_checked", noted)
    return sizes


def test_small_batches_of_a_turn_are_written_together_and_large_ones_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_with: RunWith
) -> None:
    async def body(nodes: list[Node]) -> None:
        node = await leader_of(nodes)
        topic = await make_topic(node)
        log = await opened(node, topic)
        sizes, half = note_writes(node, monkeypatch), batch(bytes(LARGE_BYTES // 2))
        small, large = batch(b"a"), batch(bytes(LARGE_BYTES))
        first = [log.append(topic, 0, memoryview(small), 1) for _ in range(3)]
        assert sizes == []
        first.append(log.append(topic, 0, memoryview(large), 1))
        assert sizes == [3 * len(small), len(large)]
        then = [log.append(topic, 0, memoryview(small), 1) for _ in range(2)]
        found = [await outcome(future) for future in first + then]
        assert [each.base_offset for each in found] == [0, 1, 2, 3, 4, 5]
        assert sizes[2:] == [2 * len(small)]
        many = [log.append(topic, 0, memoryview(half), 1) for _ in range(16)]
        assert sum(sizes[3:]) >= GATHERED_BYTES
        assert all([(await outcome(future)).base_offset >= 6 for future in many])
        log.close()

    run_with(tmp_path, 1, body)


def test_what_cannot_be_written_is_answered_and_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_with: RunWith
) -> None:
    async def body(nodes: list[Node]) -> None:
        node = await leader_of(nodes)
        topic = await make_topic(node)
        log = await opened(node, topic)

        def refuse(*_: object) -> None:
            raise RequestRefused(FaultCode.TOO_MANY, "too fast", "wait")

        with monkeypatch.context() as patched:
            patched.setattr(node.logs.intake, "append_checked", refuse)
            found = await outcome(log.append(topic, 0, memoryview(batch(b"x")), 1))
        assert (found.error, found.message) == (ErrorCode.throttling_quota_exceeded, "too fast")
        node.logs.intake.room.stop("full", for_good=False)
        with pytest.raises(ApiError):
            log.append(topic, 0, memoryview(batch(b"x")), 1)
        log.close()

    run_with(tmp_path, 1, body)


def test_what_is_not_written_when_the_run_ends_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_with: RunWith
) -> None:
    async def body(nodes: list[Node]) -> None:
        node = await leader_of(nodes)
        topic = await make_topic(node)
        log = await opened(node, topic)
        sizes = note_writes(node, monkeypatch)
        run = node.raft.replica.machine.state.sessions.by_name[f"kafka-{node.peers.number}"].runs[
            -1
        ]
        lost = log.append(topic, 0, memoryview(batch(b"lost")), 1)
        log.on_run_closed("", run.run_id, {})
        assert await outcome(lost) == NOT_TAKEN
        await log.open(topic, 0)
        again = log.append(topic, 0, memoryview(batch(b"again")), 1)
        assert await outcome(again) == AppendResult(ErrorCode.none, 0)
        assert len(sizes) == 1
        log.close()

    run_with(tmp_path, 1, body)


class WithoutB:
    """A filter that leaves out the middle record of each batch of three, and every single one."""

    def concerns(self, partition: int) -> bool:
        return True

    def is_ready(self, partition: int, next_offset: int) -> bool:
        return True

    def look_behind(self, partition: int, batches: bytes) -> bool:
        raise AssertionError("it can judge everything")

    def take_back(self) -> None:
        pass

    def reset(self) -> None:
        pass

    def look_ahead(self, draft: Draft, entry: Input, batches: Sequence[bytes]) -> None:
        pass

    def staying(self, draft: Draft, given: GivenBatch, runs: Sequence[int]) -> Sequence[int]:
        return [1, 1] if kernels.scan(given.data).records == 3 else [0, 1]


def test_a_batch_is_answered_by_what_is_merged_of_it(tmp_path: Path, run_with: RunWith) -> None:
    async def body(nodes: list[Node]) -> None:
        node = await leader_of(nodes)
        node.raft.coordinator._planner.filters = [WithoutB()]
        topic = await make_topic(node, **{"dedup.key": "first"})
        log = await opened(node, topic)
        batches = [batch(b"a", b"b", b"c"), batch(b"b"), batch(b"d", b"b", b"e")]
        futures = [
            log.append(topic, 0, memoryview(b), n) for b, n in zip(batches, (3, 1, 3), strict=True)
        ]
        found = [await outcome(future) for future in futures]
        assert found == [AppendResult(ErrorCode.none, offset) for offset in (0, -1, 2)]
        log.close()

    run_with(tmp_path, 1, body)
