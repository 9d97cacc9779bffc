"""One replica of a Raft group in this process: its Raft log and state, session logs, merged logs,
and what keeps them current.

It knows of its member what it is given: a `NodeResources`, a `PeerSender` and a `ReplicaOwner`. Its
parts tell it what others have to know (`NodeEvents`), and it decides whom that concerns.

Invariant: positions are stated to others only once this replica has applied what was committed
before it started (rule raft.2).
"""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Container, Mapping, Sequence
from contextlib import suppress

from samelog.archiver.command import ArchiveCommand
from samelog.format.positions import SessionPosition
from samelog.runtime.at_work import AtWork
from samelog.sequencer.building import (
    ReplicaOwner,
    ReplicaSite,
    Seat,
    care_parts,
    log_parts,
    raft_parts,
)
from samelog.sequencer.cluster.leader_upkeep import LeaderUpkeep
from samelog.sequencer.cluster.peers import PeerSender
from samelog.sequencer.cluster.presence import Presence
from samelog.sequencer.cluster.reporter import Reporter
from samelog.sequencer.events import Ends
from samelog.sequencer.host import NodeResources
from samelog.sequencer.ingest.following import Following
from samelog.sequencer.ingest.node_sessions import RunKeeper
from samelog.sequencer.ingest.peer_pulls import PeerPulls
from samelog.sequencer.merge.merging import Merging
from samelog.sequencer.merge.session_store import SessionStore
from samelog.sequencer.parts import MemberParts
from samelog.sequencer.raft.replica import Replica, what_was_saved
from samelog.sequencer.raft.store import RaftStore
from samelog.sequencer.raft.views import KeptFiles
from samelog.sequencer.running import ReplicaTasks
from samelog.sequencer.sites.sources import CopySources
from samelog.sequencer.state.commands import AnyCommand
from samelog.sequencer.state.expiry import forgotten
from samelog.sequencer.state.instructions import Merge, Range
from samelog.sequencer.state.tables.events import RecordEvent
from samelog.sequencer.state.tables.placement import BeginAnew
from samelog.sequencer.state.tables.resets import HardReset, SoftReset
from samelog.store.disk.files import DiskFault, File
from samelog.wire.bounds import METADATA_GROUP, Health
from samelog.wire.peer_messages import (
    Cursors,
    Forward,
    Forwarded,
    PeerMessage,
    Report,
    RunEnded,
)

log = logging.getLogger(__name__)

MARKS_AT_ONCE = 32
"""Logs whose marks are written in one turn of the loop, of thousands that may have new ones."""
SHORT_WAIT_S = 0.02
"""Most bytes that come at all come as fast after the entry that names them."""
REST_S = 30.0
"""Session files are closed of which nothing was needed for so long."""


