"""How the parts of a group's replica are made and joined: what decides with the other nodes, what
takes bytes in and gives logs out, what looks after files.

Invariant: a part knows of others only what it is given here, and tells what happens to
`ReplicaSite.events`; nothing runs yet.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from samelog.archiver.node_archive import NodeArchive
from samelog.archiver.parts import ArchiverParts
from samelog.config.tables.node import Fsync
from samelog.consensus import Raft, RaftConfig
from samelog.runtime.at_work import AtWork
from samelog.sequencer.cluster.archiving import GroupReplication, MemberViews
from samelog.sequencer.cluster.file_guard import FileGuard
from samelog.sequencer.cluster.peers import PeerSender
from samelog.sequencer.cluster.presence import Presence
from samelog.sequencer.cluster.repair.merged import MergedRepair, OtherGroups
from samelog.sequencer.cluster.repair.pieces import PieceRepair
from samelog.sequencer.cluster.repair.sessions import SessionRepair
from samelog.sequencer.cluster.scrubber import Scrubber
from samelog.sequencer.cluster.staging import Staging
from samelog.sequencer.cluster.upgrade import Upgrade
from samelog.sequencer.compaction.compactor import MEMORY_BYTES, Compactor, CompactorParts
from samelog.sequencer.compaction.ordering import CompactionOrders
from samelog.sequencer.events import Ends, NodeEvents
from samelog.sequencer.host import NodeResources, NodeSyncer
from samelog.sequencer.ingest.checking import BatchChecker
from samelog.sequencer.ingest.intake import BATCH_OVERHEAD_BYTES, Intake, IntakeSettings
from samelog.sequencer.ingest.log_source import NodeLogSource
from samelog.sequencer.ingest.peer_pulls import PeerPulls
from samelog.sequencer.ingest.quotas import QuotaKeeper
from samelog.sequencer.ingest.unknown_logs import UnknownLogs
from samelog.sequencer.keys.coverage import KeyCoverage
from samelog.sequencer.keys.fetching import KeyFetches, holders_of
from samelog.sequencer.keys.keeper import KeeperParts, KeyKeeper
from samelog.sequencer.keys.key_filter import KeyFilter
from samelog.sequencer.merge.drafts import PlannerLimits
from samelog.sequencer.merge.merging import Merging
from samelog.sequencer.merge.planner import Planner
from samelog.sequencer.merge.session_store import SessionStore
from samelog.sequencer.parts import CareParts, LogParts, MemberParts, RaftParts, RepairParts
from samelog.sequencer.raft.coordinator import Coordinator
from samelog.sequencer.raft.entry_bytes import EntryBytes
from samelog.sequencer.raft.group import RaftGroup
from samelog.sequencer.raft.proposer import Proposer
from samelog.sequencer.raft.replica import Replica
from samelog.sequencer.raft.snapshots import Snapshotter
from samelog.sequencer.raft.store import RaftStore
from samelog.sequencer.refusing.schema_filter import SchemaFilter
from samelog.sequencer.refusing.stage_checks import StageChecks
from samelog.sequencer.sites.sources import CopySources
from samelog.sequencer.spanning.participant import Participant
from samelog.sequencer.state.commands import AnyCommand
from samelog.sequencer.state.machine import StateMachine
from samelog.wire.bounds import METADATA_GROUP
from samelog.wire.peer_messages import KeysAsked, KeysTold


class ReplicaOwner(Protocol):
    """What a replica asks of the member of the cluster that it runs in."""

    @property
    def raft_syncer(self) -> NodeSyncer:
        """Makes the Raft log durable, and what its entries name; closed by the member."""

    @property
    def merged_syncer(self) -> NodeSyncer:
        """Makes merged logs durable, in rounds of its own; closed by the member."""

    async def tell_cluster(self, commands: Sequence[AnyCommand]) -> None:
        """Have group 0 commit these commands. Raises TimeoutError."""

    @property
    def cluster_machine(self) -> StateMachine:
        """Of group 0, as it is here."""

    async def catch_up(self) -> None:
        """Wait until what was committed in group 0 before is applied here. Raises TimeoutError."""

    @property
    def checker(self) -> BatchChecker | None:
        """Looks into what clients send, for all replicas of the member; None: this one makes it."""

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run something that ends with the member, and ends it if it fails."""

    def fail(self, error: BaseException) -> None:
        """The replica met an error it was not made for."""

    def send_about_keys(self, node: int, message: KeysAsked | KeysTold) -> None:
        """Tell a replica of any group something about an index of keys. `node`: its member, which
        may be this one.
        """

    @property
    def elsewhere(self) -> OtherGroups:
        """Where partitions come from that are on their way into this group."""

    def names(self) -> Mapping[int, str]:
        """The members' names, by number."""

    def members_changed(self) -> None:
        """The replicated member list is another one, or a life of a member counts again."""

    def placement_changed(self) -> None:
        """The table of data groups is another one."""

    def units_moved(self) -> None:
        """What spans several groups has moved in this one."""

    def topic_changed(self, topic_id: str) -> None:
        """A topic has other settings, or is gone."""

    def views_dropped(self, base_ids: Collection[str]) -> None:
        """Views of these topics are gone."""

    def run_changed(self, session: str) -> None:
        """A run of the session was opened or closed."""

    def run_ended(self, session: str, run_id: str, ends: Ends) -> None:
        """A sender, here or at another member, has finished a run."""

    def after_pump(self) -> None:
        """The Raft core may have moved: its replica may rest now, or may have woken."""

    def has_work(self) -> None:
        """The replica has something to look after, and not all of its parts are at work."""


