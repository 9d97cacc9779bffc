"""One sequencer node: builds the parts, connects them, runs them, stops them.

Everything runs on one event loop; only waiting for the disk happens in threads. A part that meets a
broken invariant or a failing Raft disk ends the node; a failing session disk only ends its intake.

Invariant: positions are stated to others only once this node has applied what was committed before
it started (DESIGN §11.14).
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any

from shiplog.config.authorisation import Rights
from shiplog.config.types import Fsync, NodeConfig
from shiplog.consensus import Raft, RaftConfig, Role
from shiplog.logformat.batch import MAX_BATCH_BYTES_DEFAULT
from shiplog.logformat.files import DiskFull, FileSystem
from shiplog.runtime.backoff import Backoff
from shiplog.runtime.clock import Clock
from shiplog.runtime.errors import TlsFault
from shiplog.runtime.log import log_event
from shiplog.runtime.tls import ReloadingContext
from shiplog.runtime.transport import Server, serve
from shiplog.sequencer.commands import NodeStarted, Place
from shiplog.sequencer.coordinator import Coordinator
from shiplog.sequencer.dispatch import Dispatcher
from shiplog.sequencer.group import TICK_S, Group
from shiplog.sequencer.host import REAL_HOST, Host, NodeSyncer, Watch
from shiplog.sequencer.intake import Intake
from shiplog.sequencer.log_first import LogFirst
from shiplog.sequencer.log_source import NodeLogSource
from shiplog.sequencer.merging import Merging
from shiplog.sequencer.node_dir import NodeDirectory
from shiplog.sequencer.peers import PeerLink, PeerMessage, make_hello
from shiplog.sequencer.planner import Planner, PlannerLimits
from shiplog.sequencer.proposer import Proposer
from shiplog.sequencer.raft_store import RaftStore
from shiplog.sequencer.repair import Repair
from shiplog.sequencer.replica import Replica, decode_body
from shiplog.sequencer.reporter import Reporter
from shiplog.sequencer.session_store import SessionStore
from shiplog.sequencer.snapshots import Snapshotter
from shiplog.sequencer.state import StateMachine
from shiplog.wire.admin import NodeState
from shiplog.wire.messages import Cursors, Forward, Forwarded, Report, RunEnded

log = logging.getLogger(__name__)

BATCH_OVERHEAD_BYTES = MAX_BATCH_BYTES_DEFAULT - (1 << 20)
HOUSEKEEPING_S = 0.05
MARKS_INTERVAL_S = 1.0
RESYNC_RETRY_S = 0.1
HAND_OVER_TICKS = 50


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
    ) -> None:
        self.config = config
        self.clock = clock
        self.state = NodeState.INITIALIZING
        self.number = [peer.name for peer in config.peers].index(config.name)
        self.rights = Rights(config.grants, [peer.name for peer in config.peers])
        self._tls = tls
        self._rng = rng
        self._host = host
        self._tasks: set[asyncio.Task[None]] = set()
        self._syncers: list[NodeSyncer] = []
        self._failed: asyncio.Future[None] | None = None
        self._server: Server | None = None
        self._tls_watch: Watch | None = None
        self.directory = NodeDirectory.open(
            fs,
            config.data,
            cluster=config.cluster,
            node=config.name,
            bootstrap=bootstrap,
            wall_s=clock.wall_ms() // 1000,
        )
        self.batch_bytes = config.max_record_bytes + BATCH_OVERHEAD_BYTES
        self._build_state(fs)
        self._build_sequencing()
        self._build_service()
        self._connect_parts()

    # --- building ---------------------------------------------------------------------------------

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
            batch_bytes=self.batch_bytes,
        )
        self.replica = Replica(machine, self.sessions, self.merging)
        self._pending_at_start = body.pending

    def _build_sequencing(self) -> None:
        """What decides, with the other nodes: Raft, planning, intake, snapshots."""
        config, machine = self.config, self.replica.machine
        always = config.fsync is Fsync.ALWAYS
        self.group = Group(
            self._make_raft(),
            self.store,
            syncer=self._new_syncer(),
            clock=self.clock,
            send=lambda to, messages: self.links[to].send_raft(messages),
            applier=self.replica,
            sync_always=always,
            on_fault=self.fail,
        )
        limits = PlannerLimits(segment_bytes=config.segment_bytes, batch_bytes=self.batch_bytes)
        self.coordinator = Coordinator(
            self.number,
            len(config.peers),
            machine=machine,
            planner=Planner(machine, limits),
            sessions=self.sessions,
            group=self.group,
            clock=self.clock,
        )
        self.proposer = Proposer(
            self.group, self.replica, self.clock, lambda to, m: self.links[to].send(m)
        )
        self.intake = Intake(
            self.replica,
            self.sessions,
            self.proposer,
            syncer=self._new_syncer(),
            sync_always=always,
            sync_interval_s=config.fsync_interval_ms / 1000,
            batch_bytes=self.batch_bytes,
            auto_create_topics=config.auto_create_topics,
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
        """What talks to others: links to peers, reports, what may be read, repair."""
        config = self.config
        hello = make_hello(
            cluster=config.cluster, node=config.name, boot=self.directory.record.boot
        )
        self.links = {
            number: PeerLink(number, peer, hello, self._tls, self)
            for number, peer in enumerate(config.peers)
            if number != self.number
        }
        self.reporter = Reporter(
            self.number,
            self.directory.record.boot,
            replica=self.replica,
            coordinator=self.coordinator,
            intake=self.intake,
            merging=self.merging,
            links=self.links,
            leader=lambda: self.group.raft.leader,
        )
        self.source = NodeLogSource(self.replica.machine, self.merging, self.sessions)
        self.repair = Repair(
            config,
            machine=self.replica.machine,
            merging=self.merging,
            sessions=self.sessions,
            intake=self.intake,
            tls=self._tls,
            clock=self.clock,
            boot=self.directory.record.boot,
            ask=self._peers_to_ask,
        )

    def _new_syncer(self) -> NodeSyncer:
        syncer = self._host.new_syncer(self.config.data)
        self._syncers.append(syncer)
        return syncer

    def _make_raft(self) -> Raft:
        return Raft(
            self.number,
            tuple(range(len(self.config.peers))),
            config=RaftConfig(),
            random=self._rng,
            now=self.clock.now(),
            snapshot=self.store.snapshot,
            entries=self.store.entries,
            hard_state=self.store.hard_state,
            may_vote=self.directory.record.may_vote,
        )

    def _connect_parts(self) -> None:
        replica, intake, coordinator = self.replica, self.intake, self.coordinator
        replica.on_applied = coordinator.applied
        replica.on_committed = intake.committed
        replica.on_topic_gone = self._topic_gone
        replica.on_run_changed = self._run_changed
        replica.on_role_changed = self._role_changed
        replica.on_installed = self._installed
        intake.on_durable = self.reporter.state
        intake.on_received = self._received
        intake.on_ended = self.reporter.run_ended
        coordinator.on_cursors = self.reporter.cursors
        self.merging.on_durable = self.reporter.state_merged

    # --- running ----------------------------------------------------------------------------------

    async def start(self) -> int:
        """Open the port and join the cluster: the port that is listened on."""
        self._failed = asyncio.get_running_loop().create_future()
        index = self.store.snapshot.last_index if self.store.snapshot else 0
        self.replica.start(self._pending_at_start, index)
        self._pending_at_start = []
        self._watch_disk()
        self._server = await serve(
            self.config.listen, self._tls, lambda connection: Dispatcher(self, connection)
        )
        self._tls_watch = self._host.watch(
            (self.config.tls.ca, self.config.tls.cert, self.config.tls.key), self._reload_tls
        )
        self.group.pump()
        self._spawn(self._tick())
        self._spawn(self.group.run_saver())
        self._spawn(self.intake.run_syncer())
        self._spawn(self.merging.run_syncer())
        self._spawn(self.snapshotter.run())
        self._spawn(self._keep_house())
        self._spawn(self._come_up())
        for link in self.links.values():
            self._spawn(link.run(Backoff(self._rng)))
        return self._server.port

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        task.add_done_callback(self._task_done)
        self._tasks.add(task)

    def _task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self.fail(error)

    def fail(self, error: BaseException) -> None:
        """End the node: a part of it met an error it was not made for."""
        if self._failed is not None and not self._failed.done():
            self._failed.set_exception(error)

    async def run_until_failure(self) -> None:
        """Wait for a part to fail, and raise its error."""
        if self._failed is not None:
            await self._failed

    async def stop(self) -> None:
        """Stop cleanly: hand leadership over, make everything durable, close the files."""
        if self.group.raft.role is Role.LEADER and self.links:
            await self._hand_over()
        if self._server is not None:
            self._server.close()
        if self._tls_watch is not None:
            self._tls_watch.close()
        await self.repair.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.merging.sync()
        await self.group.sync_now()
        for syncer in self._syncers:
            await syncer.close()
        self.merging.close()
        self.sessions.close()
        self.store.close()
        self.directory.close()
        self.state = NodeState.OFFLINE

    def _reload_tls(self) -> None:
        """Take changed certificates over for new connections; unusable ones change nothing."""
        try:
            if self._tls.reload_if_changed():
                log_event(log, logging.INFO, "certificates reloaded", cert=self.config.tls.cert)
        except TlsFault as fault:
            log_event(log, logging.ERROR, "certificates unusable, kept the old", error=fault)

    def _give_leadership_away(self) -> None:
        """Ask the most advanced connected peer to lead."""
        known = {
            number: self.group.raft.progress(number)
            for number in self.links
            if self.coordinator.views[number].connected
        }
        matches = {number: found.match for number, found in known.items() if found is not None}
        if not matches:
            return
        best = max(matches, key=lambda number: matches[number])
        self.group.raft.transfer_leadership(best, self.clock.now())
        self.group.pump()

    async def _hand_over(self) -> None:
        """Give leadership away, and wait a moment for somebody to take it."""
        self._give_leadership_away()
        for _ in range(HAND_OVER_TICKS):
            if self.group.raft.role is not Role.LEADER:
                return
            await asyncio.sleep(TICK_S)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            self.group.tick()

    async def _come_up(self) -> None:
        """Become Live: applied and executed up to what was committed when the node started."""
        self.state = NodeState.SYNCING
        # A look now and then is all these waits need: nobody is told when they end.
        while (index := await self.group.read_index()) is None:  # noqa: ASYNC110
            await asyncio.sleep(RESYNC_RETRY_S)
        await self.replica.wait_applied(index)
        self.replica.forget_deleted()
        wanted = {
            number: partition.next_offset
            for number, partition in self.replica.machine.state.partitions.items()
        }
        self.reporter.state_all()
        while not self._executed(wanted):  # noqa: ASYNC110 - a look every 50 ms is cheap
            await asyncio.sleep(HOUSEKEEPING_S)
        self.state = NodeState.LIVE
        await self._record_boot()

    async def _record_boot(self) -> None:
        """Let the cluster remember this boot, however long there may be no leader."""
        command = NodeStarted(self.config.name, self.directory.record.boot)
        while True:
            try:
                await self.proposer.propose(command)
            except TimeoutError:
                continue
            return

    def trouble(self) -> str:
        """What is wrong with this node, in words; empty if nothing is."""
        troubles = []
        if not self.directory.record.may_vote:
            troubles.append("may not vote: its directory was lost")
        if self.intake.stopped is not None:
            troubles.append(f"intake stopped: {self.intake.stopped}")
        for number, reason in self.coordinator.damaged_inputs().items():
            troubles.append(f"input {number}: {reason}")
        return "; ".join(troubles)[:1000]

    def _watch_disk(self) -> None:
        """Tell the intake how much it may accept: what is free below the limit, less what is
        accepted and not merged. The rest of the disk is Raft's.
        """
        usage = self._host.disk_usage(self.config.data)
        total = usage.used + usage.free
        inputs = self.replica.machine.state.inputs.values()
        unmerged = sum(self.sessions.unmerged_bytes(entry) for entry in inputs)
        pending = sum(merge.size for merge in self.merging.pending())
        limit = total * self.config.disk_stop_percent // 100
        room = limit - usage.used - unmerged - pending
        self.intake.set_room(room, resume_at_bytes=total // 20)

    def _executed(self, wanted: Mapping[int, int]) -> bool:
        partitions = self.merging.partitions
        return all(
            number not in partitions or partitions[number].log.next_offset >= offset
            for number, offset in wanted.items()
        )

    async def _keep_house(self) -> None:
        next_marks = self.clock.now() + MARKS_INTERVAL_S
        while True:
            await asyncio.sleep(HOUSEKEEPING_S)
            self.reporter.tick()
            self.coordinator.tick()
            self.repair.tick()
            if self.clock.now() >= next_marks:
                next_marks = self.clock.now() + MARKS_INTERVAL_S
                self._watch_disk()
                if self.intake.stopped is not None and self.group.is_leader:
                    self._give_leadership_away()  # a leader that takes nothing in plans nothing
                self._save_marks()
                for peer in self._peers_to_ask():  # what it said before this node could use it
                    self.repair.peer_reported(peer, self.coordinator.views[peer].places)

    def _save_marks(self) -> None:
        """Persist the durable marks; a full disk only leaves older ones, which are as safe."""
        try:
            self.sessions.save_marks()
            self.merging.save_marks()
        except DiskFull as fault:
            log_event(log, logging.WARNING, "durable marks not saved", error=fault)

    # --- events -----------------------------------------------------------------------------------

    def _received(self, number: int) -> None:
        """An input has more bytes here: a partition may have waited for them, and peers may."""
        self.merging.wake(self.replica.machine.state.inputs[number].partition)
        self.source.session_changed(number)

    def _run_changed(self, session: str) -> None:
        self.coordinator.run_changed(session)
        self.intake.run_changed(session)
        self.reporter.state_session(session)

    def _topic_gone(self, inputs: list[int]) -> None:
        self.intake.topic_gone(inputs)
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
        self.reporter.state_again()

    # --- peers ------------------------------------------------------------------------------------

    def _peers_to_ask(self) -> list[int]:
        """Connected peers, the leader first: it has all merged bytes or can make them."""
        leader = self.group.raft.leader
        connected = [n for n in self.links if self.coordinator.views[n].connected]
        return sorted(connected, key=lambda number: number != leader)

    def on_raft(self, node: int, messages: Sequence[Any]) -> None:
        """Raft messages of a peer."""
        self.group.receive(node, messages)

    def on_peer_message(self, node: int, message: PeerMessage) -> None:
        """Anything else a peer says."""
        match message:
            case Report():
                self._on_report(node, message)
            case Cursors():
                self.reporter.released(dict(message.merged))
            case Forward():
                self._spawn(self.proposer.serve(node, message))
            case Forwarded():
                self.proposer.answered(message)
            case RunEnded():
                ends = {(end.topic, end.partition): (end.roll, end.byte) for end in message.ends}
                self.coordinator.run_ended(message.session, message.run_id, ends)

    def _on_report(self, node: int, report: Report) -> None:
        places = {number: Place(*place) for number, *place in report.positions}
        self.coordinator.positions(node, report.boot, places)
        if report.merged or report.samples:
            samples = {(number, offset): value for number, offset, value in report.samples}
            self.coordinator.merged(node, dict(report.merged), samples)
        self.repair.peer_reported(node, places)

    def on_peer_connected(self, node: int) -> None:
        """The connection to a peer stands: it hears everything anew."""
        self.reporter.tell_everything(node)

    def on_peer_gone(self, node: int) -> None:
        """The connection a peer dialled broke."""
        self.coordinator.views[node].connected = False
        if self.group.raft.leader == node:
            self.group.leader_lost()
