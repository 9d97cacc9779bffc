"""Apache Kafka's topics as mirrors, by `samelog mirror`, which is killed in its work. A part of
`make interop`.

A mirror has Kafka's batches at Kafka's offsets, to the byte but for the leader epoch: compressed
ones, those of transactions and their markers; from where Kafka's log begins.
"""

from __future__ import annotations

import asyncio
from types import TracebackType

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from samelog.admin.client import ask
from samelog.admin.mirror_requests import ListMirrors
from samelog.config.tables.mirror import KafkaSource
from samelog.config.values import Address
from samelog.format import _kernels as kernels
from samelog.mirror.kafka.source import KafkaClusterSource
from samelog.mirror.source import Where
from tests import forking
from tests.e2e.commands import as_json, samelog
from tests.e2e.harness import World, wait_for
from tests.patience import PATIENCE_S

TOPIC, MIRROR = "orders", "eu.orders"
EPOCH = slice(12, 16)
SHOWN = 4000
"""Characters of a log that a failure quotes."""

pytestmark = [pytest.mark.campaign, pytest.mark.timeout(900)]


class Sidecar:
    """The process between both."""

    def __init__(
        self, world: World, kafka: str, topics: str = f"['{TOPIC}']", more: str = ""
    ) -> None:
        self.path = world.directory / "mirror.toml"
        self.log = world.directory / "mirror.log"
        self.path.write_text(
            "name = 'kafka'\n"
            f"dir = '{world.directory / 'mirror'}'\n"
            f"destination = '{world.cluster.client_file}'\n"
            f"topics = {topics}\nas = 'eu.{{topic}}'\ngroups = ['billing']\n{more}"
            f"[kafka]\nbootstrap = ['{kafka}']\n",
            "utf-8",
        )

    def __enter__(self) -> Sidecar:
        with self.log.open("ab") as log:
            self.process = forking.fork(["mirror", "run", "--config", str(self.path)], log)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.process.kill()
        self.process.wait(10)
        if error is not None:
            error.add_note(f"the sidecar: {self.log.read_text(errors='replace')[-SHOWN:]}")


def make(kafka: str, name: str = TOPIC, **settings: str) -> None:
    admin = AdminClient({"bootstrap.servers": kafka})
    (made,) = admin.create_topics([NewTopic(name, 1, config=settings)]).values()
    made.result(PATIENCE_S)


def write(kafka: str, first: int, count: int, **options: str) -> None:
    producer = Producer({"bootstrap.servers": kafka, "linger.ms": 20, **options})
    for number in range(first, first + count):
        producer.produce(TOPIC, b"%d" % number * 9, b"key %d" % number)
    assert producer.flush(PATIENCE_S) == 0


def transaction(kafka: str, *, is_kept: bool) -> None:
    producer = Producer({"bootstrap.servers": kafka, "transactional.id": f"t-{is_kept}"})
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    producer.produce(TOPIC, b"in a transaction")
    producer.flush(PATIENCE_S)
    (producer.commit_transaction if is_kept else producer.abort_transaction)(PATIENCE_S)


def end_of(boot: str, topic: str) -> int:
    reader = Consumer({"bootstrap.servers": boot, "group.id": "ends"})
    try:
        return int(reader.get_watermark_offsets(TopicPartition(topic, 0), PATIENCE_S)[1])
    finally:
        reader.close()


def mirrored(world: World) -> int:
    rows = ask(world.cluster.client_config(), ListMirrors()).mirrors
    return max((each.partitions[0].next_offset for each in rows if each.topic == MIRROR), default=0)


async def batches_of_kafka(kafka: str, first: int, end: int) -> bytes:
    """What Kafka itself gives of the topic."""
    host, port = kafka.split(":")
    source = KafkaClusterSource(KafkaSource(bootstrap=(Address(host, int(port)),)))
    state = await source.state([TOPIC], [])
    reader = await source.read(Where(TOPIC, state.topics[0].log_id, 0), first)
    data = b""
    while not data or next_of(data) < end:
        data += await reader.next()
    await reader.close()
    await source.close()
    return data


def next_of(data: bytes) -> int:
    header = kernels.batch_headers(data, 0, len(data))[-1]
    return int.from_bytes(data[header[0] : header[0] + 8], "big") + header[2]


def without_epochs(data: bytes) -> bytes:
    plain = bytearray(data)
    for header in kernels.batch_headers(data, 0, len(data)):
        plain[header[0] :][EPOCH] = b"\0\0\0\0"
        plain[header[0] + EPOCH.start : header[0] + EPOCH.stop] = b"\0\0\0\0"
    return bytes(plain)


