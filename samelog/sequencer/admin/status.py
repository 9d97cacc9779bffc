"""What a node says of itself and the cluster when asked.

Invariant: reading the status changes nothing and reads no disk.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

from samelog.admin.answers import EventInfo, NodeInfo, NodeState, Resources, Status
from samelog.admin.requests import GetElections, GetRaftStatus, GetStatus
from samelog.admin.views import Election, Elections, RaftMember, RaftStatus
from samelog.format.steps import StepWork
from samelog.runtime.descriptors import descriptors, open_descriptors, shortage
from samelog.runtime.resources import memory, threads
from samelog.sequencer.admin.parts import ServedNode, groups_here, parts_of
from samelog.sequencer.admin.placement import warnings_of
from samelog.sequencer.admin.sessions import (
    damaged_records,
    held_records,
    inputs_by_session,
    session_info,
)
from samelog.sequencer.admin.topics import partition_info
from samelog.sequencer.judging import libraries
from samelog.sequencer.parts import LogParts, RaftParts, phase_of
from samelog.sequencer.parts import troubles as replica_troubles
from samelog.sequencer.state.tables.members import Member
from samelog.wire.peer_messages import LacksLibraries, MemberState

TEXT_CHARACTERS = 1000
SESSIONS_NAMED = 5
UNKNOWN = -1
NOT_READY_STATES = {
    NodeState.OFFLINE: "the node has stopped",
    NodeState.INITIALIZING: "the node is starting",
    NodeState.SYNCING: "the node catches up with the cluster",
}


def cluster_status(node: ServedNode, request: GetStatus) -> StepWork[Status]:
    """The cluster as this node sees it."""
    state, partitions, sessions = node.logs.machine.state, [], []
    inputs = yield from inputs_by_session(node)
    for number in tuple(state.partitions.by_number):
        if number in node.logs.machine.state.partitions.by_number and parts_of(node, number):
            partitions.append(partition_info(node, number))
        yield
    held, damaged = held_records(node), damaged_records(node)
    for session in tuple(state.sessions.by_name.values()):
        name = session.name
        entries = [each for each in inputs[name] if each.is_there]
        told = held.get(name, ()), damaged.get(name, ())
        sessions.append(session_info(session, entries, *told))
        yield
    raft, state, members = node.raft.group.raft, node.logs.machine.state, node.peers.members
    return Status(
        cluster=node.member.config.cluster,
        node=node.member.config.name,
        leader=None if raft.leader is None else members.name(raft.leader),
        term=raft.term,
        commit_index=raft.commit_index,
        nodes=tuple(node_info(node, member) for member in members.all.values()),
        partitions=tuple(partitions),
        sessions=tuple(sessions),
        events=tuple(EventInfo(e.at_ms, e.kind, e.text) for e in state.events.remembered),
        resources=own_resources(),
        warnings=warnings_of(node),
    )


def own_resources() -> Resources:
    """What this process uses, and its limits."""
    known = descriptors()
    return Resources(open_descriptors(), known.clients_below, known.limit, *memory(), *threads())


def node_info(node: ServedNode, member: Member) -> NodeInfo:
    """One member, in its own words; only maintenance is what an operator says of it."""
    if member.number == node.peers.number:
        said, age_s = own_state(node), 0.0
    else:
        said, age_s = node.peers.presence.said(member.number, node.member.clock.now())
    until_ms = node.logs.machine.state.members.maintenance.get(member.name, 0)
    in_maintenance = until_ms > node.member.clock.wall_ms()
    return NodeInfo(
        member.name,
        member.address,
        NodeState.MAINTENANCE if in_maintenance else NodeState(said.state),
        said.detail,
        said.boot,
        said.applied_index,
        said.role,
        member.number,
        member.voter,
        until_ms,
        said.not_ready,
        round(age_s, 3),
        node.logs.machine.state.members.host_of(member.number),
        node.peers.changes.stands_by(member.number),
    )


def tell_state(node: ServedNode) -> None:
    """Say to the other members what this node says of itself."""
    node.peers.links.send_all(own_state(node))
    if lacks := libraries.lacking():
        node.peers.links.send_all(LacksLibraries(lacks))


def own_state(node: ServedNode) -> MemberState:
    """What this node says of itself, to whoever asks and to the other members."""
    return MemberState(
        cast(Any, node.member.status.state.value),
        not_ready(node),
        _detail(node),
        _own_role(node),
        node.member.directory.record.boot,
        node.raft.replica.applied_index,
        node.raft.upgrade.supported,
        node.peers.presence.is_cut_off,
    )


def not_ready(node: ServedNode) -> str:
    """Why this node cannot do all its work; empty if it can."""
    status, raft = node.member.status, node.raft.group.raft
    if status.is_stopping:
        return "the node stops"
    if halted := node.raft.group.halted:
        return f"its replica is halted: {halted}"
    counts_not = _counts_not(node) if node.peers.number in raft.voters else ""
    if status.state in NOT_READY_STATES:
        return NOT_READY_STATES[status.state] + (counts_not and f", and {counts_not}")
    if raft.leader is None:
        return "no leader is known"
    if stopped := node.logs.intake.stopped:
        return f"it accepts no records: {stopped}"
    return counts_not and f"the node {counts_not}"


def _counts_not(node: ServedNode) -> str:
    """That a node counts for nothing, and until when; empty if it counts."""
    raft = node.raft.group.raft
    if raft.may_vote:
        return ""
    if raft.voters == (node.peers.number,):
        return "counts for nothing, as nobody can let it in: samelog recover majority-lost"
    return "counts for nothing until the others let it in"


def _detail(node: ServedNode) -> str:
    """Sentences on what is wrong or takes long."""
    texts = *_phases(node), trouble(node), node.care.archive.copies.progress
    return "; ".join(filter(None, texts))[:TEXT_CHARACTERS]


def _phases(node: ServedNode) -> Iterator[str]:
    """How far this node's replicas are that catch up."""
    if node.member.status.state is NodeState.SYNCING:
        yield f"Syncing: {phase_of(node.logs, node.raft) or 'live'}"
    for number, logs, raft in node.data_groups.here:
        if phase := phase_of(logs, raft):
            yield f"Syncing group {number}: {phase}"