@dataclass(frozen=True, slots=True)
class Seat:
    """Which replica of which group it is, as whom it votes. `founders`: who voted when the group
    began, if this replica was there; `may_vote`: it has forgotten nothing that it promised.
    """

    group: int
    replica: int
    founders: Sequence[int]
    may_vote: bool
    may_rest: bool = False
    """It may be quiet, as its member tells the others that it lives."""


@dataclass(frozen=True, slots=True)
class ReplicaSite:
    """What a replica is built on: what its member gives it, and who hears what its parts tell."""

    seat: Seat
    given: NodeResources
    member: MemberParts
    peers: PeerSender
    presence: Presence
    owner: ReplicaOwner
    events: NodeEvents
    at_work: AtWork


def raft_parts(
    site: ReplicaSite,
    store: RaftStore,
    replica: Replica,
    sessions: SessionStore,
    merging: Merging,
) -> RaftParts:
    """What decides, with the other nodes."""
    given, config, machine = site.given, site.given.config, replica.machine
    cluster = machine if site.seat.group == METADATA_GROUP else site.owner.cluster_machine
    group, entry_bytes = _group(site, store, replica, sessions)
    limits, flight = PlannerLimits(segment_bytes=config.segment_bytes), site.member.quotas.in_flight
    planner = Planner(machine, limits, cluster, flight)
    keys = _key_filter(machine, merging)
    schemas = _schema_filter(site, machine, cluster)
    planner.filters = [schemas, keys]
    coordinator = Coordinator(
        site.member.directory.record.number,
        machine=machine,
        planner=planner,
        sessions=sessions,
        group=group,
        clock=given.clock,
        is_there=site.presence.is_there,
        events=site.events,
    )
    schemas.plan_inputs, schemas.hand_over = coordinator.plan_inputs, group.hand_over
    proposer = Proposer(group, replica, given.clock, site.peers.send)
    upgrade = Upgrade(machine, site.presence, given.clock, supported=given.level)
    checks = StageChecks(machine, sessions, schemas)
    staging = Staging(
        machine,
        checks,
        group=group,
        coordinator=coordinator,
        proposer=proposer,
        clock=given.clock,
    )
    participant = Participant(
        site.seat.group,
        machine=machine,
        cluster=cluster,
        checks=checks,
        group=group,
        coordinator=coordinator,
        clock=given.clock,
        owner=site.owner,
    )
    snapshotter = Snapshotter(
        group,
        replica,
        store,
        coordinator,
        ask_for_entry=proposer.ask_for_entry,
        interval_s=config.pace.snapshot_interval_s,
        clock=given.clock,
        at_work=site.at_work,
    )
    decided = proposer, upgrade, coordinator, staging, participant, snapshotter
    return RaftParts(group, replica, *decided, entry_bytes, keys, schemas)


