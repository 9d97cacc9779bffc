"""Resets that an administrator orders for the whole cluster.

Invariant: a reset is one committed command, so that all nodes do the same at the same place in the
Raft log, those that are away when they come back; asked twice with one id it is done once.
"""

from __future__ import annotations

import uuid

from msgspec import UNSET

from samelog.admin import requests
from samelog.admin.answers import ClusterReset, ResetTopic
from samelog.consensus import NotLeader
from samelog.sequencer.admin.parts import ServedNode
from samelog.sequencer.cluster.changes import ChangeRefused
from samelog.sequencer.state.command_base import Rejection
from samelog.sequencer.state.tables.resets import HardReset, ResetCommand, SoftReset
from samelog.wire.errors import FaultCode


async def reset_cluster(node: ServedNode, request: requests.ResetCluster) -> ClusterReset:
    """Have it committed. Raises ChangeRefused, NotLeader or TimeoutError."""
    group, replica = node.raft.group, node.raft.replica
    if not group.is_leader:
        raise NotLeader(group.raft.leader)
    now_ms = node.member.clock.wall_ms()
    reset_id = uuid.uuid4().hex if request.reset_id is UNSET else request.reset_id
    command: ResetCommand = (
        HardReset(reset_id, now_ms, group.raft.term)
        if request.hard
        else SoftReset(reset_id, now_ms)
    )
    outcome = await node.raft.proposer.propose(command)
    if isinstance(outcome, Rejection) and outcome.code != "RESET_DONE":
        raise ChangeRefused(FaultCode.OUT_OF_RANGE, outcome.message)
    topics = node.logs.machine.state.topics.by_id.values() if request.hard else ()
    return ClusterReset(
        replica.applied_index, tuple(ResetTopic(each.name, each.log_id) for each in topics)
    )
