"""Disasters with data groups: a group that lost its majority, and a cluster that did."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from samelog import Publisher, Subscriber
from samelog.admin.answers import GroupPlacement
from samelog.admin.client import ask, ask_node
from samelog.admin.errors import AdminError
from samelog.admin.placement_requests import GetPlacement
from samelog.admin.requests import CreateTopic
from samelog.cli.local_cluster import ClusterOptions, LocalCluster, LocalNode
from tests.e2e.commands import as_json, samelog
from tests.e2e.harness import World, wait_for
from tests.patience import PATIENCE_S

PARTITIONS = 6
TOPIC = "placed"


def publish(world: World, session: str, count: int, config: str) -> None:
    directory = str(world.directory / "publishers")
    with Publisher(TOPIC, session=session, config=config, directory=directory) as publisher:
        for number in range(count):
            publisher.append(b"%s %d" % (session.encode(), number), partition=number % PARTITIONS)
        publisher.wait_merged(PATIENCE_S)


def subscribed(world: World, name: str, count: int, config: str) -> list[str]:
    directory, found = str(world.directory / name), list[str]()
    with Subscriber(TOPIC, directory=directory, config=config, start="earliest") as subscriber:

        def has_all() -> bool:
            found.extend((r.value or b"").decode() for r in subscriber.batch(timeout=0.5))
            return len(found) >= count

        wait_for(has_all, f"{count} records")
    return sorted(found)


def written(*sessions: str, count: int) -> list[str]:
    return sorted(f"{session} {n}" for session in sessions for n in range(count))


def groups(world: World, node: LocalNode) -> Sequence[GroupPlacement]:
    config = world.cluster.client_config()
    found = ask_node(config, node.address, GetPlacement(), name=node.name)
    return [each for each in found.groups if each.group]


def has_leaders(world: World, node: LocalNode, copies: int) -> bool:
    try:
        found = groups(world, node)
    except AdminError:
        return False
    return all(each.leader and len(each.members) == copies for each in found)


def set_aside(node: LocalNode) -> list[str]:
    return [name for name in os.listdir(node.data) if name.startswith("set-aside.group.")]


def begun(path: Path, nodes: int) -> tuple[LocalCluster, World]:
    cluster = LocalCluster(str(path / "cluster"), ClusterOptions(nodes=nodes))
    cluster.start()
    return cluster, World(cluster, path)


@pytest.mark.usefixtures("starts_nodes")
def test_a_group_that_lost_its_majority_goes_on_with_the_replica_that_is_left(
    tmp_path: Path,
) -> None:
    cluster, world = begun(tmp_path, 3)
    with cluster:
        config, file = cluster.client_config(), cluster.client_file
        ask(config, CreateTopic(TOPIC, PARTITIONS, {}, 2))
        publish(world, "before", 60, file)
        lost = world.followers()[0]
        alive = [node for node in cluster.nodes if node is not lost]
        lost.kill()
        concerned = [each for each in groups(world, alive[0]) if lost.name in each.members]
        assert concerned
        number = concerned[0].group
        (left,) = set(concerned[0].members) - {lost.name}
        file = world.only(next(node for node in alive if node.name == left))
        refused = samelog("recover", "group", str(number), "--config", file)
        assert refused.returncode == 1
        assert f"{left}: entry" in refused.stderr
        other = next(node.name for node in alive if node.name != left)
        arguments = ["--confirm", str(number), "--config", file, "--from"]
        wrong = samelog("recover", "group", str(number), *arguments, other)
        assert f"{other} has no replica of group {number}" in wrong.stderr

        def recover(each: GroupPlacement) -> None:
            (name,) = set(each.members) - {lost.name}
            done: dict[str, Any] = {}

            def is_taken() -> bool:
                ended = samelog(
                    "recover", "group", str(each.group), "--from", name,
                    "--confirm", str(each.group), "--config", file, "--json",
                )  # fmt: skip
                done["text"] = ended.stderr
                return ended.returncode == 0

            wait_for(is_taken, "the group's other replica is known to be silent")

        for each in concerned:
            recover(each)
        wait_for(lambda: has_leaders(world, alive[0], 2), "the copies are rebuilt")
        publish(world, "after", 60, cluster.client_file)
        wanted = written("before", "after", count=60)
        assert subscribed(world, "copies", 120, cluster.client_file) == wanted
        lost.start()
        wait_for(lambda: len(set_aside(lost)) == len(concerned), "its old replicas are kept")
        majority = samelog("recover", "group", str(number), *arguments, left)
        assert majority.returncode == 1


@pytest.mark.usefixtures("starts_nodes")
def test_a_cluster_that_lost_its_majority_goes_on_with_two_of_five(tmp_path: Path) -> None:
    cluster, world = begun(tmp_path, 5)
    with cluster:
        config, file = cluster.client_config(), cluster.client_file
        ask(config, CreateTopic(TOPIC, PARTITIONS, {}, 4))
        publish(world, "before", 60, file)
        wait_for(lambda: has_leaders(world, cluster.nodes[0], 4), "all copies are there")
        first, second, *lost = cluster.nodes
        for node in (*lost, first):
            node.kill()
        recover = ("recover", "majority-lost", "--config", first.config_file)
        refused = samelog(*recover, "--with", "nobody", "--confirm", cluster_name(first))
        assert "no other member has that name" in refused.stderr
        looked = samelog(*recover)
        assert "group 1: entry" in looked.stderr
        as_json(*recover, "--with", second.name, "--confirm", cluster_name(first))
        first.start()

        def groups_are_known() -> bool:
            try:
                return bool(groups(world, second)) and bool(groups(world, first))
            except AdminError:
                return False

        wait_for(groups_are_known, "both nodes know the table")
        for each in groups(world, first):
            here = {first.name, second.name} & set(each.members)
            name = sorted(here)[0]

            def is_done(group: int = each.group, name: str = name) -> bool:
                ended = samelog(
                    "recover", "group", str(group), "--from", name,
                    "--confirm", str(group), "--config", file,
                )  # fmt: skip
                return ended.returncode == 0 or "a majority of group" in ended.stderr

            wait_for(is_done, f"group {each.group} goes on")
        wait_for(lambda: has_leaders(world, first, 2), "all groups have leaders, and two copies")
        publish(world, "after", 60, file)
        wanted = written("before", "after", count=60)
        assert subscribed(world, "copies", 120, file) == wanted


def cluster_name(node: LocalNode) -> str:
    from samelog.config.load import load_node

    return load_node(node.config_file).cluster


@pytest.fixture(autouse=True)
def _in_order() -> None:
    """Each has a cluster of its own."""
