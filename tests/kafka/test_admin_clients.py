"""What the clients' administrators do, on a real cluster."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._listoffsets import OffsetSpec
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewPartitions, NewTopic
from kafka import KafkaAdminClient
from kafka import TopicPartition as PythonPartition
from kafka.admin import ConfigResource as PythonResource
from kafka.admin import ConfigResourceType as PythonKind
from kafka.errors import TopicAlreadyExistsError
from kafka.structs import OffsetAndMetadata

from samelog.admin.client import ask
from samelog.admin.requests import AlterTopic
from samelog.config.load import load_node
from tests.e2e.harness import World, wait_for
from tests.kafka.clients import Access, Rec, Writing, client_named
from tests.kafka.features import shows
from tests.kafka.wire import Wire
from tests.patience import PATIENCE_S

CONFLUENT, PYTHON = "confluent-kafka", "kafka-python"


@pytest.fixture
def admin(boot: str) -> AdminClient:
    """Librdkafka's."""
    return AdminClient({"bootstrap.servers": boot})


@pytest.fixture
def python(boot: str) -> Iterator[Any]:
    """kafka-python's."""
    client = KafkaAdminClient(bootstrap_servers=boot)
    yield client
    client.close()


def done(futures: dict[Any, Any]) -> Any:
    """What the only future gives."""
    (future,) = futures.values()
    return future.result(PATIENCE_S)


def code(futures: dict[Any, Any]) -> int:
    """The error that the only future ends with."""
    with pytest.raises(KafkaException) as refused:
        done(futures)
    return int(refused.value.args[0].code())


def write(boot: str, topic: str, *timestamps: int) -> None:
    """A record of each time, in a batch of its own."""
    for timestamp in timestamps:
        record = Rec(b"v", timestamp=timestamp)
        client_named(CONFLUENT).write(Access(bootstrap=boot), topic, [record], Writing())


# --- confluent-kafka ----------------------------------------------------------------------------


@shows(CONFLUENT, "admin: topics", "admin: partitions")
def test_topics(admin: AdminClient, topic: str) -> None:
    def partitions() -> Any:
        return admin.list_topics(topic, PATIENCE_S).topics[topic].partitions

    assert code(admin.create_topics([NewTopic(topic, 1)])) == 36
    done(admin.create_partitions([NewPartitions(topic, 4)]))
    wait_for(lambda: len(partitions()) == 4, "any node knows them")
    done(admin.delete_topics([topic]))
    assert code(admin.delete_topics([topic])) == 3
    assert topic not in admin.list_topics(timeout=PATIENCE_S).topics


@shows(CONFLUENT, "admin: settings")
def test_settings(admin: AdminClient, topic: str) -> None:
    def change(name: str, operation: Any, value: str | None) -> dict[Any, Any]:
        entry = ConfigEntry(name, value, incremental_operation=operation)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        return dict(admin.incremental_alter_configs([resource]))

    def segment_bytes() -> Any:
        resource = ConfigResource(ResourceType.TOPIC, topic)
        return done(admin.describe_configs([resource]))["segment.bytes"]

    done(change("segment.bytes", AlterConfigOpType.SET, "70000"))
    assert (segment_bytes().value, segment_bytes().is_default) == ("70000", False)
    done(change("segment.bytes", AlterConfigOpType.DELETE, None))
    assert segment_bytes().is_default
    assert code(change("colour", AlterConfigOpType.SET, "red")) == 40


