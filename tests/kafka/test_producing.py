"""Producing through nodes: by hand where the bytes matter, with real clients where they do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewTopic

from tests.e2e.harness import World, wait_for
from tests.kafka.batches import batch, put
from tests.kafka.wire import Wire, fetch, metadata, request, request_bytes, response
from tests.patience import PATIENCE_S

PRODUCE, INIT = 0, 22


@pytest.fixture
def wires(world: World) -> Iterator[list[Wire]]:
    """A connection to every node."""
    found = []
    for node in world.cluster.nodes:
        assert node.kafka is not None
        found.append(Wire(node.kafka))
    yield found
    for wire in found:
        wire.socket.close()


def produce_tree(topic: str, data: bytes | None, **options: Any) -> dict[str, Any]:
    partition = {"index": options.get("partition", 0), "records": data}
    return {
        "transactional_id": None,
        "acks": options.get("acks", -1),
        "timeout_ms": options.get("timeout", 10_000),
        "topic_data": [{"name": topic, "partition_data": [partition]}],
    }


def produce(wire: Wire, topic: str, data: bytes | None, version: int = 9, **options: Any) -> Any:
    answer = wire.ask(PRODUCE, version, produce_tree(topic, data, **options))
    return answer.responses[0].partition_responses[0]


def of(producer: int, sequence: int, epoch: int = 0, records: int = 2) -> bytes:
    """A batch of an idempotent producer."""
    values = [b"%d" % (sequence + n) for n in range(records)]
    return batch(*values, producer_id=producer, producer_epoch=epoch, base_sequence=sequence)


def consume(boot: str, topic: str, count: int) -> list[Any]:
    options = {"bootstrap.servers": boot, "group.id": "x", "enable.auto.commit": False}
    consumer = Consumer(options)
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    found: list[Any] = []

    def enough() -> bool:
        found.extend(consumer.consume(count - len(found), 0.5))
        return len(found) >= count

    wait_for(enough, f"{count} records of {topic}")
    consumer.close()
    assert [message.error() for message in found] == [None] * count
    return found


# --- real clients -------------------------------------------------------------------------------


@pytest.mark.parametrize("acks", ["0", "1", "all"])
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_confluent_with_every_codec_and_acks(boot: str, topic: str, acks: str, codec: str) -> None:
    producer = Producer({"bootstrap.servers": boot, "acks": acks, "compression.codec": codec})
    delivered: list[Any] = []
    for number in range(100):
        producer.produce(
            topic,
            b"value %d" % number * 9,
            key=b"k%d" % number,
            timestamp=1_000_000 + number,
            headers=[("h", b"%d" % number)],
            on_delivery=lambda error, message: delivered.append((error, message.offset())),
        )
    assert producer.flush(PATIENCE_S) == 0
    assert [error for error, _ in delivered] == [None] * 100
    if acks != "0":
        assert [offset for _, offset in delivered] == list(range(100))
    for number, message in enumerate(consume(boot, topic, 100)):
        assert (message.offset(), message.key()) == (number, b"k%d" % number)
        assert message.value() == b"value %d" % number * 9
        assert message.timestamp()[1] == 1_000_000 + number
        assert message.headers() == [("h", b"%d" % number)]


def test_an_idempotent_producer_outlives_the_leader(world: World, boot: str, topic: str) -> None:
    options = {"bootstrap.servers": boot, "enable.idempotence": True, "linger.ms": 0}
    producer = Producer(options | {"max.in.flight.requests.per.connection": 5})
    errors: list[Any] = []
    leader = world.leader()

    def delivered(error: Any, _: Any) -> None:
        if error is not None:
            errors.append(error)

    for number in range(600):
        producer.produce(topic, b"%d" % number, on_delivery=delivered)
        producer.poll(0.002)
        if number == 200:
            leader.kill()
    assert producer.flush(PATIENCE_S) == 0
    assert errors == []
    leader.start()
    world.wait_live(leader)
    assert [message.value() for message in consume(boot, topic, 600)] == [
        b"%d" % number for number in range(600)
    ]
    world.wait_offset(600, topic)
    world.assert_identical(topic)


def test_kafka_records_reach_native_subscribers(world: World, boot: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": boot, "compression.codec": "zstd"})
    producer.produce(topic, b"value", key=b"key", headers=[("h", b"1")], timestamp=77_000)
    assert producer.flush(PATIENCE_S) == 0
    (record,) = world.read(1, name=topic, topic=topic)
    assert (record.key, record.value, record.timestamp) == (b"key", b"value", 77_000)
    assert record.headers == (("h", b"1"),)


# --- idempotence --------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(3, 13))
def test_produce_of_every_version(wires: list[Wire], topic: str, version: int) -> None:
    found = produce(wires[0], topic, batch(b"a", b"b"), version)
    assert (found.error_code, found.base_offset) == (0, 0)
    assert b"a" in fetch(wires[0], topic, 0, max_wait=5000).records


def test_topics_may_be_named_by_id(wires: list[Wire], topic: str) -> None:
    """As Kafka 4.1's clients do; an id that nobody has makes them ask for metadata again."""
    known = metadata(wires[2], topic).topics[0].topic_id
    partition = {"index": 0, "records": of(9, 0)}
    tree = {"transactional_id": None, "acks": -1, "timeout_ms": 10_000}
    for topic_id, error in ((known, 0), (UUID(int=7), 100)):
        asked = [{"topic_id": topic_id, "partition_data": [partition]}]
        (answer,) = wires[0].ask(PRODUCE, 13, tree | {"topic_data": asked}).responses
        assert answer.topic_id == topic_id
        assert int(answer.partition_responses[0].error_code) == error
    assert produce(wires[1], topic, of(9, 0)).base_offset == 0


