"""Answers administrators about the feature level.

Invariant: it is raised by an entry, which every node checks, and never falls.
"""

from __future__ import annotations

from samelog.admin import requests
from samelog.admin.answers import LevelRaised, UpgradeStatus
from samelog.consensus import NotLeader
from samelog.sequencer.admin.parts import ServedNode
from samelog.sequencer.cluster.changes import ChangeRefused
from samelog.sequencer.state.command_base import Rejection
from samelog.sequencer.state.tables.members import RaiseLevel
from samelog.wire.errors import FaultCode

REMEDY = "samelog cluster upgrade --status"


def upgrade_status(node: ServedNode, request: requests.GetUpgrade) -> UpgradeStatus:
    """As this node sees it."""
    return node.raft.upgrade.status()


async def finalize_upgrade(node: ServedNode, request: requests.FinalizeUpgrade) -> LevelRaised:
    """Have the newest level committed. Raises ChangeRefused, NotLeader or TimeoutError."""
    if not node.raft.group.is_leader:
        raise NotLeader(node.raft.group.raft.leader)
    now = node.raft.upgrade.status()
    if now.waits_for:
        raise ChangeRefused(FaultCode.CHANGE_PENDING, "; ".join(now.waits_for), REMEDY)
    if now.newest > now.level:
        command = RaiseLevel(now.level, now.newest, node.member.clock.wall_ms())
        outcome = await node.raft.proposer.propose(command)
        if isinstance(outcome, Rejection) and node.raft.replica.level < now.newest:
            raise ChangeRefused(FaultCode.CHANGE_PENDING, outcome.message, REMEDY)
    return LevelRaised(node.raft.replica.level, now.level)
