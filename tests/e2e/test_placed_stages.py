"""Batches staged over partitions in several data groups: published in all of them or in none,
whoever dies in between.
"""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor

import pytest

from samelog.admin.client import ask
from samelog.admin.requests import CreateTopic, StagedRun
from samelog.cli.local_cluster import LocalNode
from samelog.publisher.errors import NotStaged
from samelog.publisher.staging import StagedWriter, drop_stage, publish_stage
from tests.e2e.harness import World, wait_for
from tests.patience import PATIENCE_S

PARTITIONS = 4
COPIES = itertools.count()


@pytest.fixture
def placed(world: World) -> World:
    """A topic with two replicas on three nodes, and one that is on all."""
    config = world.cluster.client_config()
    ask(config, CreateTopic("t", PARTITIONS, {}, 2))
    ask(config, CreateTopic("everywhere", 1, {}))
    return world


def stage(world: World, values: list[bytes]) -> StagedRun:
    """What a task of a batch does, into both topics."""
    config = world.cluster.client_config()
    with StagedWriter("t", stage="sink", config=config, partitions=PARTITIONS) as writer:
        for number, value in enumerate(values):
            writer.publisher.append(value, partition=number % PARTITIONS)
        writer.publisher.append(values[0], topic="everywhere", partition=0)
        held = writer.hold()
        assert held is not None
        return held


def publish(world: World, batch: int, runs: list[StagedRun], writer: str = "query") -> bool:
    config = world.cluster.client_config()
    return publish_stage(config, stage="sink", writer=writer, batch=batch, runs=runs)


def values(world: World, topic: str = "t") -> list[bytes]:
    """All records that anybody can read, by a fresh copy."""
    with world.subscriber(f"copy{next(COPIES)}", topic) as subscriber:
        subscriber.wait_caught_up(PATIENCE_S)
        return sorted(record.value or b"" for record in subscriber.present())


def test_a_batch_is_published_in_all_groups_and_once(placed: World) -> None:
    tasks = [[b"%d.%02d" % (task, number) for number in range(20)] for task in range(3)]
    with ThreadPoolExecutor(3) as pool:
        runs = list(pool.map(lambda task: stage(placed, task), tasks))
    with placed.publisher("plain") as publisher:
        publisher.append(b"plain", partition=0)
        publisher.wait_merged(timeout=PATIENCE_S)
    wait_for(lambda: values(placed) == [b"plain"], "what is not staged can be read, and only that")
    assert publish(placed, 0, runs)
    everything = sorted([b"plain", *(value for task in tasks for value in task)])
    wait_for(lambda: values(placed) == everything, "all of the batch")
    wait_for(
        lambda: values(placed, "everywhere") == sorted(task[0] for task in tasks), "group 0's part"
    )
    assert not publish(placed, 0, [stage(placed, tasks[0])])
    with pytest.raises(NotStaged, match="has published batches up to 0"):
        publish(placed, 0, [stage(placed, tasks[0])], writer="another query")
    given_up = stage(placed, [b"given up"])
    drop_stage(placed.cluster.client_config(), stage="sink", runs=[given_up])
    with pytest.raises(NotStaged, match="closed"):
        publish(placed, 1, [given_up])
    assert publish(placed, 1, [stage(placed, [b"second"])])
    wait_for(lambda: values(placed) == sorted([*everything, b"second"]), "the second batch")


def test_each_node_dies_while_a_batch_is_staged_and_published(placed: World) -> None:
    wanted: list[bytes] = []
    nodes: list[LocalNode] = [*placed.cluster.nodes, placed.leader()]
    for batch, node in enumerate(nodes):
        tasks = [[b"%d.%d.%d" % (batch, task, n) for n in range(8)] for task in range(2)]
        runs = [stage(placed, task) for task in tasks]
        with ThreadPoolExecutor(1) as pool:
            publishing = pool.submit(publish, placed, batch, runs)
            node.kill()
            node.start()  # two replicas do without none
            publishing.result(PATIENCE_S)
        placed.wait_live(node)
        wanted += [value for task in tasks for value in task]
        wait_for(lambda: values(placed) == sorted(wanted), f"batch {batch}, once")  # noqa: B023
    assert not publish(placed, len(nodes) - 1, [stage(placed, [b"replayed"])])
    assert values(placed) == sorted(wanted)
