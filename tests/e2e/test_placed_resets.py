"""Hard resets of what is in data groups: nobody mixes what was before with what is after."""

from __future__ import annotations

import os
import threading
import uuid
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions

from samelog import Publisher, Subscriber
from samelog.admin.client import ask
from samelog.admin.placement_requests import GetPlacement
from samelog.admin.requests import CreateTopic, DescribeTopic
from samelog.cli.local_cluster import ClusterOptions, LocalCluster
from samelog.format import _kernels as kernels
from samelog.format.compression import decompress
from samelog.subscriber import LogReset
from tests.e2e.commands import as_json
from tests.e2e.harness import World, read_segments, wait_for
from tests.patience import PATIENCE_S

PARTITIONS = 2
AWAY_S = 5.0
"""So long the other members are waited for while one is away."""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, starts_nodes: None) -> Iterator[World]:
    path = tmp_path_factory.mktemp("placed-resets")
    with LocalCluster(str(path / "cluster"), ClusterOptions()) as cluster:
        cluster.prepare()
        cluster.start()
        yield World(cluster, path)


@pytest.fixture
def topic(world: World) -> str:
    """Of two copies on three nodes."""
    name = f"t-{uuid.uuid4().hex[:8]}"
    ask(world.cluster.client_config(), CreateTopic(name, PARTITIONS, {}, 2))
    return name


def reset(world: World, *, wait_s: float = PATIENCE_S) -> list[str]:
    """Reset the cluster; the members that have not done it after `wait_s`."""
    config = ("--config", world.cluster.client_file)
    confirm = ("--confirm", world.cluster.options.cluster)
    done = as_json("cluster", "reset", "--hard", *confirm, "--wait", str(wait_s), *config)
    return list(done["not_yet"])


def publish(world: World, topic: str, *values: str) -> None:
    directory = str(world.directory / "publishers")
    config = world.cluster.client_file
    with Publisher(topic, session=f"p-{topic}", config=config, directory=directory) as publisher:
        for number, value in enumerate(values):
            publisher.append(value.encode(), partition=number % PARTITIONS)
        publisher.wait_merged(PATIENCE_S)


def take(subscriber: Subscriber, count: int) -> list[str]:
    found: list[str] = []

    def has_all() -> bool:
        records = subscriber.batch(count - len(found), timeout=0.5)
        found.extend((record.value or b"").decode() for record in records)
        return len(found) >= count

    wait_for(has_all, f"{count} records")
    return sorted(found)


def numbers(prefix: str, count: int) -> list[str]:
    return [f"{prefix} {n}" for n in range(count)]


def parked(world: World) -> list[str]:
    """What is set aside of data groups' logs, on all nodes."""
    found = []
    for node in world.cluster.nodes:
        for folder in Path(node.data, "groups").glob("*/merged/replaced"):
            found += os.listdir(folder)
    return found


def test_subscribers_and_publishers_across_it(world: World, topic: str, tmp_path: Path) -> None:
    publish(world, topic, *numbers("old", 10))
    config, parked_before = world.cluster.client_file, Counter(parked(world))
    options: dict[str, Any] = {"config": config, "start": "earliest"}
    with (
        Subscriber(topic, directory=str(tmp_path / "strict"), **options) as strict,
        Subscriber(
            topic, directory=str(tmp_path / "easy"), auto_offset_reset="earliest", **options
        ) as easy,
    ):
        assert take(strict, 10) == take(easy, 10) == numbers("old", 10)
        assert reset(world) == []
        groups = ask(world.cluster.client_config(), GetPlacement()).groups
        assert not any(each.is_resetting for each in groups)
        with pytest.raises(LogReset, match="was restarted"):
            take(strict, 1)
        publish(world, topic, *numbers("new", 6))
        assert take(easy, 6) == numbers("new", 6)
    copies = Counter(parked(world)) - parked_before
    assert list(copies.values()) == [2] * PARTITIONS, "each of both copies is kept"
    with Subscriber(topic, directory=str(tmp_path / "late"), **options) as late:
        assert take(late, 6) == numbers("new", 6)