def test_settings_that_are_true_anyhow_are_taken_and_shown(admin: AdminClient, topic: str) -> None:
    """As Terraform and Strimzi give them; each topic by itself."""
    given = {
        "min.insync.replicas": "2",
        "unclean.leader.election.enable": "false",
        "cleanup.policy": "delete",
        "segment.ms": "3600000",
        "flush.messages": "10000",
        "preallocate": "false",
        "delete.retention.ms": "1000",
        "compression.type": "zstd",
    }
    names = [f"{topic}-{name}" for name in ("good", "bad", "other")]
    lie = {"min.insync.replicas": "3"}
    futures = admin.create_topics(
        [
            NewTopic(name, 1, config=config)
            for name, config in zip(names, (given, lie, {}), strict=True)
        ]
    )
    for name in (names[0], names[2]):
        futures[name].result(PATIENCE_S)
    assert code({names[1]: futures[names[1]]}) == 40
    shown = done(admin.describe_configs([ConfigResource(ResourceType.TOPIC, names[0])]))
    assert {name: shown[name].value for name in given} == given
    assert not any(shown[name].is_default for name in given)


def test_batches_are_no_longer_than_the_node_takes(
    world: World, admin: AdminClient, topic: str
) -> None:
    node = load_node(world.cluster.nodes[0].config_file)
    long = {"max.message.bytes": str(10 << 20)}
    assert node.max_record_bytes < 10 << 20
    assert code(admin.create_topics([NewTopic(f"{topic}-long", 1, config=long)])) == 40
    entry = ConfigEntry(*long.popitem(), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    assert code(dict(admin.incremental_alter_configs([resource]))) == 40

    def shown() -> int:
        told = done(admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]))
        return int(told["max.message.bytes"].value)

    before = shown()
    config = world.cluster.client_config()
    ask(config, AlterTopic(topic, {"max.message.bytes": "1000"}))
    wait_for(lambda: shown() == 1000, "it is shown")
    ask(config, AlterTopic(topic, {"max.message.bytes": str(10 << 20)}))
    wait_for(lambda: shown() == before, "what counts is shown")


def test_lists_are_added_to_and_taken_from(admin: AdminClient, topic: str) -> None:
    def change(name: str, operation: Any, value: str) -> dict[Any, Any]:
        entry = ConfigEntry(name, value, incremental_operation=operation)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        return dict(admin.incremental_alter_configs([resource]))

    def groups() -> Any:
        resource = ConfigResource(ResourceType.TOPIC, topic)
        return done(admin.describe_configs([resource]))["hold_groups"].value

    operations = AlterConfigOpType
    done(change("cleanup.policy", operations.APPEND, "delete"))
    assert code(change("cleanup.policy", operations.APPEND, "shrink")) == 40
    assert code(change("cleanup.policy", operations.SUBTRACT, "delete")) == 40
    assert code(change("segment.ms", operations.APPEND, "1000")) == 40
    done(change("hold_groups", operations.SET, "a,b"))
    done(change("hold_groups", operations.APPEND, "b,c"))
    assert groups() == "a,b,c"
    done(change("hold_groups", operations.SUBTRACT, "a,d"))
    assert groups() == "b,c"


def test_what_tools_look_up_of_a_node(admin: AdminClient, world: World) -> None:
    node = next(iter(admin.list_topics(timeout=PATIENCE_S).brokers.values()))
    shown = done(admin.describe_configs([ConfigResource(ResourceType.BROKER, str(node.id))]))
    assert f"{node.host}:{node.port}" in shown["advertised.listeners"].value
    assert f":{node.port}" in shown["listeners"].value
    assert shown["log.dirs"].value in {load_node(n.config_file).data for n in world.cluster.nodes}
    assert shown["min.insync.replicas"].value == "2"
    for name in ("inter.broker.protocol.version", "log.retention.ms", "log.roll.ms"):
        assert shown[name].value, name
    bounds = {
        "transaction.max.timeout.ms": "900000",
        "offsets.topic.num.partitions": "50",
        "socket.request.max.bytes": str(16 << 20),
        "connections.max.idle.ms": "600000",
    }
    assert {name: shown[name].value for name in bounds} == bounds


