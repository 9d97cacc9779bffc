"""Topics whose partitions are in data groups, to Kafka's clients: made, told of, written, read."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._listoffsets import OffsetSpec
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaException,
    NewPartitions,
    NewTopic,
    Producer,
    TopicPartition,
)

from samelog.admin.client import ask
from samelog.admin.errors import AdminError
from samelog.admin.placement_requests import GetPlacement
from samelog.admin.requests import CreatePartitions, CreateTopic, SetSchema
from samelog.cli.local_cluster import LocalNode
from samelog.config.values import Address
from tests.e2e.harness import World, wait_for
from tests.kafka.wire import Wire, fetch
from tests.patience import PATIENCE_S

RECORDS = 300
PARTITIONS = 6


@pytest.fixture
def admin(boot: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": boot})


def create(admin: AdminClient, topic: NewTopic) -> None:
    admin.create_topics([topic], request_timeout=PATIENCE_S)[topic.topic].result(PATIENCE_S)


def partitions_of(admin: AdminClient, topic: str) -> Iterator[tuple[int, list[int]]]:
    """(leader, replicas) of each, once all have leaders."""
    known = {}
    for _ in range(int(PATIENCE_S * 10)):
        known = admin.list_topics(topic, timeout=PATIENCE_S).topics[topic].partitions
        if known and all(each.leader >= 0 for each in known.values()):
            return iter([(each.leader, each.replicas) for _, each in sorted(known.items())])
        admin.poll(0.1)
    raise AssertionError(f"no leaders: {known}")


def write(boot: str, topic: str, values: list[bytes]) -> None:
    producer = Producer({"bootstrap.servers": boot, "acks": "all", "enable.idempotence": True})
    failures: list[object] = []
    for number, value in enumerate(values):
        producer.produce(
            topic,
            value,
            partition=number % PARTITIONS,
            on_delivery=lambda error, _: failures.append(error) if error else None,
        )
    assert producer.flush(PATIENCE_S) == 0
    assert not failures


def read(boot: str, topic: str, count: int) -> list[bytes]:
    return read_all(boot, topic, PARTITIONS, count)


def read_all(boot: str, topic: str, partitions: int, count: int) -> list[bytes]:
    """As many records, of all partitions."""
    consumer = Consumer({"bootstrap.servers": boot, "group.id": f"g-{topic}"})
    consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in range(partitions)])
    found: list[bytes] = []
    try:
        while len(found) < count:
            message = consumer.poll(PATIENCE_S)
            assert message is not None, f"{len(found)} of {count} records"
            assert message.error() is None
            found.append(message.value() or b"")
    finally:
        consumer.close()
    return found


@pytest.mark.parametrize("copies", [1, 2])
def test_a_topic_has_as_many_replicas_as_it_asks_for(
    boot: str, admin: AdminClient, copies: int
) -> None:
    topic = f"placed-{uuid.uuid4()}"
    create(admin, NewTopic(topic, PARTITIONS, copies))
    known = list(partitions_of(admin, topic))
    assert all(len(replicas) == copies and leader in replicas for leader, replicas in known), known
    assert len({leader for leader, _ in known}) > 1, "leaders are spread"
    values = [b"%d" % number for number in range(RECORDS)]
    write(boot, topic, values)
    assert sorted(read(boot, topic, RECORDS)) == sorted(values)
    spec: Any = OffsetSpec
    wanted = {TopicPartition(topic, p): spec.latest() for p in range(PARTITIONS)}
    ends = admin.list_offsets(wanted, request_timeout=PATIENCE_S)
    assert sum(each.result(PATIENCE_S).offset for each in ends.values()) == RECORDS


def test_a_new_partition_takes_what_nobody_answers(boot: str, admin: AdminClient) -> None:
    """With acks=0 a refusal loses the records, so a topic that is created takes them at once."""
    for number in range(5):
        topic = f"new-{number}-{uuid.uuid4()}"
        create(admin, NewTopic(topic, 1, 1))
        producer = Producer({"bootstrap.servers": boot, "acks": 0})
        values = [b"%d" % value for value in range(RECORDS)]
        for value in values:
            producer.produce(topic, value)
        assert producer.flush(PATIENCE_S) == 0
        assert read_all(boot, topic, 1, RECORDS) == values


def test_an_assignment_is_taken_as_it_is(boot: str, admin: AdminClient) -> None:
    topic = f"assigned-{uuid.uuid4()}"
    wanted = [[2, 0], [1, 2], [0, 1], [2, 1], [1, 0], [0, 2]]
    create(admin, NewTopic(topic, PARTITIONS, replica_assignment=wanted))
    known = list(partitions_of(admin, topic))
    assert [sorted(replicas) for _, replicas in known] == [sorted(each) for each in wanted]
    write(boot, topic, [b"x"] * PARTITIONS)
    assert read(boot, topic, PARTITIONS) == [b"x"] * PARTITIONS


def test_an_assignment_that_cannot_be_is_refused(admin: AdminClient) -> None:
    for wanted in ([[0, 0]], [[7]], [[0], [1, 2]]):
        name = f"bad-{uuid.uuid4()}"
        with pytest.raises(KafkaException):
            create(admin, NewTopic(name, len(wanted), replica_assignment=wanted))


def test_a_topic_that_is_deleted_leaves_its_groups(boot: str, admin: AdminClient) -> None:
    topic = f"deleted-{uuid.uuid4()}"
    create(admin, NewTopic(topic, PARTITIONS, 2))
    list(partitions_of(admin, topic))
    write(boot, topic, [b"x"] * PARTITIONS)
    admin.delete_topics([topic])[topic].result(PATIENCE_S)
    create(admin, NewTopic(topic, PARTITIONS, 2))
    list(partitions_of(admin, topic))
    write(boot, topic, [b"y"] * PARTITIONS)
    assert read(boot, topic, PARTITIONS) == [b"y"] * PARTITIONS


def test_who_has_a_rack_is_sent_to_a_replica_there_and_to_nobody_else(
    world: World, boot: str, admin: AdminClient
) -> None:
    """Whichever node leads group 0: each node is a rack of its own."""
    topic, nodes = f"near-{uuid.uuid4()}", world.cluster.nodes
    for leader in range(len(nodes)):
        near, far = ((leader + step) % len(nodes) for step in (1, 2))
        name = f"{topic}-{leader}"
        create(admin, NewTopic(name, 1, replica_assignment=[[leader, near]]))
        wait_for(lambda n=name, w=leader: leads(admin, n) == w, "who shall lead")  # type: ignore[misc]
        producer = Producer({"bootstrap.servers": boot, "acks": "all"})
        producer.produce(name, b"x")
        assert producer.flush(PATIENCE_S) == 0
        with Wire(there(nodes[leader])) as wire:
            sent = fetch(wire, name, 0, rack=nodes[near].name)
            assert (sent.preferred_read_replica, sent.records) == (near, b"")
            served = fetch(wire, name, 0, rack=nodes[far].name)
            assert (served.preferred_read_replica, bool(served.records)) == (-1, True)


def leads(admin: AdminClient, topic: str) -> int:
    """Who leads the only partition."""
    ((leader, _),) = partitions_of(admin, topic)
    return leader


def there(node: LocalNode) -> Address:
    """Where it takes Kafka clients."""
    assert node.kafka is not None
    return node.kafka


def test_records_stay_when_a_node_is_killed(world: World, boot: str, admin: AdminClient) -> None:

    topic = f"kept-{uuid.uuid4()}"
    create(admin, NewTopic(topic, PARTITIONS, 2))
    list(partitions_of(admin, topic))
    values = [b"%d" % number for number in range(RECORDS)]
    write(boot, topic, values)
    for node in world.cluster.nodes:
        node.kill()
        node.start()
    world.cluster.wait_live()
    assert sorted(read(boot, topic, RECORDS)) == sorted(values)


def test_placement_shows_what_is_where(world: World, boot: str, admin: AdminClient) -> None:
    topic = f"shown-{uuid.uuid4()}"
    create(admin, NewTopic(topic, 1, replica_assignment=[[2, 0]]))
    list(partitions_of(admin, topic))
    found = ask(world.cluster.client_config(), GetPlacement())
    names = [node.name for node in world.cluster.nodes]
    assert found.groups[0].group == 0
    assert sorted(found.groups[0].members) == names
    (placed,) = [each for each in found.partitions if each.topic == topic]
    (group,) = [each for each in found.groups if each.group == placed.group]
    assert placed.replicas == group.members == (names[2], names[0])
    assert (group.copies, placed.leader) == (2, group.leader)
    assert group.leader in group.members


@pytest.mark.parametrize("copies", [1, 2])
def test_our_own_subscribers_read_from_whoever_has_it(
    world: World, boot: str, admin: AdminClient, copies: int
) -> None:
    topic = f"followed-{uuid.uuid4()}"
    create(admin, NewTopic(topic, PARTITIONS, copies))
    list(partitions_of(admin, topic))
    values = [b"%d" % number for number in range(RECORDS)]
    write(boot, topic, values)
    found = [each.value or b"" for each in world.read(RECORDS, name=topic, topic=topic)]
    assert sorted(found) == sorted(values)


@pytest.mark.parametrize("copies", [1, 2])
def test_our_own_publishers_write_to_whoever_has_it(
    world: World, boot: str, admin: AdminClient, copies: int
) -> None:
    topic = f"published-{uuid.uuid4()}"
    create(admin, NewTopic(topic, PARTITIONS, copies))
    list(partitions_of(admin, topic))
    values = [b"%d" % number for number in range(RECORDS)]
    for run in range(2):
        with world.publisher(topic, topic) as publisher:
            for number in range(RECORDS // 2):
                value = values[run * RECORDS // 2 + number]
                publisher.append(value, partition=number % PARTITIONS)
            publisher.wait_merged(PATIENCE_S)
    found = [each.value or b"" for each in world.read(RECORDS, name=topic, topic=topic)]
    assert sorted(found) == sorted(values)


def test_nothing_is_lost_or_doubled_while_nodes_are_killed(
    world: World, boot: str, admin: AdminClient
) -> None:
    topic = f"killed-{uuid.uuid4()}"
    create(admin, NewTopic(topic, PARTITIONS, 2))
    list(partitions_of(admin, topic))
    with world.publisher(topic, topic) as publisher:
        number = 0
        for node in world.cluster.nodes * 2:
            for _ in range(200):
                publisher.append(b"%d" % number, partition=number % PARTITIONS)
                number += 1
            node.kill()
            for _ in range(200):
                publisher.append(b"%d" % number, partition=number % PARTITIONS)
                number += 1
            node.start()
            world.wait_live(node)
        publisher.wait_merged(PATIENCE_S)
    records = world.read(number, name=topic, topic=topic)
    by_partition = {
        p: [int(each.value or b"") for each in records if each.partition == p] for p in range(6)
    }
    assert by_partition == {p: list(range(p, number, PARTITIONS)) for p in range(PARTITIONS)}


def test_our_own_command_makes_them(world: World, boot: str, admin: AdminClient) -> None:
    topic, config = f"ours-{uuid.uuid4()}", world.cluster.client_config()
    ask(config, CreateTopic(topic, PARTITIONS, {}, 2))
    known = list(partitions_of(admin, topic))
    assert {len(replicas) for _, replicas in known} == {2}
    ask(config, CreateTopic(f"{topic}-all", 1, {}, 3))
    assert [len(replicas) for _, replicas in partitions_of(admin, f"{topic}-all")] == [3]


def test_a_topic_gets_more_partitions(world: World, boot: str, admin: AdminClient) -> None:
    topic, config = f"grown-{uuid.uuid4()}", world.cluster.client_config()
    create(admin, NewTopic(topic, 2, 2))
    admin.create_partitions([NewPartitions(topic, 4)])[topic].result(PATIENCE_S)
    admin.create_partitions([NewPartitions(topic, 5, [[2, 1]])])[topic].result(PATIENCE_S)
    ask(config, CreatePartitions(topic, PARTITIONS))
    known = list(partitions_of(admin, topic))
    assert [len(replicas) for _, replicas in known] == [2] * PARTITIONS
    assert sorted(known[4][1]) == [1, 2]
    values = [b"%d" % number for number in range(RECORDS)]
    write(boot, topic, values)
    assert sorted(read(boot, topic, RECORDS)) == sorted(values)
    with pytest.raises(AdminError, match="and keeps them"):
        ask(config, CreatePartitions(topic, 3))


def test_more_copies_than_nodes_wait_for_nodes(world: World, boot: str) -> None:
    topic, config = f"eager-{uuid.uuid4()}", world.cluster.client_config()
    ask(config, CreateTopic(topic, 1, {}, 5))
    found = ask(config, GetPlacement())
    (placed,) = [each for each in found.partitions if each.topic == topic]
    (group,) = [each for each in found.groups if each.group == placed.group]
    assert (group.copies, len(group.members)) == (5, 3)
    with world.publisher(topic, topic) as publisher:
        publisher.append(b"x")
        publisher.wait_merged(PATIENCE_S)


def test_a_topic_has_a_schema(world: World, boot: str, admin: AdminClient) -> None:
    topic, config = f"typed-{uuid.uuid4()}", world.cluster.client_config()
    create(admin, NewTopic(topic, PARTITIONS, 2))
    first = '{"format": "json", "columns": [{"name": "a", "type": "int64"}'
    schemas = [first + "]}", first + ', {"name": "b", "type": "string"}]}']
    for follows, schema in enumerate(schemas):
        assert ask(config, SetSchema(topic, schema, follows)).version == follows + 1
        rows = [{"a": number} | ({"b": "x"} if follows else {}) for number in range(RECORDS)]
        with world.publisher(f"{topic}-{follows}", topic) as publisher:
            for number, row in enumerate(rows):
                publisher.append_rows([row], partition=number % PARTITIONS)
            publisher.wait_merged(PATIENCE_S)
    found: list[Any] = []
    with world.subscriber(topic, topic) as subscriber:
        while len(found) < 2 * RECORDS:
            found += subscriber.rows(timeout=PATIENCE_S)
    assert Counter((row.values or {})["b"] for row in found) == {None: RECORDS, "x": RECORDS}


def test_records_are_deleted(world: World, boot: str, admin: AdminClient) -> None:
    topic = f"cut-{uuid.uuid4()}"
    create(admin, NewTopic(topic, PARTITIONS, 2))
    list(partitions_of(admin, topic))
    write(boot, topic, [b"%d" % number for number in range(RECORDS)])
    for made in admin.delete_records([TopicPartition(topic, 1, 10)]).values():
        assert made.result(PATIENCE_S).low_watermark == 10
    assert len(read(boot, topic, RECORDS - 10)) == RECORDS - 10


def test_each_node_tells_what_it_has_on_its_disk(
    world: World, boot: str, admin: AdminClient
) -> None:
    topic = f"files-{uuid.uuid4()}"
    create(admin, NewTopic(topic, PARTITIONS, 2))
    list(partitions_of(admin, topic))
    write(boot, topic, [b"%d" % number for number in range(RECORDS)])

    def told() -> Counter[int]:
        """In how many directories each partition is."""
        found: Counter[int] = Counter()
        for node in world.cluster.nodes:
            assert node.kafka is not None
            with Wire(node.kafka) as wire:
                (directory,) = wire.ask(35, 4, {"topics": None}).results
            for each in directory.topics:
                if each.name == topic:
                    sizes = {part.partition_index: part.partition_size for part in each.partitions}
                    found.update(index for index, size in sizes.items() if size > 0)
        return found

    wait_for(lambda: told() == dict.fromkeys(range(PARTITIONS), 2), "all copies are told")


def test_a_majority_is_one_of_the_copies_of_a_topic(boot: str, admin: AdminClient) -> None:
    """Of three nodes two are one; of a single copy, that one."""
    known = {}
    for copies in (1, 2, 3):
        known[copies] = f"copies-{copies}-{uuid.uuid4()}"
        create(admin, NewTopic(known[copies], 1, copies))
    resources = {ConfigResource(ResourceType.TOPIC, name): n for n, name in known.items()}
    for resource, told in admin.describe_configs(list(resources)).items():
        shown = told.result(PATIENCE_S)["min.insync.replicas"].value
        assert shown == ("1" if resources[resource] == 1 else "2")
    lie = NewTopic(f"lie-{uuid.uuid4()}", 1, 1, config={"min.insync.replicas": "2"})
    with pytest.raises(KafkaException) as refused:
        create(admin, lie)
    assert refused.value.args[0].code() == 40
