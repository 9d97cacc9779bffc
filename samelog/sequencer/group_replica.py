"""One replica of a Raft group in this process: its Raft log and state, session logs, merged logs,
and what keeps them current.

It knows nothing of the member it runs in but what it is given: a `NodeResources`, a `PeerSender`
and a `ReplicaOwner`. Its parts do not know each other where they only have something to tell: they
tell it here (`NodeEvents`), and it decides whom that concerns.

Invariant: positions are stated to others only once this replica has applied what was committed
before it started (invariants.md, rule 14).
"""

from __future__ import annotations

import logging
import os
from collections.abc import Container, Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol

from samelog.archiver.command import ArchiveCommand
from samelog.archiver.node_archive import NodeArchive
from samelog.config.tables.node import Fsync
from samelog.format.positions import SessionPosition
from samelog.runtime.log import log_event
from samelog.runtime.network.link import PeerPlace
from samelog.sequencer.cluster.archiving import MemberViews, archiver_parts
from samelog.sequencer.cluster.file_guard import FileGuard
from samelog.sequencer.cluster.leader_upkeep import LeaderUpkeep
from samelog.sequencer.cluster.node_dir import NodeDirectory
from samelog.sequencer.cluster.peers import PeerMessage, PeerSender
from samelog.sequencer.cluster.presence import Presence
from samelog.sequencer.cluster.repair import Repair
from samelog.sequencer.cluster.reporter import Reporter
from samelog.sequencer.cluster.restoring import restored
from samelog.sequencer.cluster.scrubber import Scrubber
from samelog.sequencer.cluster.staging import Staging
from samelog.sequencer.events import Ends
from samelog.sequencer.host import NodeResources, NodeSyncer
from samelog.sequencer.ingest.following import Following
from samelog.sequencer.ingest.intake import BATCH_OVERHEAD_BYTES, Intake, IntakeSettings
from samelog.sequencer.ingest.log_source import NodeLogSource
from samelog.sequencer.ingest.node_sessions import RunKeeper
from samelog.sequencer.ingest.peer_pulls import PeerPulls
from samelog.sequencer.ingest.quotas import QuotaKeeper
from samelog.sequencer.ingest.unknown_logs import UnknownLogs
from samelog.sequencer.merge.merging import Merging
from samelog.sequencer.merge.planner import Planner, PlannerLimits
from samelog.sequencer.merge.session_store import SessionStore
from samelog.sequencer.parts import CareParts, LogParts, RaftParts
from samelog.sequencer.raft.coordinator import Coordinator
from samelog.sequencer.raft.group import RaftGroup
from samelog.sequencer.raft.proposer import Proposer
from samelog.sequencer.raft.replica import Replica, decode_body
from samelog.sequencer.raft.snapshots import Snapshotter
from samelog.sequencer.raft.store import RaftStore
from samelog.sequencer.state.commands import AnyCommand, Merge, RecordEvent
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.reset_commands import HardReset, SoftReset
from samelog.store.disk.disk_errors import NoSpace
from samelog.store.disk.files import File
from samelog.wire.bounds import Health
from samelog.wire.peer_messages import (
    Cursors,
    Forward,
    Forwarded,
    HistoryAsked,
    HistoryTold,
    Report,
    RunEnded,
)

log = logging.getLogger(__name__)


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

    def range_merged(self, appended_ms: int) -> None:
        """A range was merged; the newest timestamp of its first batch."""


