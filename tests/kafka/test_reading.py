"""Reading through a node: by hand where the bytes matter, with real clients where they do."""

from __future__ import annotations

import json
import signal
import threading
import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as Place
from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, NewPartitions, NewTopic

from samelog.kafka.registry import APIS
from tests.e2e.harness import World, wait_for
from tests.kafka.wire import Wire, fetch, metadata, request, response
from tests.patience import PATIENCE_S

LIST_OFFSETS, EPOCH_END = 2, 23
CREATE, DELETE, DESCRIBE_CONFIGS, ALTER, PARTITIONS, CLUSTER = 19, 20, 32, 44, 37, 60
RECORDS = 300


@pytest.fixture(scope="module")
def flights(world: World) -> str:
    """A topic of known records, on every node."""
    with world.publisher("p", "flights", batch_bytes=2000, linger_ms=50) as publisher:
        for number in range(RECORDS):
            headers = [("n", str(number).encode())]
            publisher.append(
                b"v%d" % number, key=b"k%d" % number, timestamp=1000 + number, headers=headers
            )
        publisher.wait_merged(PATIENCE_S)
    world.wait_offset(RECORDS, "flights")
    return "flights"


@pytest.fixture
def wire(world: World) -> Iterator[Wire]:
    """A connection to the leader."""
    address = world.leader().kafka
    assert address is not None
    with Wire(address) as connection:
        yield connection


def consumer(world: World, **options: Any) -> Any:
    return KafkaConsumer(
        bootstrap_servers=world.cluster.client_config().kafka_bootstrap, group_id=None, **options
    )


def offset(wire: Wire, topic: str, timestamp: int, version: int = 10, epoch: int = -1) -> Any:
    partition = {"partition_index": 0, "timestamp": timestamp, "current_leader_epoch": epoch}
    tree = {
        "replica_id": -1,
        "isolation_level": 0,
        "timeout_ms": 1000,
        "topics": [{"name": topic, "partitions": [partition]}],
    }
    return wire.ask(LIST_OFFSETS, version, tree).topics[0].partitions[0]


# --- metadata -----------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(13))
def test_metadata_of_every_version(world: World, flights: str, wire: Wire, version: int) -> None:
    answer = metadata(wire, flights, version)
    ports = {(broker.host, broker.port) for broker in answer.brokers}
    assert ports == {node.kafka for node in world.cluster.nodes}
    (topic,) = answer.topics
    (partition,) = topic.partitions
    assert (topic.error_code, topic.name, partition.error_code) == (0, flights, 0)
    leader = next(broker for broker in answer.brokers if broker.node_id == partition.leader_id)
    assert (leader.host, leader.port) == world.leader().kafka
    assert sorted(partition.isr_nodes) == sorted(broker.node_id for broker in answer.brokers)
    if version >= 1:
        assert answer.controller_id in {broker.node_id for broker in answer.brokers}
    if version >= 7:
        assert partition.leader_epoch >= 1


def test_all_topics_and_one_by_its_id(flights: str, wire: Wire) -> None:
    known = metadata(wire, flights).topics[0]
    everything = metadata(wire, None)
    assert flights in {topic.name for topic in everything.topics}
    by_id = metadata(wire, None, topics=[{"name": None, "topic_id": known.topic_id}]).topics[0]
    assert (by_id.error_code, by_id.name) == (0, flights)
    unknown = metadata(wire, None, topics=[{"name": None, "topic_id": uuid.uuid4()}]).topics[0]
    assert unknown.error_code == 100


def test_topics_that_are_not_there(wire: Wire) -> None:
    assert metadata(wire, "nobody").topics[0].error_code == 3
    assert metadata(wire, "no such:name").topics[0].error_code == 17
    made = metadata(wire, "made", allow_auto_topic_creation=True).topics[0]
    assert (made.error_code, len(made.partitions)) == (0, 1)


