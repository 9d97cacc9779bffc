"""Readers of a topic that is deleted and created again under its name, one of each kind."""

from __future__ import annotations

import logging
import uuid

import pytest
from confluent_kafka import Consumer

from samelog import Subscriber, TopicDeleted
from samelog.admin.client import ask
from samelog.admin.placement_requests import GetPlacement
from samelog.admin.requests import CreateTopic
from samelog.cli.local_cluster import LocalNode
from tests.e2e.commands import samelog
from tests.e2e.harness import World, wait_for
from tests.e2e.recreated import subscriber_sidecar
from tests.patience import PATIENCE_S

OLD, NEW = [b"old-%d" % n for n in range(20)], [b"new-%d" % n for n in range(5)]


def publish(world: World, topic: str, values: list[bytes]) -> None:
    with world.publisher(f"p-{uuid.uuid4().hex}", topic) as publisher:
        publisher.append_many(values)
        publisher.wait_merged(timeout=PATIENCE_S)


def named(world: World, topics: str, start: str = "earliest") -> Subscriber:
    """A subscriber whose positions are stored."""
    place = str(world.directory / "subscribers" / "named")
    config = world.cluster.client_file
    return Subscriber(topics, name="n", directory=place, config=config, start=start)


def delete(world: World, topic: str, *, lags: bool = False) -> None:
    """`lags`: the only holder is away, so that the command says what is yet to be dropped."""
    options = ("--confirm", topic, "--in-use", "--config", world.cluster.client_file)
    ran = samelog("topic", "delete", topic, *options)
    assert ran.returncode == int(lags), ran.stderr
    assert ("is deleted and its name free" in ran.stderr) is lags


def take(subscriber: Subscriber, count: int, topic: str) -> list[bytes | None]:
    """The values of so many records of a topic."""
    found: list[bytes | None] = []

    def has_all() -> bool:
        found.extend(each.value for each in subscriber.batch(timeout=0.2) if each.topic == topic)
        return len(found) >= count

    wait_for(has_all, f"there are {count} records of {topic}")
    return found


@pytest.mark.parametrize("group", [None, "g"])
def test_a_pattern_reads_the_new_topic_from_its_start(
    single: World, caplog: pytest.LogCaptureFixture, group: str | None
) -> None:
    caplog.set_level(logging.INFO, "samelog")
    publish(single, "ed1", OLD)
    publish(single, "ed2", OLD[:1])
    with single.subscriber("s", "ed*", group=group) as subscriber:
        assert take(subscriber, 20, "ed1") == OLD
        for _ in range(2):
            caplog.clear()
            delete(single, "ed1")
            publish(single, "ed1", NEW)
            publish(single, "ed2", [b"other"])
            assert take(subscriber, 5, "ed1") == NEW
            assert len(caplog.records) <= 10
        publish(single, "ed1", [b"last"])
        assert take(subscriber, 1, "ed1") == [b"last"]


def test_a_pattern_reads_what_was_created_again_while_it_was_away(single: World) -> None:
    publish(single, "ed1", OLD)
    with named(single, "ed*") as subscriber:
        take(subscriber, 20, "ed1")
        subscriber.commit()
    delete(single, "ed1")
    publish(single, "ed1", NEW)
    with named(single, "ed*", start="stored") as subscriber:
        assert take(subscriber, 5, "ed1") == NEW


def test_a_subscriber_by_name_stops(single: World) -> None:
    publish(single, "t", OLD)
    with named(single, "t") as subscriber:
        assert take(subscriber, 20, "t") == OLD
        delete(single, "t")
        publish(single, "t", NEW)
        with pytest.raises(TopicDeleted, match="another directory"):
            take(subscriber, 1, "t")
    with (
        named(single, "t", start="stored") as again,
        pytest.raises(TopicDeleted, match="'t'"),
    ):
        take(again, 1, "t")
    with single.subscriber("other", "t") as other:
        assert take(other, 5, "t") == NEW


@pytest.mark.parametrize("start", ["earliest", "latest"])
def test_a_native_group_reads_the_new_topic_from_its_start(single: World, start: str) -> None:
    publish(single, "t", OLD)
    with single.subscriber("s", "t", group="g", start=start) as member:
        found: list[bytes | None] = []

        def sees(value: bytes) -> bool:
            publish(single, "t", [value])
            found.extend(each.value for each in member.batch(timeout=0.2))
            return value in found

        wait_for(lambda: sees(b"seen"), "it reads the old topic")
        assert (OLD[0] in found) == (start == "earliest")
        delete(single, "t")
        publish(single, "t", NEW)
        assert take(member, 5, "t") == NEW


