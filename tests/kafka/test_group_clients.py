"""Consumer groups of real client libraries on a real cluster."""

from __future__ import annotations

import itertools
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pytest
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor

from samelog.admin.client import ask
from samelog.admin.requests import CreateTopic, DescribeGroup
from tests.e2e.harness import World, wait_for
from tests.kafka.features import each, shows
from tests.kafka.group_clients import CLIENTS, Confluent, Reader
from tests.patience import PATIENCE_S

PARTITIONS = 6
NAMES = itertools.count()
Make = Callable[..., Reader]


class Topic:
    """A topic of its own for each test, and the consumers of its group."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.name = f"t{next(NAMES)}"
        self.group = f"group-of-{self.name}"
        self.readers: list[Reader] = []
        self.written = 0
        ask(world.cluster.client_config(), CreateTopic(self.name, PARTITIONS, {}))

    def write(self, count: int = 300) -> None:
        """Write so many more records, into all partitions."""
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self._bootstrap, "log_level": 0})
        for number in range(self.written, self.written + count):
            producer.produce(self.name, str(number), partition=number % PARTITIONS)
        assert producer.flush(PATIENCE_S) == 0
        self.written += count

    def read(
        self, make: Make = Confluent, *, options: dict[str, Any] | None = None, by: str = ""
    ) -> Reader:
        """One more consumer; `by`: what it subscribes to, if not by the topic's name."""
        reader = make(self._bootstrap, self.group, by or self.name, **(options or {}))
        self.readers.append(reader)
        return reader

    @property
    def _bootstrap(self) -> str:
        return self.world.cluster.client_config().kafka_bootstrap

    def seen(self) -> Counter[str]:
        """How often each record was read."""
        total: Counter[str] = Counter()
        for reader in self.readers:
            total.update(reader.seen)
        return total

    def wait_divided(self, readers: Sequence[Reader]) -> None:
        """Until these have all partitions, each by one of them."""

        def is_divided() -> bool:
            failed = [reader.error for reader in readers if reader.error is not None]
            assert not failed, failed
            return sorted(p for reader in readers for p in reader.assigned) == list(
                range(PARTITIONS)
            ) and (len(readers) > PARTITIONS or all(reader.assigned for reader in readers))

        wait_for(is_divided, "the partitions are divided")

    def wait_read(self) -> None:
        """Until everything that was written was read."""
        wait_for(lambda: len(self.seen()) == self.written, "everything is read")


@pytest.fixture
def topic(world: World) -> Iterator[Topic]:
    topic = Topic(world)
    yield topic
    for reader in topic.readers:
        reader.leave()


@pytest.mark.parametrize("client", each(CLIENTS, "groups: members come and go"))
def test_members_come_and_go(topic: Topic, client: str) -> None:
    make = CLIENTS[client]
    topic.write()
    first, second = topic.read(make), topic.read(make)
    topic.wait_divided([first, second])
    topic.wait_read()
    third = topic.read(make)
    topic.wait_divided([first, second, third])
    topic.write()
    topic.wait_read()
    first.leave()
    topic.wait_divided([second, third])
    topic.write()
    topic.wait_read()
    second.leave()
    third.leave()
    before = topic.seen()
    topic.write()
    last = topic.read(make)
    topic.wait_read()
    last.leave()
    new = topic.seen() - before
    assert len(new) == 300, "what was committed was read again"


@pytest.mark.parametrize("client", each(CLIENTS, "groups: a regular expression"))
def test_a_regular_expression(topic: Topic, client: str) -> None:
    topic.write()
    reader = topic.read(CLIENTS[client], by=f"^{topic.name}(-[0-9]+)?$")
    topic.wait_divided([reader])
    topic.wait_read()


COOPERATIVE: dict[str, dict[str, Any]] = {
    "confluent-kafka": {"partition.assignment.strategy": "cooperative-sticky"},
    "kafka-python": {"partition_assignment_strategy": [CooperativeStickyAssignor]},
}


@pytest.mark.parametrize("client", each(COOPERATIVE, "groups: cooperative"))
def test_cooperative_members_keep_what_they_have(topic: Topic, client: str) -> None:
    make, options = CLIENTS[client], COOPERATIVE[client]
    topic.write()
    first = topic.read(make, options=options)
    topic.wait_divided([first])
    kept = set(first.assigned)
    second = topic.read(make, options=options)
    topic.wait_divided([first, second])
    assert first.assigned < kept
    topic.write()
    topic.wait_read()


