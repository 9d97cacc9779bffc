"""Batches that are longer than a frame, through a whole cluster: merged, and copied."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from samelog import Publisher, Subscriber
from samelog.admin.answers import NodeState
from samelog.cli.local_cluster import ClusterOptions, LocalCluster
from samelog.config.schema.render import to_toml
from samelog.sequencer.node import Node
from samelog.sequencer.state.tables.topics import CreateTopicCommand
from tests.patience import PATIENCE_S
from tests.sequencer.cluster import InLoop, make_node, merged, until

LONGEST = 64 << 20
LONG = [b"a" * (20 << 20), b"b" * (LONGEST - 100), b"c" * (9 << 20)]
SMALL = [b"%d" % number for number in range(200)]


def publish(config: str, path: Path) -> None:
    """Long records in one topic, and small ones in another."""
    with Publisher(
        "long", session="s", directory=str(path), config=config, max_record_bytes=LONGEST
    ) as publisher:
        for record in LONG:
            publisher.append(record)
            for value in SMALL:
                publisher.append(value, topic="small")
        publisher.wait_merged(PATIENCE_S)


def read(config: str, path: Path, topic: str, count: int) -> list[bytes | None]:
    found: list[bytes | None] = []
    with Subscriber(topic, directory=str(path), config=config) as subscriber:
        for record in subscriber:
            found.append(record.value)
            if len(found) == count:
                return found
    return found


def with_nodes(
    path: Path, count: int, body: Callable[[LocalCluster, list[Node]], Any], in_loop: InLoop
) -> None:
    """Nodes that take the longest records."""
    cluster = LocalCluster(str(path), ClusterOptions(nodes=count))
    cluster.prepare()
    Path(cluster.client_file).write_text(to_toml(cluster.client_config()))
    nodes = [make_node(path, count, number, max_record_bytes=LONGEST) for number in range(count)]

    async def main() -> None:
        for node in nodes:
            await node.start()
        try:
            await until(
                lambda: all(node.member.status.state is NodeState.LIVE for node in nodes), "Live"
            )
            await body(cluster, nodes)
        finally:
            for node in nodes:
                await node.stop()

    in_loop(main())


def test_long_batches_are_merged_and_copied_whole(tmp_path: Path, in_loop: InLoop) -> None:
    async def body(cluster: LocalCluster, nodes: list[Node]) -> None:
        for topic in ("long", "small"):
            await nodes[0].raft.proposer.propose(CreateTopicCommand(f"{topic}-id", topic, 1, {}, 0))
        await asyncio.to_thread(publish, cluster.client_file, tmp_path / "pub")
        for topic, values in (("long", LONG), ("small", SMALL * len(LONG))):
            found = await asyncio.to_thread(
                read, cluster.client_file, tmp_path / "sub", topic, len(values)
            )
            assert found == values

        def are_same() -> bool:
            return len({merged(node, "long") for node in nodes}) == 1

        await until(are_same, "the same merged logs everywhere")

    with_nodes(tmp_path, 3, body, in_loop)
