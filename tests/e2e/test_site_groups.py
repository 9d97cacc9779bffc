"""Real processes: topics in data groups are read in a site that only reads, and go on there after a
disaster.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from samelog import Publisher, Subscriber
from samelog.admin.answers import GroupPlacement
from samelog.admin.client import ask
from samelog.admin.requests import CreateTopic
from samelog.cli.local_cluster import LocalCluster, LocalNode
from samelog.config.schema.render import to_toml
from tests.e2e import test_promotion
from tests.e2e.harness import World, read_segments, wait_for
from tests.e2e.test_promotion import Sites, voters
from tests.e2e.test_sites import ports, readers
from tests.kafka.wire import Wire, fetch, metadata
from tests.patience import PATIENCE_S

PARTITIONS, COUNT = 4, 200


@pytest.fixture
def sites(tmp_path: Path, starts_nodes: None) -> Iterator[Sites]:
    with LocalCluster(str(tmp_path / "cluster")) as cluster:
        cluster.start()
        yield Sites(World(cluster, tmp_path))


def groups(sites: Sites, config: str) -> list[GroupPlacement]:
    found = sites.samelog("placement", config=config)
    assert isinstance(found, dict)
    return [GroupPlacement(**each) for each in found["groups"] if each["group"]]


def publish(sites: Sites, session: str, config: str) -> None:
    directory = str(sites.world.directory / "publishers")
    with Publisher("placed", session=session, config=config, directory=directory) as publisher:
        for number in range(COUNT):
            value = b"%s %d" % (session.encode(), number)
            publisher.append(value, partition=number % PARTITIONS)
        publisher.wait_merged(PATIENCE_S)


def logs(node: LocalNode) -> dict[str, bytes]:
    """What a node has merged of the topic, by partition."""
    found = Path(node.data).glob("groups/*/merged/placed-*")
    return {each.name: read_segments(str(each)) for each in found}


def preferred(sites: Sites, partition: int) -> int | None:
    """The port of the node that a partition's leader sends a consumer in nyc to."""
    for node in sites.lon:
        assert node.kafka is not None
        with Wire(node.kafka) as wire:
            known = {each.node_id: int(each.port) for each in metadata(wire, "placed").brokers}
            answer = fetch(wire, "placed", partition, rack="nyc")
            if answer.preferred_read_replica in known:
                return known[answer.preferred_read_replica]
    return None


def sent_to(sites: Sites) -> set[int | None]:
    """Where consumers in nyc are sent to, over all partitions; None: the leader serves them."""
    return {preferred(sites, partition) for partition in range(PARTITIONS)}


def read(sites: Sites, config: str, name: str, count: int) -> dict[int, list[bytes]]:
    """So many records, by partition."""
    found: dict[int, list[bytes]] = {number: [] for number in range(PARTITIONS)}
    place = replace(sites.world.cluster.client_config(), rack="nyc")
    path = sites.world.directory / f"{name}.toml"
    path.write_text(to_toml(place) if not config else Path(config).read_text())
    directory = sites.world.directory / name
    with Subscriber("placed", directory=directory, config=str(path), start="earliest") as near:

        def is_there() -> bool:
            for record in near.batch(timeout=0.2):
                found[record.partition].append(record.value or b"")
            return sum(map(len, found.values())) >= count

        wait_for(is_there, f"{count} records")
        if not config:
            wait_for(lambda: readers(sites.world, sites.nyc) > 0, "it reads from its site")
    return found


def group_at(nodes: list[LocalNode]) -> Consumer:
    """A consumer of Kafka's, asked at these nodes for what its group has committed."""
    addresses = ["{}:{}".format(*node.kafka) for node in nodes if node.kafka is not None]
    return Consumer({"bootstrap.servers": ",".join(addresses), "group.id": "ahead"})


def commit_ahead(sites: Sites) -> None:
    """A group has read what did not come to the far site."""
    consumer = group_at(sites.lon)
    consumer.commit(offsets=[TopicPartition("placed", 0, 10 * COUNT)], asynchronous=False)
    consumer.close()