def test_who_is_away_does_it_later_and_new_partitions_are_of_the_new_log(
    world: World, topic: str, tmp_path: Path
) -> None:
    publish(world, topic, *numbers("old", 4))
    away = world.followers()[0]
    away.kill()
    reset(world, wait_s=AWAY_S)
    away.start()
    world.wait_live(away)

    def has_all_done() -> bool:
        groups = ask(world.cluster.client_config(), GetPlacement()).groups
        return not any(each.is_resetting for each in groups)

    wait_for(has_all_done, "all groups have restarted their logs")
    admin = AdminClient({"bootstrap.servers": world.cluster.client_config().kafka_bootstrap})
    (more,) = admin.create_partitions([NewPartitions(topic, 4)]).values()
    more.result(PATIENCE_S)
    known = ask(world.cluster.client_config(), DescribeTopic(topic))
    assert known.topic.partitions == 4
    directory, config = str(tmp_path / "publishers"), world.cluster.client_file
    with Publisher(topic, session=f"q-{topic}", config=config, directory=directory) as publisher:
        for number in range(8):
            publisher.append(b"new %d" % number, partition=number % 4)
        publisher.wait_merged(PATIENCE_S)
    with Subscriber(
        topic, directory=str(tmp_path / "late"), config=config, start="earliest"
    ) as late:
        assert take(late, 8) == numbers("new", 8)


def test_kafka_clients_across_it(world: World, topic: str) -> None:
    servers = {"bootstrap.servers": world.cluster.client_config().kafka_bootstrap}
    producer = Producer({**servers, "enable.idempotence": True, "linger.ms": 0})
    wrong: list[KafkaError] = []

    def note(error: KafkaError | None, message: object) -> None:
        if error is not None:
            wrong.append(error)

    def produce(prefix: str, count: int) -> None:
        for value in numbers(prefix, count):
            producer.produce(topic, value.encode(), partition=0, on_delivery=note)
        assert producer.flush(PATIENCE_S) == 0
        assert wrong == []

    produce("old", 5)
    reader = Consumer(
        {
            **servers,
            "group.id": f"g-{topic}",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "topic.metadata.refresh.interval.ms": 1000,
        }
    )
    reader.subscribe([topic])
    assert consume(reader, 5) == numbers("old", 5)
    (position,) = reader.position([TopicPartition(topic, 0)])
    reader.commit(asynchronous=False)
    reset(world)
    produce("new", 8)
    stale = [TopicPartition(topic, 0, 5, leader_epoch=position.leader_epoch)]
    with pytest.raises(KafkaException) as refused:
        reader.commit(offsets=stale, asynchronous=False)
    assert refused.value.args[0].code() == KafkaError.FENCED_LEADER_EPOCH
    reader.close()
    again = Consumer({**servers, "group.id": f"g-{topic}", "auto.offset.reset": "earliest"})
    again.subscribe([topic])
    assert consume(again, 8) == numbers("new", 8), "what was committed before means nothing"
    again.close()


def consume(reader: Consumer, count: int) -> list[str]:
    found: list[str] = []

    def has_all() -> bool:
        message = reader.poll(0.5)
        if message is not None and message.error() is None:
            found.append((message.value() or b"").decode())
        return len(found) >= count

    wait_for(has_all, f"{count} records")
    return found


# --- streams that are open ------------------------------------------------------------------------


class Writing:
    """Appends numbers, to each partition in turn, until it is stopped."""

    def __init__(self, publisher: Publisher) -> None:
        self.count = 0
        self._publisher = publisher
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._error: BaseException | None = None
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._is_over.wait(0.002):
                self._publisher.append(b"%d" % self.count, partition=self.count % PARTITIONS)
                self.count += 1
        except BaseException as error:  # noqa: BLE001 - told to who stops it
            self._error = error

    def stop(self) -> None:
        self._is_over.set()
        self._thread.join()
        if self._error is not None:
            raise self._error


