"""One sequencer node: builds the member's parts and its replica, connects them, runs them, stops
them.

Everything runs on one event loop; only waits for the disk use threads. A broken invariant or a
failing Raft disk ends the node; a failing session disk only ends its intake.

Invariant: positions are stated to others only once this node has applied what was committed before
it started (rule raft.2).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Coroutine, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from samelog.admin.answers import NodeState
from samelog.config.tables.node import NodeConfig
from samelog.consensus import Role
from samelog.format.errors import LogFormatError
from samelog.runtime.log import log_event
from samelog.runtime.network.transport import Connection, Handler, Server, serve
from samelog.sequencer.admin.parts import MembersDesk, NodeServices, parts_of
from samelog.sequencer.admin.status import tell_state
from samelog.sequencer.admin.topics import create_by_default
from samelog.sequencer.building import Seat
from samelog.sequencer.cluster.agreed_clock import AgreedClock
from samelog.sequencer.cluster.changes import Changes
from samelog.sequencer.cluster.group_keeper import GroupKeeper
from samelog.sequencer.cluster.hold_reports import HoldReports
from samelog.sequencer.cluster.housekeeping import Housekeeper
from samelog.sequencer.cluster.links import Links
from samelog.sequencer.cluster.lives import Acknowledged, Lives
from samelog.sequencer.cluster.members import Members, NotAMember
from samelog.sequencer.cluster.node_dir import NodePlace
from samelog.sequencer.cluster.own_life import OwnLife
from samelog.sequencer.cluster.peers import Callers, make_hello
from samelog.sequencer.cluster.presence import Presence
from samelog.sequencer.cluster.repair.merged import NOWHERE, OtherGroups
from samelog.sequencer.data_groups.hosting import DataGroups
from samelog.sequencer.data_groups.intake import RoutedIntake
from samelog.sequencer.data_groups.placing import Placing
from samelog.sequencer.data_groups.routing import RoutedLogs
from samelog.sequencer.data_groups.stages import Stages
from samelog.sequencer.dispatch import Dispatcher, Gate
from samelog.sequencer.events import Ends
from samelog.sequencer.group_replica import GroupReplica
from samelog.sequencer.host import NodeResources, NodeSyncer
from samelog.sequencer.ingest.checking import BatchChecker
from samelog.sequencer.parts import PeerParts
from samelog.sequencer.peer_events import PeerEvents
from samelog.sequencer.sites.whereabouts import AllBehind, Behind, Whereabouts
from samelog.sequencer.startup import come_up, open_member
from samelog.sequencer.state.commands import AnyCommand
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.tables.sites import SetSiteCommand
from samelog.sequencer.state.types import State
from samelog.sequencer.tasks import Tasks
from samelog.sequencer.watched_files import WatchedFiles
from samelog.store.disk.disk_errors import DiskFault
from samelog.wire.bounds import Health, ReplicaEnd
from samelog.wire.messages import Hello
from samelog.wire.peer_messages import (
    KeysAsked,
    KeysTold,
    LogsHeld,
    MemberList,
    PartOfRunClosed,
    PassReport,
)

log = logging.getLogger(__name__)


class Node:
    """One member of a cluster. Implements building.ReplicaOwner, peer_events.PeerOwner and
    housekeeping.Ticked.
    """

    def __init__(
        self, given: NodeResources, *, bootstrap: bool, place: NodePlace | None = None
    ) -> None:
        """`place`: what the cluster says of a node without a directory; None: what the
        configuration does, which is right for a cluster that is made from it.
        """
        config, self._clock = given.config, AgreedClock(given.clock)
        clock = self._clock
        self._given = given = replace(given, clock=clock)
        self._tasks = Tasks()
        self._server: Server | None = None
        self._watched: WatchedFiles | None = None
        self.services = NodeServices()
        """What else it offers once it knows what the cluster knows."""
        self.member = open_member(given, place, bootstrap=bootstrap)
        directory, record = self.member.directory, self.member.directory.record
        self.merged_syncer, self.raft_syncer = self._new_syncer(), self._new_syncer()
        self._events = PeerEvents(self)
        events, told, level = self._events, self._list, self._level
        links = Links(self._hello, given.tls, events, given.rng, clock, told=told, level=level)
        presence = Presence(record.number, clock.heard)
        self.group_replica = GroupReplica(
            given,
            self.member,
            links,
            presence,
            self,
            seat=Seat(0, 0, record.voters, record.may_vote),
            pulls=links,
        )
        self.logs, self.raft = self.group_replica.logs, self.group_replica.raft
        clock.follow(lambda: self.raft.group.raft.voters)
        self.care = self.group_replica.care
        self.life = OwnLife(directory, self.raft.group, self.logs.machine)
        lives = Lives(self.life.told, self.life.recorded, self._replica_ends, self._acknowledged)
        members = Members(
            self.logs.machine, record.members, record.members_version, configured=config.peers
        )
        changes = Changes(
            record.number,
            group=self.raft.group,
            machine=self.logs.machine,
            members=members,
            coordinator=self.raft.coordinator,
            clock=clock,
            connected=self.group_replica.peers_to_ask,
            lives=lives,
        )
        keeper, callers = self._new_keeper(changes, presence), Callers()
        known = members, lives, callers, links, changes, keeper, presence
        whereabouts = self._new_whereabouts(record.number, links)
        hold_reports = HoldReports(links, self.member.connections.holds)
        self.member.connections.on_holds = hold_reports.changed
        self.peers = PeerParts(record.number, *known, whereabouts, hold_reports)
        self.data_groups = DataGroups(
            given, self, self.member, links, presence=presence, lives=lives
        )
        self._intake = self._new_intake(presence)
        self.placing = self._new_placing(presence, links)
        self.stages = self._new_stages(links)

    def _new_intake(self, presence: Presence) -> RoutedIntake:
        self.logs.intake.create_topic = partial(create_by_default, self)
        return RoutedIntake(self.logs.intake, self.logs.machine, self.data_groups, presence)

    def _new_keeper(self, changes: Changes, presence: Presence) -> GroupKeeper:
        return GroupKeeper(
            changes,
            group=self.raft.group,
            machine=self.logs.machine,
            coordinator=self.raft.coordinator,
            presence=presence,
            clock=self._given.clock,
            cluster=lambda: self.cluster,
            takes_in=lambda: self.logs.intake.stopped is None,
        )

    def _new_whereabouts(self, number: int, links: Links) -> Whereabouts:
        return Whereabouts(
            number,
            self._given.config.place.site,
            machine=self.logs.machine,
            propose=lambda command: self.spawn(self._note_site(command)),
            behind=AllBehind(self._behind),
            silent_s=lambda: self.raft.group.raft.leader_silent_s(self._given.clock.now()),
            clock=self._given.clock,
            send_all=links.send_all,
        )

    def _behind(self) -> list[Behind]:
        logs = (self.logs, *(logs for logs, _, _ in self.data_groups.held))
        return [each.repair.merged for each in logs]

    async def _note_site(self, command: SetSiteCommand) -> None:
        with suppress(TimeoutError):  # it is tried again
            await self.raft.proposer.propose(command)

    def _new_placing(self, presence: Presence, links: Links) -> Placing:
        given = self._given
        return Placing(
            given.config.raft.replace_after_s,
            group=self.raft.group,
            cluster=lambda: self.cluster,
            data_groups=self.data_groups,
            presence=presence,
            clock=given.clock,
            send=links.send,
        )

    def _new_stages(self, links: Links) -> Stages:
        return Stages(
            self.peers.number,
            machine=self.logs.machine,
            raft=self.raft,
            data_groups=self.data_groups,
            send=links.send,
            clock=self._given.clock,
        )

    @property
    def group_desk(self) -> MembersDesk | None:
        """See admin.parts.ServedNode."""
        return self.services.group_desk

    def _hello(self, to: int) -> Hello:
        config, life = self._given.config, self.peers.lives.own_to(to)
        number = self.member.directory.record.number
        return make_hello(cluster=config.cluster, node=config.name, number=number, life=life)

    def _replica_ends(self, to: int) -> tuple[ReplicaEnd, ...]:
        return self.data_groups.log_ends.told(to)

    def _acknowledged(self, by: int) -> Iterator[Acknowledged]:
        yield from self.life.acknowledged(by)
        yield from self.data_groups.log_ends.acknowledged(by)

    def _list(self) -> MemberList:
        return self.peers.members.told()

    def _level(self) -> int:
        return self.level

    @property
    def checker(self) -> None:
        """See building.ReplicaOwner: group 0's replica makes it."""

    @property
    def shared_checker(self) -> BatchChecker:
        """See replica.ReplicaHost."""
        return self.logs.intake.checker

    @property
    def level(self) -> int:
        """The cluster's feature level."""
        return self.raft.replica.level

    @property
    def cluster(self) -> State:
        """The state of group 0, as it is here."""
        return self.logs.machine.state

    @property
    def syncers(self) -> tuple[NodeSyncer, ...]:
        """What makes files of the data directory durable, in rounds of their own."""
        return self.merged_syncer, self.raft_syncer

    # --- running ----------------------------------------------------------------------------------

    async def start(self) -> int:
        """Open the port and join the cluster: the port that is listened on."""
        given, config = self._given, self._given.config
        self._tasks.begin()
        self._use_members()
        self.group_replica.open_logs()
        self._measure_disk()
        policy = self.care.archive.policy
        self._watched = WatchedFiles(given.host, config.tls, given.tls, policy)
        self._server = await serve(
            config.listen,
            given.tls,
            self._greet,
            open_http=given.host.open_http,
            is_admin=self.member.rights.is_admin,
            limits=config.limits,
        )
        self.group_replica.start()
        self.data_groups.start()
        self._note_compared()
        delay = self.member.measures.loop_delay
        self._tasks.spawn(Housekeeper(self, given.clock, delay).run())
        self._tasks.spawn(come_up(self.member, self.group_replica, self.life, self.services.all))
        self.peers.links.start(self._tasks.spawn)
        return self._server.port

    def _note_compared(self) -> None:
        """All replicas of this node have compared the ends of their logs with the bytes."""
        if not self.data_groups.damaged:
            try:
                self.member.directory.has_compared_bytes()
            except DiskFault as fault:
                log.error("the next start takes damage for writes that were lost: %s", fault)

    def _greet(self, connection: Connection) -> Handler:
        filters = self.member.filters
        source = RoutedLogs(self.logs.source, self.logs.machine, self.data_groups, filters)
        gate = Gate(
            self.member,
            self.raft.group,
            self.logs,
            source,
            self._intake,
            self.peers,
            self._events,
        )
        return Dispatcher(gate, connection)

    def reconfigure(self, config: NodeConfig, problem: str) -> None:
        """Go by what may change while it runs; `problem`: why a newer configuration is not in
        force, empty if it is.
        """
        self.member.status.config_problem = problem
        self.member.rights.grant(config.grants)
        self.member.quotas.limit(config.quotas)
        if self._server is not None:
            self._server.limits = config.limits
        for service in self.services.all:
            service.reconfigure(config)

    async def run_until_failure(self) -> None:
        """Wait for a part to fail, and raise its error; NodeDirectoryError if that is because the
        data directory is gone.
        """
        try:
            await self._tasks.wait_failure()
        except LogFormatError:
            self.member.directory.check_is_there()
            raise

    async def stop(self) -> None:
        """Stop cleanly: hand leadership over, make everything durable, close the files."""
        self.member.status.is_stopping = True
        self._tell_state()
        self.data_groups.hand_over()
        if self.raft.group.raft.role is Role.LEADER:
            await self.peers.changes.hand_over()
        for service in self.services.all:
            await service.close()
        if self._server is not None:
            self._server.close()
        if self._watched is not None:
            self._watched.close()
        for replicas in (self.group_replica, self.data_groups):
            await replicas.stop()
        await self._tasks.cancel()
        await self.member.judge.close()
        for replicas in (self.group_replica, self.data_groups):
            await replicas.make_durable()
        for syncer in self.syncers:
            await syncer.close()
        self.group_replica.close()
        self.data_groups.close()
        self.member.raft_log.close()
        self.member.directory.stopped_cleanly()
        self.member.directory.close()
        self.member.status.state = NodeState.OFFLINE

    # --- what its replica asks and tells ----------------------------------------------------------

    def _new_syncer(self) -> NodeSyncer:
        return self._given.host.new_syncer(self._given.config.data)

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run something that ends with the node, and ends it if it fails."""
        return self._tasks.spawn(work)

    def fail(self, error: BaseException) -> None:
        """End the node: a part of it met an error it was not made for."""
        self._tasks.fail(error)

    async def catch_up(self) -> None:
        """See replica.ReplicaHost."""
        await self.raft.proposer.catch_up()

    async def keep_commit(self) -> None:
        """See replica.ReplicaHost."""
        await self.raft.group.keep_commit_soon()

    def send_about_keys(self, node: int, message: KeysAsked | KeysTold) -> None:
        """See building.ReplicaOwner."""
        self.data_groups.send_about_keys(node, message)

    @property
    def elsewhere(self) -> OtherGroups:
        """See building.ReplicaOwner."""
        return NOWHERE

    @property
    def cluster_machine(self) -> StateMachine:
        """See building.ReplicaOwner."""
        return self.logs.machine

    async def tell_cluster(self, commands: Sequence[AnyCommand]) -> None:
        """See building.ReplicaOwner."""
        await self.raft.proposer.propose_all(commands)

    def units_moved(self) -> None:
        """What spans several groups has moved in group 0."""
        self.data_groups.units_moved()

    def names(self) -> Mapping[int, str]:
        """The members' names, by number."""
        return {number: member.name for number, member in self.peers.members.all.items()}

    def members_changed(self) -> None:
        """The member list moved: say so, also to whom it does not name any more, and go by it."""
        self.life.settle()
        members, record = self.peers.members, self.member.directory.record
        self.peers.links.send_all(members.told())
        self._use_members()
        try:
            members.check(record.node, record.number, record.members_version)
        except NotAMember as error:
            log_event(log, logging.ERROR, "no member", error=error)
            self.fail(error)

    def placement_changed(self) -> None:
        """The table of data groups moved."""
        self.data_groups.follow()

    def topic_changed(self, topic_id: str) -> None:
        """A topic has other settings, or is gone."""
        self.data_groups.topic_changed(topic_id)

    def views_dropped(self, base_ids: Collection[str]) -> None:
        """Wake the readers of these topics' partitions, who may read views that are gone."""
        for topic_id in base_ids:
            topic = self.cluster.topics.by_id.get(topic_id)
            for number in () if topic is None else topic.partition_numbers:
                found = parts_of(self, number)
                partition = found and found[0].merging.partitions.get(number)
                if partition:
                    partition.changed()

    def run_changed(self, session: str) -> None:
        """A run of the session was opened or closed."""
        self.data_groups.run_changed(session)

    def has_work(self) -> None:
        """Group 0 is always at work."""

    def run_ended(self, session: str, run_id: str, ends: Ends) -> None:
        """A sender, here or at another member, has finished a run."""
        self.data_groups.run_ended(session, run_id, ends)

    def pass_reported(self, message: PassReport) -> None:
        """See peer_events.PeerOwner."""
        self.placing.hear(message)

    def tell_part_closed(self, message: PartOfRunClosed) -> None:
        """See replica.ReplicaHost."""
        leader = self.raft.group.raft.leader
        if leader == self.peers.number:
            self.part_closed(message)
        elif leader is not None:
            self.peers.links.send(leader, message)

    def part_closed(self, message: PartOfRunClosed) -> None:
        """A data group has closed its part of a run."""
        ends = {(end.topic, end.partition): (end.roll, end.byte) for end in message.ends}
        self.raft.coordinator.closed_elsewhere(message.session, message.run_id, ends)

    def after_pump(self) -> None:
        """Group 0 is never quiet: nothing is to be told."""

    def _use_members(self) -> None:
        members, peers = self.peers.members.all, self.peers.members.peers(self.peers.number)
        self.peers.links.follow(peers)
        self.peers.presence.forget_others(members)
        self.peers.whereabouts.lags.keep(members)
        self.group_replica.set_members(members)
        self.member.rights.set_peers(member.identity for member in members.values())

    # --- time -------------------------------------------------------------------------------------

    def tick(self) -> None:
        """See housekeeping.Ticked."""
        self.group_replica.tick()
        self.data_groups.tick()
        if self.member.status.announced is not self.member.status.state:
            self._tell_state()

    def loop_delayed(self, by_s: float) -> None:
        """See housekeeping.Ticked."""
        self.raft.group.loop_delayed(by_s)
        self.data_groups.loop_delayed(by_s)

    def tick_membership(self) -> None:
        """See housekeeping.Ticked."""
        raft = self.raft.group.raft
        silent_s = raft.leader_silent_s(self._clock.now())
        self.peers.presence.is_cut_off = silent_s > 2 * raft.config.election_timeout_s
        self.peers.changes.tick()
        if self.raft.group.is_leader and self.cluster.members.by_number:
            self.peers.keeper.tick()
        self.data_groups.tick_membership()
        self.placing.tick()

    def tick_slowly(self) -> None:
        """See housekeeping.Ticked."""
        self.member.directory.check_is_there()
        self.life.settle()
        if self._watched is not None:
            self._watched.reload_certificates()
        self._measure_disk()
        self._stop_if_halted()
        self.group_replica.tick_slowly()
        self.data_groups.tick_slowly()
        self.peers.whereabouts.tick()
        self._tell_ended()
        self.peers.hold_reports.repeat()
        self._settle_doubt()
        self._tell_logs()
        self._tell_state()
        self._give_memory_back()

    def _give_memory_back(self) -> None:
        """If nothing has come or gone, nothing was committed, and no data group is at work."""
        came, went = self.member.measures.traffic.total_bytes, self.member.connections.sent_bytes
        done = self.raft.replica.applied_index, len(list(self.data_groups.working))
        self.member.memory.look((came, went, *done), self._given.clock.now())

    def _tell_ended(self) -> None:
        """Senders here have finished runs that are not closed: every leader of a group, whoever it
        is by now, has to know.
        """
        if self.cluster.placement.partitions:
            for session, (run_id, ends) in self.logs.intake.ended.items():
                self.group_replica.reporter.tell_ended(session, run_id, ends)
                self.data_groups.run_ended(session, run_id, ends)

    def _tell_logs(self) -> None:
        """The policy's limit counts for all groups of a member together."""
        shares = self.member.shares
        if shares.is_shared:
            self.peers.links.send_all(LogsHeld(shares.limited))

    def _settle_doubt(self) -> None:
        """After a loss of power with `fsync=interval`: forget doubt that is over in all groups."""
        if not self.member.directory.record.doubtful:
            return
        if not (self.raft.group.raft.is_doubtful or self.data_groups.is_doubtful):
            self.member.directory.is_whole_again()

    def _tell_state(self) -> None:
        self.member.status.announced = self.member.status.state
        tell_state(self)

    def _stop_if_halted(self) -> None:
        """With another history than the leader it takes nothing in, and answers no Kafka client."""
        if self.raft.group.halted and self.logs.intake.stopped is None:
            self.logs.intake.room.stop("its replica is halted", for_good=True)
            for service in self.services.all:
                self._tasks.spawn(service.close())

    def _measure_disk(self) -> None:
        usage = self._given.host.disk_usage(self._given.config.data)
        kept = max(0, usage.used - self.member.shares.pending_bytes)
        total = usage.used + usage.free
        used = total if self._raft_disk_is_full() else usage.used
        now_ms = max(0, self._clock.host.wall_ms())
        health = Health(kept, total, now_ms, self.care.archive.policy.text)
        self.group_replica.disk_measured(used, total, health)
        self.data_groups.disk_measured(used, total)

    def _raft_disk_is_full(self) -> bool:
        """Whether a disk of Raft's own is fuller than it may be: then nothing is taken in."""
        config = self._given.config
        if not config.place.raft_dir:
            return False
        usage = self._given.host.disk_usage(config.place.raft_dir)
        return usage.used * 100 >= (usage.used + usage.free) * config.disk_stop_percent
