"""Groups of samelog's own subscribers, over real clusters: shared, handed over, lost, refused."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from samelog import AsyncSubscriber, Subscriber
from samelog.admin.client import ask
from samelog.admin.requests import DescribeGroup
from samelog.format.errors import InvalidName
from samelog.kafka.codec.error_codes import ErrorCode
from samelog.subscriber import GroupRefused, processed_offset
from tests.e2e.commands import as_json, samelog
from tests.e2e.harness import World, wait_for
from tests.kafka.test_groups import Member as Kafka
from tests.kafka.wire import Wire
from tests.patience import PATIENCE_S

PARTITIONS = 6


def member(world: World, name: str, **options: Any) -> Subscriber:
    return world.subscriber(name, group=options.pop("group", "g"), **options)


def fill(world: World, count: int, *, session: str = "p") -> None:
    """Records numbered in the order of their values, over all partitions."""
    with world.publisher(session, partitions=PARTITIONS) as publisher:
        for number in range(count):
            publisher.append(str(number).encode(), partition=number % PARTITIONS)
        publisher.wait_merged(timeout=PATIENCE_S)


class Reader:
    """A member that deals with records in a thread of its own, until it is stopped."""

    def __init__(self, subscriber: Subscriber) -> None:
        self.subscriber = subscriber
        self.seen: list[tuple[int, int]] = []
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        for record in self.subscriber:
            self.seen.append((record.partition, record.offset))

    def stop(self) -> None:
        self.subscriber.stop_soon()
        self._thread.join()
        self.subscriber.close()


@contextmanager
def reading(subscriber: Subscriber) -> Iterator[Reader]:
    reader = Reader(subscriber)
    try:
        yield reader
    finally:
        reader.stop()


def everything(count: int) -> set[tuple[int, int]]:
    return {(n % PARTITIONS, n // PARTITIONS) for n in range(count)}


def test_partitions_are_shared_and_handed_over_without_a_gap(world: World) -> None:
    fill(world, 600)
    with ExitStack() as stack:
        a = stack.enter_context(reading(member(world, "a")))
        wait_for(lambda: set(a.seen) == everything(600), "one member has everything")
        b = stack.enter_context(reading(member(world, "b")))
        wait_for(lambda: len(a.subscriber.assignment) == 3, "it gives half up")
        wait_for(lambda: len(b.subscriber.assignment) == 3, "the other gets it")
        assert not set(a.subscriber.assignment) & set(b.subscriber.assignment)
        fill(world, 1200, session="q")
        total = {(n % PARTITIONS, 100 + n // PARTITIONS) for n in range(1200)} | everything(600)
        wait_for(lambda: {*a.seen, *b.seen} == total, "nothing is left out")
        copied = world.directory / "subscribers" / "b" / "groups" / "g"
        assert {path.name for path in copied.glob("t-*")} == {
            f"t-{partition}" for _, partition in b.subscriber.assignment
        }
        twice = [place for place, count in Counter([*a.seen, *b.seen]).items() if count > 1]
        assert twice == []  # everybody was asked, so nothing had to come twice
    found = processed_offset("t", "g", config=world.cluster.client_file)
    assert found == dict.fromkeys(range(PARTITIONS), 300)


def test_a_member_that_is_gone_is_replaced_where_it_had_come(world: World) -> None:
    fill(world, 60)
    first = member(world, "a")
    taken = first.batch(1000, PATIENCE_S)
    while len(taken) < 60:
        taken += first.batch(1000, PATIENCE_S)
    first.commit()
    first.close()
    fill(world, 60, session="q")
    with reading(member(world, "b")) as reader:
        wait_for(lambda: len(reader.seen) >= 60, "the rest comes")
        assert {offset for _, offset in reader.seen} == set(range(10, 20))


def test_groups_are_not_mixed(world: World) -> None:
    fill(world, 6)
    kafka = world.leader().kafka
    assert kafka is not None
    with reading(member(world, "a")) as reader, Wire(kafka) as wire:
        wait_for(lambda: len(reader.seen) == 6, "it reads")
        [one] = ask(world.cluster.client_config(), DescribeGroup("g")).members
        assert one.identity.startswith("samelog://")
        assert one.client_host
        assert 0 < one.joined_ms <= one.moved_ms
        config = ("--config", world.cluster.client_file)

        def shown() -> dict[str, Any]:
            found: dict[str, Any] = as_json("group", "describe", "g", *config)
            return found

        assert shown()["protocol_type"] == "native"
        wait_for(lambda: shown()["members"][0]["polled_at"] is not None, "its application is seen")
        wait_for(lambda: as_json("group", "list", *config)[0]["lag"] == 0, "all is committed")
        consumer = Kafka(wire)
        consumer.group = "g"
        refused = consumer.try_join()
        assert refused.error_code == ErrorCode.inconsistent_group_protocol
        other = Kafka(wire)
        other.join()
        with pytest.raises(GroupRefused, match="Kafka consumers"):
            member(world, "b", group=other.group)
    with Wire(kafka) as wire:
        consumer = Kafka(wire)
        consumer.group = "g"
        consumer.join()


def test_a_member_that_dies_is_replaced(brief: World) -> None:
    fill(brief, 60)
    with member_process(brief, "a", "g") as process:
        first = json.loads(process.stdout.readline())
        process.kill()
        process.wait()
    with reading(member(brief, "b")) as reader:
        wait_for(lambda: len(reader.subscriber.assignment) == PARTITIONS, "it gets everything")
        fill(brief, 60, session="q")
        more = {(n % PARTITIONS, 10 + n // PARTITIONS) for n in range(60)}
        wait_for(lambda: {*reader.seen} >= more, "what is new comes")
        left = everything(60) - {*reader.seen}
        committed = processed_offset("t", "g", config=brief.cluster.client_file)
        assert all(offset < committed[part] for part, offset in left)
    assert first


def test_positions_of_a_named_subscriber_can_be_asked_for(world: World) -> None:
    fill(world, 60)
    file = world.cluster.client_file
    directory = str(world.directory / "named")
    with Subscriber("t", name="report", directory=directory, config=file) as subscriber:
        taken = 0
        while taken < 60:
            taken += len(subscriber.batch(1000, PATIENCE_S))
        subscriber.commit()
    assert processed_offset("t", "report", config=file) == dict.fromkeys(range(PARTITIONS), 10)
    shown = as_json("group", "processed", "t", "report", "--config", file)
    assert [each["lag"] for each in shown["partitions"]] == [0] * PARTITIONS
    failed = samelog("group", "processed", "t", "nobody", "--config", file)
    assert failed.returncode == 1
    assert "nobody" in failed.stderr


def test_positions_are_reset_while_the_group_is_empty(world: World) -> None:
    fill(world, 60)
    file = world.cluster.client_file
    with reading(member(world, "a")) as reader:
        wait_for(lambda: len(reader.seen) == 60, "it reads")
        to = ("group", "reset", "g", "--topic", "t", "--to", "4", "--config", file)
        assert "has members" in samelog(*to).stderr
    assert samelog(*to).returncode == 0
    with reading(member(world, "a")) as reader:  # its copies are used again
        wait_for(lambda: len(reader.seen) == 36, "it goes on where it was set")
        assert {offset for _, offset in reader.seen} == set(range(4, 10))


def test_groups_go_on_when_the_leader_dies(world: World) -> None:
    fill(world, 60)
    with reading(member(world, "a")) as a, reading(member(world, "b")) as b:
        wait_for(lambda: {*a.seen, *b.seen} == everything(60), "both read")
        world.leader().kill()
        more = {(n % PARTITIONS, 10 + n // PARTITIONS) for n in range(60)}
        fill(world, 60, session="q")
        wait_for(lambda: {*a.seen, *b.seen} == everything(60) | more, "both read on")


def test_the_command_line_is_a_member(world: World) -> None:
    fill(world, 60)
    with member_process(world, "a", "g") as process:
        lines = [json.loads(process.stdout.readline()) for _ in range(60)]
        process.terminate()
        assert process.wait() == 0
    assert {(line["partition"], line["offset"]) for line in lines} == everything(60)
    found = processed_offset("t", "g", config=world.cluster.client_file)
    assert found == dict.fromkeys(range(PARTITIONS), 10)


def test_results_and_positions_in_one_transaction(brief: World) -> None:
    """Members are killed at random; each record has its result once."""
    world = brief
    fill(world, 300)
    file = world.directory / "results.db"
    with closing(sqlite3.connect(file)) as database:
        database.execute("CREATE TABLE results (part INTEGER, at INTEGER)")
    for number in range(3):
        killed = start_member(world, file, f"m{number}")
        wait_for(lambda number=number: rows_in(file) > 60 * number, "some are stored")  # type: ignore[misc]
        killed.kill()
        killed.wait()
    last = start_member(world, file, "m3")
    wait_for(lambda: rows_in(file) >= 300, "all are stored", 120)
    last.terminate()
    last.wait()
    with closing(sqlite3.connect(file)) as database:
        rows = database.execute("SELECT part, at FROM results").fetchall()
    assert sorted(rows) == sorted(everything(300))


def rows_in(file: Path) -> int:
    with closing(sqlite3.connect(file)) as database:
        return int(database.execute("SELECT count(*) FROM results").fetchone()[0])


def start_member(world: World, file: Path, name: str) -> subprocess.Popen[str]:
    directory = str(world.directory / "subscribers" / name)
    code = [sys.executable, "-c", STORING, world.cluster.client_file, directory, str(file)]
    return subprocess.Popen(code, text=True)


STORING = """
import sqlite3, sys
from samelog import Subscriber
from samelog.subscriber import PositionTable

