"""Answers administrators about the membership: add, remove, readmit, move leadership, maintenance.

Only the leader changes the membership; other nodes name it. Invariant: what is answered with
success is committed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from samelog.config.values import parse_address
from samelog.consensus import NotLeader
from samelog.sequencer.cluster.changes import ChangeRefused
from samelog.sequencer.state.commands import SetMaintenance
from samelog.sequencer.state.types import Rejection
from samelog.wire import admin
from samelog.wire.errors import FaultCode

if TYPE_CHECKING:
    from samelog.sequencer.node import Node

MembershipRequest = (
    admin.AddNode
    | admin.RemoveNode
    | admin.ReadmitNode
    | admin.MoveLeadership
    | admin.SetMaintenance
)


def leader_hint(node: Node, number: int | None) -> admin.NotLeader:
    """Whom to ask instead."""
    member = None if number is None else node.members.all.get(number)
    if member is None or member.number == node.number:
        return admin.NotLeader(None, None)
    return admin.NotLeader(member.name, member.address)


async def serve_membership(node: Node, request: MembershipRequest) -> admin.AdminResponse:
    """Do what is asked. Raises ChangeRefused, NotLeader or TimeoutError."""
    if isinstance(request, admin.SetMaintenance):
        return await _set_maintenance(node, request)
    if not node.group.is_leader:
        raise NotLeader(node.group.raft.leader)
    match request:
        case admin.AddNode(name, address, promote, replaces):
            if parse_address(address) is None:
                raise ChangeRefused(FaultCode.OUT_OF_RANGE, f"{address!r} is no HOST:PORT")
            added = await node.changes.add(name, address, promote=promote, replaces=replaces)
            return admin.NodeAdded(added.name, added.number)
        case admin.RemoveNode(name):
            removed = await node.changes.remove(name)
            return admin.NodeRemoved(removed.name, removed.number)
        case admin.ReadmitNode(name):
            readmitted = await node.changes.readmit(name)
            return admin.NodeAdded(readmitted.name, readmitted.number)
        case admin.MoveLeadership(to):
            return admin.LeadershipMoved(await node.changes.transfer(to))


async def _set_maintenance(node: Node, request: admin.SetMaintenance) -> admin.MaintenanceSet:
    until_ms = node.clock.wall_ms() + 1000 * request.seconds if request.seconds else 0
    outcome = await node.proposer.propose(SetMaintenance(request.node, until_ms))
    if isinstance(outcome, Rejection):
        raise ChangeRefused(FaultCode.NOT_A_MEMBER, outcome.message, "samelog node list")
    return admin.MaintenanceSet(request.node, until_ms)
