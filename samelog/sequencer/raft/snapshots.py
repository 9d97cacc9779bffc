"""Takes a snapshot of the replica every few seconds, when something changed, and cuts the Raft log
behind it.

A snapshot counts only once the merged bytes it implies are on disk; the log is cut only behind the
older of the two kept snapshots, and only behind what a majority has merged-durable (rule
sessions.4). The interval grows with the snapshot's size, so that writing them never takes more than
a small share of the node's time.

Invariant: at any moment one of the kept snapshots, the log behind it and the merged files give the
whole state.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import msgspec

from samelog.consensus import Busy, NotLeader, Snapshot
from samelog.format.errors import InvariantError
from samelog.runtime.at_work import AtWork
from samelog.runtime.clock import Clock
from samelog.runtime.flag import Flag
from samelog.runtime.log import log_event
from samelog.sequencer.raft.coordinator import Coordinator
from samelog.sequencer.raft.group import RaftGroup
from samelog.sequencer.raft.replica import Replica
from samelog.sequencer.raft.store import RaftStore
from samelog.store.disk.disk_errors import NoSpace

log = logging.getLogger(__name__)

BYTES_PER_SECOND_OF_INTERVAL = 4 << 20
TAIL_ENTRIES = 10_000
"""Entries kept behind the cut, so that a follower that was away for moments needs no snapshot. They
take up to some MB of memory; groups that rest keep few.
"""
NUDGES = 4
"""So many rounds after a soft reset the leader adds an entry that does nothing."""
REST_BYTES = 4 << 10
"""What is kept of the log of a group that rests."""
FOLLOWERS_WAIT = 4
"""So many intervals: the leader's entry may be under way, and others cut their logs by it, too."""


@dataclass(frozen=True, slots=True)
class _Taken:
    """A durable snapshot without its data, how many bytes that has, and the offsets a majority must
    have merged-durable before the log is cut at it.
    """

    mark: Snapshot
    size: int
    offsets: dict[int, int]


