"""Real processes: a cluster grows from one node to three, and its topics from one copy to three,
while records are published.
"""

from __future__ import annotations

from pathlib import Path

from samelog.admin.client import ask
from samelog.admin.placement_requests import AlterCluster, GetPlacement
from samelog.admin.requests import CreateTopic, GetStatus
from samelog.cli.local_cluster import ClusterOptions, LocalCluster
from tests.e2e.harness import World, wait_for
from tests.e2e.test_membership import samelog, writing

PAIR = "losing one of its nodes loses no record, but stops writes until it is back"


def copies(world: World, topic: str) -> set[int]:
    """How many copies each partition has that count."""
    found = ask(world.cluster.client_config(), GetPlacement())
    whole = {each.group: each.voters for each in found.groups}
    return {whole[each.group] for each in found.partitions if each.topic == topic}


def warnings(world: World) -> tuple[list[str], list[str]]:
    """What status and placement warn of."""
    config = world.cluster.client_config()
    status, placement = ask(config, GetStatus()), ask(config, GetPlacement())
    return [*status.warnings], [*placement.warnings]


def test_topics_get_the_copies_that_they_lack_while_they_are_written(
    tmp_path: Path, starts_nodes: None
) -> None:
    with LocalCluster(str(tmp_path / "cluster"), ClusterOptions(nodes=1)) as cluster:
        cluster.prepare()
        cluster.start()
        world, config = World(cluster, tmp_path), cluster.client_config()
        ask(config, AlterCluster(3))
        made = ask(config, CreateTopic("t", 1, {}))
        assert made.copies == 3
        assert "with one copy" in made.warnings[0]
        with writing(world) as writer:
            assert copies(world, "t") == {1}
            assert warnings(world) == ([], [])
            join(world)
            wait_for(lambda: copies(world, "t") == {2}, "a second copy")
            for said in warnings(world):
                assert any("two voters" in each and PAIR in each for each in said), said
            assert "losing one node loses no record, but stops writes" in made_now(world, "on-two")
            join(world)
            wait_for(lambda: copies(world, "t") == {3}, "a third copy")
            wait_for(lambda: warnings(world) == ([], []), "no warning")
            before = writer.count
            wait_for(lambda: writer.count > before + 50, "more records")
        count = writer.count
        wanted = [b"%07d" % number for number in range(count)]
        assert [record.value for record in world.read(count)] == wanted


def join(world: World) -> None:
    node = world.cluster.join()
    node.start()
    samelog(world, "node", "add", node.name, str(node.address), "--wait", "60")


def made_now(world: World, topic: str) -> str:
    """What a new topic warns of."""
    return " ".join(ask(world.cluster.client_config(), CreateTopic(topic, 1, {})).warnings)
