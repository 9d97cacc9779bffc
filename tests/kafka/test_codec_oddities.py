"""A node takes a batch only if the readers that we test with read its records."""

from __future__ import annotations

from pathlib import Path

import pytest
from kafka import KafkaConsumer, TopicPartition

from samelog import Subscriber
from samelog.format.batch import HEADER_BYTES
from samelog.format.compression import Codec
from samelog.kafka.codec.error_codes import ErrorCode
from tests.e2e.harness import World
from tests.format.oddities import oddities
from tests.kafka.batches import batch, with_blob
from tests.kafka.test_producing import consume, produce
from tests.kafka.wire import Wire
from tests.patience import PATIENCE_S
from tests.spark.local import batch_reader, rows, values

VALUES = [b"value %d, which is long enough" % number for number in range(5)]
REFUSED = {ErrorCode.invalid_record, ErrorCode.corrupt_message}


def by_kafka_python(boot: str, topic: str, count: int) -> list[bytes]:
    """The values of a topic."""
    place, found = TopicPartition(topic, 0), list[bytes]()
    consumer = KafkaConsumer(bootstrap_servers=boot, consumer_timeout_ms=PATIENCE_S * 1000)
    consumer.assign([place])
    consumer.seek_to_beginning(place)
    for record in consumer:
        found.append(record.value)
        if len(found) == count:
            break
    consumer.close()
    return found


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_what_a_node_takes_every_reader_reads(
    world: World, boot: str, topic: str, tmp_path: Path, codec: Codec
) -> None:
    plain, taken, address = batch(*VALUES), 0, world.cluster.nodes[0].kafka
    assert address is not None
    for odd in oddities(plain[HEADER_BYTES:]):
        if odd.codec is codec:
            with Wire(address) as wire:  # one that is refused too often is closed
                answer = produce(wire, topic, with_blob(plain, codec, odd.blob))
            assert (answer.error_code is ErrorCode.none) == odd.is_taken, odd.what
            assert odd.is_taken or answer.error_code in REFUSED
            taken += odd.is_taken
    expected = VALUES * taken
    assert [each.value() for each in consume(boot, topic, len(expected))] == expected
    assert by_kafka_python(boot, topic, len(expected)) == expected
    copy, config = str(tmp_path / "copy"), world.cluster.client_config()
    with Subscriber(
        topic, directory=copy, config=config, start="earliest", follow=False
    ) as records:
        assert [record.value for record in records] == expected
    spark = batch_reader(config=world.cluster.client_file, subscribe=topic)
    assert values(rows(spark, spark.partitions())) == expected
