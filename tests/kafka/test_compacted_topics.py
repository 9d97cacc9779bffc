"""Compacted topics on real nodes: what consumers and subscribers see, and what is refused."""

from __future__ import annotations

import random
import uuid
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from kafka import KafkaConsumer
from kafka import TopicPartition as PythonPartition

from tests.e2e.harness import World, not_merged, wait_for
from tests.kafka.clients import Access, client_named
from tests.kafka.features import shows
from tests.patience import PATIENCE_S

SETTINGS = {
    "cleanup.policy": "compact",
    "segment.bytes": "65536",
    "min.cleanable.dirty.ratio": "0",
    "delete.retention.ms": "0",
}
KEYS = 3
Seen = list[tuple[int, bytes | None]]
"""(offset, key)."""


@dataclass
class Keyed:
    """A compacted topic with records of few keys."""

    boot: str
    name: str = field(default_factory=lambda: f"topic-{uuid.uuid4()}")
    keys: list[bytes] = field(default_factory=list)
    """Of the record at each offset."""

    copies: int = -1
    """On how many nodes; fewer than all: it is in a data group."""

    def __post_init__(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.boot})
        topic = NewTopic(self.name, 1, replication_factor=self.copies, config=SETTINGS)
        for made in admin.create_topics([topic]).values():
            made.result(PATIENCE_S)

    def produce(self, records: int, *, is_dead: bool = False) -> None:
        """Two records fill a segment."""
        producer = Producer({"bootstrap.servers": self.boot, "linger.ms": 0})
        for _ in range(records):
            key = b"key %d" % (len(self.keys) % KEYS)
            value = None if is_dead else random.randbytes(33_000)
            producer.produce(self.name, key=key, value=value, partition=0)
            assert producer.flush(PATIENCE_S) == 0
            self.keys.append(key)

    def newest(self) -> Seen:
        """The newest record of each key."""
        last = {key: offset for offset, key in enumerate(self.keys)}
        return sorted((offset, key) for key, offset in last.items())


def files(world: World, topic: str) -> list[list[str]]:
    """The names of all segments, of every node that has some."""
    data = [Path(node.data) for node in world.cluster.nodes]
    places = [path for each in data for path in each.glob(f"**/merged/{topic}-0")]
    return [sorted(path.name for path in place.glob("*.log")) for place in places]


def wait_compacted(world: World, keyed: Keyed, first: int) -> None:
    """Until one record of each key is left of those below `first`, and all of their newest."""

    def is_done() -> bool:
        kept = consumed(keyed)
        assert {*keyed.newest()} <= {*kept}
        return sum(offset < first for offset, _ in kept) <= KEYS

    wait_for(is_done, "compacted")
    wait_for(lambda: len({tuple(each) for each in files(world, keyed.name)}) == 1, "the same files")


def consumed(keyed: Keyed) -> Seen:
    """What librdkafka's consumer gets from the beginning."""
    settings = {
        "bootstrap.servers": keyed.boot,
        "group.id": str(uuid.uuid4()),
        "enable.partition.eof": True,
        "auto.offset.reset": "earliest",
    }
    consumer, is_end = Consumer(settings), False
    found: Seen = []
    consumer.assign([TopicPartition(keyed.name, 0, 0)])
    while not is_end:
        message = consumer.poll(PATIENCE_S)
        assert message is not None
        is_end = message.error() is not None
        if not is_end:
            found.append((message.offset() or 0, message.key()))
    consumer.close()
    return found


@pytest.fixture
def keyed(world: World, boot: str) -> Keyed:
    return Keyed(boot)


@shows("confluent-kafka", "compacted topics")
@shows("kafka-python", "compacted topics")
@shows("aiokafka", "compacted topics")
def test_consumers_get_the_newest_of_each_key(world: World, keyed: Keyed) -> None:
    keyed.produce(11)
    wait_compacted(world, keyed, 8)
    python = KafkaConsumer(bootstrap_servers=keyed.boot, group_id=None)
    partition = PythonPartition(keyed.name, 0)
    python.assign([partition])
    python.seek(partition, 0)
    got: Seen = []

    def is_end() -> bool:
        for records in python.poll(500).values():
            got.extend((each.offset, each.key) for each in records)
        return bool(got) and got[-1][0] == len(keyed.keys) - 1

    wait_for(is_end, "the end")
    python.close()
    assert got == consumed(keyed)
    read = client_named("aiokafka").read(Access(bootstrap=keyed.boot), keyed.name, len(got))
    assert [each.key for each in read] == [key for _, key in got]
    world.assert_identical(keyed.name)


