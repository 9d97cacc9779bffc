"""Partitions of data groups are moved and led as Kafka's administrators ask."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from threading import Thread

import pytest
from confluent_kafka import ElectionType
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic, TopicPartition

from tests.e2e.harness import World, wait_for
from tests.kafka.test_placed_topics import (
    PARTITIONS,
    RECORDS,
    create,
    partitions_of,
    read,
    read_all,
    write,
)
from tests.kafka.wire import Wire
from tests.patience import PATIENCE_S


@pytest.fixture
def admin(boot: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": boot})


@pytest.fixture
def wire(world: World) -> Iterator[Wire]:
    kafka = world.cluster.nodes[1].kafka
    assert kafka is not None
    with Wire(kafka) as found:
        yield found


def reassign(wire: Wire, topic: str, wanted: dict[int, list[int] | None]) -> list[int]:
    parts = [{"partition_index": index, "replicas": nodes} for index, nodes in wanted.items()]
    asked = {"timeout_ms": 1000, "topics": [{"name": topic, "partitions": parts}]}
    answer = wire.ask(45, 0, asked)
    assert int(answer.error_code) == 0
    return [int(each.error_code) for each in answer.responses[0].partitions]


def under_way(wire: Wire, topic: str) -> dict[int, tuple[list[int], list[int], list[int]]]:
    answer = wire.ask(46, 0, {"timeout_ms": 1000, "topics": None})
    return {
        part.partition_index: (
            list(part.replicas),
            list(part.adding_replicas),
            list(part.removing_replicas),
        )
        for each in answer.topics
        if each.name == topic
        for part in each.partitions
    }


def replicas(admin: AdminClient, topic: str) -> list[list[int]]:
    return [nodes for _, nodes in partitions_of(admin, topic)]


def test_partitions_move_one_by_one_with_their_records(
    wire: Wire, boot: str, admin: AdminClient
) -> None:
    topic = f"reassigned-{uuid.uuid4()}"
    create(admin, NewTopic(topic, PARTITIONS, 2))
    list(partitions_of(admin, topic))
    values = [b"%d" % number for number in range(RECORDS)]
    write(boot, topic, values)
    wanted: dict[int, list[int] | None] = {
        index: [(index + 1) % 3, index % 3] if index % 2 else [(index + 2) % 3]
        for index in range(PARTITIONS)
    }
    more = [b"more-%d" % number for number in range(RECORDS)]
    writing = Thread(target=write, args=(boot, topic, more))
    assert set(reassign(wire, topic, wanted)) == {0}
    writing.start()
    wait_for(lambda: not under_way(wire, topic), "all are where they are wanted")
    writing.join()
    assert replicas(admin, topic) == [wanted[index] for index in range(PARTITIONS)]
    write(boot, topic, values)
    found = read(boot, topic, 3 * RECORDS)
    assert sorted(found) == sorted([*values, *more, *values])


def test_a_whole_group_moves_and_may_be_stopped(wire: Wire, boot: str, admin: AdminClient) -> None:
    topic = f"whole-{uuid.uuid4()}"
    create(admin, NewTopic(topic, PARTITIONS, replica_assignment=[[0, 1]] * PARTITIONS))
    list(partitions_of(admin, topic))
    write(boot, topic, [b"x"] * RECORDS)
    assert reassign(wire, topic, {0: None}) == [85]
    assert reassign(wire, topic, {index: [2, 1] for index in range(PARTITIONS)}) == [0] * PARTITIONS
    wait_for(lambda: not under_way(wire, topic), "all have moved")
    assert replicas(admin, topic) == [[2, 1]] * PARTITIONS
    assert read(boot, topic, RECORDS) == [b"x"] * RECORDS


def test_what_cannot_be_is_refused(wire: Wire, admin: AdminClient) -> None:
    topic = f"refused-{uuid.uuid4()}"
    create(admin, NewTopic(topic, PARTITIONS, 2))
    list(partitions_of(admin, topic))
    wanted: dict[int, list[int] | None] = {0: [0, 0], 1: [7], 2: [], 3: None, 9: [0]}
    assert reassign(wire, topic, wanted) == [39, 39, 38, 85, 3]


def test_partitions_whose_keys_count_once_move_by_themselves(
    wire: Wire, admin: AdminClient
) -> None:
    topic = f"keyed-{uuid.uuid4()}"
    create(admin, NewTopic(topic, PARTITIONS, 1, config={"dedup.key": "first"}))
    list(partitions_of(admin, topic))
    assert reassign(wire, topic, {0: [0, 1]}) == [0]
    wait_for(lambda: not under_way(wire, topic), "it is where it is wanted")
    assert replicas(admin, topic)[0] == [0, 1]


def test_the_first_replica_is_elected(wire: Wire, admin: AdminClient) -> None:
    topic = f"elected-{uuid.uuid4()}"
    create(admin, NewTopic(topic, 1, replica_assignment=[[2, 0]]))
    wait_for(lambda: next(partitions_of(admin, topic))[0] == 2, "the first leads")
    wanted = [TopicPartition(topic, 0), TopicPartition(topic, 9)]
    found = admin.elect_leaders(ElectionType.PREFERRED, wanted).result(PATIENCE_S)
    assert {each.partition: found[each].code() for each in found} == {0: 84, 9: 3}


def test_throttles_that_nothing_has_are_taken_back(wire: Wire, admin: AdminClient) -> None:
    topic = f"throttled-{uuid.uuid4()}"
    create(admin, NewTopic(topic, 1, 2))
    wait_for(lambda: len(list(partitions_of(admin, topic))) == 1, "it is known")

    def codes(kind: int, name: str, setting: str, operation: int) -> list[int]:
        config = {"name": setting, "config_operation": operation, "value": None}
        resource = {"resource_type": kind, "resource_name": name, "configs": [config]}
        answer = wire.ask(44, 0, {"resources": [resource], "validate_only": False})
        return [int(each.error_code) for each in answer.responses]

    rate, replicas = "leader.replication.throttled.rate", "leader.replication.throttled.replicas"
    assert codes(4, "0", rate, 1) == [0]
    assert codes(2, topic, replicas, 1) == [0]
    assert codes(4, "0", "num.io.threads", 1) == [40]
    assert codes(4, "0", rate, 0) == [40]


def test_what_is_archived_of_a_partition_stays_so(
    world: World, wire: Wire, boot: str, admin: AdminClient
) -> None:
    topic, size = f"archived-{uuid.uuid4()}", 40_000
    new = NewTopic(topic, 1, replica_assignment=[[0, 1]], config={"segment.bytes": "65536"})
    create(admin, new)
    list(partitions_of(admin, topic))
    for number in range(9):
        with world.publisher(topic, topic) as publisher:
            publisher.append(b"%d" % number * size)
            publisher.wait_merged(PATIENCE_S)
    before = {TopicPartition(topic, 0, 5)}
    admin.delete_records([*before])[TopicPartition(topic, 0)].result(PATIENCE_S)
    assert reassign(wire, topic, {0: [2, 1]}) == [0]
    wait_for(lambda: not under_way(wire, topic), "it has moved")
    assert replicas(admin, topic) == [[2, 1]]
    write(boot, topic, [b"more"])
    found = read_all(boot, topic, 1, 5)
    assert [each[:4] for each in found] == [b"5555", b"6666", b"7777", b"8888", b"more"]
