"""Real processes: a site that only reads has copies, and gives them to those who are near it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from samelog import Subscriber
from samelog.admin.client import ask, ask_node
from samelog.admin.requests import ListSubscribers
from samelog.admin.site_answers import SiteRows
from samelog.admin.site_requests import ListSites
from samelog.cli.local_cluster import LocalNode
from tests.e2e.commands import as_json
from tests.e2e.commands import samelog as run
from tests.e2e.harness import World, wait_for
from tests.kafka.wire import Wire, fetch, metadata
from tests.patience import PATIENCE_S

COUNT = 500


def samelog(world: World, *arguments: str) -> Any:
    """What a command prints as JSON; it has to succeed."""
    return as_json(*arguments, "--config", world.cluster.client_file)


def join(world: World, site: str) -> LocalNode:
    """A new node that is configured for a site, and is added as operators add voters."""
    node = world.cluster.join()
    path = Path(node.config_file)
    path.write_text(path.read_text().replace("[node]\n", f'[node]\nsite = "{site}"\n', 1))
    node.start()
    samelog(world, "node", "add", node.name, str(node.address))
    if site in {each.name for each in sites(world).sites}:
        wait_for(lambda: node.name not in sites(world).elsewhere, "the node is in its site")
    return node


def sites(world: World) -> SiteRows:
    return ask(world.cluster.client_config(), ListSites())


def lags(world: World, name: str) -> list[int]:
    """What each member of a site lacks, in records; -1: it has not said."""
    return [each.records for s in sites(world).sites if s.name == name for each in s.members]


def publish(world: World, session: str) -> None:
    with world.publisher(session) as publisher:
        publisher.append_many([b"%07d" % number for number in range(COUNT)])
        publisher.wait_merged(PATIENCE_S)


def readers(world: World, nodes: list[LocalNode]) -> int:
    """How many connections of clients read merged logs from these nodes."""
    config = world.cluster.client_config()
    found = [ask_node(config, node.address, ListSubscribers()) for node in nodes]
    return sum(
        "samelog://node/" not in each.identity for rows in found for each in rows.subscribers
    )


def test_a_site_that_only_reads_copies_once_and_serves_who_is_near(world: World) -> None:
    for arguments in (["lon"], ["nyc", "--reads-only"]):
        samelog(world, "site", "add", *arguments)
    far = [join(world, "nyc"), join(world, "nyc")]
    for node in far:
        world.wait_live(node)
    publish(world, "a")
    wait_for(lambda: lags(world, "nyc") == [0, 0], "the far site has everything, and says so")
    world.wait_offset(COUNT)
    world.assert_identical()
    assert {n["role"] for n in samelog(world, "status")["nodes"] if n["name"] in names(far)} == {
        "learner"
    }, "a site that only reads has no voters, though they were added to be some"
    for node in far:
        found = [*Path(node.data, "sessions").rglob("log.*")]
        assert not found, "no session's bytes cross the line"
    assert kafka_reads(world, "nyc") in ports(far)
    assert kafka_reads(world, "lon") is None

    place = replace(world.cluster.client_config(), rack="nyc")
    with Subscriber("t", directory=world.directory / "near", config=place) as near:
        batch = list(near.batch(max_records=COUNT, timeout=PATIENCE_S))
        assert [record.value for record in batch] == [b"%07d" % n for n in range(len(batch))]
        wait_for(lambda: readers(world, far) > 0, "it reads from a node of its site")
        far[0].kill()
        far[1].kill()
        publish(world, "b")
        left = 2 * COUNT - len(batch)
        got = sum(1 for _ in near.batch(max_records=left, timeout=PATIENCE_S))
        wait_for(lambda: got > 0, "it reads from the first site instead")


def ports(nodes: list[LocalNode]) -> set[int]:
    return {node.kafka.port for node in nodes if node.kafka is not None}


def kafka_reads(world: World, rack: str) -> int | None:
    """The port of the node that the leader sends a consumer of this rack to; None: it serves it."""
    address = world.leader().kafka
    assert address is not None
    with Wire(address) as wire:
        known = {each.node_id: int(each.port) for each in metadata(wire, "t").brokers}
        return known.get(fetch(wire, "t", 0, rack=rack).preferred_read_replica)


def names(nodes: list[LocalNode]) -> set[str]:
    return {node.name for node in nodes}


def test_a_site_that_is_mistyped_makes_none(world: World) -> None:
    samelog(world, "site", "add", "lon")
    node = join(world, "lno")
    world.wait_live(node)

    def says() -> bool:
        status = world.status(node)
        own = [each for each in (status.nodes if status else ()) if each.name == node.name]
        return any("the cluster has no site 'lno'" in each.detail for each in own)

    wait_for(says, "the node says that there is no such site")
    assert [site.name for site in sites(world).sites] == ["lon"]
    assert node.name in sites(world).elsewhere
    refused = run("site", "remove", "nyc", "--config", world.cluster.client_file)
    assert refused.returncode == 1
    assert "no site is called 'nyc'" in refused.stderr
    samelog(world, "site", "remove", "lon")
    assert not sites(world).sites


def test_a_site_with_members_is_not_removed(world: World) -> None:
    samelog(world, "site", "add", "lon")
    node = join(world, "lon")
    wait_for(lambda: len(lags(world, "lon")) == 1, "the node is in its site")
    refused = run("site", "remove", "lon", "--config", world.cluster.client_file)
    assert refused.returncode == 1
    assert node.name in refused.stderr
    again = run("site", "add", "lon", "--config", world.cluster.client_file)
    assert "there is a site 'lon' already" in again.stderr
