"""A member's replica of one data group: a group replica with files of its own below the member's,
and what stands between it and the member.

Invariant: it votes only as its seat says, and says nothing before that is on the disk.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Collection, Coroutine, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from samelog.placement.tasks import GroupOrder
from samelog.placement.values import PlacedGroup
from samelog.replicator.interfaces import LogSource
from samelog.runtime.log import log_event
from samelog.sequencer.cluster.links import Links
from samelog.sequencer.cluster.lives import Lives
from samelog.sequencer.cluster.presence import Presence
from samelog.sequencer.data_groups.coming import ComingPartitions
from samelog.sequencer.data_groups.ending import UnsettledRuns
from samelog.sequencer.data_groups.leftovers import set_aside
from samelog.sequencer.data_groups.seats import ReplicaRecord, SeatFile, counted, seat_of
from samelog.sequencer.data_groups.sender import GroupSender
from samelog.sequencer.data_groups.upkeep import DataGroupUpkeep
from samelog.sequencer.data_groups.working import LOOK_S
from samelog.sequencer.events import Ends
from samelog.sequencer.group_replica import GroupReplica
from samelog.sequencer.host import NodeResources, NodeSyncer
from samelog.sequencer.ingest.checking import BatchChecker
from samelog.sequencer.merge.merged_partition import moved_log
from samelog.sequencer.parts import MemberParts, troubles
from samelog.sequencer.state.commands import AnyCommand
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.types import State
from samelog.store.disk.directories import make_durable_directory
from samelog.wire.peer_messages import KeysAsked, KeysTold, PartOfRunClosed, PassReport

log = logging.getLogger(__name__)

RETRY_S = 0.2


class ReplicaHost(Protocol):
    """What the replicas of data groups take of their member."""

    @property
    def raft_syncer(self) -> NodeSyncer:
        """See building.ReplicaOwner."""

    @property
    def merged_syncer(self) -> NodeSyncer:
        """See building.ReplicaOwner."""

    @property
    def shared_checker(self) -> BatchChecker:
        """Looks into what clients send, for all replicas of the member."""

    @property
    def cluster(self) -> State:
        """The state of group 0, as it is here."""

    async def catch_up(self) -> None:
        """Wait until what was committed in group 0 before is applied here. Raises TimeoutError."""

    async def keep_commit(self) -> None:
        """Have it on the disk how much of group 0's log is committed."""

    @property
    def cluster_machine(self) -> StateMachine:
        """See building.ReplicaOwner."""

    async def tell_cluster(self, commands: Sequence[AnyCommand]) -> None:
        """See building.ReplicaOwner."""

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run something that ends with the member, and ends it if it fails."""

    def fail(self, error: BaseException) -> None:
        """End the member."""

    def pass_reported(self, message: PassReport) -> None:
        """How far a group is with a partition that moves, if this member asked."""

    def tell_part_closed(self, message: PartOfRunClosed) -> None:
        """Tell the leader of group 0 that a data group, led here, has closed its part of a run."""

    def names(self) -> Mapping[int, str]:
        """The members' names, by number."""

    @property
    def group_replica(self) -> GroupReplica:
        """Of group 0."""


class ReplicaGroups(Protocol):
    """All replicas of the member."""

    def contents(self, group: int) -> Collection[int]:
        """The partitions that the table has in a group."""

    def source(self, partition: int) -> LogSource | None:
        """The logs of the group that has a partition; None: it has no replica here."""

    def send_about_keys(self, node: int, message: KeysAsked | KeysTold) -> None:
        """See building.ReplicaOwner."""

    def confirm(self) -> None:
        """Tell group 0 what it does not know of the groups that this member leads."""

    def topics_opened(self) -> None:
        """A replica has opened partitions, or dropped some."""

    def moved(self, replica: DataReplica) -> None:
        """Its core may rest now, or may have woken."""

    def work(self, replica: DataReplica) -> None:
        """It has something to do, or may have."""


