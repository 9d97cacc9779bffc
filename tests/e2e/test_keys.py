"""A topic whose keys count once, on real nodes whose leaders are killed while it is written."""

from __future__ import annotations

import threading
from collections import Counter

from confluent_kafka import Producer

from samelog import Publisher
from samelog.admin.client import ask
from samelog.admin.requests import CreateTopic
from tests.e2e.commands import samelog
from tests.e2e.harness import World, wait_for
from tests.patience import PATIENCE_S

KEYS, KILLS, STEP = 3_000, 3, 100


def publish(publisher: Publisher, name: bytes, numbers: range, done: list[int]) -> None:
    """Each number as a key; its value says who brought it."""
    for number in numbers:
        publisher.append(name, key=b"%d" % number)
        if number % STEP == 0:
            publisher.wait_merged(timeout=PATIENCE_S)  # so that leaders are killed amid this
        done.append(number)
    publisher.wait_merged(timeout=PATIENCE_S)


def test_no_key_comes_twice_and_none_is_lost_when_leaders_are_killed(world: World) -> None:
    """Two sessions bring the same keys, from both ends; the dead come back and lead again."""
    ask(world.cluster.client_config(), CreateTopic("t", 1, {"dedup.key": "first"}))
    progress: list[int] = []
    with world.publisher("up") as up, world.publisher("down") as down:
        threads = [
            threading.Thread(target=publish, args=(up, b"up", range(KEYS), progress)),
            threading.Thread(target=publish, args=(down, b"down", range(KEYS)[::-1], progress)),
        ]
        for thread in threads:
            thread.start()
        for kill in range(KILLS):
            some = (kill + 1) * 2 * KEYS // (KILLS + 2)
            wait_for(lambda some=some: len(progress) >= some, "the next kill")  # type: ignore[misc]
            leader = world.leader()
            leader.kill()
            wait_for(lambda: world.leader() is not leader, "another leads")  # noqa: B023
            leader.start()
            world.wait_live(leader)
        for thread in threads:
            thread.join()
    assert len(progress) == 2 * KEYS
    records = world.read(KEYS)
    counts = Counter(record.key for record in records)
    assert set(counts) == {b"%d" % number for number in range(KEYS)}
    assert {record.value for record in records} == {b"up", b"down"}, "both brought some first"
    world.wait_offset(KEYS)
    world.assert_identical()


def test_librdkafkas_default_partitioner_is_told(single: World) -> None:
    """Its CRC32 puts equal keys into other partitions than murmur2 does."""
    config = ("--config", single.cluster.client_file)
    made = samelog("topic", "create", "t", "--partitions", "3", "--set", "dedup.key=first", *config)
    assert made.returncode == 0, made.stderr
    boot = single.cluster.client_config().kafka_bootstrap
    for partitioner in ("murmur2_random", "consistent_random"):
        producer = Producer({"bootstrap.servers": boot, "partitioner": partitioner})
        for number in range(60):
            producer.produce("t", b"v", key=b"k%d" % number)
        assert producer.flush(PATIENCE_S) == 0
        shown = samelog("topic", "describe", "t", *config).stdout
        assert ("partitioner=murmur2_random" in shown) == (partitioner == "consistent_random")