class Reading:
    """What a subscriber hands out: of each partition, the numbers in each of its logs."""

    def __init__(self, subscriber: Subscriber) -> None:
        self.logs: defaultdict[int, list[list[int]]] = defaultdict(list)
        self._subscriber = subscriber

    def _go_on(self) -> None:
        for record in self._subscriber.batch(timeout=0.2):
            logs = self.logs[record.partition]
            if record.offset == 0:
                logs.append([])
            assert record.offset == len(logs[-1]), "offsets have no gap"
            logs[-1].append(int(record.value or b""))

    def has(self, count: int, last: int) -> bool:
        """Whether of each partition so many logs were begun, and the newest goes up to a number."""
        self._go_on()
        newest = [logs[-1] for logs in self.logs.values() if len(logs) == count and logs[-1]]
        return len(newest) == PARTITIONS and all(each[-1] >= last for each in newest)


def old_logs(world: World, topic: str, partition: int) -> list[bytes]:
    """What nodes have set aside of a partition."""
    found = []
    for node in world.cluster.nodes:
        places = Path(node.data, "groups").glob(f"*/merged/replaced/*-{partition}")
        of_topic = [p for p in places if f'"{topic}"' in (p / "partition.json").read_text()]
        found += [read_segments(str(place)) for place in of_topic]
    return found


def new_logs(world: World, topic: str, partition: int) -> list[bytes]:
    """What nodes have of a partition."""
    return [
        read_segments(str(place))
        for node in world.cluster.nodes
        for place in Path(node.data, "groups").glob(f"*/merged/{topic}-{partition}")
    ]


def numbers_in(data: bytes) -> list[int]:
    log = bytearray(data)
    return [
        int(record.value or b"")
        for start, size, *_ in kernels.batch_headers(log, 0, len(log))
        for record in kernels.decode_records(log, start, start + size, "t", 0, decompress)
    ]


def test_streams_that_are_open_go_on_across_it(world: World, topic: str, tmp_path: Path) -> None:
    """A publisher writes and a subscriber reads all the while, and neither reopens anything: each
    record is in the old log or in the new one, once and in order, and the copy is the nodes' log.
    """
    options: dict[str, Any] = {"config": world.cluster.client_file, "auto_offset_reset": "earliest"}
    copies, sessions = str(tmp_path / "open"), str(tmp_path / "publishers")
    with (
        Subscriber(topic, directory=copies, start="earliest", **options) as subscriber,
        Publisher(topic, session=f"o-{topic}", config=options["config"], directory=sessions) as out,
    ):
        writing, reading = Writing(out), Reading(subscriber)
        try:
            wait_for(lambda: reading.has(1, 100), "what is written is read")
            before = writing.count
            assert reset(world) == []
            after = writing.count
            assert after > before, "it was written meanwhile"
            wait_for(lambda: reading.has(2, after), "what is written later is read")
        finally:
            writing.stop()
        out.wait_merged(PATIENCE_S)
        last = writing.count - PARTITIONS
        wait_for(lambda: reading.has(2, last), "all is read")
    for partition in range(PARTITIONS):
        old, new = reading.logs[partition]
        assert new == list(range(new[0], writing.count, PARTITIONS)), "nothing lacks, nothing twice"
        check_old(world, topic, partition, old, new[0])
        copy = read_segments(os.path.join(copies, f"{topic}-{partition}"))
        check_new(world, topic, partition, copy)


def check_new(world: World, topic: str, partition: int, copy: bytes) -> None:
    wait_for(lambda: new_logs(world, topic, partition) == [copy, copy], "the same everywhere")


def check_old(world: World, topic: str, partition: int, read: list[int], first_new: int) -> None:
    """What is set aside begins with what was read, and has nothing that is in the new log."""
    kept = sorted(old_logs(world, topic, partition), key=len)
    assert len(kept) == 2, "both copies are kept"
    assert kept[1].startswith(kept[0])
    numbers_kept = numbers_in(kept[1])
    assert numbers_kept == list(range(partition, numbers_kept[-1] + 1, PARTITIONS))
    assert numbers_kept[: len(read)] == read
    assert numbers_kept[-1] < first_new
