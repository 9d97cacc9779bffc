"""Topics that change while they are written: more copies, fewer, and nothing left in them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from samelog.admin.client import ask
from samelog.admin.placement_requests import GetPlacement
from samelog.cli.local_cluster import ClusterOptions, LocalCluster
from tests.e2e.commands import as_json, samelog
from tests.e2e.harness import World, wait_for
from tests.patience import PATIENCE_S

PARTITIONS = 2


@pytest.fixture
def world(tmp_path: Path, starts_nodes: None) -> Iterator[World]:
    """Five nodes."""
    with LocalCluster(str(tmp_path / "cluster"), ClusterOptions(nodes=5)) as cluster:
        cluster.prepare()
        cluster.start()
        yield World(cluster, tmp_path)


def copies(world: World, topic: str) -> list[int]:
    found = ask(world.cluster.client_config(), GetPlacement()).partitions
    return [len(each.replicas) for each in found if each.topic == topic]


@pytest.mark.parametrize(
    ("before", "after"),
    [pytest.param(["1"], (3, 1), id="plain"), pytest.param([], (1, 5), id="everywhere")],
)
def test_a_topic_gets_more_and_fewer_copies_while_it_is_written(
    world: World, before: list[str], after: tuple[int, ...]
) -> None:
    """Without a number of copies it is on every node, in group 0."""
    config = ("--config", world.cluster.client_file)
    named = [text for copies in before for text in ("--replication-factor", copies)]
    create = ("topic", "create", "t", "--partitions", "2", *named, *config)
    made = as_json(*create)
    assert (made["retention_ms"], made["retention_from"]) == (-1, "none")
    stop, count = threading.Event(), 0

    def write() -> None:
        nonlocal count
        with world.publisher("p", partitions=PARTITIONS) as publisher:
            while not stop.is_set():
                publisher.append(str(count).encode(), partition=count % PARTITIONS)
                count += 1
                stop.wait(0.005)
            publisher.wait_merged(timeout=PATIENCE_S)

    writing = threading.Thread(target=write)
    writing.start()
    try:
        for wanted in after:
            alter = ("topic", "alter", "t", "--replication-factor", str(wanted), *config)
            wait_for(lambda alter=alter: samelog(*alter).returncode == 0, "it is asked for")  # type: ignore[misc]
            wait_for(
                lambda wanted=wanted: copies(world, "t") == [wanted] * PARTITIONS,  # type: ignore[misc]
                f"{wanted} copies",
                2 * PATIENCE_S,
            )
    finally:
        stop.set()
        writing.join()
    found = sorted(int(record.value or b"") for record in world.read(count))
    assert found == list(range(count))


def test_a_topic_is_emptied(world: World) -> None:
    config = ("--config", world.cluster.client_file)
    assert samelog("topic", "create", "t", "--partitions", "2", *config).returncode == 0
    with world.publisher("p", partitions=PARTITIONS) as publisher:
        for number in range(20):
            publisher.append(b"old", partition=number % PARTITIONS)
        publisher.wait_merged(timeout=PATIENCE_S)
        emptied = as_json("topic", "truncate", "t", "--confirm", "t", *config)
        assert [each["log_start"] for each in emptied] == [10, 10]
        publisher.append(b"new", partition=1)
        publisher.wait_merged(timeout=PATIENCE_S)
    [record] = world.read(1)
    assert (record.value, record.partition, record.offset) == (b"new", 1, 10)
    refused = samelog("topic", "truncate", "t", "--partition", "7", "--confirm", "t", *config)
    assert refused.returncode == 1
    assert "no partition 7" in refused.stderr


@pytest.mark.parametrize("setting", ["dedup.key=first", "cleanup.policy=compact"])
def test_topics_of_any_kind_get_another_number_of_copies(world: World, setting: str) -> None:
    config = ("--config", world.cluster.client_file)
    assert samelog("topic", "create", "t", "--set", setting, *config).returncode == 0
    for wanted in (1, 3):
        alter = ("topic", "alter", "t", "--replication-factor", str(wanted), *config)
        wait_for(lambda: samelog(*alter).returncode == 0, "no partition moves")  # noqa: B023
        wait_for(lambda: copies(world, "t") == [wanted], "it has so many copies")  # noqa: B023