def test_describe_cluster(world: World, wire: Wire) -> None:
    tree = {"include_cluster_authorized_operations": True}
    answer = wire.ask(CLUSTER, 1, tree)
    assert len(answer.brokers) == 3
    assert answer.cluster_id == world.cluster.options.cluster
    assert wire.ask(CLUSTER, 1, tree | {"endpoint_type": 2}).error_code == 115


@pytest.mark.parametrize("name", ["describe", "alter", "grow", "delete"])
def test_a_new_topic_is_looked_for_by_a_node_that_lags(world: World, wire: Wire, name: str) -> None:
    topic = f"new-{name}"
    resource = {"resource_type": 2, "resource_name": topic}
    config = {"name": "segment.bytes", "config_operation": 0, "value": "70000"}
    grown = {"name": topic, "count": 3, "assignments": None}
    options = {"timeout_ms": 5000, "validate_only": False}
    asked: dict[str, tuple[int, dict[str, Any]]] = {
        "describe": (
            DESCRIBE_CONFIGS,
            {"resources": [{**resource, "configuration_keys": None}]},
        ),
        "alter": (
            ALTER,
            {"resources": [{**resource, "configs": [config]}], "validate_only": False},
        ),
        "grow": (PARTITIONS, {"topics": [grown], **options}),
        "delete": (DELETE, {"topic_names": [topic], "timeout_ms": 5000}),
    }
    key, tree = asked[name]
    version = min(1, APIS[key].last)
    node = world.followers()[0]
    assert node.kafka is not None
    with Wire(node.kafka) as other:
        assert metadata(other, topic).topics[0].error_code == 3
        node.signal(signal.SIGSTOP)
        metadata(wire, topic, allow_auto_topic_creation=True)
        other.send(request(key, version, tree))
        node.signal(signal.SIGCONT)
        answer = response(key, version, other.receive())
    (result,) = getattr(answer, "responses", None) or answer.results
    assert result.error_code == 0


# --- offsets ------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(1, 11))
def test_offsets_of_every_version(flights: str, wire: Wire, version: int) -> None:
    assert offset(wire, flights, -1, version).offset == RECORDS
    assert offset(wire, flights, -2, version).offset == 0
    found = offset(wire, flights, 1100, version)
    assert (found.error_code, found.offset, found.timestamp) == (0, 100, 1100)
    late = offset(wire, flights, 99_999, version)
    assert (late.error_code, late.offset, late.timestamp) == (0, -1, -1)
    assert offset(wire, flights, -3, version).offset == RECORDS - 1


def test_offsets_that_cannot_be_answered(flights: str, wire: Wire) -> None:
    epoch = metadata(wire, flights).topics[0].partitions[0].leader_epoch
    assert offset(wire, "nobody", -1).error_code == 3
    assert offset(wire, flights, -1, epoch=epoch).error_code == 0
    assert offset(wire, flights, -1, epoch=epoch - 1).error_code == 74
    assert offset(wire, flights, -1, epoch=epoch + 7).error_code == 75
    assert offset(wire, flights, -77).error_code == 35


def test_the_end_is_the_same_on_every_node(world: World, flights: str) -> None:
    for node in world.cluster.nodes:
        assert node.kafka is not None
        with Wire(node.kafka) as wire:
            assert offset(wire, flights, -1).offset == RECORDS


def test_where_an_epoch_ends(flights: str, wire: Wire) -> None:
    epoch = metadata(wire, flights).topics[0].partitions[0].leader_epoch

    def end(asked: int) -> tuple[int, int, int]:
        partition = {"partition": 0, "current_leader_epoch": -1, "leader_epoch": asked}
        tree = {"replica_id": -1, "topics": [{"topic": flights, "partitions": [partition]}]}
        found = wire.ask(EPOCH_END, 4, tree).topics[0].partitions[0]
        return found.error_code, found.leader_epoch, found.end_offset

    assert end(epoch) == (0, epoch, RECORDS)
    assert end(epoch + 5)[0] == 75


