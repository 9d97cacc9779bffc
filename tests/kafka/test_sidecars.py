"""Kafka clients of the sidecars: they write to and read from files on their own host."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka import TopicPartition as Place
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from samelog.cli.local_cluster import free_ports
from samelog.config.load import load_client
from samelog.config.schema.render import to_toml
from samelog.config.tables.client import ClientConfig
from samelog.config.values import Address
from samelog.publisher.sidecar import find_sessions
from tests import forking
from tests.e2e.commands import samelog
from tests.e2e.harness import World, wait_for
from tests.kafka.batches import batch
from tests.kafka.group_clients import kafka_python_member
from tests.kafka.wire import FETCH, Wire, fetch, fetch_tree, metadata, request, response
from tests.patience import PATIENCE_S

PRODUCE, FIND_COORDINATOR = 0, 10
RECORDS = 200


class Sidecar:
    """A process and its Kafka listener."""

    def __init__(self, arguments: list[str], log: Path) -> None:
        self.address = Address("127.0.0.1", *free_ports(1))
        self.bootstrap = "{}:{}".format(*self.address)
        with log.open("ab") as out:
            self.process = forking.fork(["sidecar", *arguments, "--kafka", self.bootstrap], out)
        wait_for(self._listens, f"the sidecar listens; see {log}")

    def _listens(self) -> bool:
        assert self.process.poll() is None
        with socket.socket() as probe:
            return probe.connect_ex(self.address) == 0

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE_S)


@contextmanager
def running(arguments: list[str], log: Path) -> Iterator[Sidecar]:
    sidecar = Sidecar(arguments, log)
    try:
        yield sidecar
    finally:
        assert sidecar.stop() == 0


def writing(world: World, path: Path, session: str, config: str = "") -> Any:
    """A publisher sidecar that Kafka clients write into."""
    options = ["--dir", str(path / "sessions"), "--kafka-session", session]
    config = config or world.cluster.client_file
    return running(["publisher", "--config", config, *options], path / "log")


@pytest.fixture(scope="module")
def copies(world: World, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sidecar]:
    """A subscriber sidecar of two topics, of which one has records."""
    path = tmp_path_factory.mktemp("copies")
    with world.publisher("native", "flights") as publisher:
        for number in range(RECORDS):
            publisher.append(b"v%d" % number, key=b"k%d" % number, timestamp=1000 + number)
        publisher.wait_merged(PATIENCE_S)
    arguments = ["--config", world.cluster.client_file, "--dir", str(path / "copies")]
    topics = ["--topic", "flights", "--topic", "later"]
    with running(["subscriber", *arguments, *topics], path / "log") as sidecar:
        yield sidecar


def consumed(consumer: Any, count: int) -> list[Any]:
    found: list[Any] = []

    def look() -> bool:
        found.extend(m for m in consumer.consume(count, 0.2) if m.error() is None)
        return len(found) >= count

    wait_for(look, f"{count} messages")
    return found


# --- the publisher's sidecar --------------------------------------------------------------------


def publish(bootstrap: str, topic: str, **options: Any) -> list[Any]:
    """Produce the usual records; the errors that were told."""
    told: list[Any] = []
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 1, **options})
    for number in range(RECORDS):
        producer.produce(topic, b"v%d" % number, on_delivery=lambda error, _: told.append(error))
    assert producer.flush(PATIENCE_S) == 0
    return told


@pytest.fixture(scope="module")
def written(world: World, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sidecar]:
    with writing(world, tmp_path_factory.mktemp("written"), "written") as sidecar:
        yield sidecar


@pytest.mark.parametrize(("acks", "codec"), [("0", "none"), ("1", "gzip"), ("all", "zstd")])
def test_what_a_client_writes_is_merged(
    world: World, written: Sidecar, acks: str, codec: str
) -> None:
    topic = f"written-{acks}"
    told = publish(written.bootstrap, topic, acks=acks, **{"compression.type": codec})
    records = world.read(RECORDS, name=topic, topic=topic)
    assert told == [None] * RECORDS
    assert [record.value for record in records] == [b"v%d" % n for n in range(RECORDS)]


def test_an_idempotent_producer_is_answered_without_a_cluster_and_shipped_later(
    world: World, tmp_path: Path
) -> None:
    nowhere = tmp_path / "nowhere.toml"
    config = world.cluster.client_config()
    away = dataclasses.replace(config, nodes=(Address("127.0.0.1", *free_ports(1)),), node_names=())
    nowhere.write_text(to_toml(away))
    with writing(world, tmp_path, "alone", str(nowhere)) as sidecar:
        told = publish(sidecar.bootstrap, "alone", **{"enable.idempotence": True})
    assert told == [None] * RECORDS
    with writing(world, tmp_path, "alone"):
        records = world.read(RECORDS, name="alone", topic="alone")
    assert [record.value for record in records] == [b"v%d" % n for n in range(RECORDS)]
    assert list(find_sessions(str(tmp_path / "sessions")))


def produced(wire: Wire, topic: str, data: bytes, **options: Any) -> Any:
    tree = {
        "transactional_id": None,
        "acks": -1,
        "timeout_ms": 20_000,
        "topic_data": [{"name": topic, "partition_data": [{"index": 0, "records": data}]}],
    }
    return wire.ask(PRODUCE, 9, tree | options).responses[0].partition_responses[0]


def test_other_libraries_write_too(world: World, written: Sidecar) -> None:
    python = KafkaProducer(bootstrap_servers=written.bootstrap)
    assert python.send("others", b"kafka-python").get(PATIENCE_S).topic == "others"
    python.close()

    async def write() -> None:
        options = {"bootstrap_servers": written.bootstrap, "enable_idempotence": True}
        async with AIOKafkaProducer(**options, compression_type="gzip") as producer:
            await producer.send_and_wait("others", b"aiokafka")

    asyncio.run(write())
    records = world.read(2, name="others", topic="others")
    assert [record.value for record in records] == [b"kafka-python", b"aiokafka"]


def of_producer(sequence: int, *values: bytes) -> bytes:
    return batch(*values, producer_id=77, producer_epoch=0, base_sequence=sequence)


def test_retries_are_told_apart_and_bad_batches_refused(world: World, written: Sidecar) -> None:
    with Wire(written.address) as wire:
        first = of_producer(0, b"a", b"b")
        for data in (first, first, of_producer(2, b"c")):
            answer = produced(wire, "byhand", data)
            assert (answer.error_code, answer.base_offset) == (0, -1)
        assert produced(wire, "byhand", of_producer(9, b"x")).error_code == 45
        assert produced(wire, "byhand", first[:-1] + b"?").error_code == 2
        assert produced(wire, "no such:name", batch(b"x")).error_code == 3
        records = world.read(3, name="byhand", topic="byhand")
        assert fetch(wire, "byhand", 0).error_code == 29
    assert [record.value for record in records] == [b"a", b"b", b"c"]


def test_a_sidecar_that_was_killed_goes_on(world: World, tmp_path: Path) -> None:
    arguments = ["publisher", "--config", world.cluster.client_file, "--kafka-session", "killed"]
    arguments += ["--dir", str(tmp_path / "sessions")]
    sidecar = Sidecar(arguments, tmp_path / "log")
    with Wire(sidecar.address) as wire:
        assert produced(wire, "killed", batch(b"before")).error_code == 0
    os.kill(sidecar.process.pid, signal.SIGKILL)
    sidecar.process.wait(PATIENCE_S)
    with writing(world, tmp_path, "killed") as again, Wire(again.address) as wire:
        assert produced(wire, "killed", batch(b"after")).error_code == 0
        records = world.read(2, name="killed", topic="killed")
    assert [record.value for record in records] == [b"before", b"after"]


# --- the subscriber's sidecar -------------------------------------------------------------------


def test_copies_are_read_by_offset_and_time(copies: Sidecar) -> None:
    consumer = KafkaConsumer(bootstrap_servers=copies.bootstrap, group_id=None)
    place = TopicPartition("flights", 0)
    wait_for(lambda: consumer.partitions_for_topic("flights") == {0}, "the topic is copied")
    consumer.assign([place])
    wait_for(lambda: consumer.end_offsets([place])[place] == RECORDS, "all is copied")
    assert consumer.offsets_for_times({place: 1100})[place].offset == 100
    consumer.seek(place, 150)
    got: list[bytes] = []
    while len(got) < RECORDS - 150:
        got += [record.value for records in consumer.poll(500).values() for record in records]
    assert got == [b"v%d" % number for number in range(150, RECORDS)]
    consumer.close()


def test_records_that_come_wake_a_waiting_fetch(world: World, copies: Sidecar) -> None:
    consumer = KafkaConsumer(bootstrap_servers=copies.bootstrap, group_id=None)
    with world.publisher("later", "later") as publisher:
        publisher.append(b"one")
        wait_for(lambda: consumer.partitions_for_topic("later") == {0}, "the topic is copied")
        consumer.close()
        with Wire(copies.address) as wire:
            wait_for(lambda: bool(fetch(wire, "later", 0).records), "the first record")
            with Wire(copies.address) as waiting:
                tree = fetch_tree("later", 1, max_wait=30_000)
                waiting.send(request(FETCH, 12, tree))
                publisher.append(b"two")
                answer = response(FETCH, 12, waiting.receive())
            assert b"two" in answer.responses[0].partitions[0].records
            beyond = fetch(wire, "later", 1000)
            assert (beyond.error_code, beyond.records) == (0, b"")


def test_a_group_is_the_clusters(world: World, copies: Sidecar) -> None:
    """Members and offsets are the nodes', records come from the copies."""
    options = {
        "group.id": "both",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    consumer = Consumer(options | {"bootstrap.servers": copies.bootstrap})
    consumer.subscribe(["flights"])
    assert consumed(consumer, 100)[-1].offset() == 99
    consumer.commit(offsets=[Place("flights", 0, 100)], asynchronous=False)
    consumer.close()
    bootstrap = world.cluster.client_config().kafka_bootstrap
    elsewhere = Consumer(options | {"bootstrap.servers": bootstrap})
    elsewhere.subscribe(["flights"])
    assert consumed(elsewhere, 1)[0].offset() == 100
    elsewhere.close()


def test_other_libraries_read_in_groups_too(copies: Sidecar) -> None:
    async def read() -> bytes | None:
        options = {"bootstrap_servers": copies.bootstrap, "auto_offset_reset": "earliest"}
        async with AIOKafkaConsumer("flights", group_id="aio", **options) as consumer:
            async with asyncio.timeout(PATIENCE_S):
                record = await consumer.getone()
            await consumer.commit()
            value: bytes | None = record.value
            return value

    assert asyncio.run(read()) == b"v0"
    python = kafka_python_member(bootstrap_servers=copies.bootstrap, group_id="python")
    python.subscribe(["flights"])
    found: list[Any] = []
    wait_for(lambda: bool(found.extend(python.poll(200).values()) or found), "records")  # type: ignore[func-returns-value]
    python.close()
    assert found[0][0].value == b"v0"


def test_a_group_goes_on_when_its_coordinator_changes(world: World, copies: Sidecar) -> None:
    options = {
        "bootstrap.servers": copies.bootstrap,
        "group.id": "moving",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "heartbeat.interval.ms": 500,
    }
    with Consumer(options) as consumer:
        consumer.subscribe(["flights"])
        consumed(consumer, 10)
        before = world.leader()

        def moved() -> bool:  # on a busy machine the next leader may give up at once
            samelog("node", "transfer", "--config", world.cluster.client_file)
            return world.leader() is not before

        wait_for(moved, "another leader")

        def commits() -> bool:
            consumer.poll(0.1)
            try:
                consumer.commit(offsets=[Place("flights", 0, 10)], asynchronous=False)
            except KafkaException:
                return False
            return True

        wait_for(commits, "a commit at the new coordinator")
        assert consumer.committed([Place("flights", 0)], 20)[0].offset == 10


def read_all(bootstrap: str, topic: str, level: str) -> list[Any]:
    """The values up to the end of the first partition, as a consumer of this level sees it."""
    options = {"bootstrap.servers": bootstrap, "group.id": level, "isolation.level": level}
    consumer = Consumer({**options, "enable.partition.eof": True})
    consumer.assign([Place(topic, 0, 0)])
    found: list[Any] = []
    while not found or found[-1].error() is None:
        found += consumer.consume(10, 1.0)
    consumer.close()
    return [each.value() for each in found[:-1]]


def test_what_is_open_or_aborted_is_not_committed_beside_a_copy_either(
    world: World, boot: str, topic: str, tmp_path: Path
) -> None:
    producer = Producer({"bootstrap.servers": boot, "transactional.id": topic})
    producer.init_transactions(PATIENCE_S)
    for value, end in ((b"gone", "abort"), (b"kept", "commit"), (b"open", "")):
        producer.begin_transaction()
        producer.produce(topic, value, partition=0)
        assert producer.flush(PATIENCE_S) == 0
        if end:
            getattr(producer, f"{end}_transaction")(PATIENCE_S)
    config, copies = world.cluster.client_file, str(tmp_path / "copies")
    arguments = ["subscriber", "--config", config, "--dir", copies, "--topic", topic]
    with running(arguments, tmp_path / "log") as sidecar:

        def seen(level: str) -> list[Any]:
            return read_all(sidecar.bootstrap, topic, level)

        everything = [b"gone", b"kept", b"open"]
        wait_for(lambda: seen("read_uncommitted") == everything, "all is copied")
        assert seen("read_committed") == [b"kept"]
        producer.commit_transaction(PATIENCE_S)
        wait_for(lambda: seen("read_committed") == [b"kept", b"open"], "the end is copied")


def test_what_the_subscribers_sidecar_does_not_do(copies: Sidecar) -> None:
    with Wire(copies.address) as wire:
        assert produced(wire, "flights", batch(b"x")).error_code == 29
        assert metadata(wire, "nobody").topics[0].error_code == 3
        tree = {"key_type": 1, "coordinator_keys": ["t"]}
        assert wire.ask(FIND_COORDINATOR, 4, tree).coordinators[0].error_code == 53


def test_the_publishers_sidecar_has_no_groups(written: Sidecar) -> None:
    with Wire(written.address) as wire:
        tree = {"key_type": 1, "coordinator_keys": ["t"]}
        assert wire.ask(FIND_COORDINATOR, 4, tree).coordinators[0].error_code == 53
        tree = {"key_type": 0, "coordinator_keys": ["g"]}
        (found,) = wire.ask(FIND_COORDINATOR, 4, tree).coordinators
        assert (found.error_code, "no groups here" in found.error_message) == (30, True)


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["publisher", "--kafka", "0.0.0.0:9092", "--kafka-session", "s"], 2, "of this host"),
        (["publisher", "--kafka", "127.0.0.1:9092"], 1, "--kafka-session is missing"),
        (["subscriber", "--topic", "t", "--kafka", "nowhere"], 2, "of this host"),
    ],
)
def test_wrong_options_are_told(
    world: World, tmp_path: Path, arguments: list[str], code: int, said: str
) -> None:
    options = ["--config", world.cluster.client_file, "--dir", str(tmp_path)]
    ended = samelog("sidecar", *arguments, *options)
    assert (ended.returncode, said in ended.stderr) == (code, True)


def test_a_port_that_is_taken_is_told(world: World, tmp_path: Path, written: Sidecar) -> None:
    options = ["--config", world.cluster.client_file, "--dir", str(tmp_path / "sessions")]
    listen = ["--kafka", written.bootstrap, "--kafka-session", "other"]
    ended = samelog("sidecar", "publisher", *options, *listen)
    assert (ended.returncode, "cannot listen on" in ended.stderr) == (1, True)
    assert "Traceback" not in ended.stderr


def test_both_tables_of_a_clients_file(world: World, tmp_path: Path) -> None:
    config: ClientConfig = world.cluster.client_config()
    path = tmp_path / "client.toml"
    tables = '[publisher.kafka]\nlisten = "127.0.0.1:1"\nsession = "s"\n"num.partitions" = 3\n'
    path.write_text(to_toml(config) + tables + '[subscriber.kafka]\nlisten = "[::1]:2"\n')
    found = load_client(str(path))
    assert found.publisher.kafka is not None
    assert found.publisher.kafka.num_partitions == 3
    assert found.subscriber.kafka is not None
    path.write_text(to_toml(found))
    assert load_client(str(path)) == found