config, directory, file = sys.argv[1:]
database = sqlite3.connect(file, timeout=60)
positions = PositionTable(database, "g")

def store(records):
    with database:
        rows = [(record.partition, record.offset) for record in records]
        database.executemany("INSERT INTO results VALUES (?, ?)", rows)
        positions.advance(subscriber.in_hand())

subscriber = Subscriber("t", group="g", directory=directory, config=config, positions=positions)
with subscriber:
    subscriber.run(store, batch=7, throttle_s=0.01)
"""


@contextmanager
def member_process(world: World, name: str, group: str) -> Iterator[Any]:
    directory = str(world.directory / "subscribers" / name)
    arguments = ["--config", world.cluster.client_file, "--topic", "t", "--dir", directory]
    command = [sys.executable, "-m", "samelog", "subscribe", *arguments, "--group", group, "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def test_a_loop_has_a_member(world: World) -> None:
    fill(world, 60)

    async def run() -> set[tuple[int, int]]:
        directory = str(world.directory / "subscribers" / "loop")
        seen: set[tuple[int, int]] = set()
        async with AsyncSubscriber(
            "t", group="g", directory=directory, config=world.cluster.client_file
        ) as subscriber:
            async with asyncio.timeout(PATIENCE_S):
                while len(seen) < 60:
                    records = await subscriber.batch(100, 1.0)
                    seen |= {(record.partition, record.offset) for record in records}
            assert len(subscriber.assignment) == PARTITIONS
            await subscriber.commit()
        return seen

    assert asyncio.run(run()) == everything(60)
    found = processed_offset("t", "g", config=world.cluster.client_file)
    assert found == dict.fromkeys(range(PARTITIONS), 10)


def test_what_is_wrong_with_a_group_is_said_at_once(single: World) -> None:
    with pytest.raises(ValueError, match="partitions does not go with group"):
        single.subscriber("a", group="g", partitions=[0])
    with pytest.raises(ValueError, match="needs a config"):
        Subscriber("t", directory=str(single.directory), group="g")
    with pytest.raises(ValueError, match="follows"):
        single.subscriber("a", group="g", follow=False)
    with pytest.raises(InvalidName, match="group of subscribers"):
        single.subscriber("a", group="../g")
