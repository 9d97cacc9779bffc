"""Groups of samelog's own subscribers, over real clusters: shared, handed over, lost, refused."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from samelog import Subscriber
from samelog.admin.client import ask
from samelog.admin.requests import DescribeGroup
from samelog.subscriber import GroupRefused, NotCommitted, processed_offset
from tests.e2e.commands import as_json, samelog
from tests.e2e.harness import World, wait_for
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
    with reading(member(world, "a")) as reader:
        wait_for(lambda: len(reader.seen) == 6, "it reads")
        description = ask(world.cluster.client_config(), DescribeGroup("g"))
        assert description.group.protocol_type == "native"
        [one] = description.members
        assert one.identity.startswith("samelog://")
        assert one.client_host
        assert one.joined_ms > 0
        assert one.moved_ms >= one.joined_ms
        seen = as_json("group", "describe", "g", "--config", world.cluster.client_file)
        assert seen["members"][0]["polled_at"] is not None


def test_what_is_wrong_with_a_group_is_said_at_once(single: World) -> None:
    with pytest.raises(ValueError, match="name does not go with group"):
        single.subscriber("a", group="g", name="n")
    with pytest.raises(ValueError, match="needs a config"):
        Subscriber("t", directory=str(single.directory), group="g")
    with pytest.raises(ValueError, match="follows"):
        single.subscriber("a", group="g", follow=False)
