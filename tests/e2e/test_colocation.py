"""Real processes: a topic in the group of another one, and a batch into both as one entry."""

from __future__ import annotations

import pytest

from samelog.admin.client import ask
from samelog.admin.errors import AdminError
from samelog.admin.placement_requests import GetPlacement
from samelog.admin.requests import AlterTopic, CreatePartitions, CreateTopic
from samelog.publisher.staging import StagedWriter, publish_stage
from tests.e2e.commands import as_json
from tests.e2e.commands import samelog as run
from tests.e2e.harness import World, wait_for
from tests.patience import PATIENCE_S


def groups(world: World, topic: str) -> set[int]:
    found = ask(world.cluster.client_config(), GetPlacement()).partitions
    return {each.group for each in found if each.topic == topic}


def read(world: World, topic: str) -> list[bytes]:
    with world.subscriber(f"copy-{topic}", topic) as subscriber:
        subscriber.wait_caught_up(PATIENCE_S)
        return sorted(record.value or b"" for record in subscriber.present())


def test_a_batch_into_topics_of_one_group_is_one_entry(world: World) -> None:
    config = world.cluster.client_config()
    ask(config, CreateTopic("orders", 1, {}, 2))
    arguments = ("topic", "create", "fills", "--partitions", "3", "--colocate-with", "orders")
    made = as_json(*arguments, "--config", world.cluster.client_file)
    assert made["copies"] == 2
    ask(config, CreatePartitions("orders", 2))
    assert groups(world, "fills") == groups(world, "orders")
    assert len(groups(world, "fills")) == 1
    with StagedWriter("orders", stage="sink", config=config, partitions=2) as writer:
        writer.publisher.append(b"order", partition=1)
        writer.publisher.append(b"fill", topic="fills", partition=1)
        held = writer.hold()
    assert held is not None
    assert publish_stage(config, stage="sink", writer="query", batch=0, runs=[held])
    wait_for(lambda: (read(world, "orders"), read(world, "fills")) == ([b"order"], [b"fill"]), "it")


def test_what_cannot_share_a_group_says_why(world: World) -> None:
    config = world.cluster.client_config()
    ask(config, CreateTopic("spread", 6, {}, 1))
    for topic, why in (("gone", "there is no topic"), ("spread", "are in groups")):
        with pytest.raises(AdminError, match=why):
            ask(config, CreateTopic("t", 1, {}, colocate_with=topic))
    with pytest.raises(AdminError, match="has as many copies as topic"):
        ask(config, CreateTopic("t", 1, {}, 2, colocate_with="spread"))
    ask(config, CreateTopic("one", 1, {}, 1))
    ask(config, CreateTopic("two", 1, {}, colocate_with="one"))
    with pytest.raises(AdminError, match="shares the group of another one"):
        ask(config, AlterTopic("one", {}, (), 2))
    refused = run(
        "topic", "create", "v", "--colocate-with", "gone", "--config", world.cluster.client_file
    )
    assert refused.returncode == 1
