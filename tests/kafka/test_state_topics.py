"""`__consumer_offsets` and `__transaction_state` of real nodes, read by a usual Kafka client."""

from __future__ import annotations

import uuid

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.cimpl import NewTopic

from tests.e2e.commands import as_json
from tests.e2e.harness import World, wait_for
from tests.kafka.lag_exporter import TOPIC, Committed, LagExporter, Reading
from tests.patience import PATIENCE_S

TRANSACTIONS = "__transaction_state"


def commit(boot: str, group: str, topic: str, offset: int) -> None:
    """As a consumer without partitions of its own commits."""
    consumer = Consumer({"bootstrap.servers": boot, "group.id": group})
    place = TopicPartition(topic, 0, offset)

    def commits() -> bool:
        try:
            consumer.commit(offsets=[place], asynchronous=False)
        except KafkaException:
            return False
        return True

    wait_for(commits, "the offset is committed")
    consumer.close()


def produce(boot: str, topic: str, records: int) -> None:
    producer = Producer({"bootstrap.servers": boot})
    for number in range(records):
        producer.produce(topic, b"%d" % number, partition=0)
    assert producer.flush(PATIENCE_S) == 0


@pytest.fixture
def group() -> str:
    return f"group-{uuid.uuid4()}"


def follow_until(exporter: LagExporter, key: Committed, offset: int | None) -> None:
    def has_it() -> bool:
        exporter.follow()
        return exporter.committed.get(key) == offset

    wait_for(has_it, f"{key} at {offset}")


def test_a_lag_exporter_agrees_with_group_describe(
    world: World, boot: str, topic: str, group: str
) -> None:
    """New commits come while it waits; it goes on behind a change of leader, and has the same as
    who reads all of it again, from nodes that were restarted.
    """
    produce(boot, topic, 20)
    commit(boot, group, topic, 3)
    key = Committed(group, topic, 0)
    with LagExporter(boot) as exporter:
        follow_until(exporter, key, 3)
        assert exporter.lag(key) == 17
        for offset in (4, 9):
            commit(boot, group, topic, offset)
            follow_until(exporter, key, offset)
        config = ("--config", world.cluster.client_file)
        [told] = as_json("group", "describe", group, *config)["partitions"]
        assert (told["committed"], told["lag"]) == (9, exporter.lag(key))
        leader = world.leader()
        leader.kill()
        commit(boot, group, topic, 12)
        follow_until(exporter, key, 12)
        leader.start()
        world.wait_live(leader)
        commit(boot, group, topic, 15)
        follow_until(exporter, key, 15)
        assert len(set(exporter.places)) == len(exporter.places), "nothing came twice"
        assert leader.kafka is not None
        with LagExporter(str(leader.kafka)) as second:
            follow_until(second, key, 15)
            assert second.committed == exporter.committed
            assert set(second.places) <= set(exporter.places)
        admin = AdminClient({"bootstrap.servers": boot})
        admin.delete_consumer_groups([group])[group].result(PATIENCE_S)
        follow_until(exporter, key, None)


def test_members_of_a_group_are_told(boot: str, topic: str, group: str) -> None:
    consumer = Consumer({"bootstrap.servers": boot, "group.id": group})
    consumer.subscribe([topic])
    wait_for(lambda: consumer.poll(0.2) is None and bool(consumer.assignment()), "assigned")
    with LagExporter(boot) as exporter:

        def is_told() -> bool:
            exporter.follow()
            return group in exporter.groups and len(exporter.groups[group][1]) == 1

        wait_for(is_told, "the member is told")
        consumer.close()

        def has_left() -> bool:
            exporter.follow()
            return exporter.groups[group][1] == []

        wait_for(has_left, "it has left")


def test_a_group_can_read_it_and_commit_where_it_is(boot: str, topic: str, group: str) -> None:
    """As Kafka's console consumer does."""
    commit(boot, group, topic, 3)
    options = {
        "bootstrap.servers": boot,
        "group.id": f"reader of {group}",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    consumer = Consumer(options)
    consumer.subscribe([TOPIC])
    found: list[Message] = []

    def reads() -> bool:
        message = consumer.poll(0.5)
        if message is not None and message.error() is None:
            found.append(message)
        return bool(found)

    wait_for(reads, "something of it is read")
    consumer.close()


def test_transactions_are_told(boot: str, topic: str) -> None:
    name = f"tx-{uuid.uuid4()}"
    producer = Producer({"bootstrap.servers": boot, "transactional.id": name})
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    producer.produce(topic, b"one", partition=0)
    producer.commit_transaction(PATIENCE_S)
    consumer = Consumer({"bootstrap.servers": boot, "group.id": "not used"})
    known = consumer.list_topics(TRANSACTIONS, timeout=PATIENCE_S).topics[TRANSACTIONS].partitions
    assert len(known) == 50
    consumer.assign([TopicPartition(TRANSACTIONS, each, OFFSET_BEGINNING) for each in known])
    statuses: dict[str, int] = {}

    def is_complete() -> bool:
        message = consumer.poll(0.5)
        if message is not None and message.error() is None:
            key, value = (
                Reading(bytes(message.key() or b"")),
                Reading(bytes(message.value() or b"")),
            )
            key.at, value.at = 2, 2 + 8 + 2 + 4
            statuses[key.text()] = value.number("b")
        return statuses.get(name) == 4

    wait_for(is_complete, "CompleteCommit")
    consumer.close()


def test_they_are_shown_and_can_only_be_read(boot: str, topic: str, group: str) -> None:
    commit(boot, group, topic, 3)
    admin = AdminClient({"bootstrap.servers": boot})
    assert len(admin.list_topics(timeout=PATIENCE_S).topics[TOPIC].partitions) == 50
    described = admin.describe_topics(TopicCollection([TOPIC]))[TOPIC].result(PATIENCE_S)
    assert described.is_internal
    resource = ConfigResource(ConfigResource.Type.TOPIC, TOPIC)
    settings = admin.describe_configs([resource])[resource].result(PATIENCE_S)
    assert settings["cleanup.policy"].value == "compact"
    reasons: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": boot})
    producer.produce(TOPIC, b"x", on_delivery=lambda error, _: reasons.append(error))
    assert producer.flush(PATIENCE_S) == 0
    resource.add_incremental_config(
        ConfigEntry("retention.ms", "1", incremental_operation=AlterConfigOpType.SET)
    )
    for wanted in (
        admin.delete_topics([TOPIC])[TOPIC],
        admin.create_topics([NewTopic(TOPIC, 1)])[TOPIC],
        admin.incremental_alter_configs([resource])[resource],
        admin.delete_records([TopicPartition(TOPIC, 0, 1)])[TopicPartition(TOPIC, 0)],
    ):
        with pytest.raises(KafkaException) as refused:
            wanted.result(PATIENCE_S)
        reasons.append(refused.value.args[0])
    codes = {each.code() for each in reasons if each is not None}
    created = KafkaError.TOPIC_EXCEPTION
    assert codes == {KafkaError.TOPIC_AUTHORIZATION_FAILED, created}
