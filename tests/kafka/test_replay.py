"""`samelog replay serve`: what is due when, and real Kafka clients that read it."""

from __future__ import annotations

import asyncio
import signal
import socket
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka import KafkaConsumer

from samelog.cli.local_cluster import free_ports
from samelog.format import _kernels as kernels
from samelog.format.compression import decompress
from samelog.kafka.replay.log import ReplayLog
from samelog.kafka.replay.timeline import ReplayStream, Timeline
from samelog.runtime.clock import SystemClock
from samelog.subscriber.replay import Pace
from tests import forking
from tests.e2e.commands import samelog
from tests.e2e.harness import World, wait_for
from tests.examples import at_most
from tests.patience import PATIENCE_S
from tests.subscriber.merged import Growing

BATCH = st.lists(st.integers(0, 50), min_size=1, max_size=6)


def shown(log: ReplayLog, first: int = 0) -> list[kernels.Record]:
    """All that a consumer can read, a little at a time."""
    records: list[kernels.Record] = []
    offset = first
    while offset < log.next_offset:
        data = log.view(*log.locate(offset), 1)
        found = kernels.decode_records(data, 0, len(data), "", 0, decompress)
        assert found
        records += [each for each in found if each.offset >= offset]
        offset = records[-1].offset + 1
    return records


@settings(max_examples=at_most(50))
@given(st.lists(BATCH, min_size=1, max_size=5), st.lists(st.integers(0, 60), max_size=5))
def test_what_is_due_is_shown_and_nothing_else(
    tmp_path_factory: pytest.TempPathFactory, batches: list[list[int]], looks: list[int]
) -> None:
    growing = Growing(tmp_path_factory.mktemp("replay"))
    due: list[int] = []
    for times in batches:
        growing.append(*(b"%d" % at for at in times), timestamp=times)
        for at in times:
            due.append(max(at, due[-1] if due else at))
    log = ReplayLog(growing.log, 0)
    for at in sorted(looks):
        while log.next_due() is not None and log.advance(at):
            pass
        wanted = [offset for offset, when in enumerate(due) if when <= at]
        assert [record.offset for record in shown(log)] == wanted
        assert [record.value for record in shown(log)] == [
            b"%d" % [t for times in batches for t in times][offset] for offset in wanted
        ]
        newest = [[t for times in batches for t in times][offset] for offset in wanted]
        assert log.highest_timestamp() == max(newest, default=None)


def test_it_begins_where_it_is_told(tmp_path: Path) -> None:
    growing = Growing(tmp_path)
    growing.append(b"a", b"b", b"c", timestamp=[1, 2, 3])
    log = ReplayLog(growing.log, 1)
    assert (log.start_offset, log.next_offset, log.next_due()) == (1, 1, 2)
    assert log.advance(2)
    assert [record.value for record in shown(log, 1)] == [b"b"]


@pytest.mark.parametrize("far", [1_764_000_000_000_000, (1 << 63) - 1])
def test_a_listener_shows_all_whatever_timestamps_are(tmp_path: Path, far: int) -> None:
    now = 1_764_000_000_000
    times = {0: [now, far], 1: [-1, far, now + 1, now + 2], 2: [0]}
    logs = []
    for partition, own in times.items():
        growing = Growing(tmp_path, partition=partition)
        for at in own:
            growing.append(b"x", timestamp=at)
        logs.append(ReplayLog(growing.log, 0))

    async def show_all() -> None:
        timeline, is_shown = Timeline(Pace(1.0, 0.01), SystemClock()), asyncio.Event()

        def look() -> None:
            if [log.next_offset for log in logs] == [len(own) for own in times.values()]:
                is_shown.set()

        for log in logs:
            stream = ReplayStream(log, timeline, lambda: None)
            timeline.add(stream)
            stream.add_listener(look)
        async with asyncio.timeout(PATIENCE_S):
            await is_shown.wait()
        timeline.close()

    asyncio.run(show_all())


