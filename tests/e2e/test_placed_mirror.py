"""A mirror whose partitions have one copy each, on different nodes of its cluster: what the sidecar
brings goes to the node of each partition, and so does what it asks; all of them are promoted
together.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from samelog.admin.client import ask
from samelog.admin.mirrors import all_mirrors
from samelog.admin.placement_requests import GetPlacement
from tests.e2e.commands import as_json, samelog
from tests.e2e.harness import World, wait_for
from tests.e2e.mirroring import TwoClusters, two_clusters
from tests.patience import PATIENCE_S

PARTITIONS, EACH = 3, 40


def publish(world: World, topic: str, first: int) -> None:
    with world.publisher(f"{topic}-{first}", topic) as publisher:
        for number in range(first, first + EACH):
            for partition in range(PARTITIONS):
                publisher.append(b"%d of %d" % (number, partition), partition=partition)
        publisher.wait_merged(timeout=PATIENCE_S)


def ends(pair: TwoClusters) -> list[int]:
    rows = all_mirrors(pair.destination.cluster.client_config())[0].mirrors
    found = [each.next_offset for row in rows for each in row.partitions if row.topic == "eu.t"]
    return found if len(found) == PARTITIONS else []


def kafka(world: World, **more: str) -> dict[str, str]:
    return {"bootstrap.servers": world.cluster.client_config().kafka_bootstrap, **more}


def commit(world: World, topic: str, offset: int) -> None:
    consumer = Consumer(kafka(world, **{"group.id": "g"}))
    places = [TopicPartition(topic, index, offset) for index in range(PARTITIONS)]
    consumer.commit(offsets=places, asynchronous=False)
    consumer.close()


def positions(world: World, topic: str) -> list[int]:
    consumer = Consumer(kafka(world, **{"group.id": "g"}))
    places = [TopicPartition(topic, index) for index in range(PARTITIONS)]
    try:
        return [each.offset for each in consumer.committed(places, timeout=PATIENCE_S)]
    finally:
        consumer.close()


@pytest.mark.usefixtures("starts_nodes")
def test_a_mirror_is_spread_over_the_nodes_and_promoted_as_one(tmp_path: Path) -> None:
    with two_clusters(tmp_path, nodes=3) as pair:
        config = ("--config", pair.destination.cluster.client_file)
        done = samelog("cluster", "alter", "--default-replication-factor", "1", *config)
        assert done.returncode == 0, done.stderr
        samelog(
            "topic",
            "create",
            "t",
            "--partitions",
            str(PARTITIONS),
            "--config",
            pair.source.cluster.client_file,
        )
        publish(pair.source, "t", 0)
        commit(pair.source, "t", EACH - 1)
        pair.configure(["t"], groups=["g"])
        with pair.sidecar():
            wait_for(lambda: ends(pair) == [EACH] * PARTITIONS, "all is mirrored")
            placed = ask(pair.destination.cluster.client_config(), GetPlacement()).partitions
            homes = [each.replicas for each in placed if each.topic == "eu.t"]
            assert [len(each) for each in homes] == [1] * PARTITIONS
            assert len({*homes}) > 1
            wait_for(
                lambda: positions(pair.destination, "eu.t") == [EACH - 1] * PARTITIONS,
                "groups are where they are at the source",
            )
            publish(pair.source, "t", EACH)
            wait_for(lambda: ends(pair) == [2 * EACH] * PARTITIONS, "later records, too")
            rows = as_json("mirror", "status", "--config", pair.config)["partitions"]
            assert [row["lag"] for row in rows] == [0] * PARTITIONS
            promoted = as_json("mirror", "promote", "eu.t", "--confirm", "eu.t", *config)
            assert promoted["eu.t"] == [2 * EACH] * PARTITIONS
        errors: list[KafkaError | None] = []
        producer = Producer(kafka(pair.destination))
        for index in range(PARTITIONS):
            producer.produce(
                "eu.t", b"own", partition=index, on_delivery=lambda error, _: errors.append(error)
            )
        assert producer.flush(PATIENCE_S) == 0
        assert errors == [None] * PARTITIONS
        records = pair.destination.read((2 * EACH + 1) * PARTITIONS, topic="eu.t")
        for index in range(PARTITIONS):
            values = [record.value for record in records if record.partition == index]
            sent = [b"%d of %d" % (number, index) for number in range(2 * EACH)]
            assert values == [*sent, b"own"]
