"""Sessions whose keys lie in other partitions than Kafka's murmur2 says are noticed."""

from __future__ import annotations

import logging
import zlib
from pathlib import Path

import pytest

from samelog.admin.requests import CreateTopic, DescribeTopic, FinalizeUpgrade, GetUpgrade
from samelog.format import _kernels as kernels
from samelog.format.steps import finished
from samelog.sequencer.admin.topics import create_topic, describe_topic
from samelog.sequencer.admin.upgrades import finalize_upgrade, upgrade_status
from samelog.sequencer.ingest.key_placement import EVERY_FRAMES, FIRST_FRAMES, KeyPlacement
from samelog.sequencer.node import Node
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.tables.sessions import Input
from samelog.sequencer.state.tables.topics import CreateTopicCommand, Topic
from tests.sequencer.cluster import RunWith, Session, leader_of, taken, until

PARTITIONS = 3


def keyed(*keys: bytes | None) -> bytes:
    """A batch of records with these keys."""
    return kernels.build_batches(
        [b"v"] * len(keys),
        keys=list(keys),
        timestamps=1,
        batch_bytes=1 << 16,
        max_record_bytes=1 << 20,
    )


def by_murmur2(partition: int) -> list[bytes]:
    """Keys that belong in a partition."""
    keys = [b"k%d" % number for number in range(100)]
    return [key for key in keys if (kernels.murmur2(key) & 0x7FFFFFFF) % PARTITIONS == partition]


def by_crc32(partition: int) -> list[bytes]:
    """Keys that librdkafka puts into a partition by default."""
    keys = [b"k%d" % number for number in range(100)]
    return [key for key in keys if zlib.crc32(key) % PARTITIONS == partition]


@pytest.fixture
def topic() -> Topic:
    machine = StateMachine()
    machine.apply(CreateTopicCommand("t1", "t", PARTITIONS, {}, 1))
    found = machine.state.topics.named("t")
    assert found is not None
    return found


def test_a_session_is_logged_once(topic: Topic, caplog: pytest.LogCaptureFixture) -> None:
    placement = KeyPlacement()
    for index in range(PARTITIONS):
        good, bad = Input(index, "good", index), Input(10 + index, "bad", index)
        for _ in range(3):
            placement.look(good, topic, index, memoryview(keyed(*by_murmur2(index), None)))
            placement.look(bad, topic, index, memoryview(keyed(*by_crc32(index), None)))
    found = [each for index in range(PARTITIONS) for each in placement.misplaced_in(index)]
    assert [each.session for each in found] == ["bad"] * PARTITIONS
    assert [each.compared for each in found] == [3 * len(by_crc32(i)) for i in range(PARTITIONS)]
    assert placement.misplaced_records == sum(each.misplaced for each in found) > 0
    (line,) = caplog.records
    assert line.levelno == logging.WARNING
    assert "session bad writes keys into t-0" in line.getMessage()
    assert "partitioner=murmur2_random" in line.getMessage()


def test_later_frames_are_sampled(topic: Topic) -> None:
    placement, entry = KeyPlacement(), Input(1, "s", 1)
    good, bad = memoryview(keyed(*by_murmur2(0))), memoryview(keyed(*by_murmur2(1)))
    for _ in range(FIRST_FRAMES):
        placement.look(entry, topic, 0, good)
    for _ in range(EVERY_FRAMES):
        placement.look(entry, topic, 0, bad)
    assert placement.misplaced_records == len(by_murmur2(1))


@pytest.mark.parametrize(
    ("settings", "counts"),
    [({"dedup.key": "first"}, True), ({"cleanup.policy": "compact"}, True), ({}, False)],
)
def test_a_leader_describes_who_differs(
    tmp_path: Path, run_with: RunWith, settings: dict[str, str], counts: bool
) -> None:
    async def body(nodes: list[Node]) -> None:
        node = await leader_of(nodes)
        await until(lambda: not upgrade_status(node, GetUpgrade()).waits_for, "all report")
        await finalize_upgrade(node, FinalizeUpgrade())
        await create_topic(node, CreateTopic("t", PARTITIONS, settings))
        session = Session("s")
        opened = await session.open(node)
        data = keyed(*by_murmur2(0), *by_murmur2(1))
        await taken(node.logs.intake.append(opened.input, 0, 0, 0, data))
        found = finished(describe_topic(node, DescribeTopic("t"))).misplaced_keys
        wanted = ("s", 0, len(by_murmur2(0)) + len(by_murmur2(1)), len(by_murmur2(1)))
        shown = [(each.session, each.partition, each.compared, each.misplaced) for each in found]
        assert shown == ([wanted] if counts else [])

    run_with(tmp_path, 1, body)