def test_keys_that_count_once_are_a_setting_like_others(
    admin: AdminClient, world: World, topic: str
) -> None:
    def shown(name: str) -> tuple[str, str, bool]:
        told = done(admin.describe_configs([ConfigResource(ResourceType.TOPIC, name)]))
        names = "dedup.key", "dedup.key.horizon"
        return *(told[each].value for each in names), told[names[0]].is_default

    assert shown(topic) == ("none", "unlimited", True)
    given, keyed = {"dedup.key": "first", "dedup.key.horizon": "7d"}, f"{topic}-keyed"
    futures = admin.create_topics(
        [
            NewTopic(keyed, 1, config=given),
            NewTopic(f"{topic}-both", 1, config=given | {"cleanup.policy": "compact"}),
        ]
    )
    futures[keyed].result(PATIENCE_S)
    assert code({0: futures[f"{topic}-both"]}) == 40
    assert shown(keyed) == ("first", "7d", False)
    entry = ConfigEntry("dedup.key", "none", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, keyed, incremental_configs=[entry])
    assert code(dict(admin.incremental_alter_configs([resource]))) == 40


def test_many_topics_are_made_and_deleted_in_one_entry_through_any_node(
    world: World, admin: AdminClient, topic: str
) -> None:
    names = [f"{topic}-{number}" for number in range(100)]
    for place, node in enumerate(world.cluster.nodes):
        assert node.kafka is not None
        with Wire(node.kafka) as wire:
            before = entries(world)
            answer = wire.ask(19, 7, create_tree(names, timeout=30_000))
            assert {int(each.error_code) for each in answer.topics} == {0}
            assert entries(world) - before < 20, place
            again = wire.ask(19, 7, create_tree(names[:1], timeout=30_000))
            assert int(again.topics[0].error_code) == 36
            gone = wire.ask(20, 5, {"topic_names": [*names, "nobody"], "timeout_ms": 30_000})
            assert [int(each.error_code) for each in gone.responses] == [0] * 100 + [3]
            assert not {*admin.list_topics(timeout=PATIENCE_S).topics} & {*names}


def test_a_request_that_has_no_time_is_told_so_and_done_all_the_same(
    world: World, admin: AdminClient, topic: str
) -> None:
    assert world.cluster.nodes[0].kafka is not None
    with Wire(world.cluster.nodes[0].kafka) as wire:
        answer = wire.ask(19, 7, create_tree([f"{topic}-late"], timeout=0))
        placed = wire.ask(19, 7, create_tree([f"{topic}-placed"], timeout=0, copies=2))
    assert int(answer.topics[0].error_code) == 7
    assert int(placed.topics[0].error_code) == 7
    wanted = {f"{topic}-late", f"{topic}-placed"}
    wait_for(lambda: wanted <= admin.list_topics(timeout=PATIENCE_S).topics.keys(), "made")


def entries(world: World) -> int:
    """How long Raft's log is."""
    found = [world.status(node) for node in world.cluster.nodes]
    return max(node.applied_index for status in found if status for node in status.nodes)


def create_tree(names: list[str], timeout: int, copies: int = -1) -> dict[str, Any]:
    topics = [
        {
            "name": name,
            "num_partitions": 1,
            "replication_factor": copies,
            "assignments": [],
            "configs": [],
        }
        for name in names
    ]
    return {"topics": topics, "timeout_ms": timeout, "validate_only": False}


@shows(CONFLUENT, "admin: groups", "admin: group offsets")
def test_groups(admin: AdminClient, topic: str) -> None:
    wanted = ConsumerGroupTopicPartitions(topic, [TopicPartition(topic, 0, 5)])
    done(admin.alter_consumer_group_offsets([wanted]))
    found = done(admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(topic)]))
    assert [(p.partition, p.offset) for p in found.topic_partitions] == [(0, 5)]
    listed = admin.list_consumer_groups().result(PATIENCE_S)
    assert (topic, []) in [(group.group_id, listed.errors) for group in listed.valid]
    told = done(admin.describe_consumer_groups([topic]))
    assert (told.group_id, told.state.name, told.members) == (topic, "EMPTY", [])
    done(admin.delete_consumer_groups([topic]))
    assert code(admin.delete_consumer_groups([topic])) == 69


