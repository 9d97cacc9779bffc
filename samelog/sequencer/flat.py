"""The parts of a node by one name each, for those who still take the whole node."""

from __future__ import annotations

from collections.abc import Callable

from samelog.archiver.node_archive import NodeArchive
from samelog.config.authorisation import Rights
from samelog.config.tables.node import NodeConfig
from samelog.runtime.clock import Clock
from samelog.sequencer.cluster.changes import Changes
from samelog.sequencer.cluster.file_guard import FileGuard
from samelog.sequencer.cluster.links import Links
from samelog.sequencer.cluster.members import Members
from samelog.sequencer.cluster.node_dir import NodeDirectory
from samelog.sequencer.cluster.repair import Repair
from samelog.sequencer.cluster.reporter import Reporter
from samelog.sequencer.cluster.scrubber import Scrubber
from samelog.sequencer.cluster.staging import Staging
from samelog.sequencer.connections import Connections
from samelog.sequencer.group_replica import GroupReplica
from samelog.sequencer.ingest.intake import Intake
from samelog.sequencer.ingest.log_source import NodeLogSource
from samelog.sequencer.ingest.quotas import QuotaKeeper
from samelog.sequencer.measures import Measures
from samelog.sequencer.merge.merging import Merging
from samelog.sequencer.merge.session_store import SessionStore
from samelog.sequencer.parts import LogParts, MemberParts, NodeStatus, PeerParts, RaftParts
from samelog.sequencer.raft.coordinator import Coordinator
from samelog.sequencer.raft.group import Group
from samelog.sequencer.raft.proposer import Proposer
from samelog.sequencer.raft.replica import Replica
from samelog.sequencer.raft.snapshots import Snapshotter
from samelog.sequencer.raft.store import RaftStore


class _Flat0:
    member: MemberParts
    logs: LogParts
    raft: RaftParts
    peers: PeerParts
    group_replica: GroupReplica
    is_there: Callable[[int], bool]
    config: NodeConfig
    clock: Clock
    number: int
    rights: Rights
    measures: Measures
    connections: Connections


class _Flat1:
    directory: NodeDirectory
    status: NodeStatus
    batch_bytes: int
    sessions: SessionStore
    merging: Merging
    intake: Intake
    source: NodeLogSource
    repair: Repair
    group: Group
    replica: Replica
    proposer: Proposer
    coordinator: Coordinator


class _Flat2:
    staging: Staging
    snapshotter: Snapshotter
    members: Members
    links: Links
    changes: Changes
    archive: NodeArchive
    scrubber: Scrubber
    file_guard: FileGuard
    quotas: QuotaKeeper
    reporter: Reporter
    store: RaftStore


class FlatNode(_Flat0, _Flat1, _Flat2):
    """Goes when nobody takes the whole node any more."""

    def flatten(self) -> None:
        """To be called once all parts are made."""
        for name, part in {
            "config": self.member.config,
            "clock": self.member.clock,
            "number": self.peers.number,
            "rights": self.member.rights,
            "measures": self.member.measures,
            "connections": self.member.connections,
            "directory": self.member.directory,
            "status": self.member.status,
            "batch_bytes": self.logs.intake.batch_bytes,
            "sessions": self.logs.sessions,
            "merging": self.logs.merging,
            "intake": self.logs.intake,
            "source": self.logs.source,
            "repair": self.logs.repair,
            "group": self.raft.group,
            "replica": self.raft.replica,
            "proposer": self.raft.proposer,
            "coordinator": self.raft.coordinator,
            "staging": self.raft.staging,
            "snapshotter": self.raft.snapshotter,
            "members": self.peers.members,
            "links": self.peers.links,
            "changes": self.peers.changes,
            "archive": self.group_replica.care.archive,
            "scrubber": self.group_replica.care.scrubber,
            "file_guard": self.group_replica.care.file_guard,
            "quotas": self.logs.quotas,
            "reporter": self.group_replica.reporter,
            "store": self.group_replica.store,
            "is_there": self.peers.is_there,
        }.items():
            setattr(self, name, part)