class Snapshotter:
    """The periodic snapshots of one group."""

    def __init__(
        self,
        group: RaftGroup,
        replica: Replica,
        store: RaftStore,
        coordinator: Coordinator,
        *,
        ask_for_entry: Callable[[], None],
        interval_s: float,
        clock: Clock,
        at_work: AtWork,
    ) -> None:
        self._group = group
        self._replica = replica
        self._store = store
        self._coordinator = coordinator
        self._ask_for_entry = ask_for_entry
        self._interval_s = interval_s
        self._clock = clock
        self._at_work = at_work
        self._due_at = clock.now() + interval_s
        self._last_index = replica.applied_index
        self._taken: tuple[_Taken, ...] = ()
        """The newest two, the older one first."""
        self._anew_at = 0
        """The log up to this entry is not kept, once it is not needed."""
        self._woken = Flag()
        self._nudges = 0
        self._turn = asyncio.Lock()

    async def run(self) -> None:
        """Take snapshots until cancelled, or the replica is halted."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, self._due_at - self._clock.now())):
                    await self._woken.wait()
            if self._group.halted:
                return  # what it has may be half of an entry; its files stay as they are
            with self._at_work:
                await self._look()

    async def _look(self) -> None:
        interval_s = self._interval_s
        try:
            if self._woken.is_set():
                self._begin_log()
            if self._nudges:
                self._nudge()
            if self._replica.applied_index > self._last_index:
                size = await self.take()
                interval_s = max(interval_s, size / BYTES_PER_SECOND_OF_INTERVAL)
            if self._cut():
                await self._group.sync_now()
            if not self._nudges and self._is_long:
                self._nudges = 1
                interval_s *= 1 if self._group.is_leader else FOLLOWERS_WAIT
        except NoSpace as fault:
            log_event(log, logging.ERROR, "no snapshot taken", error=fault)
        self._due_at = self._clock.now() + interval_s

    @property
    def due_at(self) -> float | None:
        """When there is something to do, if nothing more is applied; None: never."""
        is_behind = self._replica.applied_index > self._last_index
        return self._due_at if is_behind or self._nudges or self._woken.is_set() else None

    def begin_anew(self) -> None:
        """Let go of the whole log that there is, as soon as both kept snapshots are of its end or
        later: the older one must never need what is gone (a soft reset).
        """
        self._woken.set()

    def _begin_log(self) -> None:
        self._woken.clear()
        self._store.log.roll()
        self._anew_at = self._group.raft.last_index
        self._nudges = NUDGES

    def _nudge(self) -> None:
        """Snapshots are of different entries, and an idle cluster has none."""
        self._nudges -= 1
        if self._group.is_leader:
            with suppress(NotLeader, Busy):
                self._group.propose([])
        elif self._is_long and self._replica.applied_index == self._last_index:
            self._ask_for_entry()

    async def take(self) -> int:
        """Write one snapshot of this moment, once the one that is being written is; its size in
        bytes. None is written while a leader's snapshot waits for room on the disk: it replaces
        this state, and the log begins behind it already.
        """
        async with self._turn:
            await self._replica.wait_tidied()
            index = self._replica.applied_index
            is_replaced = index < self._group.raft.first_index - 1
            is_new = not self._taken or self._taken[-1].mark.last_index < index
            if is_new and not is_replaced:
                await self._write(index)
            return self._taken[-1].size if self._taken else 0

    async def _write(self, index: int) -> None:
        raft = self._group.raft
        term = raft.term_at(index)
        if term is None:
            raise InvariantError(f"applied entry {index} has no term")
        members = raft.membership_at(index)
        body = self._replica.body()
        snapshot = Snapshot(index, term, members.voters, members.learners, body)
        offsets = {
            number: partition.next_offset
            for number, partition in self._replica.machine.state.partitions.by_number.items()
            if partition.next_offset
        }
        await self._replica.merging.sync()
        await self._store.save_snapshot(snapshot)
        self._last_index = index
        mark = msgspec.structs.replace(snapshot, data=b"")
        self._taken = (*self._taken[-1:], _Taken(mark, len(body), offsets))

    def _cut(self) -> bool:
        """Cut the log behind the older kept snapshot, if a majority has merged-durable what it
        covers; whether anything was cut.
        """
        if len(self._taken) < 2:
            return False
        older, newest = self._taken
        if not self._is_merged(older):
            return False
        last = older.mark.last_index
        index = min(last, self._kept_from) if self._all_rest else last - TAIL_ENTRIES
        if last >= self._anew_at:
            index = max(index, self._anew_at)
        if index <= self._group.raft.first_index:
            return False
        self._group.raft.compact(index, newest.mark)
        self._store.cut(index)
        return True

    def _is_merged(self, taken: _Taken) -> bool:
        """Whether a majority has merged-durable what a snapshot covers."""
        known, cursors = self._replica.machine.state.partitions.by_number, self._coordinator.cursors
        return all(
            cursors.get(number, 0) >= offset
            for number, offset in taken.offsets.items()
            if number in known
        )

    @property
    def _all_rest(self) -> bool:
        """Whether the group rests, and none whom this node leads is away: for those the end of the
        log is kept.
        """
        raft = self._group.raft
        is_complete = raft.leadership is None or len(raft.rests_with) == len(raft.peers)
        return raft.rests and is_complete

    @property
    def _kept_from(self) -> int:
        """Up to where a log that rests is not kept; its newest entries are what people are shown as
        the merge order.
        """
        raft, left = self._group.raft, REST_BYTES
        for entry in reversed(raft.log.entries(raft.first_index, raft.last_index + 1)):
            left -= len(entry.data)
            if left < 0:
                return entry.index
        return raft.first_index

    @property
    def _is_long(self) -> bool:
        """Whether the group rests, and its log is long: with another entry, which does nothing, and
        a snapshot of that, all members can cut theirs. The leader adds one. A follower that had not
        taken its snapshot by then, as it is slow, asks for another one.
        """
        raft = self._group.raft
        if not (self._taken and self._all_rest):
            return False
        newest = self._taken[-1]
        stop = max(raft.first_index, newest.mark.last_index + 1)
        held = raft.log.entries(raft.first_index, stop)
        is_long = sum(len(entry.data) for entry in held) > 2 * REST_BYTES
        return is_long and self._is_merged(newest)