# --- fetch --------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(4, 18))
def test_fetch_of_every_version(flights: str, wire: Wire, version: int) -> None:
    topic_id = metadata(wire, flights).topics[0].topic_id
    found = fetch(wire, flights, 250, version, id=topic_id)
    assert (found.error_code, found.high_watermark) == (0, RECORDS)
    assert found.last_stable_offset == RECORDS
    first = int.from_bytes(found.records[:8], "big")
    assert first <= 250


def test_the_first_batch_comes_whole_and_no_second_one_then(flights: str, wire: Wire) -> None:
    found = fetch(wire, flights, 0, max_bytes=1, partition_max_bytes=1)
    size = 12 + int.from_bytes(found.records[8:12], "big")
    assert len(found.records) == size > 1000


def test_offsets_out_of_range_and_at_the_end(flights: str, wire: Wire) -> None:
    at_end = fetch(wire, flights, RECORDS)
    assert (at_end.error_code, at_end.records) == (0, b"")
    assert fetch(wire, flights, RECORDS + 1, max_wait=5000).error_code == 1
    before = fetch(wire, flights, -5)
    assert (before.error_code, before.log_start_offset) == (1, 0)


def test_fetches_that_are_refused(flights: str, wire: Wire) -> None:
    epoch = metadata(wire, flights).topics[0].partitions[0].leader_epoch
    assert fetch(wire, "nobody", 0).error_code == 3
    assert fetch(wire, flights, 0, 13, id=uuid.uuid4()).error_code == 100
    assert fetch(wire, flights, 0, epoch=epoch - 1).error_code == 74
    assert fetch(wire, flights, 0, epoch=epoch + 1).error_code == 75
    assert fetch(wire, flights, 0, session_id=5, session_epoch=1).error_code == 70


def test_a_long_poll_ends_when_its_time_is_over(flights: str, wire: Wire) -> None:
    started = time.monotonic()
    assert fetch(wire, flights, RECORDS, max_wait=300).records == b""
    assert time.monotonic() - started >= 0.299, "timers count whole milliseconds"


def test_a_long_poll_is_woken_by_the_merger(world: World, wire: Wire) -> None:
    metadata(wire, "poll", allow_auto_topic_creation=True)
    found: list[Any] = []

    def poll() -> None:
        found.append(fetch(wire, "poll", 0, max_wait=20_000))

    thread = threading.Thread(target=poll)
    thread.start()
    with world.publisher("poller", "poll") as publisher:
        publisher.append(b"news")
        thread.join(PATIENCE_S)
    assert not thread.is_alive()
    assert b"news" in found[0].records


def test_read_committed_gets_an_empty_list_of_aborted(flights: str, wire: Wire) -> None:
    assert fetch(wire, flights, 0, isolation=1).aborted_transactions == ()
    assert fetch(wire, flights, 0, isolation=0).aborted_transactions is None


def test_kafka_python_reads_what_was_published(world: World, flights: str) -> None:
    partition = TopicPartition(flights, 0)
    reader = consumer(world, auto_offset_reset="earliest")
    reader.assign([partition])
    records: list[Any] = []
    wait_for(
        lambda: (
            bool(records.extend(reader.poll(500).get(partition, ())))  # type: ignore[func-returns-value]
            or len(records) >= RECORDS
        ),
        "all records",
    )
    assert [(r.offset, r.key, r.value, r.timestamp) for r in records] == [
        (n, b"k%d" % n, b"v%d" % n, 1000 + n) for n in range(RECORDS)
    ]
    assert records[7].headers == [("n", b"7")]
    assert reader.end_offsets([partition]) == {partition: RECORDS}
    reader.close()


# --- topics -------------------------------------------------------------------------------------


