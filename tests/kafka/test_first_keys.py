"""Topics whose keys count once: Kafka's clients and publishers of ours, and a leader is killed."""

from __future__ import annotations

import uuid

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from tests.e2e.harness import World
from tests.kafka.new_topics import create
from tests.patience import PATIENCE_S

KEYS = [b"key %d" % number for number in range(60)]


@pytest.fixture
def keyed(boot: str) -> str:
    """A topic whose keys count once."""
    return create(boot, f"keyed-{uuid.uuid4()}", {"dedup.key": "first"})


def test_each_key_is_there_once_whoever_sends_it(world: World, boot: str, keyed: str) -> None:
    answers: list[object] = []
    idempotent = Producer({"bootstrap.servers": boot, "enable.idempotence": True})
    plain = Producer({"bootstrap.servers": boot, "acks": "all"})
    with world.publisher("one", keyed) as one, world.publisher("two", keyed) as two:
        leader = world.leader()
        for number, key in enumerate(KEYS):
            for producer in (idempotent, plain):
                producer.produce(
                    keyed, b"v", key=key, partition=0, on_delivery=lambda e, _: answers.append(e)
                )
                producer.poll(0)
            for publisher in (one, two):
                publisher.append(b"v", key=key)
            if number == len(KEYS) // 2:
                leader.kill()
                leader.start()
        for publisher in (one, two):
            publisher.wait_merged(timeout=PATIENCE_S)
    assert idempotent.flush(PATIENCE_S) == plain.flush(PATIENCE_S) == 0
    assert answers == [None] * (2 * len(KEYS))
    world.wait_live(leader)
    consumer = Consumer({"bootstrap.servers": boot, "group.id": keyed})
    consumer.assign([TopicPartition(keyed, 0, 0)])
    found = consumer.consume(len(KEYS), PATIENCE_S)
    found += consumer.consume(1, 1.0)
    consumer.close()
    assert sorted(message.key() or b"" for message in found) == sorted(KEYS)


def test_transactions_are_refused(boot: str, keyed: str) -> None:
    producer = Producer({"bootstrap.servers": boot, "transactional.id": keyed})
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    failed: list[object] = []
    producer.produce(keyed, b"v", key=b"k", partition=0, on_delivery=lambda e, _: failed.append(e))
    with pytest.raises(KafkaException):
        producer.commit_transaction(PATIENCE_S)
    assert failed
    assert failed[0] is not None