def test_a_retry_through_any_node_is_the_same_batch(wires: list[Wire], topic: str) -> None:
    for wire in wires:
        assert produce(wire, topic, of(5, 0)).base_offset == 0
    for wire in reversed(wires):
        assert produce(wire, topic, of(5, 2)).base_offset == 2
    assert produce(wires[1], topic, of(5, 0)).base_offset == 0
    assert produce(wires[0], topic, of(5, 4)).base_offset == 4


def test_gaps_and_old_epochs_are_kafkas_errors(wires: list[Wire], topic: str) -> None:
    assert produce(wires[0], topic, of(6, 0, epoch=3)).error_code == 0
    assert produce(wires[1], topic, of(6, 10, epoch=3)).error_code == 45
    assert produce(wires[1], topic, of(6, 2, epoch=2)).error_code == 47
    assert produce(wires[2], topic, of(6, 5, epoch=4)).error_code == 45
    good = produce(wires[2], topic, of(6, 0, epoch=4))
    assert (good.error_code, good.base_offset) == (0, 2)


def test_producer_ids_differ(wires: list[Wire]) -> None:
    tree = {"transactional_id": None, "transaction_timeout_ms": 1000}
    found = [wire.ask(INIT, 4, tree) for wire in wires for _ in range(3)]
    assert len({each.producer_id for each in found}) == 9
    assert all(each.producer_id >= 0 and each.producer_epoch == 0 for each in found)


def test_many_requests_in_flight_keep_their_order(wires: list[Wire], topic: str) -> None:
    wire = wires[0]
    count = 60
    wire.send(
        b"".join(
            request(PRODUCE, 9, produce_tree(topic, of(8, n, records=1)), correlation=n)
            for n in range(count)
        )
    )
    for number in range(count):
        payload = wire.receive()
        assert int.from_bytes(payload[:4], "big") == number
        part = response(PRODUCE, 9, payload).responses[0].partition_responses[0]
        assert (part.error_code, part.base_offset) == (0, number)


# --- refusals -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "options", "code"),
    [
        (batch(), {"partition": 7}, 3),
        (batch(), {"acks": 5}, 21),
        (None, {}, 87),
        (batch()[:-1], {}, 87),
        (batch()[:-1] + b"!", {}, 2),
        (put(16, ">b", 1)(batch()), {}, 87),
        (put(21, ">H", 5)(batch()), {}, 76),
        (put(21, ">H", 1)(batch()), {}, 87),
        *((put(21, ">H", 1 << bit)(batch()), {}, 87) for bit in range(7, 16)),
        (put(21, ">H", 4)(batch()), {}, 87),
        (batch(b"x" * (1 << 19)) + batch(b"y"), {}, 87),
        (batch(b"x" * (1 << 19), b"y" * (1 << 19), b"z" * 70_000), {}, 10),
    ],
)
def test_what_is_refused(
    wires: list[Wire], topic: str, data: bytes | None, options: dict[str, Any], code: int
) -> None:
    found = produce(wires[0], topic, data, **options)
    assert found.error_code == code
    assert found.error_message
    assert produce(wires[0], topic, batch()).error_code == 0


def test_a_topic_that_is_not_there(wires: list[Wire]) -> None:
    assert produce(wires[0], "nobody", batch()).error_code == 3


