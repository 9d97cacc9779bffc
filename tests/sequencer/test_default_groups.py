"""Default groups in real nodes: there before topics, at rest, evened out when a node joins."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from samelog.admin.requests import CreateTopic
from samelog.placement.changes import SetDefaultCopies
from samelog.sequencer.admin.topics import create_topic
from samelog.sequencer.node import Node
from tests.sequencer.cluster import RunWith, join, leader_of, until
from tests.sequencer.test_data_groups import led
from tests.sequencer.test_placing import change, groups_of, rests

PARTITIONS = 12


def leaders(nodes: list[Node]) -> dict[int, list[int]]:
    """Who leads each group."""
    numbers = nodes[0].cluster.placement.groups
    return {each: [node.peers.number for node in led(nodes, each)] for each in numbers}


def test_they_exist_before_topics_and_a_node_that_joins_gets_its_share(
    tmp_path: Path, run_with: RunWith
) -> None:
    async def body(nodes: list[Node]) -> None:
        leader = await leader_of(nodes)
        await leader.raft.proposer.until_begun()
        await change(leader, [SetDefaultCopies(3)])
        await until(lambda: sorted(leaders(nodes).values()) == [[0], [1], [2]], "a group for each")
        await until(
            lambda: all(node.data_groups.replicas[1].raft.raft.rests for node in nodes), "rest"
        )
        before = dict(leader.cluster.placement.groups)
        made = await create_topic(leader, CreateTopic("t", PARTITIONS, {}))
        assert made.copies == 3
        assert leader.cluster.placement.groups.keys() == before.keys()
        assert set(Counter(groups_of(leader, "t")).values()) == {PARTITIONS // 3}
        joined = await join(tmp_path, leader)
        try:
            everybody = [*nodes, joined]
            await until(
                lambda: Counter(groups_of(leader, "t")) == dict.fromkeys(range(1, 5), 3),
                "a fourth group, and as many partitions in each",
            )
            await until(lambda: rests(leader), "nothing is left to be done")
            found = sorted(leaders(everybody).values())
            assert found == [[each.peers.number] for each in everybody]
        finally:
            await joined.stop()

    run_with(tmp_path, 3, body)
