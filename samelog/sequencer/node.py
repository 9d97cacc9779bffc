"""One sequencer node: builds the parts, connects them, runs them, stops them.

Everything runs on one event loop; only waits for the disk use threads. A broken invariant or a
failing Raft disk ends the node; a failing session disk only ends its intake.

Invariant: positions are stated to others only once this node has applied what was committed before
it started (invariants.md, rule 14).
"""

from __future__ import annotations

import logging
import os
import random
from collections import Counter
from collections.abc import Coroutine, Sequence
from typing import Any

from samelog.admin.answers import NodeState
from samelog.archiver.node_archive import NodeArchive
from samelog.config.authorisation import Rights
from samelog.config.tables.node import Fsync, NodeConfig
from samelog.consensus import Role
from samelog.format.batch import MAX_BATCH_BYTES_DEFAULT
from samelog.format.errors import LogFormatError
from samelog.format.positions import SessionPosition
from samelog.runtime.clock import Clock
from samelog.runtime.log import log_event
from samelog.runtime.network.tls import ReloadingContext
from samelog.runtime.network.transport import Server, serve
from samelog.sequencer.admin.resets import carry_out
from samelog.sequencer.cluster.archiving import archiver_parts
from samelog.sequencer.cluster.changes import Changes
from samelog.sequencer.cluster.file_guard import FileGuard
from samelog.sequencer.cluster.housekeeping import Housekeeper
from samelog.sequencer.cluster.links import Links
from samelog.sequencer.cluster.members import Members, NotAMember
from samelog.sequencer.cluster.node_dir import NodeDirectory, NodePlace, place_in
from samelog.sequencer.cluster.peers import PeerMessage, make_hello
from samelog.sequencer.cluster.repair import Repair
from samelog.sequencer.cluster.reporter import Reporter
from samelog.sequencer.cluster.restoring import restored
from samelog.sequencer.cluster.scrubber import Scrubber
from samelog.sequencer.cluster.staging import Staging
from samelog.sequencer.connections import Connections
from samelog.sequencer.dispatch import Dispatcher
from samelog.sequencer.host import REAL_HOST, Host, NodeSyncer, Service
from samelog.sequencer.ingest.following import Following
from samelog.sequencer.ingest.intake import Intake
from samelog.sequencer.ingest.log_source import NodeLogSource
from samelog.sequencer.ingest.node_sessions import RunKeeper
from samelog.sequencer.ingest.quotas import QuotaKeeper
from samelog.sequencer.ingest.unknown_logs import UnknownLogs
from samelog.sequencer.measures import Measures
from samelog.sequencer.merge.log_first import LogFirst
from samelog.sequencer.merge.merging import Merging
from samelog.sequencer.merge.planner import Planner, PlannerLimits
from samelog.sequencer.merge.session_store import SessionStore
from samelog.sequencer.parts import LogParts, MemberParts, NodeStatus, PeerParts, RaftParts
from samelog.sequencer.raft.coordinator import Coordinator
from samelog.sequencer.raft.group import Group
from samelog.sequencer.raft.proposer import Proposer
from samelog.sequencer.raft.replica import Replica, decode_body
from samelog.sequencer.raft.snapshots import Snapshotter
from samelog.sequencer.raft.store import RaftStore
from samelog.sequencer.startup import come_up
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.tasks import Tasks
from samelog.sequencer.watched_files import WatchedFiles
from samelog.store.disk.files import FileSystem
from samelog.wire import peer_messages as peer

log = logging.getLogger(__name__)

BATCH_OVERHEAD_BYTES = MAX_BATCH_BYTES_DEFAULT - (1 << 20)


