"""Whole nodes in one event loop, over real TLS and files; their intake is driven directly."""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import uvloop

from samelog.admin.answers import NodeState
from samelog.cli.local_cluster import ClusterOptions, LocalCluster
from samelog.config.load import load_node
from samelog.config.tables.node import NodeConfig, NodePace, PeerConfig
from samelog.config.tables.shared import TlsFiles
from samelog.config.values import Address
from samelog.format import _kernels as kernels
from samelog.format.dedup import dedup_producer_id
from samelog.runtime.clock import SystemClock
from samelog.runtime.network.tls import ReloadingContext
from samelog.sequencer.cluster.joining import find_place
from samelog.sequencer.host import NodeResources
from samelog.sequencer.node import Node
from samelog.store.disk.files import OsFileSystem
from tests import tiers
from tests.patience import PATIENCE_S

SNAPSHOT_INTERVAL_S = 0.5
STOP_S = 10.0

RunWith = Callable[[Path, int, Callable[[list[Node]], Awaitable[None]]], None]
InLoop = Callable[[Coroutine[Any, Any, None]], None]

_made: list[Node] = []
"""By the test that runs."""


def run_with(path: Path, count: int, body: Callable[[list[Node]], Awaitable[None]]) -> None:
    """Run `body` with `count` started nodes, and stop them; a test gets this as a fixture."""

    async def main() -> None:
        nodes = make_nodes(path, count)
        for node in nodes:
            await node.start()
        try:
            await until(
                lambda: all(node.member.status.state is NodeState.LIVE for node in nodes),
                "all Live",
            )
            await body(nodes)
        finally:
            for node in nodes:
                if node.member.status.state is not NodeState.OFFLINE:
                    await node.stop()

    in_loop(main())


def in_loop(main: Coroutine[Any, Any, None]) -> None:
    """Run it on the loop that nodes have: asyncio's own forgets a socket that it has just accepted
    when the server closes.
    """
    tiers.require("starts_nodes")

    async def and_end() -> None:
        """A loop does not close while a node of a test that failed still runs on it."""
        _made.clear()
        try:
            await main
        except BaseException as failure:
            stops = [asyncio.wait_for(node.stop(), STOP_S) for node in _made]
            for error in await asyncio.gather(*stops, return_exceptions=True):
                if error is not None:
                    failure.add_note(f"a node did not stop: {error!r}")
            raise

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(and_end())


def make_nodes(path: Path, count: int) -> list[Node]:
    """Nodes of the cluster in `path`, made if it is new; not started."""
    return [make_node(path, count, number) for number in range(count)]


def make_node(
    path: Path, count: int, number: int, *, bootstrap: bool = True, **changes: Any
) -> Node:
    """One of them."""
    cluster = LocalCluster(str(path), ClusterOptions(nodes=count))
    cluster.prepare()
    config = load_node(cluster.nodes[number].config_file)
    config = replace(config, pace=NodePace(snapshot_interval_s=SNAPSHOT_INTERVAL_S), **changes)
    _made.append(Node(resources(config), bootstrap=bootstrap))
    return _made[-1]


def plain_config(
    path: Path, *, cluster: str = "c", node: str = "n", peers: int = 1, **changes: Any
) -> NodeConfig:
    """Of a node that is never started; it is the first of so many peers."""
    names = [node, *(f"p{number}" for number in range(1, peers))][:peers]
    return NodeConfig(
        name=node,
        cluster=cluster,
        data=str(path),
        listen=Address("a", 1),
        advertise=Address("a", 1),
        tls=TlsFiles(ca="", cert="", key=""),
        peers=tuple(PeerConfig(name=name, address=Address(name, 1)) for name in names),
        **changes,
    )


def resources(config: NodeConfig) -> NodeResources:
    """What a node of this process is given; no two of its lives may draw the same ids."""
    tls = ReloadingContext(config.tls)
    return NodeResources(config, OsFileSystem(), SystemClock(), tls, random.Random())