def test_acks_0_is_not_answered_and_ends_with_what_is_refused(
    wires: list[Wire], topic: str
) -> None:
    wire = wires[0]
    wire.send(request(PRODUCE, 9, produce_tree(topic, batch(b"quiet"), acks=0)))
    assert metadata(wire, topic).topics[0].error_code == 0
    assert b"quiet" in fetch(wire, topic, 0, max_wait=5000).records
    wire.send(request(PRODUCE, 9, produce_tree("nobody", batch(), acks=0)))
    assert wire.is_closed()


def test_what_was_sent_with_acks_0_is_taken_though_the_client_has_gone(
    world: World, boot: str, topic: str
) -> None:
    node = world.leader()
    assert node.kafka is not None
    with Wire(node.kafka) as wire:
        sent = [produce_tree(topic, batch(b"%d" % number), acks=0) for number in range(20)]
        wire.send(b"".join(request(PRODUCE, 9, tree) for tree in sent))
    assert [message.value() for message in consume(boot, topic, 20)] == [
        b"%d" % number for number in range(20)
    ]


@pytest.mark.parametrize("version", [0, 1, 2])
def test_old_versions_are_refused(wires: list[Wire], topic: str, version: int) -> None:
    name = topic.encode()
    body = b"\0\1\0\0\x0f\xff" + b"\0\0\0\1" + len(name).to_bytes(2, "big") + name
    body += b"\0\0\0\1" + b"\0\0\0\0" + b"\0\0\0\2ab"
    wires[0].send(request_bytes(PRODUCE, version, body))
    payload = wires[0].receive()
    assert int.from_bytes(payload[4 + 4 + 2 + len(name) + 8 :][:2], "big") == 35


def test_log_append_time_is_answered_and_read(world: World, boot: str, wires: list[Wire]) -> None:
    admin = AdminClient({"bootstrap.servers": boot})
    config = {"message.timestamp.type": "LogAppendTime"}
    for made in admin.create_topics([NewTopic("appended", 1, config=config)]).values():
        made.result(PATIENCE_S)
    found = produce(wires[0], "appended", batch(b"old"))
    assert found.log_append_time_ms > 1_600_000_000_000
    (message,) = consume(boot, "appended", 1)
    assert message.timestamp() == (2, found.log_append_time_ms)
    assert produce(wires[0], "appended", batch(b"x"), timeout=10_000).base_offset == 1


def test_a_batch_longer_than_the_topic_allows(boot: str, wires: list[Wire]) -> None:
    admin = AdminClient({"bootstrap.servers": boot})
    config = {"max.message.bytes": "1000"}
    for made in admin.create_topics([NewTopic("short", 1, config=config)]).values():
        made.result(PATIENCE_S)
    assert produce(wires[0], "short", batch(b"x" * 1000)).error_code == 10
    assert produce(wires[0], "short", batch(b"x" * 900)).error_code == 0


CODECS = ["uncompressed", "gzip", "snappy", "lz4", "zstd"]


@pytest.mark.parametrize("stored", CODECS)
def test_a_topic_has_a_codec_of_its_own(
    boot: str, wires: list[Wire], topic: str, stored: str
) -> None:
    """Whatever the producer's is; and a retry is recognised."""
    name = f"{topic}-{stored}"
    admin = AdminClient({"bootstrap.servers": boot})
    wanted = NewTopic(name, 1, config={"compression.type": stored})
    admin.create_topics([wanted])[name].result(PATIENCE_S)
    for codec in ("none", "gzip", "zstd"):
        producer = Producer({"bootstrap.servers": boot, "compression.codec": codec})
        producer.produce(name, b"value" * 99, key=b"key", headers=[("h", b"1")], timestamp=77)
        assert producer.flush(PATIENCE_S) == 0
    for message in consume(boot, name, 3):
        found = message.value(), message.key(), message.headers(), message.timestamp()[1]
        assert found == (b"value" * 99, b"key", [("h", b"1")], 77)
    there = bytes(fetch(wires[0], name, 0).records)
    assert there[22] == CODECS.index(stored)
    assert (int.from_bytes(there[8:12], "big") > 500) == (stored == "uncompressed")
    first = produce(wires[0], name, of(7, 0))
    again = produce(wires[1], name, of(7, 0))
    assert (int(again.error_code), again.base_offset) == (0, first.base_offset)


def test_a_wrong_crc_is_found_before_a_batch_is_compressed_anew(
    boot: str, wires: list[Wire], topic: str
) -> None:
    entry = ConfigEntry("compression.type", "lz4", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": boot})
    admin.incremental_alter_configs([resource])[resource].result(PATIENCE_S)
    damaged = bytearray(batch(b"value"))
    damaged[17] ^= 1
    assert int(produce(wires[0], topic, bytes(damaged)).error_code) == 2
