"""No native message takes a long turn of a node's event loop, however many come at once.

Counted in calls, on a whole node in this process, over TLS: a client in another thread sends as
many messages of a kind as a socket's read has room for, each as long as it may be.
"""

from __future__ import annotations

import asyncio
import gc
from pathlib import Path

from samelog.cli.local_cluster import ClusterOptions, LocalCluster
from samelog.sequencer.node import Node
from samelog.sequencer.state.tables.topics import CreateTopicCommand
from tests.kafka.test_turns import BOUND, Turns
from tests.replicator.worst import PARTITIONS, TOPIC, worst_messages
from tests.sequencer.cluster import RunWith, until

SENT_BYTES = 64 << 10
GARBAGE = 6_000
"""Objects that a collection may have to free: freeing them takes a few milliseconds. One parsed
expression is 4,500.
"""
TURNS_TO_FORGET = 200


def test_no_message_takes_a_long_turn(tmp_path: Path, run_with: RunWith) -> None:
    turns, found = Turns(), dict[str, int]()

    async def body(nodes: list[Node]) -> None:
        made = CreateTopicCommand("f" * 32, TOPIC, PARTITIONS, {}, 1)
        await nodes[0].raft.proposer.propose(made)
        cluster = LocalCluster(str(tmp_path), ClusterOptions(nodes=1))
        cluster.prepare()
        (address,) = (each.address for each in cluster.nodes)
        place, tls = (address.host, address.port), cluster.client_config().tls
        for worst in worst_messages():
            with turns:
                answers = await asyncio.to_thread(worst.send, place, tls, SENT_BYTES)
            assert answers, worst.name
            found[worst.name] = turns.most

    run_with(tmp_path, 1, body)
    assert not {what: most for what, most in found.items() if most > BOUND}


def test_closed_connections_leave_little_garbage(tmp_path: Path, run_with: RunWith) -> None:
    """The garbage collector frees all that it finds in one turn of the loop."""
    found = dict[str, int]()

    async def body(nodes: list[Node]) -> None:
        made = CreateTopicCommand("f" * 32, TOPIC, PARTITIONS, {}, 1)
        await nodes[0].raft.proposer.propose(made)
        cluster = LocalCluster(str(tmp_path), ClusterOptions(nodes=1))
        cluster.prepare()
        (address,) = (each.address for each in cluster.nodes)
        place, tls = (address.host, address.port), cluster.client_config().tls
        server = nodes[0]._server
        assert server is not None
        for worst in worst_messages():
            gc.collect()
            await asyncio.to_thread(worst.send, place, tls, SENT_BYTES)
            await until(lambda: not server.connections, "closed")
            for _ in range(TURNS_TO_FORGET):
                await asyncio.sleep(0)
            found[worst.name] = gc.collect()

    gc.disable()
    try:
        run_with(tmp_path, 1, body)
    finally:
        gc.enable()
    assert not {what: count for what, count in found.items() if count > GARBAGE}
