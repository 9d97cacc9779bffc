"""The parts of a node in records, for those who serve clients and operators: nobody gets the node.

`MemberParts` is what a node has once, whatever it replicates. `LogParts` and `RaftParts` are of one
Raft group's replica. `PeerParts` is who else there is.

Invariant: a record is complete when it is made, and never changes; what changes is inside a part.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from samelog.admin.answers import NodeState
from samelog.archiver.node_archive import NodeArchive
from samelog.archiver.policy_file import PolicyFile
from samelog.archiver.shares import LogShares
from samelog.config.authorisation import Rights
from samelog.config.tables.node import NodeConfig
from samelog.replicator.pull.acknowledger import Budget
from samelog.runtime.clock import Clock
from samelog.runtime.idle import IdleMemory
from samelog.sequencer.cluster.catching_up import History, history_of, phase
from samelog.sequencer.cluster.changes import Changes
from samelog.sequencer.cluster.file_guard import FileGuard
from samelog.sequencer.cluster.group_keeper import GroupKeeper
from samelog.sequencer.cluster.hold_reports import HoldReports
from samelog.sequencer.cluster.links import Links
from samelog.sequencer.cluster.lives import Lives
from samelog.sequencer.cluster.members import Members
from samelog.sequencer.cluster.node_dir import NodeDirectory
from samelog.sequencer.cluster.peers import Callers
from samelog.sequencer.cluster.presence import INTAKE_STOPPED, Presence
from samelog.sequencer.cluster.reader_surveys import ReaderSurveys
from samelog.sequencer.cluster.repair.merged import MergedRepair
from samelog.sequencer.cluster.repair.pieces import PieceRepair
from samelog.sequencer.cluster.repair.sessions import SessionRepair
from samelog.sequencer.cluster.room_for_marks import RoomForMarks
from samelog.sequencer.cluster.scrubber import Scrubber, ScrubPace
from samelog.sequencer.cluster.staging import Staging
from samelog.sequencer.cluster.upgrade import Upgrade
from samelog.sequencer.compaction.compactor import Compactor
from samelog.sequencer.connections import Connections
from samelog.sequencer.filtering.pieces import RowFilters
from samelog.sequencer.ingest.intake import Intake
from samelog.sequencer.ingest.log_source import NodeLogSource
from samelog.sequencer.ingest.quotas import NodeQuotas, QuotaKeeper
from samelog.sequencer.judging.process import BatchJudge
from samelog.sequencer.keys.keeper import KeyKeeper
from samelog.sequencer.keys.key_filter import KeyFilter
from samelog.sequencer.measures import Measures
from samelog.sequencer.merge.merging import Merging
from samelog.sequencer.merge.session_store import SessionStore
from samelog.sequencer.raft.coordinator import Coordinator
from samelog.sequencer.raft.entry_bytes import EntryBytes
from samelog.sequencer.raft.group import RaftGroup
from samelog.sequencer.raft.member_log import MemberLog
from samelog.sequencer.raft.proposer import Proposer
from samelog.sequencer.raft.replica import Replica
from samelog.sequencer.raft.snapshots import Snapshotter
from samelog.sequencer.raft.views import KeptFiles
from samelog.sequencer.refusing.schema_filter import SchemaFilter
from samelog.sequencer.sites.whereabouts import Whereabouts
from samelog.sequencer.spanning.participant import Participant
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.types import State
from samelog.wire.peer_messages import (
    HistoryAsked,
    HistoryTold,
    KeysAsked,
    KeysCovered,
    KeysTold,
    PeerMessage,
)


@dataclass(slots=True)
class MemberStatus:
    """What a node says of itself first."""

    state: NodeState = NodeState.INITIALIZING
    announced: NodeState = NodeState.OFFLINE
    """The state that was last sent to the other members."""
    config_problem: str = ""
    """Why a newer configuration is not in force; empty if there is none, or it is."""
    is_stopping: bool = False


@dataclass(frozen=True, slots=True)
class MemberParts:
    """What a member of the cluster has once."""

    config: NodeConfig
    clock: Clock
    directory: NodeDirectory
    raft_log: MemberLog
    rights: Rights
    measures: Measures
    connections: Connections
    status: MemberStatus
    filters: RowFilters
    policy: PolicyFile
    shares: LogShares
    judge: BatchJudge
    recovery: Budget
    """Of what is copied from others, into all groups."""
    scrub: ScrubPace
    quotas: NodeQuotas
    memory: IdleMemory


@dataclass(frozen=True, slots=True)
class RepairParts:
    """What gets from peers what is lacking here."""

    sessions: SessionRepair
    merged: MergedRepair
    pieces: PieceRepair


@dataclass(frozen=True, slots=True)
class LogParts:
    """The logs of one replica, and the replicated state that says what they are."""

    machine: StateMachine
    sessions: SessionStore
    merging: Merging
    intake: Intake
    source: NodeLogSource
    repair: RepairParts
    quotas: QuotaKeeper
    room_for_marks: RoomForMarks = field(default_factory=RoomForMarks)


@dataclass(frozen=True, slots=True)
class RaftParts:
    """One replica's part in its Raft group."""

    group: RaftGroup
    replica: Replica
    proposer: Proposer
    upgrade: Upgrade
    coordinator: Coordinator
    staging: Staging
    participant: Participant
    snapshotter: Snapshotter
    entry_bytes: EntryBytes
    keys: KeyFilter
    schemas: SchemaFilter


