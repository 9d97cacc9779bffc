"""How a node becomes Live after its start: first it takes part in Raft and takes data in, then it
knows what was committed, then it has executed that; what it still lacks of history comes last.

Invariant: positions are stated to others only once this node has applied what was committed before
it started (invariants.md, rule 14).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING

from samelog.admin.answers import NodeState
from samelog.sequencer.state.commands import NodeStarted

if TYPE_CHECKING:
    from samelog.sequencer.node import Node

RETRY_S = 0.1
LOOK_S = 0.05


async def come_up(node: Node) -> None:
    """Become Live: applied and executed up to what was committed when the node started."""
    node.status.state = NodeState.SYNCING
    # A look now and then is all these waits need: nobody is told when they end.
    while (index := await node.group.read_index()) is None:  # noqa: ASYNC110
        await asyncio.sleep(RETRY_S)
    await node.replica.wait_applied(index)
    node.replica.forget_deleted()
    node.sessions.set_gaps_aside()
    partitions = node.replica.machine.state.partitions
    wanted = {number: partition.next_offset for number, partition in partitions.items()}
    node.reporter.state_all()
    while not _executed(node, wanted):  # noqa: ASYNC110
        await asyncio.sleep(LOOK_S)
    for service in node.services:
        await service.start()
    node.status.state = NodeState.LIVE
    await _record_boot(node)


def _executed(node: Node, wanted: Mapping[int, int]) -> bool:
    partitions = node.merging.partitions
    return all(
        number not in partitions or partitions[number].log.next_offset >= offset
        for number, offset in wanted.items()
    )


async def _record_boot(node: Node) -> None:
    """Let the cluster remember this boot, however long there may be no leader."""
    command = NodeStarted(node.config.name, node.directory.record.boot, node.number)
    while True:
        try:
            await node.proposer.propose(command)
        except TimeoutError:
            continue
        return
