"""Subscribers of patterns and of the whole cluster, alone and in groups."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from samelog import Subscriber
from samelog.format._kernels import Record
from tests.e2e.commands import samelog
from tests.e2e.harness import World, wait_for
from tests.patience import PATIENCE_S


def publish(world: World, topic: str, *values: bytes) -> None:
    with world.publisher(f"of-{topic}", topic) as publisher:
        for value in values:
            publisher.append(value)
        publisher.wait_merged(timeout=PATIENCE_S)


def more(found: list[Record], subscriber: Subscriber) -> list[Record]:
    found.extend(subscriber.batch(timeout=0.2))
    return found


def taking(subscriber: Subscriber) -> Callable[[int], list[tuple[str, bytes | None]]]:
    """Takes so many records, sorted."""

    def take(count: int) -> list[tuple[str, bytes | None]]:
        found: list[Record] = []
        wait_for(
            lambda: len(more(found, subscriber)) >= count,
            f"there are {count} records",
        )
        return sorted((record.topic, record.value) for record in found)

    return take


def test_topics_come_and_go_while_a_pattern_is_read(single: World) -> None:
    publish(single, "ed1", b"a")
    publish(single, "other", b"x")
    with named(single, start="latest") as subscriber:
        take = taking(subscriber)
        subscriber.wait_caught_up(PATIENCE_S)
        assert subscriber.batch(timeout=0.2) == []
        publish(single, "ed2", b"b", b"c")
        assert take(2) == [("ed2", b"b"), ("ed2", b"c")]  # all of it came after the start
        publish(single, "ed1", b"d")
        assert take(1) == [("ed1", b"d")]
        deleted = samelog("topic", "delete", "ed2", "--confirm", "ed2", "--in-use", *config(single))
        assert deleted.returncode == 0, deleted.stderr
        publish(single, "ed3", b"e")
        assert take(1) == [("ed3", b"e")]
        wait_for(lambda: "ed2" not in subscriber._setup.topics.names, "what was deleted is left")
        subscriber.commit()
    publish(single, "ed4", b"f")
    with named(single) as subscriber:  # positions of each are kept
        assert taking(subscriber)(1) == [("ed4", b"f")]


def test_the_whole_cluster_is_read_to_its_end(single: World) -> None:
    for topic in ("a", "b", "c"):
        publish(single, topic, topic.encode())
    with single.subscriber("s", "*", follow=False) as subscriber:
        assert sorted(record.topic for record in subscriber) == ["a", "b", "c"]
    place = str(single.directory / "copies")
    shown = samelog(
        "subscribe", "--topic", "re:[ab]", "--dir", place, "--no-follow", "--json", *config(single)
    )
    assert sorted(json.loads(line)["topic"] for line in shown.stdout.splitlines()) == ["a", "b"]
    shown = samelog("subscribe", "--topic", "re:(", "--dir", place, *config(single))
    assert shown.returncode == 2
    assert "no pattern" in shown.stderr


def test_a_group_shares_what_a_pattern_means(single: World) -> None:
    with (
        single.subscriber("one", "ed*", group="g") as first,
        single.subscriber("two", "ed*", group="g") as second,
    ):
        publish(single, "ed1", b"a")
        publish(single, "ed2", b"b")
        found: list[Record] = []

        def has_both() -> bool:
            for member in (first, second):
                found.extend(member.batch(timeout=0.2))
            return len(found) >= 2 and len(first.assignment) == len(second.assignment) == 1

        wait_for(has_both, "each has one of the topics")
        assert {record.topic for record in found} == {"ed1", "ed2"}


def named(world: World, **options: Any) -> Subscriber:
    place = str(world.directory / "subscribers" / "s")
    return Subscriber("ed*", name="n", directory=place, config=world.cluster.client_file, **options)


def config(world: World) -> tuple[str, str]:
    return "--config", world.cluster.client_file
