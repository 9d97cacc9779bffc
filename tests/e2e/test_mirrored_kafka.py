"""A mirror whose source speaks Kafka's protocol: another cluster's Kafka listener, so that the
client of `samelog mirror` runs without Apache Kafka. With Apache Kafka: tests/interop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from samelog.config.tables.mirror import KafkaSource
from samelog.config.values import Address
from samelog.mirror.errors import SourceUnreadable
from samelog.mirror.kafka.source import KafkaClusterSource
from samelog.mirror.source import Where
from tests.e2e.commands import as_json
from tests.e2e.harness import wait_for
from tests.e2e.mirroring import TwoClusters, two_clusters
from tests.patience import PATIENCE_S

TOPIC, MIRROR = "orders", "eu.orders"


@pytest.fixture
def pair(tmp_path: Path, starts_nodes: None) -> Iterator[TwoClusters]:
    with two_clusters(tmp_path, source_nodes=3) as made:
        yield made


def kafka_of(pair: TwoClusters) -> str:
    """The source's first Kafka listener."""
    return pair.source.cluster.client_config().kafka_bootstrap.split(",")[0]


def configure(pair: TwoClusters) -> None:
    """Name the source by its Kafka listener."""
    pair.configure([TOPIC], groups=["billing"])
    path = Path(pair.config)
    lines = [line for line in path.read_text().splitlines() if not line.startswith("source = ")]
    path.write_text("\n".join([*lines, "[kafka]", f"bootstrap = ['{kafka_of(pair)}']", ""]))


def write(kafka: str, first: int, count: int, **options: str) -> None:
    producer = Producer({"bootstrap.servers": kafka, "linger.ms": 20, **options})
    for number in range(first, first + count):
        producer.produce(TOPIC, b"%d" % number, b"key %d" % number)
    assert producer.flush(PATIENCE_S) == 0


def position(kafka: str, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": kafka, "group.id": "billing"})
    try:
        (place,) = consumer.committed([TopicPartition(topic, 0)], PATIENCE_S)
    finally:
        consumer.close()
    return int(place.offset)


def test_records_and_positions_come_through_kafkas_protocol(pair: TwoClusters) -> None:
    kafka = kafka_of(pair)
    admin = AdminClient({"bootstrap.servers": kafka})
    (made,) = admin.create_topics([NewTopic(TOPIC, 1)]).values()
    made.result(PATIENCE_S)
    write(kafka, 0, 300)
    configure(pair)
    with pair.sidecar():
        pair.wait_mirrored(300, MIRROR)
    write(kafka, 300, 500, **{"compression.type": "zstd"})
    consumer = Consumer({"bootstrap.servers": kafka, "group.id": "billing"})
    consumer.commit(offsets=[TopicPartition(TOPIC, 0, 321)], asynchronous=False)
    consumer.close()
    own = pair.destination.cluster.client_config().kafka_bootstrap
    with pair.sidecar():
        pair.wait_mirrored(800, MIRROR)
        wait_for(lambda: position(own, MIRROR) == 321, "the group's position")
        rows = as_json("mirror", "status", "--config", pair.config)["partitions"]
        assert [(row["mirrored"], row["lag"]) for row in rows] == [(800, 0)]
    records = pair.destination.read(800, topic=MIRROR)
    assert [(each.offset, each.value) for each in records] == [(n, b"%d" % n) for n in range(800)]


def test_what_a_kafka_source_cannot_give_is_said(pair: TwoClusters) -> None:
    kafka = kafka_of(pair)
    write(kafka, 0, 20)
    host, port = kafka.split(":")

    async def read() -> None:
        source = KafkaClusterSource(KafkaSource(bootstrap=(Address(host, int(port)),)))
        try:
            state = await source.state([TOPIC], ["*"])
            assert [each.topic for each in state.topics] == [TOPIC]
            where = Where(TOPIC, state.topics[0].log_id, 0)
            before = await source.batch_before(where, 10)
            assert before is not None
            assert await source.batch_before(where, 0) is None
            assert await source.offset_at(where, 0) == 0
            assert await source.offset_at(where, 1 << 52) == 20
            for wrong in (Where("gone", where.log_id, 0), Where(TOPIC, "0" * 32, 0)):
                with pytest.raises(SourceUnreadable, match="gone"):
                    await source.read(wrong, 0)
        finally:
            await source.close()
        closed = KafkaClusterSource(KafkaSource(bootstrap=(Address(host, 1),)))
        with pytest.raises(SourceUnreadable, match="no connection to broker"):
            await closed.state([TOPIC], [])
        await closed.close()

    asyncio.run(read())