@pytest.mark.parametrize("reset", ["earliest", "latest"])
def test_a_kafka_group_begins_by_auto_offset_reset(single: World, reset: str) -> None:
    publish(single, "t", OLD * 10)
    settings = {
        "bootstrap.servers": single.cluster.client_config().kafka_bootstrap,
        "group.id": "g",
        "auto.offset.reset": reset,
        "topic.metadata.refresh.interval.ms": 200,
        "metadata.max.age.ms": 1000,
    }
    consumer = Consumer(settings)
    consumer.subscribe(["t"])
    found: list[bytes] = []

    def sees(value: bytes) -> bool:
        publish(single, "t", [value])
        message = consumer.poll(0.2)
        while message is not None:
            if message.error() is None:
                found.append(message.value() or b"")
            message = consumer.poll(0.0)
        return value in found

    wait_for(lambda: sees(b"seen"), "it reads the old topic")
    consumer.commit(asynchronous=False)
    delete(single, "t")
    publish(single, "t", NEW)
    wait_for(lambda: sees(b"again"), "it reads the new topic")
    assert (NEW[0] in found) == (reset == "earliest")
    consumer.close()


def test_a_member_that_joins_later_reads_an_added_partition_from_its_start(single: World) -> None:
    publish(single, "t", OLD)
    with single.subscriber("one", "t", group="g", start="latest") as first:
        found: list[bytes | None] = []

        def sees(value: bytes) -> bool:
            publish(single, "t", [value])
            found.extend(each.value for each in first.batch(timeout=0.2))
            return value in found

        wait_for(lambda: sees(b"seen"), "it reads the topic")
        first.commit()
    options = ("--config", single.cluster.client_file)
    assert samelog("topic", "add-partitions", "t", "2", *options).returncode == 0
    with single.publisher("p2", "t") as publisher:
        for value in NEW:
            publisher.append(value, partition=1)
        publisher.wait_merged(timeout=PATIENCE_S)
    with single.subscriber("two", "t", group="g", start="latest") as second:
        assert take(second, 5, "t") == NEW
    with single.subscriber("three", "t", group="other", start="latest") as other:
        wait_for(
            lambda: other.batch(timeout=0.1) == [] and len(other.assignment) == 2, "it has both"
        )
        other.wait_caught_up(PATIENCE_S)
        assert other.batch(timeout=0.2) == []


def test_a_sidecar_keeps_the_copy_until_it_is_moved_away(
    single: World, caplog: pytest.LogCaptureFixture
) -> None:
    publish(single, "t", OLD)
    copies = single.directory / "copies"

    def local() -> Subscriber:
        return Subscriber("t", directory=str(copies), start="earliest")

    with subscriber_sidecar(single, "t") as made:
        wait_for(lambda: ("t", 0) in made.copies and made.copies["t", 0].caught_up, "a copy")
        delete(single, "t")
        publish(single, "t", NEW)
        wait_for(lambda: "t-0 is copied no more" in caplog.text, "a warning")
    with subscriber_sidecar(single, "t") as made, local() as reader:
        wait_for(lambda: caplog.text.count("t-0 is copied no more") == 2, "another warning")
        assert take(reader, 20, "t") == OLD
    (copies / "t-0").rename(single.directory / "old")
    with subscriber_sidecar(single, "t") as made, local() as reader:
        assert take(reader, 5, "t") == NEW


def holder_of(world: World, topic: str) -> LocalNode:
    """Return the node with the only copy of a topic."""
    partitions = ask(world.cluster.client_config(), GetPlacement()).partitions
    [[name]] = [each.replicas for each in partitions if each.topic == topic]
    return next(node for node in world.cluster.nodes if node.name == name)


def test_readers_follow_while_the_only_holder_of_the_old_topic_is_away(world: World) -> None:
    config, leader = world.cluster.client_config(), world.leader()
    topics = [f"t{number}" for number in range(5)]
    for topic in topics:
        ask(config, CreateTopic(topic, 1, {}, 1))
    topic = next(each for each in topics if holder_of(world, each) is not leader)
    holder = holder_of(world, topic)
    publish(world, topic, OLD)
    with (
        named(world, topic) as by_name,
        world.subscriber("by-pattern", f"{topic}*") as by_pattern,
        world.subscriber("member", topic, group="g") as member,
    ):
        for reader in (by_name, by_pattern, member):
            assert take(reader, 20, topic) == OLD
        holder.kill()
        delete(world, topic, lags=True)
        ask(config, CreateTopic(topic, 1, {}, 1))
        publish(world, topic, NEW)
        with pytest.raises(TopicDeleted):
            take(by_name, 1, topic)
        for reader in (by_pattern, member):
            assert take(reader, 5, topic) == NEW
        holder.start()
        world.wait_live(holder)
        publish(world, topic, [b"last"])
        for reader in (by_pattern, member):
            assert take(reader, 1, topic) == [b"last"]
    config_there = world.only(holder)
    with Subscriber(
        topic, directory=str(world.directory / "x"), config=config_there, start="earliest"
    ) as there:
        assert take(there, 6, topic) == [*NEW, b"last"]