def committed(sites: Sites) -> int:
    """Where the promoted site has it."""
    consumer = group_at(sites.nyc)
    (found,) = consumer.committed([TopicPartition("placed", 0)], timeout=PATIENCE_S)
    consumer.close()
    return found.offset


def written(*sessions: str) -> dict[int, list[bytes]]:
    return {
        partition: [
            b"%s %d" % (session.encode(), number)
            for session in sessions
            for number in range(partition, COUNT, PARTITIONS)
        ]
        for partition in range(PARTITIONS)
    }


def promoted(sites: Sites) -> str:
    """The first site is lost, and the far one goes on: its configuration for clients."""
    for node in sites.lon:
        node.kill()
    looked = sites.promote()
    assert "placed-0: next offset" in looked.stderr
    assert "NOTHING of data groups" not in looked.stderr
    wait_for(lambda: "perhaps only" in sites.confirmed().stderr, "no leader is heard")
    done = sites.confirmed("--first-site-is-down")
    assert done.returncode == 0, done.stderr
    there = str(sites.world.directory / "far.toml")
    known = sites.world.cluster.client_config()
    names = tuple(sorted(each.name for each in sites.nyc))
    own = tuple(each.address for each in sites.nyc)
    Path(there).write_text(to_toml(replace(known, nodes=own, node_names=names)))
    return there


def test_data_groups_are_read_where_a_site_only_reads_and_go_on_there(sites: Sites) -> None:
    ask(sites.world.cluster.client_config(), CreateTopic("placed", PARTITIONS, {}, 2))
    near, config = {each.name for each in sites.nyc}, sites.world.cluster.client_file
    wait_for(
        lambda: all(len(each.readers) == 1 for each in groups(sites, config)),
        "each group has a replica to be read from in the far site",
    )
    for each in groups(sites, config):
        assert set(each.readers) <= near
        assert near.isdisjoint(each.members), "nobody there has one that votes"
    publish(sites, "before", sites.client)

    def far() -> dict[str, bytes]:
        return {name: data for node in sites.nyc for name, data in logs(node).items()}

    def home() -> dict[str, bytes]:
        return {name: data for node in sites.lon for name, data in logs(node).items()}

    wait_for(lambda: len(home()) == PARTITIONS and far() == home(), "the far site has all bytes")
    for node in sites.nyc:
        found = [*Path(node.data).glob("groups/*/sessions/**/log.*")]
        assert not found, "no session's bytes cross the line"
    wait_for(lambda: sent_to(sites) <= ports(sites.nyc), "Kafka's consumers are sent to their site")
    assert read(sites, "", "near", COUNT) == written("before")
    before = sent_to(sites)
    gone = next(each for each in sites.nyc if ports([each]) <= before)
    gone.kill()
    wait_for(lambda: sent_to(sites).isdisjoint(ports([gone])), "nobody is sent to who is away")
    gone.start()
    wait_for(lambda: sent_to(sites) == before, "they are sent there again")
    test_promotion.publish(sites, "everywhere", sites.client)
    wait_for(sites.has_all, "the far site lacks nothing, and says so")
    for node in sites.nyc:
        found = [*Path(node.data, "sessions").rglob("log.*")]
        assert not found, "though publishers are told of its nodes"

    commit_ahead(sites)
    wait_for(sites.has_all, "the far site knows of it")
    there = promoted(sites)
    wait_for(lambda: voters(sites, there) == near, "both vote")
    wait_for(
        lambda: all(set(each.members) == near for each in groups(sites, there)),
        "each group goes on, and gets another copy there",
    )
    end = COUNT // PARTITIONS
    assert committed(sites) == end, "the group takes what comes from there on"
    text = f"ahead in placed-0 from {10 * COUNT} to {end}"
    assert text in str(sites.samelog("status", config=there))
    publish(sites, "after", there)
    assert read(sites, there, "after", 2 * COUNT) == written("before", "after")