def trouble(node: ServedNode) -> str:
    """What is wrong with this node, in words; empty if nothing is."""
    archive, troubles = node.care.archive, list(_raft_troubles(node))
    troubles += replica_troubles(node.logs, node.raft, node.care)
    troubles += node.data_groups.troubles
    troubles += _held_up(node)
    if node.member.status.config_problem:
        troubles.append(f"configuration refused: {node.member.status.config_problem}")
    if site_trouble := node.peers.whereabouts.trouble:
        troubles.append(site_trouble)
    if archive.policy.problem:
        troubles.append(f"archiving policy refused: {archive.policy.problem}")
    if lack := shortage():
        troubles.append(lack)
    if others := archive.disagreements():
        troubles.append(f"archiving policies differ: {', '.join(others)}")
    return "; ".join(troubles)[:TEXT_CHARACTERS]


def _held_up(node: ServedNode) -> Iterator[str]:
    """Of the leader of group 0: which data groups keep runs from being closed."""
    if not node.raft.group.is_leader:
        return
    for group, sessions in sorted(node.raft.coordinator.closer.held_up.items()):
        names = ", ".join(sessions[:SESSIONS_NAMED])
        more = f" and {len(sessions) - SESSIONS_NAMED} more" * (len(sessions) > SESSIONS_NAMED)
        yield (
            f"data group {group} has not closed its part of runs that have ended: newer runs of "
            f"{names}{more} wait for it (samelog placement: does it have a leader?)"
        )


def _raft_troubles(node: ServedNode) -> Iterator[str]:
    raft, halted = node.raft.group.raft, node.raft.group.halted
    if halted:
        yield f"halted: {halted}"
    for number, index in raft.trust.ahead.items():
        name, last = node.peers.members.name(number), raft.last_index
        yield f"{name} acknowledged entry {index} of {last}: a majority forgot the rest"
    if suspicion := node.member.directory.record.suspicion:
        yield f"{_counts_not(node) or 'counts again'}: {suspicion}"
    if raft.is_beginning and raft.leader is None:
        yield "its cluster begins when all voters are there"
    if raft.is_doubtful:
        yield "may lack entries that it acknowledged before its host went down"


def _own_role(node: ServedNode) -> str:
    own = node.peers.members.all.get(node.peers.number)
    return "learner" if own is not None and not own.voter else node.raft.group.raft.role.value


def raft_status(node: ServedNode, request: GetRaftStatus) -> RaftStatus:
    """How the Raft group is, as this node sees it."""
    raft, members = node.raft.group.raft, node.peers.members
    return RaftStatus(
        raft.role.value,
        raft.term,
        None if raft.leader is None else members.name(raft.leader),
        raft.may_vote,
        raft.first_index,
        raft.last_index,
        raft.durable_index,
        raft.commit_index,
        node.raft.replica.applied_index,
        tuple(_raft_member(node, number) for number in members.all),
        node.member.config.name,
    )


def _raft_member(node: ServedNode, number: int) -> RaftMember:
    group, member = node.raft.group, node.peers.members.all[number]
    own, known = number == node.peers.number and group.is_leader, group.raft.progress(number)
    match = group.raft.durable_index if own else UNKNOWN if known is None else known.match
    return RaftMember(
        member.name,
        number,
        member.address,
        member.voter,
        node.peers.presence.is_there(number),
        match,
        "" if known is None else known.state.name.lower(),
    )


def elections(node: ServedNode, request: GetElections) -> Elections:
    """The newest elections that this node has seen."""
    members = node.peers.members
    seen = node.raft.group.newest_elections
    return Elections(tuple(Election(e.at_ms, e.term, members.name(e.leader), e.why) for e in seen))


def records_lacked(node: ServedNode, member: int) -> int | None:
    """Committed records that a member has not merged durably, in groups that both have; None: of
    none of these is that known here.
    """
    found = [_lacked(node, member, *parts) for parts in groups_here(node)]
    known = [each for each in found if each is not None]
    return sum(known) if known else None


def _lacked(node: ServedNode, member: int, logs: LogParts, raft: RaftParts) -> int | None:
    ends = {
        number: each.next_offset for number, each in logs.machine.state.partitions.by_number.items()
    }
    view = raft.coordinator.views.get(member)
    if member == node.peers.number:
        durable: Mapping[int, int] = logs.merging.merged_durable(ends)
    elif view is not None and view.merged_durable:
        durable = view.merged_durable
    else:
        return None
    return sum(max(0, end - durable.get(number, 0)) for number, end in ends.items())