def test_what_a_client_may_do_with_a_group_is_told(admin: AdminClient, topic: str) -> None:
    place = [ConsumerGroupTopicPartitions(topic, [TopicPartition(topic, 0, 5)])]
    done(admin.alter_consumer_group_offsets(place))
    told = done(admin.describe_consumer_groups([topic], include_authorized_operations=True))
    names = {each.name for each in told.authorized_operations}
    assert names == {"READ", "DELETE", "DESCRIBE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS"}
    assert not done(admin.describe_consumer_groups([topic])).authorized_operations


@shows(CONFLUENT, "admin: offsets")
def test_offsets(admin: AdminClient, boot: str, topic: str) -> None:
    write(boot, topic, 1000, 3000, 2000)

    def place(spec: Any) -> int:
        return int(done(admin.list_offsets({TopicPartition(topic, 0): spec})).offset)

    spec: Any = OffsetSpec
    specs = (spec.earliest(), spec.latest(), spec.max_timestamp())
    assert [place(spec) for spec in specs] == [0, 3, 1]
    assert [place(spec.for_timestamp(time)) for time in (1500, 9000)] == [1, -1]


@shows(CONFLUENT, "admin: cluster")
def test_cluster(admin: AdminClient, world: World) -> None:
    told = admin.describe_cluster().result(PATIENCE_S)
    assert told.cluster_id == world.cluster.options.cluster
    assert {(node.host, node.port) for node in told.nodes} == {
        node.kafka for node in world.cluster.nodes
    }
    assert told.controller.id in {node.id for node in told.nodes}


# --- kafka-python -------------------------------------------------------------------------------


@shows(PYTHON, "admin: topics", "admin: partitions")
def test_topics_with_kafka_python(python: Any, topic: str) -> None:
    with pytest.raises(TopicAlreadyExistsError):
        python.create_topics({topic: {"num_partitions": 1, "replication_factor": 1}})
    python.create_partitions({topic: 4})
    assert len(python.describe_topics([topic])[0]["partitions"]) == 4
    python.delete_topics([topic])
    assert topic not in python.list_topics()


@shows(PYTHON, "admin: settings")
def test_settings_with_kafka_python(python: Any, topic: str) -> None:
    def segment_bytes() -> str:
        return str(python.describe_configs([PythonResource(PythonKind.TOPIC, topic)]))

    python.alter_configs([PythonResource(PythonKind.TOPIC, topic, {"segment.bytes": "70000"})])
    assert "'70000'" in segment_bytes()
    with pytest.raises(ValueError, match="Unrecognized configs"):
        python.alter_configs([PythonResource(PythonKind.TOPIC, topic, {"colour": "red"})])


@shows(PYTHON, "admin: groups", "admin: group offsets")
def test_groups_with_kafka_python(python: Any, topic: str) -> None:
    wanted = {PythonPartition(topic, 0): OffsetAndMetadata(5, "note", -1)}
    python.alter_group_offsets(topic, wanted)
    assert python.list_group_offsets(topic)[topic] == wanted
    assert topic in str(python.list_groups())
    assert "Empty" in str(python.describe_groups([topic]))
    python.delete_groups([topic])
    assert topic not in str(python.list_groups())


@shows(PYTHON, "admin: offsets")
def test_offsets_with_kafka_python(python: Any, boot: str, topic: str) -> None:
    write(boot, topic, 1000, 3000, 2000)
    partition = PythonPartition(topic, 0)
    found = [
        python.list_partition_offsets({partition: spec})[partition].offset
        for spec in (-2, -1, -3, 1500)
    ]
    assert found == [0, 3, 1, 1]


@shows(PYTHON, "admin: cluster")
def test_cluster_with_kafka_python(python: Any, world: World) -> None:
    told = python.describe_cluster()
    assert told["cluster_id"] == world.cluster.options.cluster
    assert len(told["brokers"]) == 3