def test_kafka_python_administers_topics(world: World) -> None:
    admin = KafkaAdminClient(bootstrap_servers=world.cluster.client_config().kafka_bootstrap)
    admin.create_topics([NewTopic("admin", 2, 3, topic_configs={"segment.bytes": "65536"})])
    admin.create_partitions({"admin": NewPartitions(4)})
    assert len(admin.describe_topics(["admin"])[0]["partitions"]) == 4
    resource = ConfigResource(ConfigResourceType.TOPIC, "admin")
    described = admin.describe_configs([resource])
    assert "65536" in str(described)
    admin.delete_topics(["admin"])
    assert "admin" not in admin.list_topics()
    admin.close()


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        ({"name": "bad name"}, 17),
        ({"num_partitions": 0}, 37),
        ({"num_partitions": 10_001}, 37),
        ({"replication_factor": 4}, 38),
        ({"configs": [{"name": "colour", "value": "red"}]}, 40),
        ({"configs": [{"name": "segment.bytes", "value": "1"}]}, 40),
        ({"assignments": [{"partition_index": 0, "broker_ids": [0]}]}, 42),
        ({"name": "flights"}, 36),
    ],
)
def test_topics_that_cannot_be_made(
    flights: str, wire: Wire, topic: dict[str, Any], code: int
) -> None:
    tree = {"name": "x", "num_partitions": 1, "replication_factor": 1} | topic
    tree = {"assignments": [], "configs": []} | tree
    answer = wire.ask(CREATE, 7, {"topics": [tree], "timeout_ms": 1000})
    (result,) = answer.topics
    assert (result.error_code, result.configs) == (code, ())
    assert result.error_message


@pytest.mark.parametrize("version", range(2, 8))
def test_topics_are_made_and_deleted_in_every_version(wire: Wire, version: int) -> None:
    topic = {"name": f"v{version}", "num_partitions": 3, "replication_factor": 1}
    topic |= {"assignments": [], "configs": [{"name": "retention.ms", "value": "-1"}]}
    (made,) = wire.ask(CREATE, version, {"topics": [topic], "timeout_ms": 1000}).topics
    assert made.error_code == 0
    found = metadata(wire, f"v{version}").topics[0]
    assert len(found.partitions) == 3
    tree = {"topic_names": [found.name], "topics": [{"name": found.name, "topic_id": None}]}
    (gone,) = wire.ask(DELETE, version - 1, tree | {"timeout_ms": 1000}).responses
    assert (gone.error_code, gone.name) == (0, found.name)
    (again,) = wire.ask(DELETE, version - 1, tree | {"timeout_ms": 1000}).responses
    assert again.error_code == 3


def test_settings_are_changed_and_described(wire: Wire) -> None:
    metadata(wire, "settings", allow_auto_topic_creation=True)

    def alter(name: str, operation: int, value: str | None) -> int:
        config = {"name": name, "config_operation": operation, "value": value}
        resource = {"resource_type": 2, "resource_name": "settings", "configs": [config]}
        tree = {"resources": [resource], "validate_only": False}
        return int(wire.ask(ALTER, 1, tree).responses[0].error_code)

    def described() -> dict[str, tuple[str, int]]:
        resource = {"resource_type": 2, "resource_name": "settings", "configuration_keys": None}
        result = wire.ask(DESCRIBE_CONFIGS, 4, {"resources": [resource]}).results[0]
        return {each.name: (each.value, each.config_source) for each in result.configs}

    assert alter("segment.bytes", 0, "70000") == 0
    assert described()["segment.bytes"] == ("70000", 1)
    assert alter("segment.bytes", 1, None) == 0
    assert described()["segment.bytes"][1] == 5
    assert alter("segment.bytes", 0, "1") == 40
    assert alter("segment.bytes", 2, "1") == 40
    assert alter("colour", 0, "red") == 40


