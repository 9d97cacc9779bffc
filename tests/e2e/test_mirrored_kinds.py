"""Mirrors of what is more than a plain log: a topic that its source compacts, and one that twins
write, who move to the mirror when it is promoted.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.e2e.commands import as_json
from tests.e2e.harness import World
from tests.e2e.mirroring import TwoClusters, two_clusters
from tests.kafka.test_compacted_topics import Keyed, consumed, wait_compacted
from tests.patience import PATIENCE_S

FIRST_ID = 5 << 31
"""Batches say the low 31 bits of an id."""


@pytest.fixture
def pair(tmp_path: Path, starts_nodes: None) -> Iterator[TwoClusters]:
    with two_clusters(tmp_path) as made:
        yield made


def servers(world: World) -> str:
    return world.cluster.client_config().kafka_bootstrap


def test_a_compacted_topic_is_mirrored_at_its_offsets(pair: TwoClusters) -> None:
    keyed = Keyed(servers(pair.source))
    keyed.produce(20)
    wait_compacted(pair.source, keyed, 16)
    mirror: Any = SimpleNamespace(boot=servers(pair.destination), name=f"eu.{keyed.name}")
    pair.configure([keyed.name])
    with pair.sidecar():
        pair.wait_mirrored(20, mirror.name)
        keyed.produce(6)
        pair.wait_mirrored(26, mirror.name)
    keyed.produce(2)
    wait_compacted(pair.source, keyed, 24)  # what is mirrored already, too
    with pair.sidecar():
        pair.wait_mirrored(28, mirror.name)
    kept = consumed(mirror)
    assert {*keyed.newest()} <= {*kept}, "at their offsets"
    assert {*kept} <= {*enumerate(keyed.keys)}
    assert len(kept) < 28, "what was compacted away before is not there"
    records = pair.destination.read(len(kept), topic=mirror.name)
    assert [(record.offset, record.key) for record in records] == kept


def test_twins_that_move_to_a_promoted_mirror_are_merged_once(pair: TwoClusters) -> None:
    def publish(world: World, topic: str, name: str, count: int) -> None:
        with world.publisher(name, topic, dedup_id="feed") as publisher:
            values = [b"value %d" % number for number in range(count)]
            publisher.append_many(values, first_id=FIRST_ID)
            publisher.wait_merged(timeout=PATIENCE_S)

    publish(pair.source, "twins", "one", 100)
    pair.configure(["twins"])
    with pair.sidecar():
        pair.wait_mirrored(100, "eu.twins")
    config = "--config", pair.destination.cluster.client_file
    assert as_json("mirror", "promote", "eu.twins", "--confirm", "eu.twins", *config)[
        "eu.twins"
    ] == [100]
    publish(pair.destination, "eu.twins", "another", 130)
    records = pair.destination.read(130, topic="eu.twins")
    assert [record.value for record in records] == [b"value %d" % n for n in range(130)]
    consumer = Consumer({"bootstrap.servers": servers(pair.destination), "group.id": "ends"})
    ends = consumer.get_watermark_offsets(TopicPartition("eu.twins", 0), PATIENCE_S)
    consumer.close()
    assert ends == (0, 130), "nothing is there twice"
