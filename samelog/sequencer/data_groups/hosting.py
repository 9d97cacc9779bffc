"""The replicas of data groups of one member: begun as the table of placement says, told what other
members say, and what is said for all of them at once.

Invariant: what other members say reaches a replica only under its own number, from the replica that
the table names; a group that rests is known to the beats, and no other one.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress

from samelog.consensus import GroupMessages, Role
from samelog.placement.changes import AnyChange
from samelog.placement.tasks import GroupOrder
from samelog.placement.values import PlacedGroup, PlacedReplica
from samelog.replicator.interfaces import LogSource
from samelog.runtime.log import log_event
from samelog.sequencer.cluster.links import Links
from samelog.sequencer.cluster.lives import Lives
from samelog.sequencer.cluster.presence import Presence
from samelog.sequencer.data_groups.ending import (
    closed_parts,
    end_run,
    give_up_held,
    overtaken,
)
from samelog.sequencer.data_groups.passing import PartitionPasses
from samelog.sequencer.data_groups.replica import DataReplica, ReplicaHost
from samelog.sequencer.data_groups.seats import SeatFile, is_overtaken, is_stale
from samelog.sequencer.events import Ends
from samelog.sequencer.group_replica import GroupReplica
from samelog.sequencer.host import NodeResources
from samelog.sequencer.parts import LogParts, MemberParts, RaftParts
from samelog.sequencer.raft.raft_errors import RaftStoreError
from samelog.wire.bounds import Holder
from samelog.wire.errors import FaultCode, ProtocolFault
from samelog.wire.member_beats import MemberBeats, Rest, Silence
from samelog.wire.messages import decode_message
from samelog.wire.pair_liveness import BeatReply, PairBeat
from samelog.wire.peer_messages import (
    Beat,
    BeatAnswer,
    Cursors,
    Forward,
    ForwardAll,
    Forwarded,
    ForwardedAll,
    HistoryAsked,
    HistoryTold,
    InGroup,
    Leads,
    NotQuiet,
    Report,
    RunEnded,
)

log = logging.getLogger(__name__)

PATIENCE = 1.5
"""Times the election timeout: so long a member is silent before what rests with it wakes."""
DIGEST_BYTES = 16
CONFIRMED_AT_ONCE = 100
OF_A_GROUP = (
    Report,
    Cursors,
    Forward,
    ForwardAll,
    Forwarded,
    ForwardedAll,
    RunEnded,
    HistoryAsked,
    HistoryTold,
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
        self._member = member
        self._links = links
        self._presence = presence
        self._lives = lives
        self._beats = MemberBeats()
        self._runs = False
        self._is_due = False
        """The table is to be looked at."""
        self._confirms = False
        self._is_confirmed = False
        """Whether the table has been as new as that of group 0, in this life."""
        self._ending: set[int] = set()
        """Groups whose replica here is being ended."""
        self.replicas: dict[int, DataReplica] = {}
        self.damaged: dict[int, str] = {}
        """Groups whose replica cannot begin here, and why."""
        self._disk = 0, 0
        """(used, total) bytes of the member's disk."""
        self._leaders: dict[int, tuple[int, int]] = {}
        """Group -> (term, member) of the newest leader that said so."""

    # --- which there are --------------------------------------------------------------------------

    def start(self) -> None:
        """Begin what the table names, from now on."""
        self._runs = True
        self._host.spawn(self._confirm_table())
        for number, placed in self._host.cluster.placement.groups.items():
            self._remove_old(number, placed)
        self.follow()

    async def _confirm_table(self) -> None:
        """Have all applied here that was committed in group 0 before this life."""
        while not self._is_confirmed:
            with suppress(TimeoutError):
                await self._host.catch_up()
                self._is_confirmed = True
        self.follow()

    def follow(self) -> None:
        """The table may be another one: go by it soon, not while an entry of group 0 is applied."""
        if self._runs and not self._is_due:
            self._is_due = True
            self._host.spawn(self._begin_new())

    async def _begin_new(self) -> None:
        self._is_due = False
        own = self._member.directory.record.number
        await self._end_old(own)
        for number, placed in tuple(self._host.cluster.placement.groups.items()):
            known = self.replicas.keys() | self._ending | self.damaged.keys()
            if not self._runs or number in known:
                continue
            named = placed.replica_of(own)
            try:
                if named is not None and self._may_begin(number, placed, named):
                    self._begin(number)
            except RaftStoreError as error:
                self.damaged[number] = str(error)
                what = "replica cannot begin"
                log_event(log, logging.CRITICAL, what, group=number, error=error)

    def _may_begin(self, number: int, placed: PlacedGroup, named: PlacedReplica) -> bool:
        """A replica without files begins only by a table that was confirmed in this life: one that
        lags may name a replica that has ended.
        """
        self._remove_old(number, placed)
        known = SeatFile(self._given.fs, self._member.raft_log.directory, number).read()
        is_new = known is None or known.is_ended
        return not is_stale(known, named) and (self._is_confirmed or not is_new)

    async def _end_old(self, own: int) -> None:
        """Replicas that the table does not name any more. A group that is gone had no partitions;
        what has some all the same stays.
        """
        over = [replica for replica in self.replicas.values() if self._is_over(replica, own)]
        for replica in over:  # all at once: from now on none of them hears anything
            del self.replicas[replica.number]
            self._beats.woke(replica.number)
            self._ending.add(replica.number)
        if over:
            await self._host.keep_commit()
        for replica in over:
            await replica.end()
            self._ending.discard(replica.number)

    def _is_over(self, replica: DataReplica, own: int) -> bool:
        placed = self._host.cluster.placement.groups.get(replica.number)
        named = None if placed is None else placed.replica_of(own)
        is_empty = not replica.group_replica.logs.machine.state.partitions
        is_named = named is not None and named.replica == replica.replica
        return not is_named and (placed is not None or is_empty)

    def _remove_old(self, number: int, placed: PlacedGroup) -> None:
        """What an earlier replica of this member left when it was ended."""
        own = self._member.directory.record.number
        file = SeatFile(self._given.fs, self._member.raft_log.directory, number)
        known = file.read()
        newest = self._host.cluster.placement.next_replica
        if known is None or known.is_ended:
            return
        if is_overtaken(known, placed, own, newest):
            self._given.fs.remove_tree(os.path.join(self._given.config.data, "groups", str(number)))
            file.bury(known)

    def _begin(self, number: int) -> None:
        """Raises RaftStoreError."""
        if not self.replicas:
            self._host.spawn(self._run_beats())
        replica = DataReplica(
            number,
            self._given,
            self._host,
            self._member,
            self._links,
            presence=self._presence,
            lives=self._lives,
            on_moved=self._moved,
            here=self._source,
        )
        self.replicas[number] = replica
        replica.raft.raft.allow_quiet(lambda: self._beats.heard(number))
        replica.group_replica.disk_measured(*self._disk)
        replica.start()
        for node in self._links.connected:
            replica.group_replica.reporter.tell_everything(node)

    @property
    def awake(self) -> Iterator[DataReplica]:
        """Those that do not rest."""
        return (each for each in self.replicas.values() if not each.raft.raft.rests)

    @property
    def is_doubtful(self) -> bool:
        """Whether any may lack what it acknowledged, after a loss of power."""
        return any(each.raft.raft.is_doubtful for each in self.replicas.values())

    def with_member(self, node: int) -> Iterator[DataReplica]:
        """Those of which the other member has a replica, too."""
        return (each for each in self.replicas.values() if each.sender.replica(node))

    # --- what is where ----------------------------------------------------------------------------

    def holding(self, partition: int) -> DataReplica | None:
        """The replica of the group that has a partition, by the table; None: it is elsewhere."""
        return self.replicas.get(self._host.cluster.placement.group_of(partition))

    def holders(self, partition: int) -> list[Holder]:
        """The members that have a partition, by the table."""
        cluster = self._host.cluster
        group = cluster.placement.groups.get(cluster.placement.group_of(partition))
        members = () if group is None else map(cluster.members.get, group.members)
        return [
            Holder(each.name, each.address, cluster.rack_of(each.number))
            for each in members
            if each is not None
        ]

    def parts(self, partition: int) -> tuple[LogParts, RaftParts] | None:
        """Of the group that has a partition; None: it has no replica here that knows it yet."""
        replica = self.holding(partition)
        if replica is None:
            return None
        logs, raft = replica.group_replica.logs, replica.group_replica.raft
        return (logs, raft) if partition in logs.machine.state.partitions else None

    def replica_of(self, group: int) -> GroupReplica | None:
        """This member's replica of a group."""
        replica = self.replicas.get(group)
        return None if replica is None else replica.group_replica

    def _source(self, partition: int) -> LogSource | None:
        """The logs of the group that has a partition, where it is here, too."""
        replica = self.holding(partition)
        return None if replica is None else replica.group_replica.logs.source

    def leader(self, group: int) -> tuple[int, int] | None:
        """(term, member) of who leads a group, as far as is known here."""
        replica, told = self.replicas.get(group), self._leaders.get(group)
        if replica is None:
            return told
        raft = replica.raft.raft
        return None if raft.leader is None else (raft.term, raft.leader)

    def lag(self, group: int) -> Mapping[int, int]:
        """Member -> entries that it lacks; empty if the group is not led here."""
        replica = self.replicas.get(group)
        return {} if replica is None else replica.raft.lag

    def hear_leads(self, node: int, message: Leads) -> None:
        """Another member says what it leads."""
        for group, term in message.groups:
            if term > self._leaders.get(group, (-1, 0))[0]:
                self._leaders[group] = term, node

    def carry_out(self, asker: int, orders: Iterable[GroupOrder]) -> None:
        """What the leader of group 0 asks of groups that this member leads."""
        for order in orders:
            if order.partition is not None:
                self.passes.carry_out(asker, order)
            elif order.group in self.replicas:
                self.replicas[order.group].carry_out(order)

    def units_moved(self) -> None:
        """What spans several groups has moved in group 0: its part here is looked at."""
        for replica in self.replicas.values():
            if replica.raft.raft.leadership is not None:
                replica.group_replica.raft.participant.look_soon()

    def _confirm(self) -> None:
        """Tell group 0 what it does not know of the groups that this member leads."""
        found = (replica.unconfirmed() for replica in self.replicas.values())
        changes: list[AnyChange] = [each for each in found if each is not None]
        if changes and not self._confirms:
            self._confirms = True
            self._host.spawn(self._confirm_all(changes[:CONFIRMED_AT_ONCE]))

    async def _confirm_all(self, changes: list[AnyChange]) -> None:
        try:
            await self._host.change_placement(changes)
        except TimeoutError:
            return  # they are found again
        finally:
            self._confirms = False

    def _led(self) -> Leads:
        led = [each for each in self.replicas.values() if each.raft.raft.role is Role.LEADER]
        return Leads(tuple((each.number, each.raft.raft.term) for each in led))

    # --- ends of runs -----------------------------------------------------------------------------

    def run_ended(self, session: str, run_id: str, ends: Ends) -> None:
        """A sender, here or at another member, has finished a run."""
        for replica in self.replicas.values():
            if replica.raft.raft.leadership is not None:
                end_run(replica.group_replica, self._host.cluster, session, run_id, ends)

    def _settle_runs(self, replica: DataReplica) -> None:
        """Tell group 0's leader what this group, led here, has closed; close what group 0 has."""
        state, cluster = replica.group_replica.logs.machine.state, self._host.cluster
        for told in closed_parts(state, cluster):
            self._links.send_all(told)
            self._host.part_closed(told)
        for session, run_id in overtaken(state, cluster):
            if not give_up_held(replica.group_replica, session, run_id):
                end_run(replica.group_replica, cluster, session, run_id, {})

    # --- time -------------------------------------------------------------------------------------

    def tick(self) -> None:
        """To be called some times a second."""
        for replica in self.awake:
            replica.tick()
        self.passes.tick()

    def tick_membership(self) -> None:
        """To be called about four times a second."""
        for replica in self.replicas.values():
            replica.tick_membership()
        self._confirm()

    def tick_slowly(self) -> None:
        """To be called about once a second."""
        for replica in self.replicas.values():
            replica.tick_slowly()
            if replica.raft.is_leader and replica.group_replica.logs.machine.state.sessions:
                self._settle_runs(replica)

    def disk_measured(self, used: int, total: int) -> None:
        """So much of the member's disk is used."""
        self._disk = used, total
        for replica in self.replicas.values():
            replica.group_replica.disk_measured(used, total)

    def loop_delayed(self, by_s: float) -> None:
        """The event loop ran so late."""
        for replica in self.awake:
            replica.raft.loop_delayed(by_s)

    # --- quiet groups -----------------------------------------------------------------------------

    async def _run_beats(self) -> None:
        """Until cancelled."""
        settings, clock = self._given.config.raft, self._given.clock
        patience_s = PATIENCE * settings.election_ms / 1000
        while True:
            await asyncio.sleep(settings.heartbeat_ms / 1000)
            now = clock.now()
            for number, beat in self._beats.due(now):
                digest = beat.digest.to_bytes(DIGEST_BYTES, "big")
                self._links.send(number, Beat(beat.number, digest))
            self._wake(self._beats.silent(now, patience_s))

    def _moved(self, replica: DataReplica) -> None:
        raft, own = replica.raft.raft, self._presence.number
        if raft.role is Role.LEADER and self._leaders.get(replica.number) != (raft.term, own):
            self._leaders[replica.number] = raft.term, own
            self._links.send_all(Leads(((replica.number, raft.term),)))
        if not raft.rests or replica.raft.halted:
            self._beats.woke(replica.number)
        elif raft.role is Role.LEADER:
            rest = Rest(raft.term, raft.peers, is_led=True)
            self._beats.rests(replica.number, rest, self._given.clock.now())
        elif raft.leader is not None:
            rest = Rest(raft.term, (raft.leader,))
            self._beats.rests(replica.number, rest, self._given.clock.now())

    def _wake(self, silence: Silence) -> None:
        for number in silence.led & self.replicas.keys():
            self.replicas[number].raft.leader_lost()
        for number in silence.followed & self.replicas.keys():
            self.replicas[number].raft.wake()

    def on_beat(self, node: int, message: Beat | BeatAnswer | NotQuiet) -> None:
        """What another member says for all groups that rest between us."""
        now = self._given.clock.now()
        if isinstance(message, Beat):
            beat = PairBeat(message.number, int.from_bytes(message.digest, "big"))
            self._links.send(node, BeatAnswer(*self._beats.hear(node, beat, now)))
            return
        if isinstance(message, NotQuiet):
            here = self._beats.not_led(node, message.groups)
        else:
            here, there = self._beats.answered(node, BeatReply(*_answer(message)), now)
            if there:
                self._links.send(node, NotQuiet(tuple(sorted(there))))
        for number in here & self.replicas.keys():
            self.replicas[number].raft.wake()

    # --- what other members say -------------------------------------------------------------------

    def on_raft(self, node: int, part: GroupMessages) -> None:
        """Raft messages of a data group."""
        replica = self._addressed(node, part.group, part.sender, part.receiver)
        if replica is not None:
            replica.raft.receive(node, part.messages)
            self._moved(replica)

    def on_message(self, node: int, message: InGroup) -> None:
        """Anything else of a data group. Raises ProtocolFault."""
        replica = self._addressed(node, message.group, message.sender, message.receiver)
        if replica is None:
            return
        said = decode_message(message.message)
        if not isinstance(said, OF_A_GROUP):
            raise ProtocolFault(FaultCode.PROTOCOL, f"{type(said).__name__} of a data group", "")
        replica.group_replica.receive(node, said)

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
            replica.group_replica.reporter.tell_everything(node)

    def began_anew(self, node: int) -> None:
        """Another member is in another life."""
        self._wake(self._beats.lost(node))
        for replica in self.with_member(node):
            replica.raft.peer_restarted(node)

    def gone(self, node: int) -> None:
        """No connection that another member dialled is left."""
        self._wake(self._beats.lost(node))
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
        self._runs = False
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


def _answer(message: BeatAnswer) -> tuple[int, bool, tuple[tuple[int, int], ...]]:
    return message.number, message.agrees, message.followed
