"""An administrator begins something anew in the whole cluster.

Invariant: a reset is one committed command, so that all nodes do the same at the same place in the
Raft log, those that are away when they come back; asked twice with one id it is done once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from samelog.consensus import NotLeader
from samelog.sequencer.state.reset_commands import HardReset, ResetCommand, SoftReset
from samelog.wire import admin

if TYPE_CHECKING:
    from samelog.sequencer.node import Node


async def reset_cluster(node: Node, request: admin.ResetCluster) -> admin.ClusterReset:
    """Do what is asked. Raises NotLeader or TimeoutError."""
    if not node.group.is_leader:
        raise NotLeader(node.group.raft.leader)
    now_ms = node.clock.wall_ms()
    command: ResetCommand = (
        HardReset(request.reset_id, now_ms, node.group.raft.term)
        if request.hard
        else SoftReset(request.reset_id, now_ms)
    )
    await node.proposer.propose(command)  # rejected only if it is done
    state = node.replica.machine.state
    topics = tuple(admin.ResetTopic(each.name, each.log_id) for each in state.topics.values())
    return admin.ClusterReset(node.replica.applied_index, topics if request.hard else ())


def carry_out(node: Node, command: ResetCommand) -> None:
    """One is applied here."""
    if isinstance(command, SoftReset):
        node.snapshotter.begin_anew()
    else:
        node.coordinator.logs_begun_anew()
        node.reporter.state_again()
