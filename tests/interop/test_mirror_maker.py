"""MirrorMaker 2 from one cluster to another, and from Apache Kafka; killed in its work and started
again. A part of `make interop`.

With exactly-once sources each record is in the target once, in order, with key, headers and time.
What a consumer group has committed in the source is translated: in the target, it misses nothing,
and reads a part again, as MirrorMaker keeps fewer places the older they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.cimpl import NewTopic

from bench.maven import PLATFORM
from samelog.cli.local_cluster import ClusterOptions, LocalCluster
from tests.e2e.harness import World, wait_for
from tests.interop.program import Program, java, properties
from tests.patience import PATIENCE_S

MAIN = "org.apache.kafka.connect.mirror.MirrorMaker"
TOPIC, MIRRORED = "orders", "source.orders"
GROUP = "billing"
RECORDS = 600
END = 3 * RECORDS
MIRROR = {
    "clusters": "source, target",
    "source->target.enabled": "true",
    "source->target.topics": TOPIC,
    "source->target.groups": GROUP,
    "source->target.sync.group.offsets.enabled": "true",
    "sync.group.offsets.interval.seconds": 1,
    "emit.checkpoints.interval.seconds": 1,
    "refresh.topics.interval.seconds": 1,
    "refresh.groups.interval.seconds": 1,
    "offset.lag.max": 0,
    "replication.factor": -1,
    "checkpoints.topic.replication.factor": -1,
    "heartbeats.topic.replication.factor": -1,
    "offset-syncs.topic.replication.factor": -1,
    "offset.storage.replication.factor": -1,
    "status.storage.replication.factor": -1,
    "config.storage.replication.factor": -1,
    "target.exactly.once.source.support": "enabled",
    "source.consumer.isolation.level": "read_committed",
    "dedicated.mode.enable.internal.rest": "true",
    "session.timeout.ms": 6000,
    "heartbeat.interval.ms": 1000,
    "scheduled.rebalance.max.delay.ms": 0,
}

pytestmark = [pytest.mark.campaign, pytest.mark.timeout(900)]


class Row(NamedTuple):
    """What is to be the same in both."""

    key: bytes | None
    value: bytes | None
    headers: object
    time: tuple[int, int]


@pytest.fixture
def mirrored(tmp_path: Path, starts_nodes: None) -> Iterator[str]:
    """The other cluster, of one node."""
    with LocalCluster(str(tmp_path / "other"), ClusterOptions(nodes=1)) as cluster:
        cluster.prepare()
        cluster.start()
        yield cluster.client_config().kafka_bootstrap


def mirror(path: Path, source: str, target: str) -> Program:
    told = {**MIRROR, "source.bootstrap.servers": source, "target.bootstrap.servers": target}
    file = properties(path / "mirror.properties", told)
    return Program(path, "mirror", java(PLATFORM, MAIN, str(file)))


def make(source: str) -> None:
    settings = {"segment.ms": "7200000", "max.message.bytes": "500000"}
    admin = AdminClient({"bootstrap.servers": source})
    (made,) = admin.create_topics([NewTopic(TOPIC, 1, config=settings)]).values()
    made.result(PATIENCE_S)


def write(source: str, first: int, *, is_kept: bool = True) -> None:
    """A transaction."""
    producer = Producer({"bootstrap.servers": source, "transactional.id": "orders"})
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    for number in range(first, first + RECORDS):
        text = b"%d" % number
        headers: dict[str, str | bytes | None] = {"number": text}
        producer.produce(TOPIC, text, text, headers=headers, timestamp=1_700_000_000_000 + number)
    if is_kept:
        producer.commit_transaction(PATIENCE_S)
    else:
        producer.flush(PATIENCE_S)
        producer.abort_transaction(PATIENCE_S)


def read(boot: str, topic: str, count: int) -> list[Row]:
    """The topic's committed records, once there are so many."""
    told = {"bootstrap.servers": boot, "group.id": "none", "isolation.level": "read_committed"}
    reader = Consumer(told)
    reader.assign([TopicPartition(topic, 0, 0)])
    found: list[Row] = []

    def more() -> bool:
        records = (each for each in reader.consume(1000, 0.5) if each.error() is None)
        found.extend(Row(r.key(), r.value(), r.headers(), r.timestamp()) for r in records)
        return len(found) >= count

    wait_for(more, f"{count} records in {topic}", 2 * PATIENCE_S)
    reader.close()
    return found


def member(boot: str) -> Consumer:
    """A consumer of the group that is translated."""
    told = {"bootstrap.servers": boot, "group.id": GROUP, "auto.offset.reset": "earliest"}
    return Consumer({**told, "isolation.level": "read_committed", "enable.auto.commit": False})


def commit(source: str, records: int) -> None:
    """As a member that has read so many more."""
    consumer = member(source)
    consumer.subscribe([TOPIC])
    found: list[int] = []

    def more() -> bool:
        messages = consumer.consume(records - len(found), 0.5)
        found.extend(offset for each in messages if (offset := each.offset()) is not None)
        return len(found) == records

    wait_for(more, f"{records} records for the group")
    consumer.commit(offsets=[TopicPartition(TOPIC, 0, found[-1] + 1)], asynchronous=False)
    consumer.close()


def translated(target: str) -> int:
    """Where the group is in the target."""
    consumer = member(target)
    (place,) = consumer.committed([TopicPartition(MIRRORED, 0)], PATIENCE_S)
    consumer.close()
    return int(place.offset)


def check(path: Path, source: str, target: str) -> None:
    make(source)
    write(source, 0)
    with mirror(path, source, target) as program:
        assert read(target, MIRRORED, RECORDS) == read(source, TOPIC, RECORDS)
        commit(source, RECORDS)
        program.wait(lambda: translated(target) > 0, "the group's offset")
        write(source, RECORDS)
        assert goes_on(target) <= RECORDS
        write(source, -1_000_000, is_kept=False)
        program.kill()
        program.start()
        write(source, 2 * RECORDS)
        wanted = read(source, TOPIC, END)
        assert read(target, MIRRORED, END) == wanted
        commit(source, END - RECORDS)
        program.wait(lambda: translated(target) > 2 * RECORDS, "the group's offset, later")
        write(source, END)
        assert goes_on(target) <= END
        program.wait(lambda: setting(target, "segment.ms") == "7200000", "settings")
        program.stop()
    assert setting(target, "max.message.bytes") == "500000"


def setting(boot: str, name: str) -> str:
    admin = AdminClient({"bootstrap.servers": boot})
    asked = ConfigResource(ConfigResource.Type.TOPIC, MIRRORED)
    (found,) = admin.describe_configs([asked]).values()
    return str(found.result(PATIENCE_S)[name].value)


def goes_on(target: str) -> int:
    """How many records the group need not read any more in the target."""
    consumer = member(target)
    consumer.subscribe([MIRRORED])
    first: list[bytes] = []

    def one() -> bool:
        messages = consumer.consume(1, 0.5)
        first.extend(value for each in messages if (value := each.value()) is not None)
        return bool(first)

    wait_for(one, "a record for the group")
    consumer.close()
    return int(first[0])


def test_from_one_cluster_to_another(world: World, mirrored: str) -> None:
    check(world.directory, mirrored, world.cluster.client_config().kafka_bootstrap)


def test_from_apache_kafka(world: World, kafka: str) -> None:
    check(world.directory, kafka, world.cluster.client_config().kafka_bootstrap)