def committed_values(boot: str, topic: str, first: int) -> list[tuple[int, bytes]]:
    reader = Consumer(
        {
            "bootstrap.servers": boot,
            "group.id": "none",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    reader.assign([TopicPartition(topic, 0, first)])
    found: list[tuple[int, bytes]] = []
    try:
        while (each := reader.poll(PATIENCE_S)) is not None and not each.error():
            found.append((int(each.offset() or 0), bytes(each.value() or b"")))
    finally:
        reader.close()
    return found


def test_a_mirror_of_apache_kafka_is_what_kafka_has(world: World, kafka: str) -> None:
    make(kafka)
    write(kafka, 0, 300)
    admin = AdminClient({"bootstrap.servers": kafka})
    next(iter(admin.delete_records([TopicPartition(TOPIC, 0, 100)]).values())).result(PATIENCE_S)
    write(kafka, 300, 200, **{"compression.type": "zstd"})
    transaction(kafka, is_kept=True)
    transaction(kafka, is_kept=False)
    with Sidecar(world, kafka):
        wait_for(lambda: mirrored(world) > 100, "something is mirrored")
    write(kafka, 500, 2000, **{"enable.idempotence": "true", "compression.type": "gzip"})
    consumer = Consumer({"bootstrap.servers": kafka, "group.id": "billing"})
    consumer.commit(offsets=[TopicPartition(TOPIC, 0, 321)], asynchronous=False)
    consumer.close()
    end = end_of(kafka, TOPIC)
    boot = world.cluster.client_config().kafka_bootstrap
    with Sidecar(world, kafka):
        wait_for(lambda: mirrored(world) > 600, "more is mirrored")
    with Sidecar(world, kafka) as sidecar:
        world_end = f"{MIRROR} is mirrored to {end}"
        wait_for(lambda: mirrored(world) == end, world_end)
        world.wait_offset(end, MIRROR)
        wait_for(lambda: position(boot) == 321, "the group's position")
        rows = as_json("mirror", "status", "--config", str(sidecar.path))["partitions"]
        assert [(row["mirrored"], row["lag"]) for row in rows] == [(end, 0)]
    here = world.merged_bytes(world.cluster.nodes[0], MIRROR)
    there = asyncio.run(batches_of_kafka(kafka, 100, end))
    assert without_epochs(here) == without_epochs(there)
    world.assert_identical(MIRROR)
    wanted = committed_values(kafka, TOPIC, 100)
    assert committed_values(boot, MIRROR, 100) == wanted
    assert len(wanted) == 2401
    promote = (
        "mirror",
        "promote",
        MIRROR,
        "--confirm",
        MIRROR,
        "--config",
        world.cluster.client_file,
    )
    assert samelog(*promote).returncode == 0
    producer = Producer({"bootstrap.servers": boot})
    producer.produce(MIRROR, b"own")
    assert producer.flush(PATIENCE_S) == 0
    assert committed_values(boot, MIRROR, end) == [(end, b"own")]


def position(boot: str) -> int:
    consumer = Consumer({"bootstrap.servers": boot, "group.id": "billing"})
    try:
        (place,) = consumer.committed([TopicPartition(MIRROR, 0)], PATIENCE_S)
    finally:
        consumer.close()
    return int(place.offset)


def keep_writing(kafka: str, written: list[int]) -> None:
    """A few keys again and again, so that Kafka's cleaner has something to do."""
    producer = Producer({"bootstrap.servers": kafka})
    for number in range(len(written), len(written) + 50):
        producer.produce("kept", b"%d" % number, b"key %d" % (number % 7))
        written.append(number)
    assert producer.flush(PATIENCE_S) == 0


def test_a_compacted_topic_of_apache_kafka_keeps_its_offsets(world: World, kafka: str) -> None:
    cleaned = {
        "cleanup.policy": "compact",
        "segment.ms": "100",
        "min.cleanable.dirty.ratio": "0.01",
        "max.compaction.lag.ms": "500",
    }
    make(kafka, "kept", **cleaned)
    written: list[int] = []

    def is_cleaned() -> bool:
        keep_writing(kafka, written)
        return 2 * len(committed_values(kafka, "kept", 0)) < len(written)

    wait_for(is_cleaned, "Kafka has compacted it")
    end = end_of(kafka, "kept")
    boot = world.cluster.client_config().kafka_bootstrap
    mirror = "eu.kept"
    with Sidecar(world, kafka, "['kept']"):
        wait_for(lambda: mirror_ends(world).get(mirror) == end, "it is mirrored")
        world.wait_offset(end, mirror)
        keep_writing(kafka, written)
        wait_for(lambda: mirror_ends(world).get(mirror) == len(written), "what is new, too")
        world.wait_offset(len(written), mirror)
    world.assert_identical(mirror)
    here = dict(committed_values(boot, mirror, 0))
    there = dict(committed_values(kafka, "kept", 0))
    assert here.items() >= there.items(), "all that Kafka has is at its offset"
    assert all(here[offset] == b"%d" % offset for offset in here)
    assert len(here) < len(written) - 50, "what was compacted away is not there"


def mirror_ends(world: World) -> dict[str, int]:
    rows = ask(world.cluster.client_config(), ListMirrors()).mirrors
    return {each.topic: each.partitions[0].next_offset for each in rows}