def _nodes_in(path: Path) -> int:
    return len(list(path.glob("rt-sequencer-*")))


async def join(path: Path, node: Node, *, promote: bool = True, **changes: Any) -> Node:
    """One more node, started with an empty directory, and added at the leader `node`."""
    cluster = LocalCluster(str(path), ClusterOptions(nodes=_nodes_in(path)))
    cluster.prepare()
    config = replace(load_node(cluster.join().config_file), **changes)
    await node.peers.changes.add(config.name, str(config.listen), promote=promote)
    given = resources(config)
    async with asyncio.timeout(PATIENCE_S):
        place = await find_place(config, given.tls)
    joined = Node(given, bootstrap=False, place=place)
    _made.append(joined)
    await joined.start()
    return joined


async def leader_of(nodes: list[Node]) -> Node:
    """The node that leads, once there is one and its member list is written down."""

    def leading() -> list[Node]:
        return [node for node in nodes if node.raft.group.is_leader and node.peers.members.version]

    await until(lambda: bool(leading()), "a leader")
    return leading()[0]


async def until(condition: Callable[[], bool], what: str) -> None:
    """Wait for a condition; fail when it does not hold in time."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + PATIENCE_S
    while not condition():
        if loop.time() > deadline:
            raise AssertionError(f"not within {PATIENCE_S} s: {what}")
        await asyncio.sleep(0.01)


def batch(*values: bytes, dedup_id: str | None = None) -> bytes:
    """Record batches of these values; with a dedup id, the first record is number 0 of it."""
    return kernels.build_batches(
        list(values),
        timestamps=1,
        producer_id=-1 if dedup_id is None else dedup_producer_id(dedup_id),
        base_sequence=-1 if dedup_id is None else 0,
        batch_bytes=1 << 16,
        max_record_bytes=1 << 20,
    )


class Session:
    """A publisher's session, sent by hand to any node."""

    def __init__(self, name: str, topic: str = "t", *, dedup_id: str | None = None) -> None:
        self.name = name
        self.dedup_id = dedup_id
        self.topic = topic
        self.session_id = str(uuid.uuid4())
        self.run_id = uuid.uuid4().hex
        self.data = b""

    async def open(self, node: Node, *, run: int = 0) -> Any:
        """Open the run and the input at a node."""
        await self.open_run(node, run=run)
        return await node.logs.intake.open_input(
            identity="samelog://publisher/x",
            session=self.name,
            run_id=self.run_id,
            topic=self.topic,
            partition=0,
        )

    async def open_run(self, node: Node, *, run: int = 0) -> None:
        """Open the run at a node."""
        await node.logs.intake.open_run(
            identity="samelog://publisher/x",
            session=self.name,
            session_id=self.session_id,
            run=run,
            run_id=self.run_id,
            dedup_id=self.dedup_id,
            dedup_base=None if self.dedup_id is None else 0,
        )

    async def send(self, nodes: list[Node], data: bytes, *, run: int = 0) -> None:
        """Send the next bytes to some nodes."""
        start = len(self.data)
        self.data += data
        for node in nodes:
            opened = await self.open(node, run=run)
            await taken(node.logs.intake.append(opened.input, run, 0, start, data))


async def taken(taking: Coroutine[Any, Any, None] | None) -> None:
    """When an intake has taken what it was given."""
    if taking is not None:
        await taking


def merged(node: Node, topic: str = "t") -> bytes:
    """A node's merged log."""
    partition = next(p for p in node.logs.merging.partitions.values() if p.topic == topic)
    log = partition.log
    return b"".join(
        log.read(part.base_offset, 0, part.size) for part in log.segments() if part.size
    )


def offset(node: Node, topic: str = "t") -> int:
    """How far a node has merged."""
    found = [p for p in node.logs.merging.partitions.values() if p.topic == topic]
    return found[0].log.next_offset if found else 0
