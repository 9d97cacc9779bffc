"""Consume, transform, produce, exactly once, with kafka-python and aiokafka.

Each client does it in two lives under one transactional id: the first one aborts what it did with
the second record, and stops in the middle of doing that again; the second one fences it.
"""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import ProducerFenced
from aiokafka.structs import TopicPartition as AioPartition
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import KafkaError
from kafka.structs import OffsetAndMetadata, TopicPartition

from tests.kafka.features import TRANSACTIONS, shows
from tests.patience import PATIENCE_S

SOURCE = [b"%d" % number for number in range(5)]
SINK = [b"<%b>" % value for value in SOURCE]
COMMIT, ABORT, STOP = "commit", "abort", "stop"
LIVES = (COMMIT, ABORT), (STOP,), (COMMIT,) * 4


@pytest.fixture
def topics(boot: str) -> list[str]:
    """A source with records, and a sink."""
    names = [f"topic-{uuid.uuid4()}" for _ in range(2)]
    admin = AdminClient({"bootstrap.servers": boot})
    for made in admin.create_topics([NewTopic(each, 1) for each in names]).values():
        made.result(PATIENCE_S)
    plain = Producer({"bootstrap.servers": boot})
    for value in SOURCE:
        plain.produce(names[0], value)
    assert plain.flush(PATIENCE_S) == 0
    return names


@shows("kafka-python", *TRANSACTIONS)
def test_kafka_python(boot: str, topics: list[str]) -> None:
    source, sink = topics
    producers: list[Any] = []

    def reader(topic: str, group: str) -> Any:
        return KafkaConsumer(
            topic,
            bootstrap_servers=boot,
            group_id=group,
            isolation_level="read_committed",
            enable_auto_commit=False,
            auto_offset_reset="earliest",
        )

    for fates in LIVES:
        producer = KafkaProducer(bootstrap_servers=boot, transactional_id=source)
        producer.init_transactions()
        producers.append(producer)
        consumer = reader(source, sink)
        for fate in fates:
            message = next(consumer)
            producer.begin_transaction()
            producer.send(sink, b"<%b>" % message.value).get(PATIENCE_S)
            offsets = {TopicPartition(source, 0): OffsetAndMetadata(message.offset + 1, "", -1)}
            producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
            if fate != STOP:
                getattr(producer, f"{fate}_transaction")()
        consumer.close()
    with pytest.raises(KafkaError):
        producers[1].commit_transaction()
    found = reader(sink, f"{sink}-read")
    assert [next(found).value for _ in SINK] == SINK
    for each in (found, *producers):
        each.close()


@shows("aiokafka", *TRANSACTIONS)
def test_aiokafka(boot: str, topics: list[str]) -> None:
    asyncio.run(asyncio.wait_for(_aiokafka(boot, *topics), 3 * PATIENCE_S))


async def _aiokafka(boot: str, source: str, sink: str) -> None:
    producers: list[Any] = []

    async def reader(topic: str, group: str) -> Any:
        consumer = AIOKafkaConsumer(
            topic,
            bootstrap_servers=boot,
            group_id=group,
            isolation_level="read_committed",
            enable_auto_commit=False,
            auto_offset_reset="earliest",
        )
        await consumer.start()
        return consumer

    for fates in LIVES:
        producer = AIOKafkaProducer(bootstrap_servers=boot, transactional_id=source)
        await producer.start()
        producers.append(producer)
        consumer = await reader(source, sink)
        for fate in fates:
            message = await consumer.getone()
            await producer.begin_transaction()
            await producer.send_and_wait(sink, b"<%b>" % message.value)
            offsets = {AioPartition(source, 0): message.offset + 1}
            await producer.send_offsets_to_transaction(offsets, sink)
            if fate != STOP:
                await getattr(producer, f"{fate}_transaction")()
        await consumer.stop()
    with pytest.raises(ProducerFenced):
        await producers[1].commit_transaction()
    found = await reader(sink, f"{sink}-read")
    assert [(await found.getone()).value for _ in SINK] == SINK
    for each in (found, *producers):
        await each.stop()
