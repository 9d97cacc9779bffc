"""DeleteRecords: by hand and with real admin clients; what consumers see of it."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import TopicPartition as ConfluentPartition
from confluent_kafka.admin import AdminClient
from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition
from kafka.errors import OffsetOutOfRangeError

from tests.e2e.harness import World, wait_for
from tests.kafka.features import shows
from tests.kafka.wire import Wire, fetch
from tests.patience import PATIENCE_S

DELETE_RECORDS, CREATE_TOPICS, LIST_OFFSETS = 21, 19, 2
OUT_OF_RANGE, UNKNOWN, HIGH_WATERMARK = 1, 3, -1
RECORDS = 9
NUMBERS = itertools.count()


@pytest.fixture
def wire(world: World) -> Iterator[Wire]:
    """A connection to the leader."""
    address = world.leader().kafka
    assert address is not None
    with Wire(address) as connection:
        yield connection


@pytest.fixture
def topic(world: World, wire: Wire) -> str:
    """A topic whose segments hold one record each; the last one two."""
    name = f"t{next(NUMBERS)}"
    settings = [{"name": "segment.bytes", "value": "65536"}]
    wire.ask(
        CREATE_TOPICS,
        5,
        {
            "topics": [
                {
                    "name": name,
                    "num_partitions": 1,
                    "replication_factor": -1,
                    "assignments": [],
                    "configs": settings,
                }
            ],
            "timeout_ms": 5000,
            "validate_only": False,
        },
    )
    with world.publisher(name, name) as publisher:
        for _ in range(RECORDS - 1):
            publisher.append(b"x" * 40_000)
            publisher.wait_merged(PATIENCE_S)
        publisher.append(b"last")
        publisher.wait_merged(PATIENCE_S)
    world.wait_offset(RECORDS, name)
    return name


def delete(wire: Wire, topic: str, offset: int, version: int = 2, index: int = 0) -> Any:
    partition = {"partition_index": index, "offset": offset}
    tree = {"topics": [{"name": topic, "partitions": [partition]}], "timeout_ms": 5000}
    return wire.ask(DELETE_RECORDS, version, tree).topics[0].partitions[0]


def earliest(world: World, topic: str) -> set[int]:
    """What all nodes say."""
    found = set()
    for node in world.cluster.nodes:
        assert node.kafka is not None
        with Wire(node.kafka) as wire:
            partition = {"partition_index": 0, "timestamp": -2, "current_leader_epoch": -1}
            tree = {"replica_id": -1, "isolation_level": 0, "timeout_ms": 1000}
            topics = [{"name": topic, "partitions": [partition]}]
            answer = wire.ask(LIST_OFFSETS, 7, tree | {"topics": topics})
            found.add(answer.topics[0].partitions[0].offset)
    return found


def sizes(world: World, topic: str) -> list[list[int]]:
    """The bytes of every segment, of every node."""
    found = []
    for node in world.cluster.nodes:
        place = os.path.join(node.data, "merged", f"{topic}-0")
        names = sorted(name for name in os.listdir(place) if name.endswith(".log"))
        found.append([os.path.getsize(os.path.join(place, name)) for name in names])
    return found


@pytest.mark.parametrize("version", range(3))
def test_every_version(world: World, wire: Wire, topic: str, version: int) -> None:
    found = delete(wire, topic, 5, version)
    assert (found.error_code, found.low_watermark) == (0, 5)
    assert earliest(world, topic) == {5}
    again = delete(wire, topic, 2, version)
    assert (again.error_code, again.low_watermark) == (0, 5)


def test_whole_segments_give_their_disk_back_on_every_node(
    world: World, wire: Wire, topic: str
) -> None:
    delete(wire, topic, 5)
    wanted = [False] * 5 + [True] * 3
    wait_for(
        lambda: all([size > 0 for size in each] == wanted for each in sizes(world, topic)),
        "truncated",
    )
    found = delete(wire, topic, HIGH_WATERMARK)
    assert (found.error_code, found.low_watermark) == (0, RECORDS)
    assert earliest(world, topic) == {RECORDS}
    assert all(each[-1] > 0 for each in sizes(world, topic))  # it still grows


def test_what_is_deleted_cannot_be_fetched(world: World, wire: Wire, topic: str) -> None:
    delete(wire, topic, 8)  # inside the last segment
    assert earliest(world, topic) == {8}
    gone = fetch(wire, topic, 7)
    assert (gone.error_code, gone.log_start_offset) == (OUT_OF_RANGE, 8)
    left = fetch(wire, topic, 8)
    assert (left.error_code, left.log_start_offset, left.high_watermark) == (0, 8, RECORDS)


def test_bad_requests_are_answered(wire: Wire, topic: str) -> None:
    assert delete(wire, topic, RECORDS + 1).error_code == OUT_OF_RANGE
    assert delete(wire, topic, -2).error_code == OUT_OF_RANGE
    assert delete(wire, topic, 1, index=7).error_code == UNKNOWN
    assert delete(wire, "nobody", 1).error_code == UNKNOWN
    assert delete(wire, topic, 0).low_watermark == 0


@shows("kafka-python", "admin: delete records")
def test_kafka_pythons_admin_and_consumer(world: World, topic: str) -> None:
    bootstrap = world.cluster.client_config().kafka_bootstrap
    partition = TopicPartition(topic, 0)
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    admin.delete_records({partition: 6})
    admin.close()
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, group_id=None, auto_offset_reset="none")
    consumer.assign([partition])
    assert consumer.beginning_offsets([partition]) == {partition: 6}
    consumer.seek(partition, 2)
    with pytest.raises(OffsetOutOfRangeError):
        wait_for(lambda: bool(consumer.poll(500)), "something")
    consumer.close()
    reader = KafkaConsumer(bootstrap_servers=bootstrap, group_id=None, auto_offset_reset="earliest")
    reader.assign([partition])
    reader.seek(partition, 2)
    found: list[int] = []

    def look() -> bool:
        polled = reader.poll(500).get(partition, ())
        found.extend(record.offset for record in polled)
        return len(found) >= 3

    wait_for(look, "three records")
    assert found == [6, 7, 8]
    reader.close()


@shows("confluent-kafka", "admin: delete records")
def test_confluents_admin(world: World, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": world.cluster.client_config().kafka_bootstrap})
    futures = admin.delete_records([ConfluentPartition(topic, 0, 7)])
    (future,) = futures.values()
    assert future.result(PATIENCE_S).low_watermark == 7
    assert earliest(world, topic) == {7}


def test_native_subscribers_begin_behind_it(world: World, wire: Wire, topic: str) -> None:
    """One that copied before truncates its copy; one that begins now begins where it can."""
    early = world.subscriber("early", topic)
    with early:
        assert len(early.batch(max_records=3, timeout=PATIENCE_S)) > 0
        early.wait_caught_up(PATIENCE_S)
        delete(wire, topic, 8)
        place = world.directory / "subscribers" / "early" / f"{topic}-0"
        wait_for(
            lambda: [f.stat().st_size > 0 for f in sorted(place.glob("*.log"))]
            == [False] * 7 + [True],
            "the copy is truncated",
        )  # fmt: skip
    with world.subscriber("late", topic) as late:
        assert [record.offset for record in late.batch(max_records=5, timeout=PATIENCE_S)] == [8]


def test_it_survives_a_restart(world: World, wire: Wire, topic: str) -> None:
    delete(wire, topic, 4)
    node = world.followers()[0]
    node.stop()
    node.start()
    world.wait_live(node)
    assert earliest(world, topic) == {4}