def test_tombstones_go_with_the_key(world: World, keyed: Keyed) -> None:
    keyed.produce(4)
    keyed.produce(KEYS, is_dead=True)
    dead = set(range(4, 4 + KEYS))
    keyed.keys = keyed.keys[:-KEYS]
    for _ in range(3):  # a compaction sees them, a later one lets them go
        keyed.keys += [b""] * (7 - len(keyed.keys))
        keyed.produce(4)
    wait_for(lambda: not dead & {offset for offset, _ in consumed(keyed)}, "no tombstones")


def test_a_subscriber_goes_on_where_it_was(world: World, keyed: Keyed) -> None:
    """Its copy ends inside of what is compacted meanwhile."""
    keyed.produce(5)
    world.read(3, name=keyed.name, topic=keyed.name)
    keyed.produce(8)
    wait_compacted(world, keyed, 10)
    with world.subscriber(keyed.name, keyed.name) as subscriber:
        records = iter(subscriber)
        found = [next(records)]
        while found[-1].offset < 12:
            found.append(next(records))
        offsets = [each.offset for each in found]
        assert offsets == sorted(set(offsets))
        assert all(each.key == keyed.keys[each.offset] for each in found)
        assert {offset for offset, _ in keyed.newest()} <= set(offsets)
        keyed.produce(2)
        assert [next(records).offset for _ in range(2)] == [13, 14]
    copied = world.copied_bytes(keyed.name, keyed.name)
    assert copied == world.merged_bytes(world.leader(), keyed.name)


def test_a_subscriber_that_waits_is_not_disturbed(world: World, keyed: Keyed) -> None:
    """Its copy is at the end all the time."""
    with world.subscriber(keyed.name, keyed.name) as subscriber:
        keyed.produce(9)
        records = iter(subscriber)
        seen = [next(records).offset for _ in range(9)]
        wait_compacted(world, keyed, 6)
        keyed.produce(2)
        assert seen + [next(records).offset for _ in range(2)] == list(range(11))


def test_a_node_that_was_away_gets_what_is_left(world: World, keyed: Keyed) -> None:
    keyed.produce(3)
    away = world.followers()[0]
    away.kill()
    keyed.produce(8)

    def is_compacted() -> bool:
        return len(consumed(keyed)) <= KEYS + 3

    wait_for(is_compacted, "compacted")
    away.start()
    world.wait_live(away)
    wait_for(lambda: len({tuple(each) for each in files(world, keyed.name)}) == 1, "the same files")
    world.assert_identical(keyed.name)


def test_a_topic_with_fewer_copies_is_compacted_alike(world: World, boot: str) -> None:
    keyed = Keyed(boot, copies=2)
    keyed.produce(11)
    wait_compacted(world, keyed, 8)
    assert len(files(world, keyed.name)) == 2
    with world.subscriber(keyed.name, keyed.name) as subscriber:
        records = iter(subscriber)
        offsets = [next(records).offset]
        while offsets[-1] < 10:
            offsets.append(next(records).offset)
    assert {offset for offset, _ in keyed.newest()} <= set(offsets)


def test_records_without_keys_are_refused(world: World, keyed: Keyed) -> None:
    producer = Producer({"bootstrap.servers": keyed.boot})
    errors: list[str] = []
    producer.produce(
        keyed.name, value=b"no key", on_delivery=lambda error, _: errors.append(str(error))
    )
    assert producer.flush(PATIENCE_S) == 0
    assert (
        "INVALID_RECORD" in errors[0] or "Invalid record" in errors[0] or "compacted" in errors[0]
    )
    with world.publisher(keyed.name, keyed.name) as publisher:
        publisher.append(b"no key")
        wait_for(lambda: "every record needs a key" in not_merged(publisher), "the refusal")
        publisher.close(timeout=0)


def test_other_policies_are_refused(keyed: Keyed) -> None:
    topic = NewTopic("bad", 1, config={"cleanup.policy": "squeeze"})
    admin = AdminClient({"bootstrap.servers": keyed.boot})
    with pytest.raises(KafkaException, match=r"is not delete, compact, or both"):
        admin.create_topics([topic])["bad"].result(PATIENCE_S)
