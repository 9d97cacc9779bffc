"""What a node says of itself and the cluster when asked.

Invariant: reading the status changes nothing and costs no I/O.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from samelog.sequencer.state.commands import Member
from samelog.sequencer.state.types import Session, Topic
from samelog.wire import admin

if TYPE_CHECKING:
    from samelog.sequencer.node import Node


def status(node: Node) -> admin.Status:
    """The cluster as this node sees it."""
    raft = node.group.raft
    state = node.replica.machine.state
    return admin.Status(
        cluster=node.config.cluster,
        node=node.config.name,
        leader=None if raft.leader is None else node.members.name(raft.leader),
        term=raft.term,
        commit_index=raft.commit_index,
        nodes=tuple(node_info(node, member) for member in node.members.all.values()),
        partitions=tuple(partition_info(node, number) for number in state.partitions),
        sessions=tuple(session_info(node, session) for session in state.sessions.values()),
        events=tuple(admin.EventInfo(e.at_ms, e.kind, e.text) for e in state.events),
    )


def node_info(node: Node, member: Member) -> admin.NodeInfo:
    """One member; of the others, only whether they are connected is known here."""
    view = node.coordinator.views.get(member.number)
    connected = view is not None and view.connected
    own = member.number == node.number
    until_ms = node.replica.machine.state.maintenance.get(member.name, 0)
    if own:
        state = node.status.state
    else:
        state = admin.NodeState.LIVE if connected else admin.NodeState.OFFLINE
    if until_ms > node.clock.wall_ms():
        state = admin.NodeState.MAINTENANCE
    return admin.NodeInfo(
        member.name,
        member.address,
        state,
        _detail(node) if own else "",
        node.directory.record.boot if own else 0 if view is None else view.boot,
        node.replica.applied_index if own else 0,
        _role(node, member) if own or connected else "",
        member.number,
        member.voter,
        until_ms,
    )


def _detail(node: Node) -> str:
    """What is wrong, and what takes long."""
    return "; ".join(filter(None, [trouble(node), node.archive.copies.progress]))[:1000]


def trouble(node: Node) -> str:
    """What is wrong with this node, in words; empty if nothing is."""
    troubles = []
    if not node.directory.record.may_vote:
        troubles.append("may not vote: its directory was lost")
    if node.group.raft.is_doubtful:
        troubles.append("may lack entries that it acknowledged before its host went down")
    if node.intake.stopped is not None:
        troubles.append(f"intake stopped: {node.intake.stopped}")
    for number, reason in node.coordinator.damaged_inputs().items():
        troubles.append(f"input {number}: {reason}")
    if node.status.config_problem:
        troubles.append(f"configuration not taken: {node.status.config_problem}")
    if node.archive.policy.problem:
        troubles.append(f"archiving policy not taken: {node.archive.policy.problem}")
    if others := node.archive.disagreements():
        troubles.append(f"archiving policies differ: {', '.join(others)}")
    if node.archive.rounds.held:
        names = ", ".join(node.archive.rounds.held)
        troubles.append(f"not archived, as consumer groups hold it: {names}")
    if node.archive.copies.trouble:
        troubles.append(f"not archived, as it is not copied: {node.archive.copies.trouble}")
    troubles += node.file_guard.troubles
    troubles += node.scrubber.troubles
    return "; ".join(troubles)[:1000]


def _role(node: Node, member: Member) -> str:
    raft = node.group.raft
    if not member.voter:
        return "learner"
    if member.number == node.number:
        return raft.role.value
    return "leader" if raft.leader == member.number else "follower"


def topic_info(topic: Topic) -> admin.TopicInfo:
    """A topic."""
    return admin.TopicInfo(topic.name, topic.log_id, topic.partitions, topic.settings)


def partition_info(node: Node, number: int) -> admin.PartitionInfo:
    """A partition's cursors and files on this node."""
    partition = node.replica.machine.state.partitions[number]
    merged = node.merging.partitions[number]
    segments = merged.log.segments()
    return admin.PartitionInfo(
        topic=merged.topic,
        partition=partition.index,
        start_offset=merged.log.start_offset,
        end_offset=merged.log.next_offset,
        durable_offset=merged.log.durable_offset,
        segments=len(segments),
        size_bytes=sum(segment.size for segment in segments),
        checksum=merged.log.checksum,
        committed_offset=partition.next_offset,
        merged_offset=node.coordinator.cursors.get(number, 0),
        halted="" if merged.fault is None else merged.fault.message,
        wanted_offset=node.repair.wanted(number),
    )


def session_info(node: Node, session: Session) -> admin.SessionInfo:
    """A session, and what this node holds of it but has not merged."""
    run = session.runs[-1] if session.runs else None
    unmerged = sum(
        node.sessions.unmerged_bytes(entry)
        for entry in node.replica.machine.inputs_of(session.name)
    )
    return admin.SessionInfo(
        session=session.name,
        identity=session.identity,
        run=0 if run is None else run.number,
        is_open=run is not None and not run.closed,
        unmerged_bytes=unmerged,
        dedup_id="" if run is None or run.dedup_id is None else run.dedup_id,
    )
