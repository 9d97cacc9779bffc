"""The ends of the Raft logs of data groups that two members compare in their first exchange.

A data group may be the only one in which a member forgot something: group 0 may have been idle
meanwhile. So a member tells the ends of all its replicas of groups that it shares with the other
one, those that have yet to begin included. A replica that knows itself that it may have forgotten
something is left out.

Invariant: the end of a replica's log is at or above all that it promised before this life.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress

from samelog.consensus.wal import GroupLog
from samelog.placement.values import Placement
from samelog.sequencer.cluster.lives import Acknowledged
from samelog.sequencer.data_groups.leaders import KnownLeaders
from samelog.sequencer.data_groups.replica import DataReplica
from samelog.sequencer.data_groups.seats import SeatFile, counts_as
from samelog.sequencer.parts import MemberParts
from samelog.sequencer.raft.raft_errors import RaftStoreError
from samelog.store.disk.files import FileSystem
from samelog.wire.bounds import METADATA_GROUP, REPLICAS_TOLD, ReplicaEnd


class LogEnds:
    """Those of one member."""

    def __init__(
        self,
        fs: FileSystem,
        member: MemberParts,
        table: Callable[[], Placement],
        replicas: Mapping[int, DataReplica],
        leaders: KnownLeaders,
    ) -> None:
        self._fs = fs
        self._log, self._directory = member.raft_log, member.directory
        self._table = table
        self._replicas = replicas
        self._leaders = leaders

    def told(self, to: int) -> tuple[ReplicaEnd, ...]:
        """The ends of this member's replicas of groups that it shares with another one, as far as
        the table of placement knows.
        """
        groups, found = self._table().groups, list[ReplicaEnd]()
        for number, replica in self._log.replicas:
            placed = groups.get(number)
            if placed is None or placed.replica_of(to) is not None:
                found += self._ends(number, replica)
        return tuple(found[:REPLICAS_TOLD])

    def _ends(self, number: int, replica: int) -> Iterator[ReplicaEnd]:
        """The end of a replica's log; none of group 0 and of a replica that is not sure."""
        running = self._replicas.get(number)
        if number == METADATA_GROUP:
            return
        if running is None or running.replica != replica:
            yield from self._ends_on_disk(number, replica)
            return
        raft = running.raft.raft
        if raft.may_vote and not raft.is_doubtful:
            index = raft.saves.on_disk
            term = raft.log.term_at(index) or 0
            yield ReplicaEnd(number, replica, raft.saves.durable_term, index, term)

    def _ends_on_disk(self, number: int, replica: int) -> Iterator[ReplicaEnd]:
        """The end of the log of a replica that does not run yet."""
        with suppress(RaftStoreError):  # it does not begin, so it promises nothing
            known = SeatFile(self._fs, self._log.directory, number).read()
            if known is not None and counts_as(known, replica, self._directory.record):
                yield _end_of(self._log.group((number, replica)))

    def acknowledged(self, by: int) -> Iterator[Acknowledged]:
        """Promises of a member's replicas to those of this one: entries, or terms that they led
        in; a term is saved before its leader is elected.
        """
        for number, replica in self._replicas.items():
            seat, raft = replica.sender.replica(by), replica.raft.raft
            progress = raft.progress(by) if seat else None
            if progress is not None and progress.match:
                yield Acknowledged(raft.term, progress.match, number, seat)
            led = self._leaders.get(number)
            if seat and led is not None and (led.member, led.replica) == (by, seat):
                yield Acknowledged(led.term, 0, number, seat)


def _end_of(log: GroupLog) -> ReplicaEnd:
    mark, index, term = log.mark, 0, 0
    if log.entries:
        index, term = log.entries[-1].index, log.entries[-1].term
    elif mark is not None:
        index, term = mark.last_index, mark.last_term
    return ReplicaEnd(*log.key, log.hard_state.term, index, term)
