"""Replicas of topics move from node to node, with their records, while clients use them."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from samelog.admin.answers import PlacementStatus
from samelog.admin.client import ask
from samelog.admin.errors import AdminError
from samelog.admin.placement_requests import (
    BalanceCluster,
    CancelTask,
    DrainNode,
    GetPlacement,
    ListTasks,
    PauseTask,
    ResumeTask,
)
from samelog.admin.requests import RemoveNode
from samelog.config.tables.client import ClientConfig
from tests.e2e.harness import World, wait_for
from tests.kafka.test_placed_topics import (
    PARTITIONS,
    RECORDS,
    create,
    partitions_of,
    read,
    write,
)


@pytest.fixture
def admin(boot: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": boot})


@pytest.fixture
def config(world: World) -> Iterator[ClientConfig]:
    config = world.cluster.client_config()
    yield config
    ask(config, ResumeTask())
    for node in world.cluster.nodes:
        ask(config, DrainNode(node.name, ends=True))
    wait_for(lambda: not at_work(config), "all is even again")


def at_work(config: ClientConfig) -> bool:
    """Whether anything is to be done that can be."""
    found = ask(config, ListTasks())
    return bool(found.running) or any(each.state == "waiting" for each in found.waiting)


def held(config: ClientConfig, name: str) -> list[int]:
    """The data groups that a node has replicas of."""
    found: PlacementStatus = ask(config, GetPlacement())
    return [each.group for each in found.groups if each.group and name in each.members]


@pytest.mark.parametrize("copies", [1, 2])
def test_a_node_that_is_drained_gives_its_records_away(
    world: World, boot: str, admin: AdminClient, config: ClientConfig, copies: int
) -> None:
    topic, name = f"moved-{uuid.uuid4()}", world.cluster.nodes[1].name
    create(admin, NewTopic(topic, PARTITIONS, copies))
    list(partitions_of(admin, topic))
    values = [b"%d" % number for number in range(RECORDS)]
    write(boot, topic, values)
    assert held(config, name)
    with pytest.raises(AdminError, match=r"has replicas|has the only copy"):
        ask(config, RemoveNode(name, confirm=name))
    ask(config, DrainNode(name))
    wait_for(lambda: not held(config, name), "it is empty")
    write(boot, topic, values)
    assert sorted(read(boot, topic, 2 * RECORDS)) == sorted(values * 2)
    ended = ask(config, ListTasks()).ended
    assert {"drain"} <= {each.kind for each in ended if each.state == "done"}
    ask(config, DrainNode(name, ends=True))
    wait_for(lambda: bool(held(config, name)) and not at_work(config), "it has its share again")
    assert sorted(read(boot, topic, 2 * RECORDS)) == sorted(values * 2)


def test_tasks_are_paused_and_what_cannot_be_is_refused(
    world: World, boot: str, admin: AdminClient, config: ClientConfig
) -> None:
    topic, name = f"paused-{uuid.uuid4()}", world.cluster.nodes[2].name
    create(admin, NewTopic(topic, PARTITIONS, 2))
    list(partitions_of(admin, topic))
    assert ask(config, PauseTask()).are_paused
    ask(config, DrainNode(name))
    wait_for(lambda: bool(ask(config, ListTasks()).waiting), "what is to be done is shown")
    assert not ask(config, ListTasks()).running
    with pytest.raises(AdminError, match="would have too few members"):
        ask(config, DrainNode(world.cluster.nodes[1].name))
    with pytest.raises(AdminError, match="no node is called 'nobody'"):
        ask(config, DrainNode("nobody"))
    with pytest.raises(AdminError, match="no task 4000000000 is running"):
        ask(config, CancelTask(4_000_000_000))
    assert not ask(config, ResumeTask()).are_paused
    wait_for(lambda: not held(config, name), "it is empty")
    assert ask(config, BalanceCluster()).running is not None
