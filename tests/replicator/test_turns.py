"""No native message takes a long turn of a node's event loop, however many come at once.

Counted in calls, on a whole node in this process, over TLS: a client in another thread sends as
many messages of a kind as a socket's read has room for, each as long as it may be.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from samelog.cli.local_cluster import ClusterOptions, LocalCluster
from samelog.sequencer.node import Node
from samelog.sequencer.state.commands import CreateTopicCommand
from tests.kafka.test_turns import BOUND, Turns
from tests.replicator.worst import PARTITIONS, TOPIC, worst_messages
from tests.sequencer.cluster import RunWith

SENT_BYTES = 64 << 10


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