@dataclass(frozen=True, slots=True)
class CareParts:
    """What looks after the files of one replica."""

    scrubber: Scrubber
    file_guard: FileGuard
    archive: NodeArchive
    compactor: Compactor
    keys: KeyKeeper

    @property
    def is_busy(self) -> bool:
        """Whether anything is under way."""
        return self.archive.is_busy or self.compactor.is_busy or self.keys.is_busy

    def take_kept(self) -> dict[int, KeptFiles]:
        """Return what is on the disk of partitions of which that changed since the last call."""
        history, compactor, keys = self.archive.history, self.compactor, self.keys
        moved = history.take_moved() | compactor.take_moved() | keys.take_moved()
        return {
            n: KeptFiles(history.end(n), compactor.complete.get(n, 0), keys.indexed.get(n, 0))
            for n in moved
        }

    def receive(self, node: int, message: PeerMessage) -> None:
        """A peer asks for what is archived, or tells it."""
        match message:
            case HistoryAsked() | HistoryTold():
                self.archive.receive(node, message)
            case KeysAsked() | KeysTold() | KeysCovered():
                self.keys.receive(node, message)


@dataclass(frozen=True, slots=True)
class PeerParts:
    """The other members, as this node knows them."""

    number: int
    """Of this node."""
    members: Members
    lives: Lives
    callers: Callers
    links: Links
    changes: Changes
    keeper: GroupKeeper
    """Of group 0."""
    presence: Presence
    whereabouts: Whereabouts
    hold_reports: HoldReports
    surveys: ReaderSurveys = field(default_factory=ReaderSurveys)

    def counts(self, number: int, state: State) -> bool:
        """Whether what a member promises counts, as far as is known here: it has forgotten nothing,
        or was let in. `state`: of group 0.
        """
        life = self.lives.own() if number == self.number else self.lives.met.get(number)
        known = state.members.started.get(number)
        let_in = None if known is None else known.let_in
        return life is None or life.is_sure or life.incarnation == let_in

    def may_hold(self, number: int, state: State, now: float) -> bool:
        """Whether a member may begin a replica of a new group: it is heard, accepts bytes, its
        votes count, it knows that the cluster has begun, and its host is known.
        """
        if number not in state.members.started:
            return False
        is_up = self.presence.is_heard(number, now) and self.presence.takes_in(number, now)
        return is_up and self.counts(number, state) and self.keeper.has_entries(number)


def troubles(logs: LogParts, raft: RaftParts, care: CareParts) -> Iterator[str]:
    """What is wrong with one replica's logs and files, in words. Saying so costs no I/O."""
    if logs.intake.stopped is not None:
        yield f"{INTAKE_STOPPED}: {logs.intake.stopped}"
    yield from logs.merging.troubles.values()
    for number, reason in raft.coordinator.damaged_inputs().items():
        yield f"input {number}: {reason}"
    yield from care.file_guard.troubles
    yield from care.scrubber.troubles
    yield from care.keys.troubles
    yield from raft.schemas.troubles
    yield from care.archive.history.troubles
    if names := ", ".join(care.archive.rounds.held):
        yield f"not archived, as consumer groups hold it: {names}"
    if why := care.archive.copies.trouble:
        yield f"not archived, as it is not copied: {why}"


def history_here(logs: LogParts) -> History:
    """Of a replica here."""
    there = logs.merging.partitions
    ends = {number: each.log.next_offset for number, each in there.items()}
    return history_of(logs.machine.state.partitions.by_number, ends)


def phase_of(logs: LogParts, raft: RaftParts) -> str:
    """Of a replica here."""
    is_led = raft.group.raft.leader is not None
    return phase(history_here(logs), takes_writes=is_led and logs.intake.stopped is None)