def test_a_topic_never_has_fewer_partitions(wire: Wire) -> None:
    metadata(wire, "grow", allow_auto_topic_creation=True)

    def grow(count: int) -> int:
        topic = {"name": "grow", "count": count, "assignments": None}
        tree = {"topics": [topic], "timeout_ms": 1000, "validate_only": False}
        return int(wire.ask(PARTITIONS, 3, tree).results[0].error_code)

    assert [grow(3), grow(3), grow(1), grow(20_000)] == [0, 37, 37, 37]
    assert len(metadata(wire, "grow").topics[0].partitions) == 3


# --- racks --------------------------------------------------------------------------------------


def test_the_leader_sends_clients_to_the_node_in_their_rack(
    world: World, flights: str, wire: Wire
) -> None:
    near = world.followers()[0]
    described = metadata(wire, flights)
    numbers = {broker.rack: broker.node_id for broker in described.brokers}
    sent = fetch(wire, flights, 0, rack=near.name, max_wait=30_000, min_bytes=1 << 30)
    assert (sent.error_code, sent.preferred_read_replica) == (0, numbers[near.name])
    assert (sent.high_watermark, sent.records) == (RECORDS, b"")
    for rack in ("", "elsewhere", world.leader().name):
        served = fetch(wire, flights, 0, rack=rack)
        assert (served.preferred_read_replica, bool(served.records)) == (-1, True)
    assert near.kafka is not None
    with Wire(near.kafka) as there:
        served = fetch(there, flights, 0, rack=near.name)
        assert (served.preferred_read_replica, bool(served.records)) == (-1, True)


def test_a_client_with_a_rack_reads_there(world: World, flights: str, wire: Wire) -> None:
    near = world.followers()[0]
    counted: dict[int, int] = {}

    def take(text: str) -> None:
        for broker in json.loads(text)["brokers"].values():
            counted[broker["nodeid"]] = broker["req"].get("Fetch", 0)

    options = {
        "bootstrap.servers": world.cluster.client_config().kafka_bootstrap,
        "group.id": "near",
        "client.rack": near.name,
        "statistics.interval.ms": 200,
        "stats_cb": take,
    }
    numbers = {broker.rack: broker.node_id for broker in metadata(wire, flights).brokers}
    found: list[Any] = []
    with Consumer(options) as reader:
        reader.assign([Place(flights, 0, 0)])

        def look() -> bool:
            found.extend(reader.consume(RECORDS, 0.2))
            return len(found) >= RECORDS and counted.get(numbers[near.name], 0) > 0

        wait_for(look, "records of the node nearby")
    assert [message.value() for message in found] == [b"v%d" % n for n in range(RECORDS)]


def test_group_limits_are_described(world: World, wire: Wire) -> None:
    broker = metadata(wire, None).controller_id
    asked = [
        {"resource_type": kind, "resource_name": name, "configuration_keys": None}
        for kind, name in ((4, str(broker)), (32, "any-group"))
    ]
    tree = {"resources": asked, "include_synonyms": False, "include_documentation": False}
    node, group = wire.ask(DESCRIBE_CONFIGS, 4, tree).results
    limits = {config.name: config.value for config in node.configs}
    assert limits["group.max.size"] == "1000"
    assert limits["broker.rack"] in {each.name for each in world.cluster.nodes}
    assert {config.name: config.value for config in group.configs} == {
        "consumer.heartbeat.interval.ms": "5000",
        "consumer.session.timeout.ms": "45000",
    }


def test_the_session_of_a_native_publisher_is_a_header(world: World) -> None:
    with world.publisher("teller", "told", session_header=True) as publisher:
        publisher.append(b"x", headers={"h": b"1"})
        publisher.wait_merged(PATIENCE_S)
    reader = consumer(world)
    reader.assign([TopicPartition("told", 0)])
    reader.seek_to_beginning()
    found: list[Any] = []

    def look() -> bool:
        found.extend(record for records in reader.poll(200).values() for record in records)
        return bool(found)

    wait_for(look, "the record")
    reader.close()
    assert list(found[0].headers) == [("h", b"1"), ("samelog.session", b"teller")]
