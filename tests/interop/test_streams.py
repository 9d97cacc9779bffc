"""Kafka Streams' word count, killed in its work and started again: a part of `make interop`.

With exactly_once_v2 each word's counts come out as 1, 2, 3, …, each once; with at_least_once none
is missed. The store lives in a compacted topic, and is built from it where the program's own files
are gone.
"""

from __future__ import annotations

import random
import shutil
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bench.maven import PLATFORM
from tests.e2e.harness import World, wait_for
from tests.interop.program import Program, java, properties
from tests.patience import PATIENCE_S

SOURCE = Path(__file__).parent / "streams" / "WordCount.java"
STORE = "word-count-words-changelog"
PARTITIONS = 2
REPLICAS = 3
SEED = 20261124
LINES, WORDS_PER_LINE, VOCABULARY = 250, 10, 60
SETTINGS = {
    "statestore.cache.max.bytes": 0,
    "commit.interval.ms": 100,
    "auto.offset.reset": "earliest",
    "replication.factor": -1,
    "num.stream.threads": 1,
    "consumer.session.timeout.ms": 6000,
    "consumer.heartbeat.interval.ms": 1000,
    "topic.segment.bytes": 65536,
    "topic.min.cleanable.dirty.ratio": 0.01,
}
"""Counts come out one by one, and the topic of the store is compacted while the test runs."""

pytestmark = [pytest.mark.campaign, pytest.mark.timeout(900)]


class Lines:
    """What is written, and what of it has been counted."""

    def __init__(self, boot: str, replicas: int) -> None:
        self._random = random.Random(SEED)
        self._boot = boot
        admin = AdminClient({"bootstrap.servers": boot})
        compact = {"cleanup.policy": "compact"}
        new = [NewTopic("lines", PARTITIONS, replicas)]
        new += [NewTopic("counts", PARTITIONS, replicas, config=compact)]
        for made in admin.create_topics(new, request_timeout=PATIENCE_S).values():
            made.result(PATIENCE_S)
        self.written: Counter[str] = Counter()
        self.counts: dict[str, list[int]] = {}
        self._reader = Consumer(
            {
                "bootstrap.servers": boot,
                "group.id": "counts",
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
            }
        )
        self._reader.subscribe(["counts"])

    def write(self) -> None:
        """Some more lines."""
        producer = Producer({"bootstrap.servers": self._boot, "enable.idempotence": True})
        for number in range(LINES):
            words = [f"w{self._random.randrange(VOCABULARY)}" for _ in range(WORDS_PER_LINE)]
            self.written.update(words)
            producer.produce("lines", " ".join(words), partition=number % PARTITIONS)
        assert producer.flush(PATIENCE_S) == 0

    def read(self) -> int:
        """How many counts have come so far."""
        for message in self._reader.consume(1000, 0.2):
            assert message.error() is None, message.error()
            word, count = message.key(), message.value()
            assert word is not None
            assert count is not None
            self.counts.setdefault(word.decode(), []).append(int(count))
        return sum(map(len, self.counts.values()))

    def counted(self) -> bool:
        """Whether each word's newest count is at least how often it was written."""
        self.read()
        newest = {word: counts[-1] for word, counts in self.counts.items()}
        return all(newest.get(word, 0) >= count for word, count in self.written.items())

    def wrong(self) -> dict[str, list[int]]:
        """Words whose counts are not 1, 2, 3, …, each once."""
        every = {word: [*range(1, count + 1)] for word, count in self.written.items()}
        return {word: counts for word, counts in self.counts.items() if counts != every[word]}

    def close(self) -> None:
        """Leave the group."""
        self._reader.close()


def word_count(path: Path, boot: str, guarantee: str, replicas: int) -> Program:
    """The program, with a state of its own."""
    settings = {
        **SETTINGS,
        "replication.factor": replicas,
        "application.id": "word-count",
        "bootstrap.servers": boot,
        "processing.guarantee": guarantee,
        "state.dir": path / "state",
    }
    file = properties(path / "streams.properties", settings)
    return Program(path, "streams", java(PLATFORM, str(SOURCE), str(file)))


def run(world: World, guarantee: str, replicas: int = -1) -> Lines:
    """Killed in its work twice, the second time with its files, while the leader dies once."""
    boot = world.cluster.client_config().kafka_bootstrap
    lines = Lines(boot, replicas)
    lines.write()
    with word_count(world.directory, boot, guarantee, replicas) as program:
        program.wait(lambda: lines.read() > 0, "counts")
        lines.write()
        program.kill()
        program.start()
        program.wait(lines.counted, "counts of what it was killed in")
        leader = world.leader()
        lines.write()
        leader.kill()
        program.wait(lines.counted, "counts without a node")
        leader.start()
        world.wait_live(leader)
        lines.write()
        program.kill()
        shutil.rmtree(world.directory / "state")
        program.start()
        program.wait(lines.counted, "counts behind the loss of its files")
        program.stop()
    lines.close()
    return lines


def test_at_least_once_no_word_is_missed(world: World) -> None:
    lines = run(world, "at_least_once")
    for word, counts in lines.counts.items():
        assert {*range(1, lines.written[word] + 1)} <= {*counts}, word


def test_exactly_once_each_count_comes_once_in_order(world: World) -> None:
    lines = run(world, "exactly_once_v2")
    assert not lines.wrong()
    wait_for(lambda: left_of_the_store(world) < lines.written.total(), "its topic is compacted")


def test_exactly_once_over_several_data_groups(wide: World) -> None:
    """Transactions have records in some of them, and the group's offsets in group 0."""
    lines = run(wide, "exactly_once_v2", REPLICAS)
    assert not lines.wrong()
    admin = AdminClient({"bootstrap.servers": wide.cluster.client_config().kafka_bootstrap})
    store = admin.list_topics(STORE, PATIENCE_S).topics[STORE].partitions.values()
    assert [len(partition.replicas) for partition in store] == [REPLICAS] * PARTITIONS
    wait_for(lambda: left_of_the_store(wide) < lines.written.total(), "its topic is compacted")


def left_of_the_store(world: World) -> int:
    """Records in the topic of the store, to which each count was written."""
    boot = world.cluster.client_config().kafka_bootstrap
    reader = Consumer({"bootstrap.servers": boot, "group.id": "none", "enable.partition.eof": True})
    reader.assign([TopicPartition(STORE, index, 0) for index in range(PARTITIONS)])
    ends = records = 0
    while ends < PARTITIONS:
        for message in reader.consume(1000, 0.5):
            ends += message.error() is not None
            records += message.error() is None
    reader.close()
    return records
