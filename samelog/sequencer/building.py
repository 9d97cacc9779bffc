"""How the parts of a group's replica are made and joined: what decides with the other nodes, what
takes bytes in and gives logs out, what looks after files.

Invariant: a part knows of others only what it is given here, and tells what happens to
`ReplicaSite.events`; nothing runs yet.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from samelog.archiver.node_archive import NodeArchive
from samelog.config.tables.node import Fsync
from samelog.replicator.pull.acknowledger import Budget
from samelog.sequencer.cluster.archiving import MemberViews, archiver_parts
from samelog.sequencer.cluster.file_guard import FileGuard
from samelog.sequencer.cluster.node_dir import NodeDirectory
from samelog.sequencer.cluster.peers import PeerSender
from samelog.sequencer.cluster.presence import Presence
from samelog.sequencer.cluster.repair.merged import MergedRepair
from samelog.sequencer.cluster.repair.pieces import PieceRepair
from samelog.sequencer.cluster.repair.sessions import SessionRepair
from samelog.sequencer.cluster.restoring import restored
from samelog.sequencer.cluster.scrubber import Scrubber
from samelog.sequencer.cluster.staging import Staging
from samelog.sequencer.cluster.upgrade import Upgrade
from samelog.sequencer.compaction.compactor import Compactor, CompactorParts
from samelog.sequencer.events import NodeEvents
from samelog.sequencer.host import NodeResources, NodeSyncer
from samelog.sequencer.ingest.intake import BATCH_OVERHEAD_BYTES, Intake, IntakeSettings
from samelog.sequencer.ingest.log_source import NodeLogSource
from samelog.sequencer.ingest.peer_pulls import PeerPulls
from samelog.sequencer.ingest.quotas import QuotaKeeper
from samelog.sequencer.ingest.unknown_logs import UnknownLogs
from samelog.sequencer.merge.merging import Merging
from samelog.sequencer.merge.planner import Planner, PlannerLimits
from samelog.sequencer.merge.session_store import SessionStore
from samelog.sequencer.parts import CareParts, LogParts, RaftParts, RepairParts
from samelog.sequencer.raft.coordinator import Coordinator
from samelog.sequencer.raft.entry_bytes import EntryBytes
from samelog.sequencer.raft.group import RaftGroup
from samelog.sequencer.raft.proposer import Proposer
from samelog.sequencer.raft.replica import Replica
from samelog.sequencer.raft.snapshots import Snapshotter
from samelog.sequencer.raft.store import RaftStore
from samelog.wire.frames import GROUP


class ReplicaOwner(Protocol):
    """What a replica asks of the member of the cluster that it runs in."""

    def new_syncer(self) -> NodeSyncer:
        """Makes files durable, in rounds of its own; closed by the member."""

    def spawn(self, work: Coroutine[Any, Any, None]) -> object:
        """Run something that ends with the member, and ends it if it fails."""

    def fail(self, error: BaseException) -> None:
        """The replica met an error it was not made for."""

    def names(self) -> Mapping[int, str]:
        """The members' names, by number."""

    def members_changed(self) -> None:
        """The replicated member list is another one."""


@dataclass(frozen=True, slots=True)
class ReplicaSite:
    """What a replica is built on: what its member gives it, and who hears what its parts tell."""

    given: NodeResources
    directory: NodeDirectory
    peers: PeerSender
    presence: Presence
    owner: ReplicaOwner
    events: NodeEvents