class GroupReplica:
    """Builds the parts, connects and runs them. Implements events.NodeEvents."""

    def __init__(
        self,
        given: NodeResources,
        member: MemberParts,
        peers: PeerSender,
        presence: Presence,
        owner: ReplicaOwner,
        *,
        seat: Seat,
        pulls: PeerPulls,
    ) -> None:
        """`given.config.data`: where its files are."""
        self.seat, config = seat, given.config
        self._at_work = AtWork()
        self._site = ReplicaSite(seat, given, member, peers, presence, owner, self, self._at_work)
        self.store = RaftStore.open(given.fs, member.raft_log, seat.group, seat.replica)
        machine, self._pending_at_start, unknown = what_was_saved(self.store.snapshot, given.level)
        sessions = SessionStore(
            given.fs,
            os.path.join(config.data, "sessions"),
            machine,
            self,
            member.memory.sessions,
            lost_power=member.directory.lost_power,
        )
        merging = Merging(
            given.fs,
            os.path.join(config.data, "merged"),
            sessions,
            machine,
            syncer=owner.merged_syncer,
            events=self,
            measures=member.measures,
        )
        replica = Replica(machine, sessions, merging, self, given.level)
        self.raft = raft_parts(self._site, self.store, replica, sessions, merging)
        if unknown is not None:
            self.raft.group.halt(unknown)
        raft, sites = self.raft.group.raft, lambda: owner.cluster_machine.state.placement.sites
        sources = self._sources = CopySources(presence.number, sites, raft, self.peers_to_ask)
        self.logs = log_parts(
            self._site,
            self.raft,
            sessions,
            merging,
            pulls=pulls,
            ask=self.peers_to_ask,
            sources=sources,
        )
        self._rest_at = 0.0
        self._build_upkeep(replica, pulls)

    def _build_upkeep(self, replica: Replica, pulls: PeerPulls) -> None:
        """What keeps everything current."""
        site, machine = self._site, replica.machine
        record, is_there = site.member.directory.record, site.presence.is_there
        clock = site.given.clock
        self.reporter = Reporter(
            site.presence,
            record.boot,
            replica=replica,
            coordinator=self.raft.coordinator,
            intake=self.logs.intake,
            merging=self.logs.merging,
            peers=site.peers,
            raft=self.raft.group.raft,
        )
        self.following = Following(
            record.number,
            pulls,
            machine=machine,
            intake=self.logs.intake,
            clock=clock,
            is_there=lambda node: is_there(node) and self._sources.takes_sessions,
        )
        self._run_keeper = RunKeeper(machine, self._has_replica, self.raft.coordinator.run_ended)
        self._upkeep = LeaderUpkeep(
            site.given.config,
            group=self.raft.group,
            replica=replica,
            staging=self.raft.staging,
            upgrade=self.raft.upgrade,
            quotas=site.member.quotas,
            clock=clock,
            abort_forgotten=self._abort_forgotten,
        )
        self.care = care_parts(site, self.raft, self.logs, self.peers_to_ask)
        self._tasks = ReplicaTasks(site.owner.spawn, self.raft, self.logs, self.care)

    def _has_replica(self, node: int) -> bool:
        """Whether a member is up, and has a replica of the group."""
        own = self.logs.machine.state.placement.own
        is_in = self.seat.group == METADATA_GROUP or any(each.member == node for each in own)
        return is_in and self._site.presence.is_there(node)

    # --- running ----------------------------------------------------------------------------------

    def open_logs(self) -> None:
        """Take up what the snapshot left; nothing runs yet."""
        index = self.store.snapshot.last_index if self.store.snapshot else 0
        self.raft.replica.start(self._pending_at_start, index)
        self._pending_at_start = []

    def start(self) -> None:
        """Take part in the group, and work."""
        self.raft.group.begin()
        self.work()

    def work(self) -> None:
        """Run what there is work for, as tasks of the member; what runs goes on."""
        self._tasks.work(keeps=self.has_logs or self.seat.group == METADATA_GROUP)

    def rest(self) -> None:
        """Nothing is under way (`is_busy`), nor to be expected: run nothing, until `work`."""
        self.logs.quotas.count()
        self._tasks.rest()

    def close_files(self) -> None:
        """Close those of which nothing was needed since the last call; sync first what is not."""
        self.logs.sessions.rest()
        self.logs.merging.rest()

    @property
    def rests(self) -> bool:
        """Whether nothing runs."""
        return not self._tasks.run

    @property
    def has_logs(self) -> bool:
        """Whether there is anything here to look after now and then."""
        return bool(self.logs.merging.partitions or self.logs.sessions.opened)

    @property
    def is_busy(self) -> bool:
        """Whether anything is under way or waits here. What others have yet to say is not."""
        logs, repair, raft = self.logs, self.logs.repair, self.raft
        own = raft.group, raft.coordinator, raft.participant, self.reporter, self.following
        parts = logs.merging, logs.sessions.marks, logs.intake, repair.sessions, repair.merged
        busy = (part.is_busy for part in (*own, *parts, self.care))
        return bool(self._at_work) or any(busy)

    async def stop(self) -> None:
        """Answer the requests that wait for entries, and stop copying from other members."""
        self.raft.group.end()
        await self.logs.repair.merged.close()
        await self.logs.repair.sessions.close()
        await self.following.close()

    async def make_durable(self) -> None:
        """Everything that was merged and that there is room for, and the Raft log. The rest is
        recovered as after a crash.
        """
        await self.logs.merging.sync(waits_for_room=False)
        await self.raft.group.sync_now()

    def close(self) -> None:
        """Close every file."""
        self.logs.quotas.forget()
        self.raft.coordinator.close()
        self.logs.intake.untold.close()
        self.logs.merging.close()
        self.care.archive.close()
        self.care.keys.close()
        self.logs.sessions.close()

    def set_members(self, members: Container[int]) -> None:
        """The numbers of all members are these now."""
        self.raft.coordinator.members_changed(members)
        self.reporter.follow_members(members)

    # --- time -------------------------------------------------------------------------------------

    def tick(self) -> None:
        """To be called some times a second."""
        if self.reporter.states and (kept := self.care.take_kept()):
            self.reporter.state_files(kept)
        self.reporter.tick(self._site.given.clock.now())
        self.raft.coordinator.tick()
        self.logs.repair.sessions.tick()
        self.logs.repair.merged.tick()
        self.following.tick()
        self.raft.participant.tick()
        self._look_for_bytes()

    def _look_for_bytes(self) -> None:
        """What the leader names and the publisher does not bring: say so, and get it from peers."""
        raft = self.raft.group.raft
        waits, now = raft.held_back, self._site.given.clock.now()
        if (
            waits is not None
            and raft.leader is not None
            and now - raft.backing.since > SHORT_WAIT_S
        ):
            lacking = self.raft.entry_bytes.lacking(waits)
            self.reporter.state(self.logs.intake.vouched(lacking), is_answer=True)
            self.logs.repair.sessions.peer_reported(raft.leader, lacking)

    def tick_slowly(self) -> None:
        """To be called about once a second."""
        self._save_marks()
        self.raft.participant.look()
        if releasable := self.logs.intake.take_releasable():
            self._site.owner.spawn(self._release(releasable))
        if (now := self._site.given.clock.now()) >= self._rest_at:
            self._rest_at = now + REST_S
            self.logs.sessions.rest()
        self._upkeep.tick()
        for peer in self.peers_to_ask():  # what was said before this replica could use it
            self.logs.repair.sessions.peer_reported(peer, self.raft.coordinator.ahead(peer))
        self.raft.coordinator.forget_even()
        self.care.archive.history.fetch_missing()
        self._run_keeper.tick(now, is_leader=self.raft.group.is_leader)

    def _abort_forgotten(self, now_ms: int) -> None:
        """Abort overdue transactions that group 0 does not know, if there are any."""
        owner = self._site.owner
        if forgotten(self.logs.machine, owner.cluster_machine, now_ms):
            owner.spawn(self._abort_once_current(now_ms))

    async def _abort_once_current(self, now_ms: int) -> None:
        owner = self._site.owner
        with suppress(TimeoutError):  # then they are found again
            await owner.catch_up()
            found = forgotten(self.logs.machine, owner.cluster_machine, now_ms)
            self.raft.coordinator.abort_forgotten(found)

    async def _release(self, inputs: Collection[int]) -> None:
        await self.raft.group.keep_commit_soon()
        self.logs.intake.release(inputs)

    def _save_marks(self) -> None:
        """Persist the durable marks; a full disk only leaves older ones, which are as safe."""
        if self.logs.sessions.marks.is_busy:
            self._site.owner.spawn(self._save_session_marks())
        with self.logs.room_for_marks.attempt("merged"):
            self.logs.merging.save_marks(MARKS_AT_ONCE)

    async def _save_session_marks(self) -> None:
        with self.logs.room_for_marks.attempt("session"):
            await self.logs.sessions.marks.save(self._site.owner.merged_syncer)

    def disk_measured(self, used: int, total: int, health: Health | None = None) -> None:
        """Tell the intake how much it may accept: what is free below the limit, less what is
        accepted and not merged, in all groups. The rest of the disk is Raft's. `health`: what the
        member reports, if this replica speaks for it.
        """
        pending = sum(merge.size for merge in self.logs.merging.pending())
        promised = self.logs.quotas.recount(total, pending)
        limit = total * self._site.given.config.disk_stop_percent // 100
        self.logs.intake.room.set(
            limit - used, promised_bytes=promised, resume_at_bytes=total // 20
        )
        if health is not None:
            self.reporter.state_health(health)

    # --- peers ------------------------------------------------------------------------------------

    def peers_to_ask(self) -> list[int]:
        """Peers that are up, the leader first: it has all merged bytes or can make them."""
        leader = self.raft.group.raft.leader
        there = filter(self._site.presence.is_there, self._site.peers.numbers)
        return sorted(there, key=lambda number: number != leader)

    def peer_gone(self, number: int) -> None:
        """No connection that the peer dialled is left."""
        self.reporter.ended.forget(number)
        if self.raft.group.raft.leader == number:
            self.raft.group.leader_lost()

    def receive(self, node: int, message: PeerMessage) -> None:
        """A message of a peer that is about this group."""
        match message:
            case Report():
                self._receive_report(node, message)
            case Cursors():
                self.reporter.cursors_heard(dict(message.merged))
            case Forward():
                self._site.owner.spawn(self.raft.proposer.serve(node, message))
            case Forwarded():
                self.raft.proposer.answered(message)
            case RunEnded():
                ends = self.reporter.ended.hear(node, message)
                if ends is not None:
                    self.raft.coordinator.run_ended(message.session, message.run_id, ends)
                    self._site.owner.run_ended(message.session, message.run_id, ends)
                if ends is not None and self.raft.group.raft.leader == node:
                    self.reporter.answer(message.session)
            case _:
                self.care.receive(node, message)

    def _receive_report(self, node: int, report: Report) -> None:
        coordinator = self.raft.coordinator
        self._site.presence.heard(node, report.health)
        places = {number: SessionPosition(*place) for number, *place in report.positions}
        coordinator.positions(node, report.boot, places)
        if report.merged or report.samples:
            samples: dict[int, dict[int, int]] = {}
            for number, offset, checksum in report.samples:
                samples.setdefault(number, {})[offset] = checksum
            coordinator.merged(node, report.boot, dict(report.merged), samples)
        kept = {number: KeptFiles(*files) for number, *files in report.files}
        coordinator.files(node, report.boot, kept)
        self.logs.repair.sessions.peer_reported(node, places)

    # --- what the parts tell: see events.NodeEvents -----------------------------------------------

    def session_log_unsynced(self, number: int) -> None:
        if not self._tasks.keeping:
            self._site.owner.has_work()
        self.logs.intake.mark_dirty(number)

    def _has_work(self) -> None:
        if not self._tasks.keeping:
            self._site.owner.has_work()

    def partition_opened(self, number: int) -> None:
        self._has_work()
        self._site.member.memory.tails.follow(self.logs.merging.partitions[number].log)
        self.care.archive.partition_opened(number)

    def partition_stalled(self, number: int) -> None:
        self._has_work()
        self.logs.repair.merged.look_at(number)

    def reader_complained(self) -> None:
        self._has_work()
        self.care.scrubber.complained()

    async def sync_raft_log(self) -> None:
        await self.raft.group.sync_now()

    def files_synced_with_merged_logs(self) -> list[File]:
        """The history of what was archived: a snapshot must not count on it unsynced."""
        return self.care.archive.take_dirty()

    def merged_logs_synced(self, numbers: Collection[int]) -> None:
        self.reporter.state_merged(numbers)

    def bytes_received(self, number: int) -> bool:
        """A partition may have waited for them, the leader, and peers may."""
        coordinator, quiet = self.raft.coordinator, self.reporter.quiet.numbers
        if not self._tasks.keeping:
            self._site.owner.has_work()
        is_awaited = number in quiet or (
            number in coordinator.direct.open and coordinator.received(number)
        )
        held = self.raft.group.raft.backing.held
        if held is not None and self.raft.entry_bytes.may_back(held.entries[0], number):
            self.raft.group.bytes_came()
        self.logs.merging.wake(self.logs.machine.state.sessions.inputs[number].partition)
        stream = self.logs.source.session_logs.get(number)
        if stream is not None:
            stream.changed()
        return is_awaited

    def session_sync_failed(self) -> None:
        try:
            self._site.member.directory.has_lost_writes()
        except DiskFault as fault:
            log.error("the next start takes damage for rot, not for writes that failed: %s", fault)

    def positions_durable(self, positions: Mapping[int, SessionPosition]) -> None:
        self.reporter.state(positions)

    def run_finished(self, session: str, run_id: str, ends: Ends) -> None:
        self.reporter.run_ended(session, run_id, ends)
        self._site.owner.run_ended(session, run_id, ends)

    def entry_applied(self, index: int, commands: Sequence[AnyCommand], *, rejected: bool) -> None:
        self.raft.coordinator.applied(index, commands, rejected)
        raft = self.raft.group.raft
        if raft.backing.held is not None:  # it may name what this entry has opened
            raft.bytes_came(self._site.given.clock.now())

    def run_changed(self, session: str) -> None:
        self.raft.coordinator.run_changed(session)
        self.logs.intake.run_changed(session)
        self.reporter.state_session(session)
        self._site.owner.run_changed(session)

    def merge_committed(self, merge: Merge) -> None:
        self.logs.intake.committed(merge)

    def inputs_released(self, inputs: Sequence[int]) -> None:
        self.logs.intake.released(inputs)

    def inputs_deleted(self, inputs: Sequence[int]) -> None:
        self.logs.intake.topic_gone(inputs)

    def inputs_moved(self, inputs: Sequence[int]) -> None:
        self.logs.intake.moved(inputs)

    def files_go(self) -> None:
        self.raft.group.keep_commit()

    def inputs_removed(self, inputs: Sequence[int]) -> None:
        self.logs.intake.forget(inputs)
        self.reporter.quiet.forget(inputs)
        self.raft.coordinator.direct.forget(inputs)
        for number in inputs:
            self.logs.source.session_gone(number)

    def logs_known(self, logs: Container[str]) -> None:
        self.care.archive.forget_deleted(logs)

    def records_archived(self, command: ArchiveCommand) -> None:
        self.care.archive.applied(command)

    def history_came(self, number: int, records: bytes, targets: Sequence[str]) -> None:
        self.care.archive.history.came(number, records, targets)

    def reset_applied(self, command: SoftReset | HardReset | BeginAnew) -> None:
        if isinstance(command, SoftReset):
            self.raft.snapshotter.begin_anew()
        else:
            self.raft.coordinator.logs_begun_anew()
            self.reporter.state_again()
            self._site.owner.placement_changed()

    def members_changed(self) -> None:
        self._site.owner.members_changed()

    def placement_changed(self) -> None:
        self._site.owner.placement_changed()

    def units_moved(self) -> None:
        self.raft.participant.look_soon()
        self._site.owner.units_moved()

    def topic_changed(self, topic_id: str) -> None:
        self._site.owner.topic_changed(topic_id)

    def session_retired(self, session: str) -> None:
        self.logs.intake.session_retired(session)

    def views_dropped(self, base_ids: Collection[str]) -> None:
        self._site.owner.views_dropped(base_ids)

    def leadership_changed(self) -> None:
        """Report everything to a new leader, which knows only what it is told."""
        self.raft.coordinator.leadership_changed()
        self.reporter.quiet.clear()
        leader = self.raft.group.raft.leader
        if leader == self._site.member.directory.record.number:
            self.reporter.leadership_won()
        elif leader is not None:
            self.reporter.tell_everything(leader)

    def snapshot_installed(self) -> None:
        self.raft.coordinator.leadership_changed()
        for session in sorted(self.logs.intake.awaited | self.raft.coordinator.closer.ended.keys()):
            self.run_changed(session)
        self.logs.intake.state_replaced()
        self._site.owner.members_changed()
        self._site.owner.placement_changed()
        self.units_moved()
        self.reporter.state_again()

    def cursors_moved(self, cursors: Mapping[int, int]) -> None:
        self.reporter.cursors(cursors)

    def bytes_named(self, parts: Sequence[Range]) -> None:
        self.reporter.named(parts)

    def ends_wanted(self, session: str, run_id: str, ends: Ends, nodes: Sequence[int]) -> None:
        self.reporter.ask_ends(session, run_id, ends, nodes)

    def checksums_differ(self, number: int, offset: int) -> None:
        self.logs.merging.no_majority(number, offset)

    def record_event(self, kind: str, text: str) -> None:
        text = f"{self._site.given.config.name}: {text}"[:1000]
        event = RecordEvent(self._site.given.clock.wall_ms(), kind, text)
        self._site.owner.spawn(self._propose_event(event))

    async def _propose_event(self, event: RecordEvent) -> None:
        """In group 0, which everybody has: whoever is asked tells of it."""
        with suppress(TimeoutError):
            await self._site.owner.tell_cluster([event])
