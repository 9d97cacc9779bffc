"""The replicas of data groups of one member: begun as the table of placement says, told what other
members say, and what is said for all of them at once.

Invariant: what other members say reaches a replica only under its own number, from the replica that
the table names; a group that rests is known to the beats, and no other one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Container, Iterable, Iterator, Mapping
from functools import partial

from samelog.consensus import GroupMessages, Role
from samelog.format.steps import StepWork, done_within, finished, mapped
from samelog.placement.tasks import GroupOrder
from samelog.placement.values import METADATA
from samelog.replicator.interfaces import LogSource
from samelog.runtime.flag import Flag
from samelog.sequencer.cluster.group_keeper import is_in_maintenance
from samelog.sequencer.cluster.links import Links
from samelog.sequencer.cluster.lives import Lives
from samelog.sequencer.cluster.presence import Presence
from samelog.sequencer.data_groups.beats import QuietGroups
from samelog.sequencer.data_groups.contents import Contents
from samelog.sequencer.data_groups.ending import (
    closed_parts,
    end_run,
    give_up_forgotten,
    give_up_held,
    groups_of,
    named_ends,
)
from samelog.sequencer.data_groups.keeping import ReplicaKeeper
from samelog.sequencer.data_groups.leaders import KnownLeaders, Led
from samelog.sequencer.data_groups.log_ends import LogEnds
from samelog.sequencer.data_groups.passing import PartitionPasses
from samelog.sequencer.data_groups.replica import DataReplica, ReplicaHost
from samelog.sequencer.data_groups.working import Working
from samelog.sequencer.events import Ends
from samelog.sequencer.group_replica import GroupReplica
from samelog.sequencer.host import NodeResources
from samelog.sequencer.parts import CareParts, LogParts, MemberParts, RaftParts
from samelog.sequencer.spanning.steps import groups_concerned
from samelog.sequencer.state.commands import AnyCommand
from samelog.wire.bounds import ENDS_TOLD, Holder
from samelog.wire.errors import FaultCode, ProtocolFault
from samelog.wire.messages import decode_message
from samelog.wire.peer_messages import (
    Cursors,
    Forward,
    Forwarded,
    HistoryAsked,
    HistoryTold,
    InGroup,
    KeysAsked,
    KeysCovered,
    KeysTold,
    Leads,
    Report,
    RunEnded,
)

CONFIRMED_AT_ONCE = 100
MESSAGES_AT_ONCE = 2
"""In one turn of the loop, of `ENDS_TOLD` ends each."""
OF_A_GROUP = (
    Report,
    Cursors,
    Forward,
    Forwarded,
    RunEnded,
    HistoryAsked,
    HistoryTold,
    KeysCovered,
)


class DataGroups:
    """One member's."""

    def __init__(
        self,
        given: NodeResources,
        host: ReplicaHost,
        member: MemberParts,
        links: Links,
        *,
        presence: Presence,
        lives: Lives,
    ) -> None:
        self.passes = PartitionPasses(
            member.directory.record.number,
            self,
            cluster=lambda: host.cluster,
            is_there=presence.is_there,
            send=links.send,
            on_report=host.pass_reported,
        )
        self._given = given
        self._host = host
        self._links = links
        self._presence = presence
        self._lives = lives
        self.quiet = QuietGroups(given, links, host.spawn)
        self._confirms = False
        self._contents = Contents()
        self._known = 0, False, False
        """The cluster's feature level, and whether this member is in maintenance, as seen last."""
        begin = partial(self._begin, member)
        self._keeper = ReplicaKeeper(
            given, host, member, on_table=self._look, begin=begin, on_over=self._over
        )
        self.replicas = self._keeper.replicas
        self.working: Working[DataReplica] = Working()
        self._troubles: dict[int, list[str]] = {}
        """What is wrong with a replica, as it was when it last was at work."""
        self._disk = 0, 0
        """(used, total) bytes of the member's disk."""
        self._leaders = KnownLeaders()
        self.log_ends = LogEnds(
            given.fs, member, lambda: host.cluster.placement, self.replicas, self._leaders
        )
        self._under_way: set[tuple[int, str]] = set()
        """(group, session) of a run whose many ends are checked, or sent, in the next turns."""

    # --- which there are --------------------------------------------------------------------------

    def start(self) -> None:
        """Begin what the table names, from now on."""
        self._keeper.start()

    def follow(self) -> None:
        """The table may be another one."""
        self._keeper.follow()

    def _look(self) -> None:
        """The table is looked at: what has changed in it wakes groups."""
        table = self._host.cluster.placement
        changed = self._contents.follow(table)
        for number in changed - table.groups.keys():
            self._leaders.forget(number)
        self._work_in(changed)
        for number in changed & self.replicas.keys():
            self._leaders.opening.add(number)
            self.replicas[number].tick_membership()

    def _begin(self, member: MemberParts, number: int) -> None:
        """Raises RaftStoreError."""
        replica = DataReplica(
            number,
            self._given,
            self._host,
            member,
            self._links,
            presence=self._presence,
            lives=self._lives,
            groups=self,
        )
        self.replicas[number], there = replica, self._links.connected
        self.quiet.begin(number, replica.raft, filter(replica.sender.replica, there))
        self.work(replica)
        replica.start()
        for node in there:
            replica.group_replica.reporter.tell_everything(node)

    def _over(self, replica: DataReplica) -> None:
        self.working.end(replica.number)
        self._troubles.pop(replica.number, None)
        self._leaders.opening.discard(replica.number)
        self.quiet.end(replica.number)

    def work(self, replica: DataReplica) -> None:
        """It has something to do, or may have."""
        if replica.number not in self.working:
            replica.group_replica.disk_measured(*self._disk)
        self.working.begin(replica, self._given.clock.now())

    def _work_in(self, groups: Iterable[int]) -> None:
        for number in groups:
            if number in self.replicas:
                self.work(self.replicas[number])

    def topic_changed(self, topic_id: str) -> None:
        """A topic has other settings, or is gone."""
        topic, table = self._host.cluster.topics.by_id.get(topic_id), self._host.cluster.placement
        numbers = () if topic is None or not topic.is_placed else topic.partition_numbers
        self._work_in({table.group_of(number) for number in numbers})
        self.follow()

    def run_changed(self, session: str) -> None:
        """Group 0 has opened or closed a run."""
        for replica in self.replicas.values():
            if replica.knows(session):
                replica.unsettled.note(session)
                self.work(replica)

    def contents(self, group: int) -> Collection[int]:
        """The partitions that the table has in a group."""
        return self._contents.of(group)

    @property
    def is_doubtful(self) -> bool:
        """Whether any may lack what it acknowledged, after a loss of power; or may do so once it
        begins.
        """
        known = any(each.raft.raft.is_doubtful for each in self.replicas.values())
        return known or self._keeper.has_more

    def with_member(self, node: int) -> Iterator[DataReplica]:
        """Those of which the other member has a replica, too."""
        return (each for each in self.replicas.values() if each.sender.replica(node))

    # --- what is wrong ----------------------------------------------------------------------------

    @property
    def damaged(self) -> dict[int, str]:
        """Groups whose replica cannot begin here, and why."""
        return self._keeper.damaged

    @property
    def troubles(self) -> Iterator[str]:
        """What is wrong with replicas here, in words."""
        for number, why in self.damaged.items():
            yield f"the replica of group {number} cannot begin: {why}"
        for number, found in self._troubles.items():
            yield from (f"group {number}: {text}" for text in found)

    @property
    def damaged_replicas(self) -> int:
        """How many cannot begin here, or are halted."""
        return len(self.damaged) + sum(bool(each.raft.halted) for each in self.replicas.values())

    @property
    def held(self) -> Iterator[tuple[LogParts, RaftParts, CareParts]]:
        """Of the groups that have a replica here."""
        for each in self.replicas.values():
            yield each.group_replica.logs, each.group_replica.raft, each.group_replica.care

    @property
    def here(self) -> Iterator[tuple[int, LogParts, RaftParts]]:
        """By group: what has a replica here."""
        for number, each in self.replicas.items():
            yield number, each.group_replica.logs, each.group_replica.raft

    def _note_troubles(self, replica: DataReplica) -> None:
        if found := replica.troubles:
            self._troubles[replica.number] = found
        else:
            self._troubles.pop(replica.number, None)

    # --- what is where ----------------------------------------------------------------------------

    def holding(self, partition: int) -> DataReplica | None:
        """The replica of the group that has a partition, by the table; None: it is elsewhere."""
        return self.replicas.get(self._host.cluster.placement.group_of(partition))

    def is_to_come(self, partition: int) -> bool:
        """Whether the table gives this member a replica that votes of a partition's group."""
        table = self._host.cluster.placement
        group = table.groups.get(table.group_of(partition))
        return group is not None and self._presence.number in group.members

    def holders(self, partition: int, *, to_read: bool = False) -> list[Holder]:
        """The members that have a partition, by the table; `to_read`: who only reads, too."""
        cluster = self._host.cluster
        group = cluster.placement.groups.get(cluster.placement.group_of(partition))
        there = () if group is None else group.everybody if to_read else group.members
        return [
            Holder(each.name, each.address, cluster.rack_of(each.number))
            for each in map(cluster.members.by_number.get, there)
            if each is not None
        ]

    def parts(self, partition: int) -> tuple[LogParts, RaftParts] | None:
        """Of the group that has a partition; None: it has no replica here that knows it yet."""
        replica = self._replica_with(partition)
        if replica is None or partition not in replica.logs.machine.state.partitions.by_number:
            return None
        return replica.logs, replica.raft

    def care_of(self, partition: int) -> CareParts | None:
        """Of the group that has a partition; None: it has no replica here."""
        replica = self._replica_with(partition)
        return None if replica is None else replica.care

    def replica_of(self, group: int) -> GroupReplica | None:
        """This member's replica of a group; of group 0, too."""
        if group == METADATA:
            return self._host.group_replica
        replica = self.replicas.get(group)
        return None if replica is None else replica.group_replica

    def _replica_with(self, partition: int) -> GroupReplica | None:
        return self.replica_of(self._host.cluster.placement.group_of(partition))

    def source(self, partition: int) -> LogSource | None:
        """The logs of the group that has a partition, where it is here, too."""
        replica = self._replica_with(partition)
        return None if replica is None else replica.logs.source

    def leader(self, group: int) -> tuple[int, int] | None:
        """(term, member) of who leads a group, as far as is known here."""
        replica = self.replica_of(group)
        if replica is None:
            known = self._leaders.get(group)
            return None if known is None else (known.term, known.member)
        raft = replica.raft.group.raft
        return None if raft.leader is None else (raft.term, raft.leader)

    def take_leaders(self, groups: Container[int]) -> dict[int, int]:
        """Those of these groups that have another leader than this was asked last, and which."""
        return self._leaders.take(groups)

    def _note_leader(self, group: int, term: int, member: int, opened: int = 0) -> bool:
        """Returns whether the term is news."""
        replica = self.replicas.get(group)
        seat = 0 if replica is None else replica.sender.replica(member)
        return self._leaders.note(group, Led(term, member, seat, opened))

    def lag(self, group: int) -> Mapping[int, int]:
        """Member -> entries that it lacks; empty if the group is not led here."""
        replica = self.replicas.get(group)
        return {} if replica is None else replica.raft.lag

    def hear_leads(self, node: int, message: Leads) -> None:
        """Another member says what it leads."""
        for group, term, opened in message.groups:
            self._note_leader(group, term, node, opened)
        self.topics_opened()

    def carry_out(self, asker: int, orders: Iterable[GroupOrder]) -> None:
        """What the leader of group 0 asks of groups that this member leads."""
        for order in orders:
            if order.partition is not None:
                self.passes.carry_out(asker, order)
            elif order.group in self.replicas:
                self.work(self.replicas[order.group])
                self.replicas[order.group].carry_out(order)

    def units_moved(self) -> None:
        """What spans several groups has moved in group 0: its part here is looked at."""
        groups = groups_concerned(self._host.cluster)
        self._work_in(groups)
        for number in groups & self.replicas.keys():
            self.replicas[number].group_replica.raft.participant.look_soon()

    def confirm(self) -> None:
        """Tell group 0 what it does not know of the groups that this member leads."""
        found = [told for replica in self.working if (told := replica.unconfirmed())]
        if found and not self._confirms:
            self._confirms = True
            self._host.spawn(self._confirm_all(found[:CONFIRMED_AT_ONCE]))

    async def _confirm_all(self, found: list[list[AnyCommand]]) -> None:
        try:
            await self._host.tell_cluster([command for told in found for command in told])
        except TimeoutError:
            return  # they are found again
        finally:
            self._confirms = False

    def _led(self) -> Leads:
        led = [each for each in self.replicas.values() if each.raft.raft.role is Role.LEADER]
        return Leads(tuple(map(self._leading, led)))

    def _leading(self, replica: DataReplica) -> tuple[int, int, int]:
        """What the leader of a group says of it."""
        term, known = replica.raft.raft.term, self._leaders.get(replica.number)
        return replica.number, term, 0 if known is None or known.term < term else known.opened

    # --- new partitions ---------------------------------------------------------------------------

    def unopened(self, partitions: Iterable[int]) -> list[int]:
        """Return those partitions that no leader has opened in their groups, as far as is known
        here.
        """
        group_of = self._host.cluster.placement.group_of
        return [each for each in partitions if not self._is_open(group_of(each), each)]

    def _is_open(self, group: int, partition: int) -> bool:
        known, replica = self._leaders.get(group), self.replicas.get(group)
        if group == METADATA:
            return True
        term = 0 if replica is None else replica.raft.raft.term
        return known is not None and known.term >= term and partition < known.opened

    def unopened_here(self, partitions: Iterable[int]) -> list[int]:
        """Return those partitions that this member's own replicas have yet to open."""
        to_come = filter(self.is_to_come, partitions)
        return [each for each in to_come if self.parts(each) is None]

    @property
    def openings(self) -> Flag:
        """Set for a moment when a leader or a replica has opened partitions."""
        return self._leaders.openings

    def topics_opened(self) -> None:
        """A leader or a replica may have opened partitions: tasks that wait for them look."""
        self.openings.set()
        self.openings.clear()

    def _announce(self, replica: DataReplica) -> None:
        """Tell all members that a group, led here, has opened all that the table has in it."""
        raft, here = replica.raft, replica.group_replica.logs.machine.state.partitions.by_number
        if raft.raft.role is not Role.LEADER:
            self._leaders.opening.discard(replica.number)  # the next leader says so
        elif raft.is_leader and all(each in here for each in self.contents(replica.number)):
            self._leaders.opening.discard(replica.number)
            said, term = self._leading(replica), raft.raft.term
            self._note_leader(replica.number, term, self._presence.number, self._contents.below)
            if (now := self._leading(replica)) != said:
                self._links.send_all(Leads((now,)))
                self.topics_opened()

    # --- ends of runs -----------------------------------------------------------------------------

    def run_ended(self, session: str, run_id: str, ends: Ends) -> None:
        """A sender has finished a run. Members repeat that until the run is closed."""
        steps = self._end_run(session, run_id, ends)
        self._in_turns((METADATA, session), steps, ENDS_TOLD)

    def _end_run(self, session: str, run_id: str, ends: Ends) -> StepWork[None]:
        cluster = self._host.cluster_machine
        noted = groups_of(cluster, session)
        for number, replica in tuple(self.replicas.items()):
            is_concerned = number in noted or replica.knows(session)
            is_here = self.replicas.get(number) is replica
            if is_here and is_concerned and replica.raft.raft.leadership is not None:
                self.work(replica)
                yield from end_run(replica.group_replica, cluster, session, run_id, ends)

    def _in_turns(self, key: tuple[int, str], steps: StepWork[object], at_once: int) -> None:
        """Run steps about a session's run, so many in a turn of the loop, unless such steps are
        under way.
        """
        if key not in self._under_way and not done_within(steps, at_once):
            self._under_way.add(key)
            self._host.spawn(self._go_on(key, steps, at_once))

    async def _go_on(self, key: tuple[int, str], steps: StepWork[object], at_once: int) -> None:
        try:
            is_done = False
            while not is_done:
                await asyncio.sleep(0)
                is_done = done_within(steps, at_once)
        finally:
            self._under_way.discard(key)

    def _settle_runs(self, replica: DataReplica) -> None:
        """Tell group 0's leader what this group, led here, has closed; close what group 0 has."""
        closed, over = replica.unsettled.owed(self._given.clock.now())
        cluster, parts = self._host.cluster_machine, replica.group_replica
        for session, run_id in closed:
            messages = closed_parts(parts.logs.machine, cluster, session, run_id)
            steps = mapped(self._host.tell_part_closed, messages)
            self._in_turns((replica.number, session), steps, MESSAGES_AT_ONCE)
        known = cluster.state.sessions.by_name
        for session, run_id in over:
            if session in known and not give_up_held(parts, session, run_id):
                ends = named_ends(cluster.state, session, run_id)
                finished(end_run(parts, cluster, session, run_id, ends))
        if forgotten := {session: run for session, run in over if session not in known}:
            replica.spawn(give_up_forgotten(parts, cluster, forgotten, self._host.catch_up))

    # --- time -------------------------------------------------------------------------------------

    def tick(self) -> None:
        """To be called some times a second."""
        for replica in self.working:
            replica.tick()
        self.passes.tick()

    def tick_membership(self) -> None:
        """To be called about four times a second."""
        for replica in self.working:
            replica.tick_membership()
            if replica.number in self._leaders.opening:
                self._announce(replica)
        self.confirm()

    def tick_slowly(self) -> None:
        """To be called about once a second."""
        cluster, wall_ms = self._host.cluster, self._given.clock.wall_ms()
        is_resting = is_in_maintenance(cluster, self._presence.number, wall_ms)
        known = cluster.members.level, is_resting, self._presence.is_cut_off
        if known != self._known:
            self._known = known
            self._work_in(tuple(self.replicas))
        self._work_in(self.passes.groups)
        for replica in self.working:
            replica.tick_slowly()
            self._note_troubles(replica)
            if replica.raft.is_leader and replica.group_replica.logs.machine.state.sessions.by_name:
                self._settle_runs(replica)
        self.working.look(self._given.clock.now())

    def disk_measured(self, used: int, total: int) -> None:
        """So much of the member's disk is used."""
        self._disk = used, total
        for replica in self.working:
            replica.group_replica.disk_measured(used, total)

    def loop_delayed(self, by_s: float) -> None:
        """The event loop ran so late."""
        for replica in self.working:
            replica.raft.loop_delayed(by_s)

    def moved(self, replica: DataReplica) -> None:
        """Its core may rest now, or may have woken."""
        if self.replicas.get(replica.number) is not replica:
            return  # it has ended, and another one of the group may be here by now
        raft, leader = replica.raft.raft, replica.raft.raft.leader
        is_new = leader is not None and self._note_leader(replica.number, raft.term, leader)
        if is_new and raft.role is Role.LEADER:
            self._links.send_all(Leads((self._leading(replica),)))
            self._leaders.opening.add(replica.number)
        if replica.number in self._leaders.opening:
            self._announce(replica)
        rests = self.quiet.look(replica.number, replica.raft)
        if not rests and replica.number not in self.working and replica.number in self.replicas:
            self.work(replica)

    # --- what other members say -------------------------------------------------------------------

    def on_raft(self, node: int, part: GroupMessages) -> None:
        """Raft messages of a data group."""
        replica = self._addressed(node, part.group, part.sender, part.receiver)
        if replica is not None:
            replica.raft.receive(node, part.messages)
            self.moved(replica)

    def on_message(self, node: int, message: InGroup | KeysAsked | KeysTold) -> None:
        """Anything else of a data group. Raises ProtocolFault."""
        if not isinstance(message, InGroup):
            self._hear_about_keys(node, message)
            return
        replica = self._addressed(node, message.group, message.sender, message.receiver)
        if replica is None:
            return
        said = decode_message(message.message)
        if not isinstance(said, OF_A_GROUP):
            raise ProtocolFault(FaultCode.PROTOCOL, f"{type(said).__name__} of a data group", "")
        self.work(replica)
        replica.group_replica.receive(node, said)

    def send_about_keys(self, node: int, message: KeysAsked | KeysTold) -> None:
        """Tell a replica of any group something about an index of keys."""
        if node == self._presence.number:
            self._hear_about_keys(node, message)
        else:
            self._links.send(node, message)

    def _hear_about_keys(self, node: int, message: KeysAsked | KeysTold) -> None:
        """A replica of another group may ask: a partition moves there."""
        replica = self.replica_of(message.group)
        if replica is not None:
            self._work_in((message.group,))
            replica.receive(node, message)

    def _addressed(self, node: int, group: int, sender: int, receiver: int) -> DataReplica | None:
        """The replica that a message is for; None: it is not here, or another one sent it."""
        replica = self.replicas.get(group)
        if replica is None or not receiver:
            return None
        there = replica.sender.replica(node)
        return replica if (replica.replica, there) == (receiver, sender) else None

    def welcomed(self, node: int) -> None:
        """The connection to another member stands: it is told everything."""
        if self.replicas:
            self._links.send(node, self._led())
        for replica in self.with_member(node):
            raft = replica.raft.raft
            if raft.leadership is not None and raft.rests and node not in raft.rests_with:
                replica.raft.wake()
            replica.group_replica.reporter.tell_everything(node)
            if replica.is_busy:  # it could not be told, or is to be followed
                self.work(replica)

    def began_anew(self, node: int) -> None:
        """Another member is in another life."""
        self.quiet.lost(node)
        for replica in self.with_member(node):
            replica.raft.peer_restarted(node)

    def gone(self, node: int) -> None:
        """No connection that another member dialled is left."""
        self.quiet.lost(node)
        for replica in self.with_member(node):
            replica.group_replica.peer_gone(node)

    def is_suspect(self) -> None:
        """This member may have forgotten something."""
        for replica in self.replicas.values():
            replica.is_suspect()

    # --- the end ----------------------------------------------------------------------------------

    def hand_over(self) -> None:
        """The member stops: let others lead."""
        for replica in self.replicas.values():
            replica.hand_over()

    async def stop(self) -> None:
        """Stop repair and copying from other members."""
        self._keeper.stop()
        for replica in self.replicas.values():
            await replica.group_replica.stop()

    async def make_durable(self) -> None:
        """Everything that was merged."""
        for replica in self.replicas.values():
            await replica.group_replica.make_durable()

    def close(self) -> None:
        """Close every file."""
        for replica in self.replicas.values():
            replica.group_replica.close()
