"""Transactions, with real clients where they have them, and by hand where the bytes matter."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.e2e.harness import wait_for
from tests.patience import PATIENCE_S


def producer_of(boot: str, name: str, **more: Any) -> Producer:
    return Producer({"bootstrap.servers": boot, "transactional.id": name, "linger.ms": 0} | more)


def consumer_of(boot: str, level: str, **more: Any) -> Consumer:
    given = {"bootstrap.servers": boot, "group.id": str(uuid.uuid4()), "isolation.level": level}
    return Consumer(given | {"enable.auto.commit": False, "enable.partition.eof": True} | more)


def values(boot: str, topic: str, level: str = "read_committed", partition: int = 0) -> list[bytes]:
    """All that a consumer sees until it is told that it is at the end."""
    consumer = consumer_of(boot, level)
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
    found: list[bytes] = []

    def at_end() -> bool:
        message = consumer.poll(1.0)
        if message is not None and message.error() is None:
            found.append(message.value())
        return message is not None and message.error() is not None

    wait_for(at_end, f"the end of {topic}")
    consumer.close()
    return found


def end_of(boot: str, topic: str, level: str) -> int:
    consumer = consumer_of(boot, level)
    _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), PATIENCE_S)
    consumer.close()
    return int(end)


@pytest.fixture
def name() -> str:
    """A transactional id of the test's own."""
    return f"t-{uuid.uuid4()}"


@pytest.fixture
def topics(boot: str) -> list[str]:
    """Two topics of two partitions."""
    names = [f"topic-{uuid.uuid4()}" for _ in range(2)]
    admin = AdminClient({"bootstrap.servers": boot})
    for made in admin.create_topics([NewTopic(each, 2) for each in names]).values():
        made.result(10)
    return names


# --- confluent ----------------------------------------------------------------------------------


def test_what_is_committed_is_seen_and_what_is_aborted_is_not(
    boot: str, topics: list[str], name: str
) -> None:
    producer = producer_of(boot, name)
    producer.init_transactions(PATIENCE_S)
    for number, is_commit in enumerate((True, False, True, True, False)):
        producer.begin_transaction()
        for topic in topics:
            for partition in range(2):
                producer.produce(topic, b"%d" % number, partition=partition)
        if is_commit:
            producer.commit_transaction(PATIENCE_S)
        else:
            producer.flush(PATIENCE_S)
            producer.abort_transaction(PATIENCE_S)
    for topic in topics:
        for partition in range(2):
            assert values(boot, topic, partition=partition) == [b"0", b"2", b"3"]
            every = values(boot, topic, "read_uncommitted", partition)
            assert every == [b"0", b"1", b"2", b"3", b"4"]


def test_nothing_behind_an_open_transaction_is_seen(boot: str, topic: str, name: str) -> None:
    first, second = producer_of(boot, name), producer_of(boot, name + "x")
    for producer in (first, second):
        producer.init_transactions(PATIENCE_S)
        producer.begin_transaction()
    first.produce(topic, b"first")
    first.flush(PATIENCE_S)
    second.produce(topic, b"second")
    second.commit_transaction(PATIENCE_S)
    assert values(boot, topic) == []
    assert values(boot, topic, "read_uncommitted") == [b"first", b"second"]
    assert [end_of(boot, topic, f"read_{kind}committed") for kind in ("", "un")] == [0, 3]
    first.abort_transaction(PATIENCE_S)
    assert values(boot, topic) == [b"second"]
    assert end_of(boot, topic, "read_committed") == 4


def test_a_zombie_is_fenced(boot: str, topic: str, name: str) -> None:
    zombie = producer_of(boot, name)
    zombie.init_transactions(PATIENCE_S)
    zombie.begin_transaction()
    zombie.produce(topic, b"lost")
    zombie.flush(PATIENCE_S)
    heir = producer_of(boot, name)
    heir.init_transactions(PATIENCE_S)
    zombie.produce(topic, b"late")
    with pytest.raises(KafkaException) as refused:
        zombie.commit_transaction(PATIENCE_S)
    assert refused.value.args[0].fatal()
    heir.begin_transaction()
    heir.produce(topic, b"kept")
    heir.commit_transaction(PATIENCE_S)
    assert values(boot, topic) == [b"kept"]


def test_a_transaction_of_a_producer_that_is_gone_ends_by_itself(
    boot: str, topic: str, name: str
) -> None:
    gone = producer_of(boot, name, **{"transaction.timeout.ms": 1000})
    gone.init_transactions(PATIENCE_S)
    gone.begin_transaction()
    gone.produce(topic, b"lost")
    gone.flush(PATIENCE_S)
    wait_for(lambda: end_of(boot, topic, "read_committed") == 2, "the marker")
    assert values(boot, topic) == []
    gone.produce(topic, b"late")
    with pytest.raises(KafkaException):
        gone.commit_transaction(PATIENCE_S)


def test_consume_transform_produce_is_exactly_once(boot: str, topics: list[str], name: str) -> None:
    """Half of the transactions are aborted, and done again by another producer."""
    source, sink = topics
    plain = Producer({"bootstrap.servers": boot})
    for number in range(20):
        plain.produce(source, b"%d" % number, partition=0)
    plain.flush(PATIENCE_S)
    group = str(uuid.uuid4())
    for life in range(10):
        producer = producer_of(boot, name)
        producer.init_transactions(PATIENCE_S)
        given = {"group.id": group, "auto.offset.reset": "earliest"}
        consumer = consumer_of(boot, "read_committed", **given)
        consumer.subscribe([source])
        done = 0
        for is_commit in (True, False) if life < 9 else (True,) * 20:
            message = next_of(consumer)
            if message is None:
                break
            done += 1
            producer.begin_transaction()
            producer.produce(sink, b"<%s>" % message.value(), partition=0)
            at = consumer.position([TopicPartition(source, 0)])
            producer.send_offsets_to_transaction(at, consumer.consumer_group_metadata(), PATIENCE_S)
            if is_commit:
                producer.commit_transaction(PATIENCE_S)
            else:
                producer.abort_transaction(PATIENCE_S)
        consumer.close()
    assert done == 11
    assert values(boot, sink) == [b"<%d>" % number for number in range(20)]


def next_of(consumer: Consumer) -> Any:
    """The next record; None at the end of partition 0."""
    found: list[Any] = []

    def told() -> bool:
        message = consumer.poll(1.0)
        if message is None or (message.error() is not None and message.partition() != 0):
            return False
        found.append(message if message.error() is None else None)
        return True

    wait_for(told, "a record, or the end")
    return found[0]