class Node:
    """One voting member of a cluster."""

    def __init__(
        self,
        config: NodeConfig,
        *,
        fs: FileSystem,
        clock: Clock,
        tls: ReloadingContext,
        rng: random.Random,
        bootstrap: bool,
        host: Host = REAL_HOST,
        place: NodePlace | None = None,
    ) -> None:
        """`place`: what the cluster says of this node; None: what the configuration does, which is
        right for a cluster that is made from it.
        """
        self.config = config
        self.clock = clock
        self.status = NodeStatus()
        self.rights = Rights(config.grants, ())
        self.services: list[Service] = []
        """What else it offers once it knows what the cluster knows."""
        self._tls = tls
        self._rng = rng
        self._host = host
        self._fs = fs
        self.measures = Measures(clock)
        self.connections = Connections(self.measures)
        self._tasks = Tasks()
        self.syncers: list[NodeSyncer] = []
        self._server: Server | None = None
        self.watched: WatchedFiles | None = None
        self.directory = NodeDirectory.open(
            fs,
            config.data,
            place or place_in(config),
            bootstrap=bootstrap,
            wall_s=clock.wall_ms() // 1000,
            host_boot=host.boot(),
            at_risk=config.fsync is Fsync.INTERVAL,
        )
        self.number = self.directory.record.number
        self.batch_bytes = config.max_record_bytes + BATCH_OVERHEAD_BYTES
        self._dialled: Counter[int] = Counter()
        self._build_state(fs)
        self._build_sequencing()
        self._build_service()
        self._build_upkeep()
        self._connect_parts()

    def _build_state(self, fs: FileSystem) -> None:
        """What is on disk: Raft's files, session logs, merged logs, and the state they give."""
        config = self.config
        self.store = RaftStore.open(
            fs,
            os.path.join(config.data, "raft", "0"),
            cluster=config.cluster,
            node=self.number,
        )
        body = decode_body(self.store.snapshot.data if self.store.snapshot else b"")
        machine = StateMachine.decode(body.state)
        self.sessions = SessionStore(fs, os.path.join(config.data, "sessions"), machine)
        self.merging = Merging(
            fs,
            os.path.join(config.data, "merged"),
            self.sessions,
            syncer=LogFirst(self._new_syncer(), lambda: self.group.sync_now()),  # noqa: PLW0108
        )
        self.members = Members(machine, self.directory.record.members, configured=config.peers)
        self.replica = Replica(machine, self.sessions, self.merging)
        self._pending_at_start = body.pending

    def _build_sequencing(self) -> None:
        """What decides, with the other nodes: Raft, planning, intake, snapshots."""
        config, machine = self.config, self.replica.machine
        self.group = Group(
            restored(self.store, self.directory.record, self._rng, now=self.clock.now()),
            self.store,
            syncer=self._new_syncer(),
            clock=self.clock,
            send=lambda to, messages: self.links.send_raft(to, messages),  # noqa: PLW0108
            applier=self.replica,
            sync_always=config.fsync is Fsync.ALWAYS,
            on_fault=self.fail,
        )
        self.coordinator = Coordinator(
            self.number,
            lambda: self.group.raft.voters,
            machine=machine,
            planner=Planner(machine, PlannerLimits(segment_bytes=config.segment_bytes)),
            sessions=self.sessions,
            group=self.group,
            clock=self.clock,
        )
        self.proposer = Proposer(
            self.group,
            self.replica,
            self.clock,
            lambda to, message: self.links.send(to, message),  # noqa: PLW0108
        )
        self.quotas = QuotaKeeper(self.replica.machine, self.sessions, config.quotas)
        self.intake = Intake(
            self.replica,
            self.sessions,
            self.proposer,
            syncer=self._new_syncer(),
            sync_always=config.fsync is Fsync.ALWAYS,
            sync_interval_s=config.fsync_interval_ms / 1000,
            batch_bytes=self.batch_bytes,
            auto_create_topics=config.auto_create_topics,
            quotas=self.quotas,
        )
        self.snapshotter = Snapshotter(
            self.group,
            self.replica,
            self.merging,
            self.store,
            self.coordinator,
            interval_s=config.snapshot_interval_s,
        )

    def _build_service(self) -> None:
        """What talks to others: links to peers, reports, what may be read."""
        config = self.config
        known = self.directory.record
        hello = make_hello(
            cluster=config.cluster, node=config.name, boot=known.boot, number=self.number
        )
        self.links = Links(hello, self._tls, self, self._rng)
        self.changes = Changes(
            self.number,
            group=self.group,
            machine=self.replica.machine,
            members=self.members,
            coordinator=self.coordinator,
            clock=self.clock,
            connected=self._peers_to_ask,
        )
        self.reporter = Reporter(
            self.number,
            self.directory.record.boot,
            replica=self.replica,
            coordinator=self.coordinator,
            intake=self.intake,
            merging=self.merging,
            links=self.links.open,
            leader=lambda: self.group.raft.leader,
        )
        self.source = NodeLogSource(
            self.replica.machine,
            self.merging,
            self.sessions,
            unknown=UnknownLogs(self.proposer.catch_up, self._tasks.spawn),
        )

    def _build_upkeep(self) -> None:
        """What gets what is lacking, and looks after everything."""
        config = self.config
        self.repair = Repair(
            config,
            self._fs,
            machine=self.replica.machine,
            merging=self.merging,
            sessions=self.sessions,
            intake=self.intake,
            tls=self._tls,
            clock=self.clock,
            boot=self.directory.record.boot,
            ask=self._peers_to_ask,
        )
        self.scrubber = Scrubber(
            self._fs,
            self.merging,
            self.repair,
            config=config.scrub,
            in_thread=self._host.in_thread,
            clock=self.clock,
        )
        self.file_guard = FileGuard(self, self._fs, self._host.in_thread)
        self.following = Following(
            config,
            self.number,
            machine=self.replica.machine,
            intake=self.intake,
            tls=self._tls,
            clock=self.clock,
            boot=self.directory.record.boot,
            is_there=self.is_there,
        )
        self.staging = Staging(self)
        self._make_records()
        self.run_keeper = RunKeeper(self.replica.machine, self.is_there, self.coordinator.run_ended)
        parts, fs, host = (self.member, self.logs, self.raft, self.peers), self._fs, self._host
        self.archive = NodeArchive(archiver_parts(*parts, fs=fs, host=host, ask=self._peers_to_ask))
        self._housekeeper = Housekeeper(self, self._host)

    def _make_records(self) -> None:
        config, clock, files = self.config, self.clock, self.directory
        machine = self.replica.machine
        seen = self.measures, self.connections, self.status
        self.member = MemberParts(config, clock, files, self.rights, *seen)
        held = self.sessions, self.merging, self.intake, self.source, self.repair
        driven = self.proposer, self.coordinator, self.staging, self.snapshotter
        self.logs = LogParts(machine, *held)
        self.raft = RaftParts(self.group, self.replica, *driven)
        self.peers = PeerParts(self.number, self.members, self.links, self.changes, self.is_there)

    def _new_syncer(self) -> NodeSyncer:
        syncer = self._host.new_syncer(self.config.data)
        self.syncers.append(syncer)
        return syncer

    def _connect_parts(self) -> None:
        replica, intake, coordinator = self.replica, self.intake, self.coordinator
        replica.on_applied = coordinator.applied
        replica.on_archived = self.archive.applied
        replica.on_deleted_known = self.archive.forget_deleted
        replica.on_committed = intake.committed
        replica.on_released = intake.released
        replica.on_topic_gone = intake.topic_gone
        replica.on_inputs_gone = self._inputs_gone
        replica.on_run_changed = self._run_changed
        replica.on_role_changed = self._role_changed
        replica.on_installed = self._installed
        replica.on_reset = lambda command: carry_out(self.raft, self.reporter, command)
        replica.on_members_changed = self._members_changed
        intake.on_durable = self.reporter.state
        intake.on_received = self._received
        intake.on_ended = self.reporter.run_ended
        coordinator.on_cursors = self.reporter.cursors
        coordinator.on_positions = self.staging.positions_changed
        self.merging.on_durable = self.reporter.state_merged
        self.merging.on_executed = self.measures.merged
        self.merging.on_opened = self.archive.partition_opened
        self.merging.more_dirty = self.archive.take_dirty

    async def start(self) -> int:
        """Open the port and join the cluster: the port that is listened on."""
        self._tasks.begin()
        index = self.store.snapshot.last_index if self.store.snapshot else 0
        self._follow_members()
        self.replica.start(self._pending_at_start, index)
        self._pending_at_start = []
        self._housekeeper.watch_disk()
        self.watched = WatchedFiles(self._host, self.config.tls, self._tls, self.archive.policy)
        http = self._host.open_http
        self._server = await serve(
            self.config.listen, self._tls, lambda link: Dispatcher(self, link), open_http=http
        )
        self.group.pump()
        for run in (self.group.run_ticks, self.group.run_saver, self.intake.run_syncer):
            self._tasks.spawn(run())
        self._tasks.spawn(self.merging.run_syncer())
        self.archive.start(self._tasks.spawn)
        for part in (self.snapshotter, self._housekeeper, self.scrubber, self.file_guard):
            self._tasks.spawn(part.run())
        self._tasks.spawn(come_up(self))
        self.links.start(self._tasks.spawn)
        return self._server.port

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run something that ends with the node, and ends it if it fails."""
        self._tasks.spawn(work)

    def fail(self, error: BaseException) -> None:
        """End the node: a part of it met an error it was not made for."""
        self._tasks.fail(error)

    async def run_until_failure(self) -> None:
        """Wait for a part to fail, and raise its error; NodeDirectoryError if that is because the
        data directory is gone.
        """
        try:
            await self._tasks.wait_failure()
        except LogFormatError:
            self.directory.check_is_there()
            raise

    async def stop(self) -> None:
        """Stop cleanly: hand leadership over, make everything durable, close the files."""
        if self.group.raft.role is Role.LEADER:
            await self.changes.hand_over()
        for service in self.services:
            await service.close()
        if self._server is not None:
            self._server.close()
        if self.watched is not None:
            self.watched.close()
        await self.repair.close()
        await self.following.close()
        await self._tasks.cancel()
        await self.merging.sync()
        await self.group.sync_now()
        for syncer in self.syncers:
            await syncer.close()
        self.merging.close()
        self.archive.close()
        self.sessions.close()
        self.store.close()
        self.directory.stopped_cleanly()
        self.directory.close()
        self.status.state = NodeState.OFFLINE

    def _received(self, number: int) -> None:
        """An input has more bytes here: a partition may have waited for them, and peers may."""
        self.merging.wake(self.replica.machine.state.inputs[number].partition)
        self.source.session_changed(number)

    def _run_changed(self, session: str) -> None:
        self.coordinator.run_changed(session)
        self.intake.run_changed(session)
        self.reporter.state_session(session)

    def _inputs_gone(self, inputs: list[int]) -> None:
        self.intake.forget(inputs)
        for number in inputs:
            self.source.session_gone(number)

    def _role_changed(self) -> None:
        self.coordinator.leadership_changed()
        leader = self.group.raft.leader
        if leader is not None and leader != self.number:
            self.reporter.tell_everything(leader)

    def _installed(self) -> None:
        """A snapshot replaced the state: all that was derived from the old one is stale."""
        self.coordinator.leadership_changed()
        self._members_changed()
        self.reporter.state_again()

    def _members_changed(self) -> None:
        """The member list moved: say so, also to whom it does not name any more, and go by it."""
        self.links.send_all(self.members.told())
        self._follow_members()
        record = self.directory.record
        try:
            self.members.check(record.node, record.number, record.members_version)
        except NotAMember as error:
            log_event(log, logging.ERROR, "no member", error=error)
            self.fail(error)

    def _follow_members(self) -> None:
        members, peers = self.members.all, self.members.peers(self.number)
        self.links.follow(peers)
        self.repair.follow(peers)
        self.following.follow(peers)
        self.rights.follow(member.identity for member in members.values())
        self.coordinator.follow(members)

    def peer_introduced(self, number: int, boot: int) -> None:
        """A peer dialled in: if it began anew, what it acknowledged before counts no more."""
        if boot != self.coordinator.views[number].boot:
            self.group.raft.peer_restarted(number)

    def is_there(self, number: int) -> bool:
        """Whether a node is up, as far as is known here."""
        view = self.coordinator.views.get(number)
        return number == self.number or (view is not None and view.connected)

    def _peers_to_ask(self) -> list[int]:
        """Connected peers, the leader first: it has all merged bytes or can make them."""
        leader = self.group.raft.leader
        connected = [n for n in self.links.open if self.coordinator.views[n].connected]
        return sorted(connected, key=lambda number: number != leader)

    def listen_to_peers_again(self) -> None:
        """What peers said before this node could use it."""
        for number in self._peers_to_ask():
            self.repair.peer_reported(number, self.coordinator.views[number].places)

    def on_raft(self, node: int, messages: Sequence[Any]) -> None:
        """Raft messages of a peer."""
        self.group.receive(node, messages)

    def on_peer_message(self, node: int, message: PeerMessage) -> None:
        """Anything else a peer says."""
        match message:
            case peer.Report():
                self._on_report(node, message)
            case peer.Cursors():
                self.reporter.released(dict(message.merged))
            case peer.Forward():
                self._tasks.spawn(self.proposer.serve(node, message))
            case peer.Forwarded():
                self.proposer.answered(message)
            case peer.RunEnded():
                ends = {(end.topic, end.partition): (end.roll, end.byte) for end in message.ends}
                self.coordinator.run_ended(message.session, message.run_id, ends)
            case peer.HistoryAsked():
                self.archive.history.answer(node, message)
            case peer.HistoryTold():
                self.archive.history.answered(message)
            case peer.MemberList():
                if self.members.hear(message):
                    self._members_changed()

    def _on_report(self, node: int, report: peer.Report) -> None:
        places = {number: SessionPosition(*place) for number, *place in report.positions}
        self.coordinator.positions(node, report.boot, places)
        if report.merged or report.samples:
            samples = {(number, offset): value for number, offset, value in report.samples}
            self.coordinator.merged(node, dict(report.merged), samples)
        self.coordinator.heard(node, report.health)
        self.repair.peer_reported(node, places)

    def on_peer_connected(self, node: int) -> None:
        """The connection to a peer stands: it hears everything anew."""
        self.links.send(node, self.members.told())
        self.reporter.tell_everything(node)

    def on_peer_dialled(self, node: int) -> None:
        """A peer dialled a connection."""
        self._dialled[node] += 1

    def on_peer_gone(self, node: int) -> None:
        """A connection a peer dialled broke; it is gone when that was the last one."""
        self._dialled[node] -= 1
        if not self._dialled[node]:
            self.coordinator.views[node].connected = False
            if self.group.raft.leader == node:
                self.group.leader_lost()
