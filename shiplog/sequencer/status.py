"""What a node says of itself and the cluster when asked.

Invariant: reading the status changes nothing and costs no I/O.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shiplog.sequencer.state import Session, Topic
from shiplog.wire import admin

if TYPE_CHECKING:
    from shiplog.sequencer.node import Node


def status(node: Node) -> admin.Status:
    """The cluster as this node sees it."""
    raft = node.group.raft
    state = node.replica.machine.state
    return admin.Status(
        cluster=node.config.cluster,
        node=node.config.name,
        leader=None if raft.leader is None else node.config.peers[raft.leader].name,
        term=raft.term,
        commit_index=raft.commit_index,
        nodes=tuple(node_info(node, number) for number in range(len(node.config.peers))),
        partitions=tuple(partition_info(node, number) for number in state.partitions),
        sessions=tuple(session_info(node, session) for session in state.sessions.values()),
    )


def node_info(node: Node, number: int) -> admin.NodeInfo:
    """One voting node; of the others, only whether they are connected is known here."""
    peer = node.config.peers[number]
    view = node.coordinator.views[number]
    if number != node.number:
        state = admin.NodeState.LIVE if view.connected else admin.NodeState.OFFLINE
        role = "leader" if node.group.raft.leader == number else "follower"
        return admin.NodeInfo(
            peer.name, str(peer.address), state, "", view.boot, 0, role if view.connected else ""
        )
    return admin.NodeInfo(
        peer.name,
        str(peer.address),
        node.state,
        node.trouble(),
        node.directory.record.boot,
        node.replica.applied_index,
        node.group.raft.role.value,
    )


def topic_info(topic: Topic) -> admin.TopicInfo:
    """A topic."""
    return admin.TopicInfo(topic.name, topic.topic_id, topic.partitions, topic.settings)


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