class GroupReplica:
    """Builds the parts, connects and runs them. Implements events.NodeEvents."""

    def __init__(
        self,
        given: NodeResources,
        directory: NodeDirectory,
        peers: PeerSender,
        presence: Presence,
        owner: ReplicaOwner,
    ) -> None:
        config, record = given.config, directory.record
        self._given = given
        self._directory = directory
        self._peers = peers
        self._presence = presence
        self._owner = owner
        self.store = RaftStore.open(
            given.fs,
            os.path.join(config.data, "raft", "0"),
            cluster=config.cluster,
            node=record.number,
        )
        body = decode_body(self.store.snapshot.data if self.store.snapshot else b"")
        self._pending_at_start = body.pending
        self._pulls = [PeerPulls(config, given.tls, record.boot) for _ in ("repair", "following")]
        machine = StateMachine.decode(body.state)
        sessions = SessionStore(given.fs, os.path.join(config.data, "sessions"), machine, self)
        merging = Merging(
            given.fs,
            os.path.join(config.data, "merged"),
            sessions,
            syncer=owner.new_syncer(),
            events=self,
        )
        replica = Replica(machine, sessions, merging, self)
        self.raft = self._raft_parts(replica, sessions, merging)
        self.logs = self._log_parts(machine, sessions, merging)
        self._build_upkeep(replica)

    def _build_upkeep(self, replica: Replica) -> None:
        """What keeps everything current."""
        given, config, record = self._given, self._given.config, self._directory.record
        machine, merging, peers = replica.machine, self.logs.merging, self._peers
        self.reporter = Reporter(
            self._presence,
            record.boot,
            replica=replica,
            coordinator=self.raft.coordinator,
            intake=self.logs.intake,
            merging=merging,
            peers=peers,
            leader=lambda: self.raft.group.raft.leader,
        )
        self.following = Following(
            record.number,
            self._pulls[1],
            machine=machine,
            intake=self.logs.intake,
            clock=given.clock,
            is_there=self._presence.is_there,
        )
        self._run_keeper = RunKeeper(
            machine, self._presence.is_there, self.raft.coordinator.run_ended
        )
        self._upkeep = LeaderUpkeep(
            config,
            self._directory,
            group=self.raft.group,
            replica=replica,
            staging=self.raft.staging,
            clock=given.clock,
        )
        self.care = self._care_parts()

    def _raft_parts(self, replica: Replica, sessions: SessionStore, merging: Merging) -> RaftParts:
        """What decides, with the other nodes."""
        given, config, machine = self._given, self._given.config, replica.machine
        group = RaftGroup(
            restored(self.store, self._directory.record, given.rng, now=given.clock.now()),
            self.store,
            syncer=self._owner.new_syncer(),
            clock=given.clock,
            send=self._peers.send_raft,
            applier=replica,
            sync_always=config.fsync is Fsync.ALWAYS,
            on_fault=self._owner.fail,
        )
        coordinator = Coordinator(
            self._directory.record.number,
            machine=machine,
            planner=Planner(machine, PlannerLimits(segment_bytes=config.segment_bytes)),
            sessions=sessions,
            group=group,
            clock=given.clock,
            is_there=self._presence.is_there,
            events=self,
        )
        proposer = Proposer(group, replica, given.clock, self._peers.send)
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
            self.store,
            coordinator,
            interval_s=config.snapshot_interval_s,
        )
        return RaftParts(group, replica, proposer, coordinator, staging, snapshotter)

    def _log_parts(
        self, machine: StateMachine, sessions: SessionStore, merging: Merging
    ) -> LogParts:
        """What takes session bytes in, gives logs out, and gets what is lacking."""
        given, config = self._given, self._given.config
        quotas = QuotaKeeper(machine, sessions, config.quotas)
        intake = Intake(
            self.raft.replica,
            sessions,
            self.raft.proposer,
            settings=IntakeSettings(
                sync_always=config.fsync is Fsync.ALWAYS,
                sync_interval_s=config.fsync_interval_ms / 1000,
                batch_bytes=config.max_record_bytes + BATCH_OVERHEAD_BYTES,
                auto_create_topics=config.auto_create_topics,
            ),
            syncer=self._owner.new_syncer(),
            quotas=quotas,
            events=self,
        )
        source = NodeLogSource(
            machine,
            merging,
            sessions,
            unknown=UnknownLogs(self.raft.proposer.catch_up, self._owner.spawn),
        )
        repair = Repair(
            given.fs,
            self._pulls[0],
            machine=machine,
            merging=merging,
            sessions=sessions,
            intake=intake,
            clock=given.clock,
            ask=self.peers_to_ask,
        )
        return LogParts(machine, sessions, merging, intake, source, repair, quotas)

    def _care_parts(self) -> CareParts:
        """What looks after files: damage, loss, archiving."""
        given, merging, repair = self._given, self.logs.merging, self.logs.repair
        fs, in_thread, clock = given.fs, given.host.in_thread, given.clock
        scrubber = Scrubber(
            fs, merging, repair, config=given.config.scrub, in_thread=in_thread, clock=clock
        )
        guard = FileGuard(fs, merging, repair, in_thread=in_thread, record_event=self.record_event)
        archive = archiver_parts(
            given,
            merging,
            self.raft.group,
            MemberViews(
                self.logs.machine,
                self._owner.names,
                self.raft.coordinator,
                self._presence,
                self._peers,
                peers=self.peers_to_ask,
            ),
        )
        return CareParts(scrubber, guard, NodeArchive(archive))

    # --- running ----------------------------------------------------------------------------------

    def open_logs(self) -> None:
        """Take up what the snapshot left; nothing runs yet."""
        index = self.store.snapshot.last_index if self.store.snapshot else 0
        self.raft.replica.start(self._pending_at_start, index)
        self._pending_at_start = []

    def start(self) -> None:
        """Run, as tasks of the member."""
        self.raft.group.pump()
        spawn = self._owner.spawn
        spawn(self.raft.group.run_ticks())
        spawn(self.raft.group.run_saver())
        spawn(self.logs.intake.run_syncer())
        spawn(self.logs.merging.run_syncer())
        self.care.archive.start(spawn)
        for part in (self.raft.snapshotter, self.care.scrubber, self.care.file_guard):
            spawn(part.run())

    async def stop(self) -> None:
        """End what goes on with other members."""
        await self.logs.repair.close()
        await self.following.close()

    async def make_durable(self) -> None:
        """Everything that was merged, and the Raft log."""
        await self.logs.merging.sync()
        await self.raft.group.sync_now()

    def close(self) -> None:
        """Close every file."""
        self.logs.merging.close()
        self.care.archive.close()
        self.logs.sessions.close()
        self.store.close()

    def set_peers(self, peers: Mapping[int, PeerPlace], members: Container[int]) -> None:
        """These are the other members now, and the numbers of all."""
        self._pulls[0].set_peers(peers)
        self._pulls[1].set_peers(peers)
        self.raft.coordinator.forget_others(members)

    def record_event(self, kind: str, text: str) -> None:
        """Leave an event in the replicated state, if there is a leader."""
        text = f"{self._given.config.name}: {text}"[:1000]
        event = RecordEvent(self._given.clock.wall_ms(), kind, text)
        self._owner.spawn(self._propose_event(event))

    async def _propose_event(self, event: RecordEvent) -> None:
        with suppress(TimeoutError):
            await self.raft.proposer.propose(event)

    # --- time -------------------------------------------------------------------------------------

    def tick(self) -> None:
        """To be called some times a second."""
        self.reporter.tick()
        self.raft.coordinator.tick()
        self.logs.repair.tick()
        self.following.tick()

    def tick_slowly(self) -> None:
        """To be called about once a second."""
        self._save_marks()
        self._upkeep.tick()
        for peer in self.peers_to_ask():  # what was said before this replica could use it
            self.logs.repair.peer_reported(peer, self.raft.coordinator.views[peer].places)
        self.care.archive.history.fetch_missing()
        self._run_keeper.tick(self._given.clock.now(), is_leader=self.raft.group.is_leader)

    def _save_marks(self) -> None:
        """Persist the durable marks; a full disk only leaves older ones, which are as safe."""
        try:
            self.logs.sessions.save_marks()
            self.logs.merging.save_marks()
        except NoSpace as fault:
            log_event(log, logging.WARNING, "durable marks not saved", error=fault)

    def disk_measured(self, used: int, total: int) -> None:
        """Tell the intake how much it may accept: what is free below the limit, less what is
        accepted and not merged. The rest of the disk is Raft's.
        """
        unmerged = self.logs.quotas.look(total)
        pending = sum(merge.size for merge in self.logs.merging.pending())
        limit = total * self._given.config.disk_stop_percent // 100
        kept = max(0, used - self.care.archive.truncation.pending_bytes)
        now_ms = max(0, self._given.clock.wall_ms())
        self.reporter.state_health(Health(kept, total, now_ms, self.care.archive.policy.text))
        self.logs.intake.room.set(limit - used - unmerged - pending, resume_at_bytes=total // 20)

    # --- peers ------------------------------------------------------------------------------------

    def peers_to_ask(self) -> list[int]:
        """Peers that are up, the leader first: it has all merged bytes or can make them."""
        leader = self.raft.group.raft.leader
        there = filter(self._presence.is_there, self._peers.numbers)
        return sorted(there, key=lambda number: number != leader)

    def peer_introduced(self, number: int, boot: int) -> None:
        """A peer dialled in: if it began anew, what it acknowledged before counts no more."""
        if boot != self.raft.coordinator.views[number].boot:
            self.raft.group.raft.peer_restarted(number)

    def peer_gone(self, number: int) -> None:
        """No connection that the peer dialled is left."""
        if self.raft.group.raft.leader == number:
            self.raft.group.leader_lost()

    def receive(self, node: int, message: PeerMessage) -> None:
        """A message of a peer that is about this group."""
        match message:
            case Report():
                self._receive_report(node, message)
            case Cursors():
                self.reporter.released(dict(message.merged))
            case Forward():
                self._owner.spawn(self.raft.proposer.serve(node, message))
            case Forwarded():
                self.raft.proposer.answered(message)
            case RunEnded():
                ends = {(end.topic, end.partition): (end.roll, end.byte) for end in message.ends}
                self.raft.coordinator.run_ended(message.session, message.run_id, ends)
            case HistoryAsked():
                self.care.archive.history.answer(node, message)
            case HistoryTold():
                self.care.archive.history.answered(message)

    def _receive_report(self, node: int, report: Report) -> None:
        coordinator = self.raft.coordinator
        self._presence.heard(node, report.health)
        places = {number: SessionPosition(*place) for number, *place in report.positions}
        coordinator.positions(node, report.boot, places)
        if report.merged or report.samples:
            samples = {(number, offset): value for number, offset, value in report.samples}
            coordinator.merged(node, dict(report.merged), samples)
        self.logs.repair.peer_reported(node, places)

    # --- what the parts tell: see events.NodeEvents -----------------------------------------------

    def session_log_unsynced(self, number: int) -> None:
        self.logs.intake.mark_dirty(number)

    def partition_opened(self, number: int) -> None:
        self.care.archive.partition_opened(number)

    def range_merged(self, appended_ms: int) -> None:
        self._owner.range_merged(appended_ms)

    async def sync_raft_log(self) -> None:
        await self.raft.group.sync_now()

    def files_synced_with_merged_logs(self) -> list[File]:
        """The history of what was archived: a snapshot must not count on it unsynced."""
        return self.care.archive.take_dirty()

    def merged_logs_synced(self) -> None:
        self.reporter.state_merged()

    def bytes_received(self, number: int) -> None:
        """A partition may have waited for them, and peers may."""
        self.logs.merging.wake(self.logs.machine.state.inputs[number].partition)
        self.logs.source.session_changed(number)

    def positions_durable(self, positions: Mapping[int, SessionPosition]) -> None:
        self.reporter.state(positions)

    def run_finished(self, session: str, run_id: str, ends: Ends) -> None:
        self.reporter.run_ended(session, run_id, ends)

    def entry_applied(self, index: int, commands: Sequence[AnyCommand], *, rejected: bool) -> None:
        self.raft.coordinator.applied(index, commands, rejected)

    def run_changed(self, session: str) -> None:
        self.raft.coordinator.run_changed(session)
        self.logs.intake.run_changed(session)
        self.reporter.state_session(session)

    def merge_committed(self, merge: Merge) -> None:
        self.logs.intake.committed(merge)

    def inputs_released(self, inputs: Sequence[int]) -> None:
        self.logs.intake.released(inputs)

    def inputs_deleted(self, inputs: Sequence[int]) -> None:
        self.logs.intake.topic_gone(inputs)

    def inputs_removed(self, inputs: Sequence[int]) -> None:
        self.logs.intake.forget(inputs)
        for number in inputs:
            self.logs.source.session_gone(number)

    def logs_known(self, logs: Container[str]) -> None:
        self.care.archive.forget_deleted(logs)

    def records_archived(self, command: ArchiveCommand) -> None:
        self.care.archive.applied(command)

    def reset_applied(self, command: SoftReset | HardReset) -> None:
        if isinstance(command, SoftReset):
            self.raft.snapshotter.begin_anew()
        else:
            self.raft.coordinator.logs_begun_anew()
            self.reporter.state_again()

    def members_changed(self) -> None:
        self._owner.members_changed()

    def leadership_changed(self) -> None:
        """A new leader knows only what it is told from now on."""
        self.raft.coordinator.leadership_changed()
        leader = self.raft.group.raft.leader
        if leader is not None and leader != self._directory.record.number:
            self.reporter.tell_everything(leader)

    def snapshot_installed(self) -> None:
        self.raft.coordinator.leadership_changed()
        self._owner.members_changed()
        self.reporter.state_again()

    def cursors_moved(self, cursors: Mapping[int, int]) -> None:
        self.reporter.cursors(cursors)

    def positions_heard(self) -> None:
        self.raft.staging.positions_changed()
