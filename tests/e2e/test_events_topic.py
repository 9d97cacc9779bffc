"""`__events` over a real cluster: created by an operator, written by leaders, read by all."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from samelog.admin.client import ask
from samelog.admin.placement_requests import GetPlacement
from tests.e2e.commands import samelog
from tests.e2e.harness import World, wait_for
from tests.patience import PATIENCE_S


@pytest.mark.parametrize("copies", [0, 3])
def test_what_happens_can_be_read_by_everybody(world: World, copies: int) -> None:
    """In group 0, and in a data group where topics are in some by default."""
    config = ("--config", world.cluster.client_file)
    by_default = ("cluster", "alter", "--default-replication-factor", str(copies))
    assert samelog(*by_default, *config).returncode == 0
    assert samelog("topic", "create", "__events", *config).returncode == 0
    placed = ask(world.cluster.client_config(), GetPlacement()).partitions
    assert {each.group > 0 for each in placed if each.topic == "__events"} == {copies > 0}
    alter = ("topic", "alter", "a", "--set", "retention.ms=60000", *config)
    delete = ("topic", "delete", "a", "--confirm", "a", *config)
    seen: list[Mapping[str, Any]] = []
    with world.subscriber("events", "__events") as subscriber:

        def told(kind: str, subject: str) -> bool:
            seen.extend(row.values for row in subscriber.rows(timeout=0.2) if row.values)
            return any((each["kind"], each["subject"]) == (kind, subject) for each in seen)

        leader = world.leader()
        wait_for(lambda: told("election", leader.name), "who leads is told")
        assert samelog("topic", "create", "a", *config).returncode == 0
        assert samelog(*alter).returncode == 0
        wait_for(lambda: told("topic created", "a"), "what is made is told")
        wait_for(lambda: told("topic altered", "a"), "settings are told")
        leader.kill()
        wait_for(lambda: samelog(*delete).returncode == 0, "it is gone")
        wait_for(lambda: told("topic deleted", "a"), "what happens afterwards is told")
        wait_for(lambda: told("election", world.leader().name), "who leads now is told")
        leader.start()
        wait_for(lambda: told("member started", leader.name), "who comes back is told")
    assert [each["number"] for each in seen] == list(range(len(seen)))
    read_by_kafka(world, len(seen))


def read_by_kafka(world: World, count: int) -> None:
    servers = world.leader().kafka
    options = {"bootstrap.servers": str(servers), "group.id": "g", "auto.offset.reset": "earliest"}
    with closing(Consumer(options)) as consumer:
        consumer.assign([TopicPartition("__events", 0, OFFSET_BEGINNING)])
        found = consumer.consume(count, PATIENCE_S)
        assert [message.offset() for message in found] == list(range(count))
    refused: list[object] = []
    producer = Producer({"bootstrap.servers": str(servers), "message.timeout.ms": 20_000})
    producer.produce("__events", b"forged", callback=lambda error, message: refused.append(error))
    producer.flush(PATIENCE_S)
    assert refused
    assert refused[0] is not None