@pytest.mark.parametrize("client", each(CLIENTS, "groups: static members"))
def test_a_static_member_comes_back_without_a_rebalance(topic: Topic, client: str) -> None:
    make = CLIENTS[client]
    name = "group.instance.id" if make is Confluent else "group_instance_id"
    first = topic.read(make, options={name: "one"})
    second = topic.read(make, options={name: "two"})
    topic.wait_divided([first, second])
    rebalances, had = first.assignments, set(second.assigned)
    second.leave()  # a static member says nothing when it closes
    again = topic.read(make, options={name: "two"})
    topic.wait_divided([first, again])
    topic.write()
    topic.wait_read()
    assert again.assigned == had
    assert first.assignments == rebalances


def test_a_member_that_dies_loses_its_partitions_but_no_record_is_lost(topic: Topic) -> None:
    other = topic.read()
    topic.wait_divided([other])
    arguments = [topic.world.cluster.client_config().kafka_bootstrap, topic.group, topic.name]
    command = [sys.executable, "-m", "tests.kafka.group_clients", *arguments]
    with subprocess.Popen(command) as doomed:
        wait_for(lambda: 0 < len(other.assigned) < PARTITIONS, "both have partitions")
        doomed.send_signal(signal.SIGKILL)
    topic.write()
    topic.wait_divided([other])
    topic.wait_read()


def owners_of(readers: Iterable[Reader]) -> list[Reader]:
    return [reader for reader in readers if reader.assigned]


def test_fifty_members_share_six_partitions(topic: Topic) -> None:
    readers = [topic.read() for _ in range(50)]
    wait_for(lambda: len(owners_of(readers)) == PARTITIONS, "six members own something")
    topic.wait_divided(readers)
    topic.write()
    topic.wait_read()
    owners = owners_of(readers)
    for reader in owners:
        reader.leave()
    rest = [reader for reader in readers if reader not in owners]
    topic.wait_divided(rest)


@pytest.mark.parametrize("client", each(CLIENTS, "groups: the coordinator is killed"))
def test_the_coordinator_dies(topic: Topic, client: str) -> None:
    make = CLIENTS[client]
    readers = [topic.read(make) for _ in range(3)]
    topic.write()
    topic.wait_divided(readers)
    topic.wait_read()
    before = [(reader.assignments, set(reader.assigned)) for reader in readers]
    leader = topic.world.leader()
    leader.kill()
    topic.write()
    topic.wait_read()
    leader.start()
    topic.world.wait_live(leader)
    assert [(reader.assignments, set(reader.assigned)) for reader in readers] == before
    for reader in readers:
        reader.leave()
    seen = topic.seen()
    last = topic.read(make)
    topic.write()
    topic.wait_read()
    last.leave()
    assert len(topic.seen() - seen) == 300, "commits were lost"


NEW = {"group.protocol": "consumer"}


def test_a_regular_expression_by_the_consumer_protocol(topic: Topic) -> None:
    topic.write()
    reader = topic.read(options=NEW, by=f"^{topic.name}(-[0-9]+)?$")
    topic.wait_divided([reader])
    topic.wait_read()
    reader.leave()


@shows("confluent-kafka", "groups: group.protocol=consumer")
def test_the_consumer_protocol(topic: Topic) -> None:
    topic.write()
    first = topic.read(options=NEW)
    topic.wait_divided([first])
    topic.wait_read()
    config = topic.world.cluster.client_config()
    told = ask(config, DescribeGroup(topic.group))
    assert (told.group.state, told.group.members) == ("Stable", 1)
    assert sorted(told.members[0].partitions) == [(topic.name, n) for n in range(PARTITIONS)]
    second, third = topic.read(options=NEW), topic.read(options=NEW)
    topic.wait_divided([first, second, third])
    topic.write()
    topic.wait_read()
    first.leave()
    topic.wait_divided([second, third])
    topic.write()
    topic.wait_read()
    second.leave()
    third.leave()
    before = topic.seen()
    topic.write()
    topic.read(options={**NEW, "group.remote.assignor": "range"})
    topic.wait_read()
    assert len(topic.seen() - before) == 300, "what was committed was read again"


def test_the_coordinator_of_the_consumer_protocol_dies(topic: Topic) -> None:
    readers = [topic.read(options=NEW) for _ in range(2)]
    topic.wait_divided(readers)
    before = [set(reader.assigned) for reader in readers]
    leader = topic.world.leader()
    leader.kill()
    topic.write()
    topic.wait_read()
    leader.start()
    topic.world.wait_live(leader)
    assert [reader.assigned for reader in readers] == before
