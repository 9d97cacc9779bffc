"""Two real clusters, and a sidecar between them: the mirror is the source, to the byte, whatever
dies; nobody else writes to it; once promoted, it is a topic as any other.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from samelog.publisher.errors import NotMerged
from tests.e2e.commands import as_json, samelog
from tests.e2e.harness import World, wait_for
from tests.e2e.mirroring import TwoClusters, two_clusters
from tests.patience import PATIENCE_S
from tests.typed.known import schema_text


@pytest.fixture(scope="module")
def clusters(tmp_path_factory: pytest.TempPathFactory, starts_nodes: None) -> Iterator[TwoClusters]:
    with two_clusters(tmp_path_factory.mktemp("mirror")) as made:
        yield made


@pytest.fixture
def pair(clusters: TwoClusters, tmp_path: Path) -> TwoClusters:
    """The same clusters, with a sidecar of its own for each test."""
    return TwoClusters(clusters.source, clusters.destination, tmp_path)


def publish(world: World, topic: str, count: int, *, first: int = 0) -> None:
    with world.publisher(f"{topic}-{first}", topic) as publisher:
        for number in range(first, first + count):
            publisher.append(b"value %d" % number, partition=0)
        publisher.wait_merged(timeout=PATIENCE_S)


def servers(world: World) -> str:
    return world.cluster.client_config().kafka_bootstrap


def test_a_mirror_has_the_sources_bytes_and_goes_on_where_it_ended(pair: TwoClusters) -> None:
    publish(pair.source, "a", 500)
    pair.configure(["a"])
    with pair.sidecar():
        pair.wait_mirrored(500, "eu.a")
    publish(pair.source, "a", 100, first=500)
    with pair.sidecar():
        pair.wait_mirrored(600, "eu.a")
        pair.assert_same_bytes("a")
        rows = as_json("mirror", "status", "--config", pair.config)["partitions"]
        assert [(row["mirrored"], row["end"], row["lag"]) for row in rows] == [(600, 600, 0)]
    records = pair.destination.read(600, name="a", topic="eu.a")
    assert [record.value for record in records] == [b"value %d" % n for n in range(600)]
    assert [record.offset for record in records] == list(range(600))


def test_only_the_mirror_writes_to_its_topics(pair: TwoClusters) -> None:
    publish(pair.source, "b", 10)
    pair.configure(["b"])
    with pair.sidecar():
        pair.wait_mirrored(10, "eu.b")
    with pair.destination.publisher("intruder", "eu.b") as publisher:
        publisher.append(b"mine", partition=0)
        with pytest.raises(NotMerged, match="is a mirror of 'b'"):
            publisher.wait_merged(timeout=PATIENCE_S)
    errors: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": servers(pair.destination)})
    producer.produce("eu.b", b"mine", on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(PATIENCE_S) == 0
    assert errors[0] is not None
    assert errors[0].code() == KafkaError.POLICY_VIOLATION
    admin = AdminClient({"bootstrap.servers": servers(pair.destination)})
    deleting = admin.delete_records([TopicPartition("eu.b", 0, 5)])
    with pytest.raises(KafkaException, match="POLICY"):
        next(iter(deleting.values())).result()
    config = ("--config", pair.destination.cluster.client_file)
    more = samelog("topic", "add-partitions", "eu.b", "2", *config)
    assert more.returncode == 1
    assert "is a mirror" in more.stderr
    assert pair.mirrored("eu.b") == 10


def test_a_promoted_mirror_is_a_topic_of_its_own(pair: TwoClusters) -> None:
    publish(pair.source, "c", 10)
    pair.configure(["c"])
    config = ("--config", pair.destination.cluster.client_file)
    with pair.sidecar():
        pair.wait_mirrored(10, "eu.c")
        assert as_json("mirror", "promote", "eu.*", "--confirm", "eu.*", *config)["eu.c"] == [10]
        publish(pair.source, "c", 10, first=10)
        publish(pair.destination, "eu.c", 5, first=10)
        wait_for(
            lambda: (
                "was promoted" in pair.log.read_text()
                or "promoted" in str(as_json("mirror", "status", "--config", pair.config))
            ),
            "the sidecar leaves it alone",
        )
    records = pair.destination.read(15, name="c", topic="eu.c")
    assert [record.value for record in records] == [b"value %d" % n for n in range(15)]
    again = samelog("mirror", "promote", "nothing", "--confirm", "nothing", *config)
    assert again.returncode == 1


def test_groups_come_along_and_own_ones_stay(pair: TwoClusters) -> None:
    publish(pair.source, "d", 20)

    def commit(world: World, topic: str, offset: int) -> None:
        options = {"bootstrap.servers": servers(world), "group.id": "g"}
        consumer = Consumer(options)
        consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
        consumer.close()

    def position() -> int:
        consumer = Consumer({"bootstrap.servers": servers(pair.destination), "group.id": "g"})
        try:
            found = consumer.committed([TopicPartition("eu.d", 0)], timeout=PATIENCE_S)
        finally:
            consumer.close()
        return int(found[0].offset)

    commit(pair.source, "d", 15)
    pair.configure(["d"], groups=["g*"])
    with pair.sidecar():
        wait_for(lambda: position() == 15, "the group is where it is at the source")
        commit(pair.source, "d", 3)
        wait_for(lambda: position() == 3, "positions fall, too")
        commit(pair.destination, "eu.d", 8)
        commit(pair.source, "d", 17)
        publish(pair.source, "d", 5, first=20)
        pair.wait_mirrored(25, "eu.d")
        assert position() == 8


def test_schemas_come_before_their_records(pair: TwoClusters) -> None:
    file = pair.directory / "schema.json"
    config = ("--config", pair.source.cluster.client_file)

    def set_schema(*columns: str) -> bool:
        file.write_text(schema_text(*columns, value_format="json"))
        return samelog("schema", "set", "e", str(file), *config).returncode == 0

    samelog("topic", "create", "e", *config)
    wait_for(lambda: set_schema("a int64"), "schemas may be set")
    pair.configure(["e"])
    with pair.sidecar():
        with pair.source.publisher("e", "e") as publisher:
            publisher.append_rows([{"a": 1}])
            publisher.wait_merged(timeout=PATIENCE_S)
        pair.wait_mirrored(1, "eu.e")
        assert set_schema("a int64", "b string")
        with pair.source.publisher("e2", "e") as publisher:
            publisher.append_rows([{"a": 2, "b": "two"}])
            publisher.wait_merged(timeout=PATIENCE_S)
        pair.wait_mirrored(2, "eu.e")
    with pair.destination.subscriber("e", "eu.e", follow=False) as subscriber:
        found = subscriber.rows(timeout=PATIENCE_S)
        while len(found) < 2 and (more := subscriber.rows(timeout=PATIENCE_S)):
            found += more  # they come in two batches
    assert [row.values for row in found] == [{"a": 1, "b": None}, {"a": 2, "b": "two"}]
    refused = samelog(
        "schema", "set", "eu.e", str(file), "--config", pair.destination.cluster.client_file
    )
    assert refused.returncode == 1


def test_transactions_are_mirrored_and_open_ones_end_with_a_promotion(pair: TwoClusters) -> None:
    def producer(name: str) -> Producer:
        made = Producer({"bootstrap.servers": servers(pair.source), "transactional.id": name})
        made.init_transactions(PATIENCE_S)
        made.begin_transaction()
        return made

    publish(pair.source, "f", 1)
    one = producer("one")
    one.produce("f", b"kept", partition=0)
    one.commit_transaction(PATIENCE_S)
    two = producer("two")
    two.produce("f", b"given up", partition=0)
    two.flush(PATIENCE_S)
    two.abort_transaction(PATIENCE_S)
    left = producer("left")
    left.produce("f", b"open", partition=0)
    left.flush(PATIENCE_S)
    pair.configure(["f"])
    with pair.sidecar():
        pair.wait_mirrored(6, "eu.f")
    pair.assert_same_bytes("f")

    def committed() -> list[bytes | None]:
        consumer = Consumer(
            {
                "bootstrap.servers": servers(pair.destination),
                "group.id": "readers",
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
            }
        )
        consumer.assign([TopicPartition("eu.f", 0, 0)])
        values: list[bytes | None] = []
        try:
            while (message := consumer.poll(PATIENCE_S)) is not None and not message.error():
                values.append(message.value())
        finally:
            consumer.close()
        return values

    assert committed() == [b"value 0", b"kept"]
    config = ("--config", pair.destination.cluster.client_file)
    as_json("mirror", "promote", "eu.f", "--confirm", "eu.f", *config)
    publish(pair.destination, "eu.f", 1, first=9)
    wait_for(lambda: committed() == [b"value 0", b"kept", b"value 9"], "what was open is aborted")
    left.abort_transaction(PATIENCE_S)


def test_what_the_source_archived_is_where_the_mirror_begins(pair: TwoClusters) -> None:
    publish(pair.source, "h", 30)
    admin = AdminClient({"bootstrap.servers": servers(pair.source)})
    next(iter(admin.delete_records([TopicPartition("h", 0, 12)]).values())).result()
    pair.configure(["h"])
    with pair.sidecar():
        pair.wait_mirrored(30, "eu.h")
        records = pair.destination.read(18, name="h", topic="eu.h")
        assert [record.offset for record in records] == list(range(12, 30))
        publish(pair.source, "h", 10, first=30)
        pair.wait_mirrored(40, "eu.h")


def test_a_restore_ends_where_the_source_ended_when_it_began(pair: TwoClusters) -> None:
    publish(pair.source, "k1", 50)
    publish(pair.source, "k2", 20)
    pair.configure(["k*"], until="end")
    with pair.sidecar() as process:
        assert process.wait(PATIENCE_S) == 0
    publish(pair.source, "k1", 5, first=50)
    with pair.sidecar() as process:
        assert process.wait(PATIENCE_S) == 0
    assert (pair.mirrored("eu.k1"), pair.mirrored("eu.k2")) == (50, 20)


@pytest.mark.parametrize("is_away", [False, True])
def test_a_source_that_was_created_again_stops_its_mirror(
    pair: TwoClusters, *, is_away: bool
) -> None:
    """Whether or not the sidecar runs meanwhile; other topics continue."""
    topic, other = f"m{is_away:d}", f"n{is_away:d}"
    publish(pair.source, topic, 10)
    publish(pair.source, other, 10)
    pair.configure([topic, other])

    def create_again() -> None:
        config = ("--config", pair.source.cluster.client_file)
        delete = samelog("topic", "delete", topic, "--confirm", topic, "--in-use", *config)
        assert delete.returncode == 0
        publish(pair.source, topic, 20, first=100)

    with pair.sidecar():
        pair.wait_mirrored(10, f"eu.{topic}")
        pair.wait_mirrored(10, f"eu.{other}")
        if not is_away:
            create_again()
            _wait_stopped(pair)
    if is_away:
        create_again()
    with pair.sidecar():
        _wait_stopped(pair)
        publish(pair.source, other, 5, first=10)
        pair.wait_mirrored(15, f"eu.{other}")
    assert pair.mirrored(f"eu.{topic}") == 10


def _wait_stopped(pair: TwoClusters) -> None:
    wait_for(
        lambda: "another log" in str(_status(pair)) or "another log" in pair.log.read_text(),
        "the mirror stops",
    )


def _status(pair: TwoClusters) -> object:
    return as_json("mirror", "status", "--config", pair.config)


@pytest.mark.usefixtures("starts_nodes")
def test_a_sidecar_that_is_killed_anywhere_loses_and_doubles_nothing(tmp_path: Path) -> None:
    """Nor does the leader of the destination that is killed, too."""
    chance = random.Random(18)
    with two_clusters(tmp_path, nodes=3) as pair:
        pair.configure(["t"], budget_bytes=4 << 20)
        stop = threading.Event()

        def write() -> None:
            with pair.source.publisher("p") as publisher:
                while not stop.is_set():
                    publisher.append(bytes(chance.randrange(1, 20_000)), partition=0)
                    stop.wait(0.002)
                publisher.wait_merged(timeout=PATIENCE_S)

        writer = threading.Thread(target=write)
        writer.start()
        try:
            for life in range(6):
                with pair.sidecar():
                    reached = pair.mirrored() + chance.randrange(1, 200)
                    pair.wait_planned(reached)
                if life == 3:
                    leader = pair.destination.leader()
                    leader.kill()
                    leader.start()
        finally:
            stop.set()
            writer.join()
        end = pair.source.status(pair.source.cluster.nodes[0])
        assert end is not None
        last = next(each.end_offset for each in end.partitions if each.topic == "t")
        with pair.sidecar():
            pair.wait_mirrored(last)
        pair.assert_same_bytes()
