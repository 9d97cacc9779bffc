"""Which replicas of data groups a member runs: begun and ended as the table of placement says.

A table that lags behind may name a replica that has ended here, or not name one yet that is there:
neither begins, nor goes, by it.

Invariant: a replica without files begins only by a table that was confirmed in this life, and never
again once it has ended. One that ends hears nothing from then on, and its files go only when it is
on the disk that group 0 committed that.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from contextlib import suppress

from samelog.placement.values import PlacedGroup, PlacedReplica
from samelog.runtime.log import log_event
from samelog.sequencer.data_groups.leftovers import FOLDER, groups_on_disk, leftovers, set_aside
from samelog.sequencer.data_groups.recovering import go_on_alone
from samelog.sequencer.data_groups.replica import DataReplica, ReplicaHost
from samelog.sequencer.data_groups.seats import (
    ReplicaRecord,
    SeatFile,
    begun,
    counted,
    has_ended,
    is_overtaken,
    is_stale,
)
from samelog.sequencer.host import NodeResources
from samelog.sequencer.levels import OtherVersion
from samelog.sequencer.parts import MemberParts
from samelog.sequencer.raft.raft_errors import RaftStoreError

log = logging.getLogger(__name__)


class ReplicaKeeper:
    """One member's."""

    def __init__(
        self,
        given: NodeResources,
        host: ReplicaHost,
        member: MemberParts,
        *,
        on_table: Callable[[], None],
        begin: Callable[[int], None],
        on_over: Callable[[DataReplica], None],
    ) -> None:
        """`on_table`: the table is looked at; `begin`: make a replica and run it, which raises
        RaftStoreError; `on_over`: one is to hear nothing any more.
        """
        self._given = given
        self._host = host
        self._directory, self._own = member.directory, member.directory.record.number
        self._raft_log = member.raft_log
        self._on_table = on_table
        self._make = begin
        self._on_over = on_over
        self._runs = False
        self._is_due = False
        """The table is to be looked at."""
        self._confirmed_at: int | None = None
        """The version of the table once it was as new as that of group 0, in this life."""
        self._ending: set[int] = set()
        """Groups whose replica here is being ended."""
        self._damaged: dict[int, tuple[PlacedGroup, str]] = {}
        self._unknown: tuple[int, ...] = ()
        """Groups of which there are files, and that no table names."""
        self.replicas: dict[int, DataReplica] = {}

    @property
    def damaged(self) -> dict[int, str]:
        """Groups whose replica cannot begin here, and why."""
        found = dict.fromkeys(self._unknown, "its files are here, and no table names the group")
        return found | {number: why for number, (_, why) in self._damaged.items()}

    @property
    def has_more(self) -> bool:
        """Whether there are files of replicas that do not run."""
        names = self._given.fs.list_directory(self._raft_log.directory)
        groups = {int(name) for name in names if name.isdecimal() and name != "0"}
        return any(self._may_run(number) for number in groups - self.replicas.keys())

    def _may_run(self, number: int) -> bool:
        try:
            known = SeatFile(self._given.fs, self._raft_log.directory, number).read()
        except RaftStoreError:
            return True
        return known is not None and not known.is_ended

    def start(self) -> None:
        """Begin what the table names, from now on."""
        self._runs = True
        for key in self._raft_log.replicas:
            if self._has_ended(*key):
                self._raft_log.forget(key)
        self._host.spawn(self._confirm_table())
        self.follow()

    def _has_ended(self, group: int, replica: int) -> bool:
        """Whether a replica never begins again, by what is on the disk; of group 0 none has."""
        try:
            known = SeatFile(self._given.fs, self._raft_log.directory, group).read()
        except RaftStoreError:
            return False
        return has_ended(known, replica)

    def stop(self) -> None:
        """Begin and end nothing any more."""
        self._runs = False

    async def _confirm_table(self) -> None:
        """Have all applied here that was committed in group 0 before this life."""
        while self._confirmed_at is None:
            with suppress(TimeoutError):
                await self._host.catch_up()
                self._confirmed_at = self._host.cluster.placement.version
        self._directory.has_confirmed(self._confirmed_at)
        for number, placed in tuple(self._host.cluster.placement.groups.items()):
            if placed.replica_of(self._own) is None and not self._is_here(number):
                with suppress(RaftStoreError):
                    self._remove_left(number, placed)
        self._clear_up()
        self.follow()

    def _is_here(self, number: int) -> bool:
        """Whether a replica of a group runs, or ends: that removes its files itself."""
        return number in self.replicas or number in self._ending

    def _clear_up(self) -> None:
        """Remove what groups left that ended while this member was away; what nobody knows stays,
        and is shown.
        """
        fs, data = self._given.fs, self._given.config.data
        found = leftovers(self._host.cluster.placement, groups_on_disk(fs, data))
        for number in found.gone:
            if not self._is_here(number):
                fs.remove_tree(os.path.join(data, FOLDER, str(number)))
                log_event(log, logging.INFO, "what a group left is removed", group=number)
        self._unknown = found.unknown
        for number in found.unknown:
            log_event(log, logging.CRITICAL, "files of an unknown group are kept", group=number)

    def follow(self) -> None:
        """The table may be another one: go by it soon, not while an entry of group 0 is applied."""
        if self._runs and not self._is_due:
            self._is_due = True
            self._host.spawn(self._go_by_table())

    async def _go_by_table(self) -> None:
        self._is_due = False
        await self._end_old()
        await self._recover_groups()
        self._on_table()
        for number, placed in tuple(self._host.cluster.placement.groups.items()):
            named, known = placed.replica_of(self._own), self.replicas.keys() | self._ending
            if named is not None and self._runs and number not in known:
                self._begin(number, placed, named)

    # --- beginning --------------------------------------------------------------------------------

    def _begin(self, number: int, placed: PlacedGroup, named: PlacedReplica) -> None:
        known = self._damaged.get(number)
        if known is not None and known[0] is placed:
            return  # nothing has changed since that was found
        try:
            if self._may_begin(number, placed, named):
                self._claim(number, named)
                self._make(number)
            self._damaged.pop(number, None)
        except RaftStoreError as error:
            self._damaged[number] = placed, str(error)
            what = "replica cannot begin"
            log_event(log, logging.CRITICAL, what, group=number, error=error)

    def _may_begin(self, number: int, placed: PlacedGroup, named: PlacedReplica) -> bool:
        """Raises RaftStoreError."""
        known = self._remove_left(number, placed)
        if is_stale(known, named):
            return False
        return self._confirmed_at is not None or not (known is None or known.is_ended)

    def _claim(self, number: int, named: PlacedReplica) -> None:
        """Have it on the disk which replica this is. Raises RaftStoreError."""
        file = SeatFile(self._given.fs, self._raft_log.directory, number)
        known, table = file.read(), self._host.cluster.placement
        claimed = begun(known, named, table, self._directory.record)
        if claimed != known:
            file.write(claimed)

    def _remove_left(self, number: int, placed: PlacedGroup) -> ReplicaRecord | None:
        """Go on with an end that a crash has cut short: what is known of a replica here then.
        Raises RaftStoreError.
        """
        file = SeatFile(self._given.fs, self._raft_log.directory, number)
        known, table = file.read(), self._host.cluster.placement
        if known is None or known.is_ended or not is_overtaken(known, placed, self._own, table):
            return known
        path = os.path.join(self._given.config.data, FOLDER, str(number))
        if placed.recovered:  # it may be of the group's life before
            set_aside(self._given.fs, path, number, known.replica)
        elif self._given.fs.exists(path):
            self._given.fs.remove_tree(path)
        return file.bury(known)

    # --- going on alone ---------------------------------------------------------------------------

    async def _recover_groups(self) -> None:
        """Let replicas go on alone of which the table says so, once it is known to be up to date:
        a copy of this directory from before must not.
        """
        for number, placed in tuple(self._host.cluster.placement.groups.items()):
            named, running = placed.replica_of(self._own), self.replicas.get(number)
            if named is None or not placed.is_to_go_on_with(self._own) or number in self._ending:
                continue
            if self._confirmed_at is not None and (running is None or running.is_to_go_on_alone()):
                await self._recover(placed, named)

    async def _recover(self, placed: PlacedGroup, named: PlacedReplica) -> None:
        self._ending.add(placed.number)
        running = self.replicas.pop(placed.number, None)
        if running is not None:
            self._hears_no_more(running)
            await running.stop()
        try:
            self._claim(placed.number, named)
            self._go_on_alone(placed, named)
        except (RaftStoreError, OtherVersion) as error:
            self._damaged[placed.number] = placed, str(error)
            what = "replica cannot go on alone"
            log_event(log, logging.CRITICAL, what, group=placed.number, error=error)
        finally:
            self._ending.discard(placed.number)

    def _go_on_alone(self, placed: PlacedGroup, named: PlacedReplica) -> None:
        """First the log, then the vote: a crash between them is made good, as nobody confirms that
        the group goes on. Raises RaftStoreError, OtherVersion.
        """
        config = self._given.config
        go_on_alone(
            self._given.fs,
            self._raft_log,
            os.path.join(config.data, FOLDER, str(placed.number)),
            placed,
            named,
            name=config.name,
            wall_ms=self._given.clock.wall_ms(),
        )
        file = SeatFile(self._given.fs, self._raft_log.directory, placed.number)
        known = file.read()
        if known is not None:
            file.write(counted(known, self._directory.record))
        log_event(log, logging.CRITICAL, "replica goes on alone", group=placed.number)

    # --- ending -----------------------------------------------------------------------------------

    async def _end_old(self) -> None:
        """End replicas that the table no longer names."""
        over = [replica for replica in self.replicas.values() if self._is_over(replica)]
        for replica in over:  # all at once: from now on none of them hears anything
            del self.replicas[replica.number]
            self._ending.add(replica.number)
            self._hears_no_more(replica)
        if over:
            await self._host.keep_commit()
        for replica in over:
            await replica.end()
            self._ending.discard(replica.number)

    def _hears_no_more(self, replica: DataReplica) -> None:
        replica.let_clients_go()
        self._on_over(replica)

    def _is_over(self, replica: DataReplica) -> bool:
        """Whether another replica has this one's place, or the group has ended. A replica that
        never caught up may still hold partitions that its group no longer had at the end.
        """
        table, number = self._host.cluster.placement, replica.number
        placed = table.groups.get(number)
        if placed is None:
            return number in leftovers(table, (number,)).gone
        named = placed.replica_of(self._own)
        return named is None or named.replica != replica.replica