def _schema_filter(site: ReplicaSite, machine: StateMachine, cluster: StateMachine) -> SchemaFilter:
    member, owner = site.member, site.owner
    return SchemaFilter(
        machine, member.judge, owner.spawn, cluster=cluster, catch_up=owner.catch_up
    )


def _group(
    site: ReplicaSite, store: RaftStore, replica: Replica, sessions: SessionStore
) -> tuple[RaftGroup, EntryBytes]:
    raft = _restored(site, store)
    raft.read_snapshots(store.read_snapshot)
    store.drop_data()
    entry_bytes = EntryBytes(
        raft,
        replica.machine,
        sessions,
        sync_always=site.given.config.fsync is Fsync.ALWAYS,
        syncer=site.owner.raft_syncer,
        on_named=site.events.bytes_named,
    )
    group = RaftGroup(
        raft,
        store,
        clock=site.given.clock,
        send=partial(site.peers.send_raft, site.seat.group),
        applier=replica,
        entry_bytes=entry_bytes,
        on_fault=site.owner.fail,
        after_pump=site.owner.after_pump if site.seat.may_rest else None,
    )
    replica.decoded = entry_bytes.decoded
    return group, entry_bytes


def _restored(site: ReplicaSite, store: RaftStore) -> Raft:
    """A follower with everything that is in the files; without a vote, or in doubt, as its seat and
    its member's record say.
    """
    given, seat, record = site.given, site.seat, site.member.directory.record
    settings = given.config.raft
    raft = Raft(
        record.number,
        tuple(seat.founders),
        config=RaftConfig(
            heartbeat_s=settings.heartbeat_ms / 1000,
            election_timeout_s=settings.election_ms / 1000,
        ),
        random=given.rng,
        now=given.clock.now(),
        snapshot=store.snapshot,
        entries=store.entries,
        hard_state=store.hard_state,
        may_vote=seat.may_vote,
        doubtful=record.doubtful,
    )
    # of another one, the table tells who began it
    if seat.founders and seat.group == METADATA_GROUP:
        raft.begin_group()
    return raft