def raft_parts(
    site: ReplicaSite,
    store: RaftStore,
    replica: Replica,
    sessions: SessionStore,
    merging: Merging,
) -> RaftParts:
    """What decides, with the other nodes."""
    given, config, machine = site.given, site.given.config, replica.machine
    raft = restored(store, site.directory.record, config.raft, given.rng, now=given.clock.now())
    entry_bytes = EntryBytes(
        raft,
        machine,
        sessions,
        sync_always=config.fsync is Fsync.ALWAYS,
        syncer=site.owner.new_syncer(),
        on_named=site.events.bytes_named,
    )
    group = RaftGroup(
        raft,
        store,
        clock=given.clock,
        send=partial(site.peers.send_raft, GROUP),
        applier=replica,
        entry_bytes=entry_bytes,
        on_fault=site.owner.fail,
    )
    replica.decoded = entry_bytes.decoded
    coordinator = Coordinator(
        site.directory.record.number,
        machine=machine,
        planner=Planner(machine, PlannerLimits(segment_bytes=config.segment_bytes)),
        sessions=sessions,
        group=group,
        clock=given.clock,
        is_there=site.presence.is_there,
        events=site.events,
    )
    proposer = Proposer(group, replica, given.clock, site.peers.send)
    upgrade = Upgrade(machine, site.presence, given.clock, supported=given.level)
    staging = Staging(
        machine,
        sessions,
        group=group,
        coordinator=coordinator,
        proposer=proposer,
        clock=given.clock,
    )
    snapshotter = Snapshotter(
        group,
        replica,
        merging,
        store,
        coordinator,
        interval_s=config.snapshot_interval_s,
    )
    decided = proposer, upgrade, coordinator, staging, snapshotter
    return RaftParts(group, replica, *decided, entry_bytes)


def log_parts(
    site: ReplicaSite,
    raft: RaftParts,
    sessions: SessionStore,
    merging: Merging,
    *,
    pulls: PeerPulls,
    ask: Callable[[], list[int]],
) -> LogParts:
    """What takes session bytes in, gives logs out, and gets what is lacking."""
    config, clock, machine = site.given.config, site.given.clock, raft.replica.machine
    quotas = QuotaKeeper(machine, sessions, config.quotas)
    intake = Intake(
        raft.replica,
        sessions,
        raft.proposer,
        settings=IntakeSettings(
            sync_always=config.fsync is Fsync.ALWAYS,
            sync_interval_s=config.fsync_interval_ms / 1000,
            batch_bytes=config.max_record_bytes + BATCH_OVERHEAD_BYTES,
            auto_create_topics=config.auto_create_topics,
        ),
        syncer=raft.entry_bytes.syncer,  # of two rounds the later one ends last
        quotas=quotas,
        events=site.events,
    )
    raft.entry_bytes.rounds = intake.rounds
    source = NodeLogSource(
        machine,
        merging,
        sessions,
        catch_up=raft.proposer.catch_up,
        unknown=UnknownLogs(raft.proposer.catch_up, site.owner.spawn),
    )
    repair = RepairParts(
        SessionRepair(
            pulls,
            machine=machine,
            sessions=sessions,
            intake=intake,
            clock=clock,
            is_up=lambda number: number == raft.group.raft.leader or number in ask(),
        ),
        MergedRepair(
            pulls,
            machine=machine,
            merging=merging,
            clock=clock,
            ask=ask,
            takes_in=lambda: intake.stopped is None,
            budget=Budget(config.recovery_bytes_per_s),
        ),
        PieceRepair(site.given.fs, pulls, ask),
    )
    return LogParts(machine, sessions, merging, intake, source, repair, quotas)


def care_parts(
    site: ReplicaSite, raft: RaftParts, logs: LogParts, ask: Callable[[], list[int]]
) -> CareParts:
    """What looks after files: damage, loss, archiving, compaction."""
    given, merging, repair = site.given, logs.merging, logs.repair.pieces
    fs, in_thread, clock = given.fs, given.host.in_thread, given.clock
    scrubber = Scrubber(
        fs,
        merging,
        repair,
        path=os.path.join(given.config.data, "scrub.json"),
        config=given.config.scrub,
        in_thread=in_thread,
        clock=clock,
    )
    guard = FileGuard(fs, merging, repair, in_thread=in_thread, events=site.events)
    archive = archiver_parts(
        given,
        merging,
        raft.group,
        MemberViews(
            logs.machine,
            site.owner.names,
            raft.coordinator,
            site.presence,
            site.peers,
            peers=ask,
        ),
    )
    compactor = Compactor(
        CompactorParts(
            fs=fs,
            in_thread=in_thread,
            random=given.rng,
            machine=logs.machine,
            merging=merging,
            group=raft.group,
            coordinator=raft.coordinator,
            proposer=raft.proposer,
            presence=site.presence,
            pieces=repair,
            room=logs.intake.room,
            mending=scrubber.mending,
            segment_bytes=given.config.segment_bytes,
            number=site.directory.record.number,
        )
    )
    return CareParts(scrubber, guard, NodeArchive(archive), compactor)