@contextmanager
def replaying(world: World, path: Path, topic: str, *options: str) -> Iterator[str]:
    """Serves a topic; gives where."""
    (port,) = free_ports(1)
    arguments = ["--config", world.cluster.client_file, "--dir", str(path / "copies")]
    listen = f"127.0.0.1:{port}"
    with (path / "log").open("ab") as out:
        process = forking.fork(
            ["replay", "serve", *arguments, "--topic", topic, "--kafka", listen, *options], out
        )

    def listens() -> bool:
        assert process.poll() is None, (path / "log").read_text()
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    try:
        wait_for(listens, "it listens")
        yield listen
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0


def publish(world: World, topic: str, times: dict[int, list[int]]) -> None:
    """Records at these times, in seconds, by partition."""
    session = f"s-{uuid.uuid4().hex}"
    with world.publisher(session, topic, partitions=len(times)) as publisher:
        for partition, own in times.items():
            for at in own:
                value = b"%d" % at
                publisher.append(
                    value, partition=partition, timestamp=1_700_000_000_000 + 1000 * at
                )
        publisher.wait_merged(PATIENCE_S)


def received(consumer: Consumer, count: int) -> list[tuple[float, Message]]:
    """(when it came, record) of so many."""
    found: list[tuple[float, Message]] = []

    def comes() -> bool:
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            found.append((time.monotonic(), message))
        return len(found) >= count

    wait_for(comes, f"{count} records")
    return found


def consumer_of(boot: str, group: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": boot,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 50,
        }
    )


def values(found: list[tuple[float, Message]]) -> list[int]:
    return [int(message.value() or b"") for _, message in found]


def test_a_group_reads_all_partitions_in_the_order_of_time(world: World, tmp_path: Path) -> None:
    topic = f"t-{uuid.uuid4()}"
    publish(world, topic, {0: [0, 40, 80], 1: [20, 60, 100]})
    with replaying(world, tmp_path, topic, "--speed", "20") as boot:
        consumer = consumer_of(boot, "g")
        consumer.subscribe([topic])
        found = received(consumer, 6)
        assert values(found) == [0, 20, 40, 60, 80, 100]
        assert found[-1][0] - found[0][0] >= 100 / 20 * 0.9
        consumer.close()
        again = consumer_of(boot, "g")
        places = [TopicPartition(topic, index) for index in (0, 1)]
        assert [each.offset for each in again.committed(places, timeout=PATIENCE_S)] == [3, 3]
        again.close()
        errors: list[KafkaError | None] = []
        producer = Producer({"bootstrap.servers": boot})
        producer.produce(topic, b"x", on_delivery=lambda error, _: errors.append(error))
        assert producer.flush(PATIENCE_S) == 0
        assert [each.code() for each in errors if each] == [KafkaError.TOPIC_AUTHORIZATION_FAILED]
        python = KafkaConsumer(
            topic, bootstrap_servers=boot, auto_offset_reset="earliest", group_id=None
        )
        assert sorted(int(next(python).value) for _ in range(6)) == [0, 20, 40, 60, 80, 100]
        python.close()
    config = ("--config", world.cluster.client_file)
    assert "no group 'g'" in samelog("group", "describe", "g", *config).stderr


@pytest.mark.parametrize(
    ("start", "first"), [("1", 3600), ("2023-11-14T22:43:20", 3600), ("earliest", 0)]
)
def test_it_begins_at_an_offset_or_a_time(
    world: World, tmp_path: Path, start: str, first: int
) -> None:
    topic = f"t-{uuid.uuid4()}"
    publish(world, topic, {0: [0, 3600, 3601]})
    with replaying(world, tmp_path, topic, "--from", start, "--speed", "7200") as boot:
        consumer = consumer_of(boot, "g")
        consumer.subscribe([topic])
        assert values(received(consumer, 1)) == [first]
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=PATIENCE_S)
        assert (low, high <= 3) == (1 if first else 0, True)
        consumer.close()


def test_wrong_options_are_told(world: World, tmp_path: Path) -> None:
    options = ["--config", world.cluster.client_file, "--dir", str(tmp_path), "--topic", "t"]
    for wrong in (["--from", "latest"], ["--speed", "0"], ["--kafka", "nowhere"]):
        assert samelog("replay", "serve", *options, *wrong).returncode == 2