def log_parts(
    site: ReplicaSite,
    raft: RaftParts,
    sessions: SessionStore,
    merging: Merging,
    *,
    pulls: PeerPulls,
    ask: Callable[[], list[int]],
    sources: CopySources,
) -> LogParts:
    """What takes session bytes in, gives logs out, and gets what is lacking."""
    config, clock, machine = site.given.config, site.given.clock, raft.replica.machine
    quotas = QuotaKeeper(machine, sessions, site.member.quotas)
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
        checker=site.owner.checker,
        syncer=raft.entry_bytes.syncer,  # of two rounds the later one ends last
        quotas=quotas,
        events=site.events,
    )
    raft.entry_bytes.rounds = intake.rounds
    intake.share(site.seat.group, site.member.measures.traffic, site.member.connections.watchers)
    source = NodeLogSource(
        machine,
        merging,
        sessions,
        catch_up=raft.proposer.catch_up,
        unknown=UnknownLogs(raft.proposer.catch_up, site.owner.spawn),
    )
    budget = site.member.recovery
    repair = RepairParts(
        SessionRepair(
            pulls,
            machine=machine,
            sessions=sessions,
            intake=intake,
            clock=clock,
            is_up=sources.gives_sessions,
        ),
        MergedRepair(
            pulls,
            machine=machine,
            merging=merging,
            clock=clock,
            ask=sources,
            room=intake.room,
            budget=budget,
            elsewhere=site.owner.elsewhere,
        ),
        PieceRepair(site.given.fs, pulls, ask, budget),
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
        pace=site.member.scrub,
        in_thread=in_thread,
        clock=clock,
        at_work=site.at_work,
    )
    guard = FileGuard(
        fs,
        merging,
        repair,
        in_thread=in_thread,
        events=site.events,
        at_work=site.at_work,
    )
    members = _member_views(site, raft, logs, ask)
    archive = NodeArchive(archiver_parts(site, merging, raft.group, members))
    compactor = Compactor(
        CompactorParts(
            fs=fs,
            in_thread=in_thread,
            clock=clock,
            machine=logs.machine,
            merging=merging,
            group=raft.group,
            orders=CompactionOrders(
                logs.machine,
                raft.group,
                raft.coordinator,
                members,
                clock=clock,
                random=given.rng,
                segment_bytes=given.config.segment_bytes,
                archives_first=archive.rounds.comes_first,
            ),
            proposer=raft.proposer,
            pieces=repair,
            room=logs.intake.room,
            mending=scrubber.mending,
            memory_bytes=given.config.place.share(MEMORY_BYTES),
            number=site.member.directory.record.number,
            at_work=site.at_work,
        )
    )
    return CareParts(scrubber, guard, archive, compactor, _keys(site, raft, logs, ask))


def _member_views(
    site: ReplicaSite, raft: RaftParts, logs: LogParts, ask: Callable[[], list[int]]
) -> MemberViews:
    return MemberViews(
        logs.machine,
        site.owner.names,
        raft.coordinator,
        site.presence,
        site.peers,
        cluster=lambda: site.owner.cluster_machine.state,
        peers=ask,
        indexed=raft.keys.indexed,
    )


def _key_filter(machine: StateMachine, merging: Merging) -> KeyFilter:
    def has_log(number: int) -> bool:
        here = merging.partitions.get(number)
        return here is not None and here.log.has_directory

    return KeyFilter(machine, has_log)


def archiver_parts(
    site: ReplicaSite, merging: Merging, group: RaftGroup, cluster: MemberViews
) -> ArchiverParts:
    """What archiving takes of a replica; the policy and the shares are the member's."""
    given = site.given
    return ArchiverParts(
        config=given.config,
        fs=given.fs,
        clock=given.clock,
        in_thread=given.host.in_thread,
        copier=given.host.new_copier(),
        machine=cluster.machine,
        merging=merging,
        replication=GroupReplication(group),
        cluster=cluster,
        at_work=site.at_work,
        group=site.seat.group,
        policy=site.member.policy,
        shares=site.member.shares,
    )


def _keys(
    site: ReplicaSite, raft: RaftParts, logs: LogParts, ask: Callable[[], list[int]]
) -> KeyKeeper:
    owner, group, in_thread = site.owner, site.seat.group, site.given.host.in_thread
    holders = partial(holders_of, group, ask, owner.elsewhere)
    return KeyKeeper(
        KeeperParts(
            fs=site.given.fs,
            host=site.given.host,
            clock=site.given.clock,
            machine=logs.machine,
            merging=logs.merging,
            group=raft.group,
            coordinator=raft.coordinator,
            proposer=raft.proposer,
            filter=raft.keys,
            fetches=KeyFetches(group, owner.send_about_keys, holders, in_thread),
            ask=ask,
            elsewhere=owner.elsewhere,
            coverage=KeyCoverage(site.given.clock, lambda: raft.group.raft.leader, site.peers.send),
            number=site.member.directory.record.number,
            at_work=site.at_work,
        )
    )
