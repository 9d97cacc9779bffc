"""Transactions of Kafka producers, as native subscribers read them."""

from __future__ import annotations

from itertools import chain, islice
from pathlib import Path
from typing import Any

import pytest

from samelog import Subscriber
from tests.e2e.commands import samelog
from tests.e2e.harness import World, wait_for
from tests.kafka.test_sidecars import running
from tests.kafka.transactions import (
    PARTITIONS,
    Seen,
    Transactional,
    make_topic,
    seen_by_kafka,
    send_plain,
)
from tests.patience import PATIENCE_S


@pytest.fixture
def topic(boot: str) -> str:
    return make_topic(boot)


def read(subscriber: Subscriber, count: int, seen: Seen | None = None) -> Seen:
    """So many records more."""
    found: Seen = {number: [] for number in range(PARTITIONS)} if seen is None else seen
    for record in islice(subscriber, count):
        found[record.partition].append(record.value or b"")
    return found


def sizes(seen: Seen) -> int:
    return sum(map(len, seen.values()))


def test_subscribers_see_what_kafka_consumers_see(
    world: World, boot: str, topic: str, tmp_path: Path
) -> None:
    committed: dict[str, Any] = {"isolation": "read_committed"}
    config = world.cluster.client_config()
    with (
        Transactional(boot, topic) as first,
        Transactional(boot, topic) as second,
        Subscriber(topic, directory=tmp_path / "all", config=config) as everything,
        Subscriber(topic, directory=tmp_path / "some", config=config, **committed) as subscriber,
    ):
        first.begin(b"one")
        first.commit()
        first.begin(b"gone")
        first.abort()
        first.begin(b"open")
        second.begin(b"two")
        second.commit()
        send_plain(boot, topic, b"plain", 0)
        read(everything, 9 * 4 + 3)  # markers are no records
        before = seen_by_kafka(boot, topic)
        seen = read(subscriber, sizes(before))
        assert seen == before
        subscriber.wait_caught_up(PATIENCE_S)
        assert subscriber.batch(1, 0.0) == []
        assert all(subscriber.position(number) < 20 for number in range(PARTITIONS))
        first.send(b"more")
        first.commit()
        after = seen_by_kafka(boot, topic)
        assert read(subscriber, sizes(after) - sizes(before), seen) == after
        assert not any(b"gone" in value for values in after.values() for value in values)
    with Subscriber(
        topic, directory=tmp_path / "some", follow=False, **committed
    ) as local:  # the copy alone says what was aborted
        assert read(local, sizes(after)) == after
        assert local.batch(1, 0.0) == []
    place = ("--topic", topic, "--dir", str(tmp_path / "some"), "--no-follow")
    shown = samelog("subscribe", *place, "--isolation", "read_committed").stdout
    assert sorted(shown.encode().splitlines()) == sorted(chain(*after.values()))


def test_consumers_of_a_sidecar_see_what_those_of_nodes_see(
    world: World, boot: str, topic: str, tmp_path: Path
) -> None:
    place = ["--config", world.cluster.client_file, "--dir", str(tmp_path / "copies")]
    with (
        Transactional(boot, topic) as first,
        Transactional(boot, topic) as second,
        running(["subscriber", *place, "--topic", topic], tmp_path / "log") as sidecar,
    ):
        first.begin(b"gone")
        first.abort()
        second.begin(b"one")
        second.commit()
        first.begin(b"open")
        send_plain(boot, topic, b"plain", 1)
        wanted = seen_by_kafka(boot, topic)
        wait_for(lambda: seen_by_kafka(sidecar.bootstrap, topic) == wanted, "the copies")
        options: dict[str, Any] = {"follow": False, "isolation": "read_committed"}
        with Subscriber(topic, directory=tmp_path / "copies", **options) as local:
            assert read(local, sizes(wanted)) == wanted
            assert local.batch(1, 0.0) == []
        first.commit()
        wanted = seen_by_kafka(boot, topic)
        wait_for(lambda: seen_by_kafka(sidecar.bootstrap, topic) == wanted, "the copies")


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_kafka_consumers_read_what_native_publishers_compress(
    world: World, boot: str, topic: str, codec: str
) -> None:
    wanted = [b"a line of text, again and again: %d" % number for number in range(3000)]
    with world.publisher(topic, topic, partitions=PARTITIONS, compression=codec) as publisher:
        for number in range(PARTITIONS):
            publisher.append_many(wanted, partition=number)
        publisher.wait_merged(timeout=PATIENCE_S)
    assert world.merged_bytes(world.cluster.nodes[0], topic).count(wanted[-1]) == 0
    assert seen_by_kafka(boot, topic) == dict.fromkeys(range(PARTITIONS), wanted)


def test_a_copy_that_begins_late_says_what_was_aborted_of_it(
    world: World, boot: str, topic: str, tmp_path: Path
) -> None:
    config = world.cluster.client_config()
    with Transactional(boot, topic) as producer:
        producer.begin(b"gone")
        late: dict[str, Any] = {"start": "latest", "isolation": "read_committed"}
        with Subscriber(topic, directory=tmp_path / "late", config=config, **late) as subscriber:
            subscriber.wait_caught_up(PATIENCE_S)
            assert subscriber.batch(1, 0.0) == []
            producer.send(b"gone too")
            producer.abort()
            producer.begin(b"there")
            producer.commit()
            assert read(subscriber, 9) == seen_by_kafka(boot, topic)
