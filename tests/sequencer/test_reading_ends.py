"""Where readers end at a node that lags: everything acknowledged before they began is in it."""

from __future__ import annotations

import asyncio
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from samelog import Subscriber
from samelog.cli.local_cluster import ClusterOptions, LocalCluster
from samelog.config.schema.render import to_toml
from samelog.config.tables.client import ClientConfig
from samelog.sequencer.merge.merged_partition import MergedPartition
from samelog.sequencer.node import Node
from samelog.spark.logs.nodes import Nodes, RemoteLogs
from tests.patience import PATIENCE_S
from tests.sequencer.cluster import RunWith, Session, batch, leader_of, offset, until

ACKNOWLEDGED = [b"1", b"2", b"3", b"4", b"5", b"6", b"7", b"8", b"9"]
HELD_FROM = 5


class Lagging:
    """A follower that merges nothing more of its only partition, until it is let go on."""

    def __init__(self, node: Node) -> None:
        self.node = node
        [(self.number, self.partition)] = node.logs.merging.partitions.items()

    def hold(self) -> MergedPartition:
        """As if its disk were full."""
        self.partition.waits_for_room = True
        return self.partition

    def go_on(self) -> None:
        """There is room."""
        self.node.logs.merging._try_again(self.number)


async def lagging(nodes: list[Node]) -> Lagging:
    """A follower whose log ends at 5 while 9 records are merged durably on a majority."""
    session, leader = Session("a"), await leader_of(nodes)
    await session.send(nodes, batch(*ACKNOWLEDGED[:HELD_FROM]))
    await until(lambda: all(offset(node) == HELD_FROM for node in nodes), "5 everywhere")
    held = Lagging(next(node for node in nodes if node is not leader))
    partition = held.hold()
    await session.send(nodes, batch(*ACKNOWLEDGED[HELD_FROM:]))
    cursors = leader.raft.coordinator.cursors
    await until(lambda: cursors.get(held.number) == len(ACKNOWLEDGED), "9 acknowledged")
    assert partition.log.next_offset == HELD_FROM
    return held


def client_of(path: Path, node: Node) -> ClientConfig:
    """Knows this node only."""
    cluster = LocalCluster(str(path), ClusterOptions(nodes=3))
    cluster.prepare()
    config = node.member.config
    return replace(cluster.client_config(), nodes=(config.advertise,), node_names=(config.name,))


def test_a_reader_gets_all_that_was_acknowledged(tmp_path: Path, run_with: RunWith) -> None:
    read: list[bytes | None] = []

    def read_all(config: ClientConfig) -> None:
        with Subscriber(
            "t", directory=tmp_path / "copies", config=config, start="earliest", follow=False
        ) as subscriber:
            read.extend(record.value for record in subscriber)

    async def body(nodes: list[Node]) -> None:
        held = await lagging(nodes)
        config = client_of(tmp_path, held.node)
        reading = asyncio.create_task(asyncio.to_thread(read_all, config))
        await until(lambda: len(read) >= HELD_FROM or reading.done(), "what the node has")
        held.go_on()
        await reading
        assert read == ACKNOWLEDGED

    run_with(tmp_path, 3, body)


def test_a_batch_query_ends_where_the_cluster_does(tmp_path: Path, run_with: RunWith) -> None:
    def ends(config: ClientConfig) -> list[int]:
        path = tmp_path / "client.toml"
        path.write_text(to_toml(config))
        with closing(RemoteLogs(Nodes(str(path), timeout_s=PATIENCE_S))) as logs:
            return [bounds.end for bounds in logs.topic_states(["t"])["t"].partitions.values()]

    async def body(nodes: list[Node]) -> None:
        held = await lagging(nodes)
        config = client_of(tmp_path, held.node)
        assert await asyncio.to_thread(ends, config) == [len(ACKNOWLEDGED)]
        held.go_on()

    run_with(tmp_path, 3, body)