class DataReplica:
    """Implements building.ReplicaOwner."""

    def __init__(
        self,
        number: int,
        given: NodeResources,
        host: ReplicaHost,
        member: MemberParts,
        links: Links,
        *,
        presence: Presence,
        lives: Lives,
        groups: ReplicaGroups,
    ) -> None:
        """Raises RaftStoreError. `groups`: who has the member's replicas."""
        self.number = number
        self._host = host
        self._clock = given.clock
        self._fs, self._data = given.fs, os.path.join(given.config.data, "groups", str(number))
        self._running: set[asyncio.Task[None]] = set()
        self._comes_up: asyncio.Task[None] | None = None
        self._directory = member.directory
        self._groups = groups
        self._known = host.cluster.placement.groups[number]
        self._file = SeatFile(given.fs, member.raft_log.directory, number)
        self._record = self._read_record()
        record = self._directory.record
        self.sender = GroupSender(links, self._record.replica, lambda: self.placed)
        self.elsewhere = ComingPartitions(
            number,
            record.number,
            machine=lambda: self.group_replica.logs.machine,
            cluster=lambda: host.cluster,
            pulls=links,
            here=groups.source,
        )
        self.group_replica = GroupReplica(
            _below(given, number),
            member,
            self.sender,
            presence,
            self,
            seat=seat_of(self.placed, self._record, record),
            pulls=links,
        )
        self.raft = self.group_replica.raft.group
        self.unsettled = UnsettledRuns(
            lambda: self.group_replica.logs.machine.state, host.cluster_machine
        )
        self._upkeep = DataGroupUpkeep(
            self.group_replica,
            lambda: self.placed,
            clock=given.clock,
            presence=presence,
            lives=lambda: lives.met,
            cluster=lambda: host.cluster,
            contents=lambda: groups.contents(number),
        )

    def _read_record(self) -> ReplicaRecord:
        """As the keeper has written it, before the replica says anything. Raises RaftStoreError."""
        record = self._file.read()
        if record is None:
            raise ValueError(f"no replica of group {self.number} is to begin here")
        return record

    @property
    def placed(self) -> PlacedGroup:
        """The group as the table has it, or had it last."""
        self._known = self._host.cluster.placement.groups.get(self.number, self._known)
        return self._known

    # --- running ----------------------------------------------------------------------------------

    def start(self) -> None:
        """Run, as tasks of the member."""
        raft = self.raft.raft
        if self.placed.preferred == self._directory.record.number and not raft.term:
            raft.stand_first(self._clock.now())
        self.group_replica.open_logs()
        self.group_replica.start()
        self._comes_up = self.spawn(self._come_up())

    async def _come_up(self) -> None:
        """State positions once all that was committed before is applied here."""
        replica, logs = self.group_replica.raft.replica, self.group_replica.logs
        # A look now and then is all this waits for: nobody is told when a group has a leader.
        while (index := await self.raft.read_index()) is None:  # noqa: ASYNC110
            await asyncio.sleep(RETRY_S)
        await replica.wait_applied(index)
        self.settle()
        replica.forget_deleted()
        logs.sessions.set_gaps_aside()
        self.group_replica.reporter.state_all()

    # --- work and rest ----------------------------------------------------------------------------

    def work(self) -> None:
        """See working.Worker."""
        self.group_replica.work()

    def tidy(self) -> bool:
        """See working.Worker."""
        self.group_replica.close_files()
        return not self.is_busy

    def rest(self) -> None:
        """See working.Worker."""
        self.group_replica.rest()

    @property
    def is_busy(self) -> bool:
        """See working.Worker."""
        awake = not (self.raft.raft.rests or self.raft.halted) or self.passes
        comes_up = self._comes_up is not None and not self._comes_up.done()
        spans = self.group_replica.raft.participant.is_busy
        return awake or comes_up or spans or self.group_replica.is_busy or self._owes()

    @property
    def passes(self) -> bool:
        """Whether a partition comes to this group, or goes to another one, by a task under way."""
        passing = self.group_replica.logs.machine.state.transfers.passing
        return passing is not None and passing.task in self._host.cluster.placement.tasks

    def _owes(self) -> bool:
        """Whether it leads, and the group or group 0 has yet to learn something."""
        if not self.raft.is_leader:
            return False
        participant = self.group_replica.raft.participant
        owes_runs = any(self.unsettled.owed(self._clock.now()))
        return self._upkeep.is_due or participant.is_busy or owes_runs

    @property
    def troubles(self) -> list[str]:
        """What is wrong with it, in words."""
        parts, halted, raft = self.group_replica, self.raft.halted, self.raft.raft
        found = [f"halted: {halted}"] if halted else []
        if not raft.may_vote and raft.leader is None:
            found.append(
                "its replica may have lost state, and votes once the group's leader lets it in; if"
                f" the group stays without a leader: samelog recover group {self.number}"
            )
        return [*found, *troubles(parts.logs, parts.raft, parts.care)]

    def knows(self, session: str) -> bool:
        """Whether the group has anything of a session."""
        return session in self.group_replica.logs.machine.state.sessions.by_name

    @property
    def due_at(self) -> float | None:
        """See working.Worker."""
        if self.group_replica.has_logs or self.group_replica.logs.machine.state.sessions.by_name:
            return self._clock.now() + LOOK_S
        return self.group_replica.raft.snapshotter.due_at

    def tick(self) -> None:
        """To be called some times a second while it is at work."""
        self.group_replica.tick()

    def tick_membership(self) -> None:
        """To be called about four times a second."""
        self._upkeep.tick()

    def tick_slowly(self) -> None:
        """To be called about once a second."""
        self.settle()
        self.group_replica.tick_slowly()

    @property
    def replica(self) -> int:
        """Its number."""
        return self._record.replica

    def is_to_go_on_alone(self) -> bool:
        """Whether the table says so, and it has not begun to: by an entry, and with a vote."""
        own = self.group_replica.logs.machine.state.placement
        has_begun = own.version >= self.placed.recovered and self.raft.raft.may_vote
        is_meant = self.placed.is_to_go_on_with(self._directory.record.number)
        return is_meant and not has_begun

    @property
    def data(self) -> str:
        """Where its files are."""
        return self._data

    def let_clients_go(self) -> None:
        """The table names it no more: who writes or reads here is sent to members that have one."""
        logs = self.group_replica.logs
        logs.intake.moved(tuple(logs.machine.state.sessions.inputs))
        for partition in logs.merging.partitions.values():
            partition.fault = partition.fault or moved_log(partition)
            partition.changed()

    async def stop(self) -> None:
        """Run no more; its files stay."""
        running = list(self._running)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        await self.group_replica.store.until_written()
        await self.group_replica.stop()
        self.group_replica.close()

    async def end(self) -> None:
        """Stop, and let go of all files: the table, and so the group, names this replica no more,
        and the disk knows that. replica.json is written last: a crash before that is made good at
        the next start. What is of the group's life before a recovery is set aside.
        """
        await self.stop()
        self.group_replica.store.forget()
        self.group_replica.care.archive.forget()
        own = self.group_replica.logs.machine.state.placement
        if own.version < self.placed.recovered:
            set_aside(self._fs, self._data, self.number, self.replica)
        else:
            self._fs.remove_tree(self._data)
        self._file.bury(self._record)
        self.group_replica.store.log.forget((self.number, self.replica))
        log_event(log, logging.INFO, "replica ended", group=self.number, replica=self.replica)

    def carry_out(self, order: GroupOrder) -> None:
        """See upkeep.DataGroupUpkeep."""
        self._upkeep.carry_out(order)

    def unconfirmed(self) -> list[AnyCommand]:
        """See upkeep.DataGroupUpkeep."""
        return self._upkeep.unconfirmed()

    def settle(self) -> None:
        """Go by what the group says of this life: a suspect that is let in counts again."""
        raft, record = self.raft.raft, self._directory.record
        known = self.group_replica.logs.machine.state.members.started.get(record.number)
        if not raft.may_vote and known is not None and known.let_in == record.incarnation:
            raft.regain_trust()
            self.raft.pump()
        if raft.may_vote and self._record.trusted != record.suspicions.times:
            self._record = counted(self._record, record)
            self._file.write(self._record)
            log_event(log, logging.WARNING, "replica counts again", group=self.number)

    def is_suspect(self) -> None:
        """The member may have forgotten something, and so this replica may."""
        self.raft.become_suspect()

    def hand_over(self) -> None:
        """Let another replica lead."""
        self.raft.hand_over()

    # --- what its replica asks and tells ----------------------------------------------------------

    @property
    def raft_syncer(self) -> NodeSyncer:
        """See building.ReplicaOwner."""
        return self._host.raft_syncer

    @property
    def merged_syncer(self) -> NodeSyncer:
        """See building.ReplicaOwner."""
        return self._host.merged_syncer

    @property
    def checker(self) -> BatchChecker:
        """See building.ReplicaOwner."""
        return self._host.shared_checker

    @property
    def cluster_machine(self) -> StateMachine:
        """See building.ReplicaOwner."""
        return self._host.cluster_machine

    async def catch_up(self) -> None:
        """See building.ReplicaOwner."""
        await self._host.catch_up()

    async def tell_cluster(self, commands: Sequence[AnyCommand]) -> None:
        """See building.ReplicaOwner."""
        await self._host.tell_cluster(commands)

    def send_about_keys(self, node: int, message: KeysAsked | KeysTold) -> None:
        """See building.ReplicaOwner."""
        self._groups.send_about_keys(node, message)

    def units_moved(self) -> None:
        """Who takes part here looks by itself."""

    @property
    def cluster(self) -> State:
        """See building.ReplicaOwner."""
        return self._host.cluster

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """See building.ReplicaOwner."""
        task = self._host.spawn(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    def fail(self, error: BaseException) -> None:
        """See building.ReplicaOwner."""
        self._host.fail(error)

    def names(self) -> Mapping[int, str]:
        """See building.ReplicaOwner."""
        return self._host.names()

    def members_changed(self) -> None:
        """A life of a member counts again in this group, perhaps this one's."""
        self.settle()

    def placement_changed(self) -> None:
        """The group's configuration is another one."""
        own = self.group_replica.logs.machine.state.placement.own
        self.group_replica.set_members({each.member for each in own})
        self._groups.confirm()

    def topic_changed(self, topic_id: str) -> None:
        """By the leader of this group, from what group 0 says."""
        self._groups.topics_opened()

    def views_dropped(self, base_ids: Collection[str]) -> None:
        """Views are group 0's."""

    def run_changed(self, session: str) -> None:
        """Of this group's part: group 0 is told by `ending`."""
        self.unsettled.note(session)

    def has_work(self) -> None:
        """See building.ReplicaOwner."""
        self._groups.work(self)

    def run_ended(self, session: str, run_id: str, ends: Ends) -> None:
        """Of a node's own session in this group: no other group has to know."""

    def after_pump(self) -> None:
        """See building.ReplicaOwner."""
        self._groups.moved(self)


def _below(given: NodeResources, number: int) -> NodeResources:
    """The same with a data directory of the group's own."""
    fs, data = given.fs, os.path.join(given.config.data, "groups")
    for path in (data, os.path.join(data, str(number))):
        make_durable_directory(fs, path)
    config = replace(given.config, data=os.path.join(data, str(number)))
    return replace(given, config=config)
