"""Answers administrators about the membership: add, remove, readmit, move leadership, maintenance.

Only the leader changes the membership. Invariant: what is answered with success is committed.
"""

from __future__ import annotations

from msgspec import UNSET

from samelog.admin import requests
from samelog.admin.answers import LeadershipMoved, MaintenanceSet, NodeAdded, NodeRemoved
from samelog.config.values import parse_address
from samelog.consensus import NotLeader
from samelog.placement.operations import check_readmission, check_removal
from samelog.placement.tasks import PlacementRefused
from samelog.sequencer.admin.parts import ServedNode
from samelog.sequencer.admin.tasks import names_meant, refused
from samelog.sequencer.cluster.changes import ChangeRefused, Changes
from samelog.sequencer.state.command_base import Rejection
from samelog.sequencer.state.tables.members import SetMaintenanceCommand
from samelog.wire.errors import FaultCode


async def add_node(node: ServedNode, request: requests.AddNode) -> NodeAdded:
    """Raises ChangeRefused, NotLeader or TimeoutError, as all of these do."""
    changes = _as_leader(node)
    if parse_address(request.address) is None:
        raise ChangeRefused(FaultCode.OUT_OF_RANGE, f"{request.address!r} is no HOST:PORT")
    replaces = None if request.replaces is UNSET else request.replaces
    added = await changes.add(
        request.node, request.address, promote=request.promote, replaces=replaces
    )
    return NodeAdded(added.name, added.number)


async def remove_node(node: ServedNode, request: requests.RemoveNode) -> NodeRemoved:
    """Have a member removed."""
    changes = _as_leader(node)
    try:
        check_removal(node.placing.look(), request.node)
    except PlacementRefused as error:
        raise refused(error) from error
    removed = await changes.remove(request.node)
    return NodeRemoved(removed.name, removed.number)


async def readmit_node(node: ServedNode, request: requests.ReadmitNode) -> NodeAdded:
    """Have a member that lost its directory take part again, under a new number."""
    changes, lives = _as_leader(node), node.peers.lives.met
    members = node.logs.machine.state.members.by_number
    sure = {members[n].name for n, life in lives.items() if life.is_sure and n in members}
    try:
        check_readmission(node.placing.look(), request.node, has_all=request.node in sure)
    except PlacementRefused as error:
        raise refused(error) from error
    readmitted = await changes.readmit(request.node)
    return NodeAdded(readmitted.name, readmitted.number)


async def move_leadership(node: ServedNode, request: requests.MoveLeadership) -> LeadershipMoved:
    """Let another node lead."""
    to = None if request.to is UNSET else request.to
    return LeadershipMoved(await _as_leader(node).transfer(to))


async def set_maintenance(
    node: ServedNode, request: requests.SetMaintenance | requests.SetHostMaintenance
) -> MaintenanceSet:
    """Any node can have this committed."""
    now_ms = node.member.clock.wall_ms()
    until_ms = now_ms + 1000 * request.seconds if request.seconds else 0
    names = names_meant(node, request)
    outcome = await node.raft.proposer.propose(SetMaintenanceCommand(names, until_ms))
    if isinstance(outcome, Rejection):
        raise ChangeRefused(FaultCode.NOT_A_MEMBER, outcome.message, "samelog node list")
    return MaintenanceSet(tuple(names), until_ms)


def _as_leader(node: ServedNode) -> Changes:
    """Raises NotLeader."""
    if not node.raft.group.is_leader:
        raise NotLeader(node.raft.group.raft.leader)
    return node.peers.changes
