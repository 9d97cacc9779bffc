"""One node's compaction: the leader orders what is due, every node writes it, says what it wrote,
and swaps it in once the cluster has decided.

Writing happens outside the event loop, one partition at a time and no faster than
`BYTES_PER_S`, so that ingest has the disk and the processor first; and only with half of the room
that intake has. What a node could not write itself (it was away, or wrote something else) it gets
from peers, segment by segment, checked against the digests that are decided. What it finds damaged
the scrubber looks at, and it tries again later.

Invariant: a segment is swapped in only if it is the one that the cluster decided on, to the byte,
and while nobody mends the one that was there.
"""

from __future__ import annotations

import asyncio
import logging
import os
from dataclasses import dataclass

from samelog.archiver.compaction import CompactCommand, RewrittenCommand
from samelog.archiver.compaction_progress import CompactionProgress
from samelog.archiver.policy import CLEANUP_POLICY, is_compacted
from samelog.format.compaction import CompactedSegment
from samelog.format.errors import CorruptLog, LogFormatError, NotContiguous
from samelog.format.file_names import LOG, segment_name
from samelog.runtime.at_work import AtWork
from samelog.runtime.clock import Clock
from samelog.runtime.disk.threads import InThread
from samelog.runtime.log import log_event
from samelog.sequencer.cluster.repair.pieces import PieceRepair
from samelog.sequencer.compaction.ordering import CompactionOrders
from samelog.sequencer.ingest.room import Room
from samelog.sequencer.merge.merged_partition import MergedPartition
from samelog.sequencer.merge.merging import Merging
from samelog.sequencer.raft.group import RaftGroup
from samelog.sequencer.raft.proposer import Proposer
from samelog.sequencer.state.command_base import Rejection
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.tables.partitions import Partition
from samelog.store.disk.disk_errors import DiskFault
from samelog.store.disk.files import FileSystem
from samelog.store.merged.fetched import take_up
from samelog.store.merged.log import MergedLog
from samelog.store.merged.rewriting import OldSegment, Rewriting

log = logging.getLogger(__name__)

INTERVAL_S = 3.0
"""Less than a replica stays at work when there is nothing to do: see data_groups.working."""
BYTES_PER_S = 64 << 20
MEMORY_BYTES = 128 << 20
ROUNDS_BETWEEN_TRIES = 120
"""Of one partition's that could not be compacted."""


@dataclass(frozen=True, slots=True)
class CompactorParts:
    """What compaction takes of its replica."""

    fs: FileSystem
    in_thread: InThread
    clock: Clock
    machine: StateMachine
    merging: Merging
    group: RaftGroup
    orders: CompactionOrders
    proposer: Proposer
    pieces: PieceRepair
    room: Room
    mending: asyncio.Lock
    """Who holds it may write to a segment that was there already."""
    number: int
    """Of this member."""
    at_work: AtWork
    memory_bytes: int
    """For the keys of what is compacted."""


class Compactor:
    """One replica's."""

    def __init__(self, parts: CompactorParts) -> None:
        self._parts = parts
        self._waits: dict[int, int] = {}
        """Partition -> in how many rounds it is tried again."""
        self._settled: dict[int, tuple[list[CompactedSegment], list[CompactedSegment]]] = {}
        """Partition -> what was wanted and held, and the same."""
        self._unfinished: set[int] = set()
        """Partitions that the last round left with an order, or without what was decided."""
        self.complete: dict[int, int] = {}
        """Partition -> the newest compaction of which this node has all segments, in place or not.
        """
        self._tried: set[int] = set()
        """Partitions of which there was a round since `take_moved`."""

    @property
    def is_busy(self) -> bool:
        """Whether there will be something to do in the next round."""
        return bool(self._unfinished)

    def take_moved(self) -> set[int]:
        """Return of which partitions `complete` is another one than at the last call."""
        tried, self._tried = self._tried, set()
        return set(filter(self._is_moved, tried | self._unfinished))

    def _is_moved(self, number: int) -> bool:
        merged = self._parts.merging.partitions.get(number)
        known = None if merged is None else self._known(number, merged)
        if merged is None or known is None:
            return self.complete.pop(number, 0) > 0
        wanted, generations = known.compactions.segments, merged.log.generations
        there, newest = {*generations.segments}, known.compactions.newest
        is_there = all(e in there or e in generations.written.get(e.number, ()) for e in wanted)
        if not is_there or newest == self.complete.get(number, 0):
            return False
        self.complete[number] = newest
        return True

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await asyncio.sleep(INTERVAL_S)
            with self._parts.at_work:
                await self.look()

    async def look(self) -> None:
        """One round."""
        concerned = set(filter(self._concerns, self._parts.merging.partitions))
        self._unfinished &= concerned
        self._waits = {number: left for number, left in self._waits.items() if number in concerned}
        self._settled = {
            number: seen for number, seen in self._settled.items() if number in concerned
        }
        self._parts.orders.forget_others(concerned)
        for number in sorted(concerned):
            await self._try(number)

    def _concerns(self, number: int) -> bool:
        """Whether the partition is compacted, or was."""
        state = self._parts.machine.state
        known = state.partitions.by_number.get(number)
        if known is None:
            return False
        policy = state.topics.by_id[known.topic_id].settings.get(CLEANUP_POLICY, "")
        return known.compacted is not None or is_compacted(policy)

    async def _try(self, number: int) -> None:
        left = self._waits.pop(number, 0)
        if left > 0:
            self._waits[number] = left - 1
            return
        self._unfinished.discard(number)
        self._tried.add(number)
        try:
            await self.look_at(number)
            if self._is_unfinished(number):
                self._unfinished.add(number)
        except LogFormatError as error:
            self._wait(number, "not compacted", error)

    def _wait(self, number: int, event: str, why: object) -> None:
        self._waits[number] = ROUNDS_BETWEEN_TRIES
        log_event(log, logging.WARNING, event, partition=number, why=why)

    def _is_unfinished(self, number: int) -> bool:
        here = self._parts.merging.partitions.get(number)
        known = None if here is None else self._known(number, here)
        if here is None or known is None:
            return False
        wanted, held = known.compactions.segments, here.log.generations.segments
        return known.compactions.order is not None or bool(self._lacking(number, wanted, held))

    async def look_at(self, number: int) -> None:
        """Do what is to be done now for one partition. Raises LogFormatError."""
        here = self._parts.merging.partitions.get(number)
        if here is None:
            return
        await self._follow(number, here)
        if (known := self._known(number, here)) is None:
            return
        if (order := known.compactions.order) is not None:
            _begun(here, order, self._parts.clock.now())
        if self._parts.group.is_leader:
            self._parts.orders.order(here, known)
        if order is not None:
            await self._write(number, here, order)

    def _known(self, number: int, here: MergedPartition) -> Partition | None:
        """What the cluster knows of a partition; None: it is gone, or cannot be used. That may be
        so behind each await.
        """
        is_here = self._parts.merging.partitions.get(number) is here and here.fault is None
        return self._parts.machine.state.partitions.by_number.get(number) if is_here else None

    # --- writing -------------------------------------------------------------------------------

    async def _write(self, number: int, here: MergedPartition, order: CompactCommand) -> None:
        """Write what is ordered, and say so. What is not here yet is written later."""
        done = here.log.generations.written.get(order.number)
        if done is None:
            done = await self._rewrite(number, here, order)
        known = self._known(number, here)
        if done is None or known is None or known.compactions.order != order:
            return
        if known.compactions.written.get(self._parts.number) == done:
            return
        now_ms = self._parts.orders.now_ms()
        told = RewrittenCommand(number, order.number, self._parts.number, done, now_ms)
        try:
            outcome = await self._parts.proposer.propose(told)
        except TimeoutError:
            return  # the next round says it again
        if isinstance(outcome, Rejection):
            self._wait(number, "what was compacted is not taken", outcome.message)

    async def _rewrite(
        self, number: int, here: MergedPartition, order: CompactCommand
    ) -> list[CompactedSegment] | None:
        merged, generations = here.log, here.log.generations
        sources = self._sources(number, here, order)
        if not sources or not self._parts.room.has(2 * sum(each.size for each in sources)):
            return None
        aborted = merged.aborted(order.start, order.stop)
        folder = await self._parts.in_thread(generations.make_folder, order.number)
        memory = self._parts.memory_bytes
        work = Rewriting(
            self._parts.fs, folder, sources, order, aborted=aborted, memory_bytes=memory
        )
        if not await self._carry_out(work, number, here, order):
            if self._known(number, here) is not None and here.log is merged:
                await self._parts.in_thread(generations.clear_folders, list(generations.written))
            return None
        await self._parts.in_thread(generations.complete, order.number, work.written)
        kept, dropped = work.counts
        name = f"{here.topic}-{here.index}"
        log_event(log, logging.INFO, "compacted", partition=name, kept=kept, dropped=dropped)
        return work.written

    def _sources(
        self, number: int, here: MergedPartition, order: CompactCommand
    ) -> list[OldSegment]:
        """What is to be compacted; empty: it is not all here yet, as the cluster has it."""
        merged, known = here.log, self._known(number, here)
        is_there = min(merged.durable_offset, merged.last_stable_offset) >= order.stop
        held = [each for each in merged.generations.segments if each.base >= order.start]
        if known is None or not is_there or held != known.compactions.segments:
            return []
        try:
            return merged.generations.sources(order.start, order.stop)
        except NotContiguous:
            return []

    async def _carry_out(
        self, work: Rewriting, number: int, here: MergedPartition, order: CompactCommand
    ) -> bool:
        """Return whether it was written. Meanwhile the order may be cancelled, the log reopened, or
        the disk may fill up. Raises LogFormatError.
        """
        merged, progress = here.log, _begun(here, order, self._parts.clock.now())
        try:
            while (done := await self._parts.in_thread(work.step)) > 0:
                if not self._is_wanted(number, here, merged, order):
                    work.close()
                    return False
                progress.moved(*work.progress, self._parts.clock.now())
                await asyncio.sleep(done / BYTES_PER_S)
        except CorruptLog as fault:
            if not self._is_wanted(number, here, merged, order):
                return False  # what is archived is read no more
            for base in (each.base for each in work.sources if each.path == fault.path):
                here.suspect(base)
            raise
        return True

    def _is_wanted(
        self, number: int, here: MergedPartition, merged: MergedLog, order: CompactCommand
    ) -> bool:
        known = self._known(number, here)
        is_ordered = known is not None and known.compactions.order == order
        return is_ordered and here.log is merged and self._parts.room.has(0)

    # --- swapping ------------------------------------------------------------------------------

    async def _follow(self, number: int, here: MergedPartition) -> None:
        """Let the log have the compacted segments that the cluster has."""
        known, generations = self._known(number, here), here.log.generations
        if known is None:
            return
        lacking = self._lacking(number, known.compactions.segments, generations.segments)
        if not lacking or lacking[-1].stop > here.log.durable_offset:
            return
        if not (await self._has_written(here, lacking) or await self._fetch(here, lacking)):
            return
        async with self._parts.mending:
            self._swap(number, here, lacking)
        known = self._known(number, here)
        if known is not None and here.log.generations is generations:
            order = known.compactions.order
            needed = () if order is None else (order.number,)
            await self._parts.in_thread(generations.clear_folders, needed)

    def _lacking(
        self, number: int, wanted: list[CompactedSegment], held: list[CompactedSegment]
    ) -> list[CompactedSegment]:
        """From the first to the last segment that is not the wanted one. Lists that were looked at
        and are the same are not looked at again: others take their places when anything changes.
        """
        seen = self._settled.get(number)
        if seen is not None and seen[0] is wanted and seen[1] is held:
            return []
        there = {each.base: each for each in held}
        differ = [at for at, each in enumerate(wanted) if there.get(each.base) != each]
        if not differ:
            self._settled[number] = wanted, held
            return []
        return wanted[differ[0] : differ[-1] + 1]

    async def _has_written(self, here: MergedPartition, lacking: list[CompactedSegment]) -> bool:
        """Whether this node has written the segments itself, and they are as they were."""
        merged, number = here.log, lacking[-1].number
        if not set(lacking) <= set(merged.generations.written.get(number, ())):
            return False
        for each in lacking:
            path = os.path.join(merged.generations.folder(number), segment_name(each.base, LOG))
            if not await self._parts.in_thread(take_up, self._parts.fs, path, each):
                return False
        return here.log is merged

    def _swap(self, number: int, here: MergedPartition, segments: list[CompactedSegment]) -> None:
        """Raises LogFormatError: nothing was changed, or the log was reopened."""
        if self._parts.merging.partitions.get(number) is not here or here.fault is not None:
            return
        here.log.generations.sources(segments[0].base, segments[-1].stop)
        try:
            here.log.swap(segments)
        except DiskFault as fault:
            self._parts.merging.reopen(number, f"compacted segments did not get in place: {fault}")
        here.changed()

    async def _fetch(self, here: MergedPartition, lacking: list[CompactedSegment]) -> bool:
        """Get segments from peers into the folder; whether all are there, and right."""
        merged, generations = here.log, here.log.generations
        if not self._parts.room.has(2 * sum(each.sealed.size for each in lacking)):
            return False
        number = max(each.number for each in lacking)
        folder = await self._parts.in_thread(generations.make_folder, number)
        for each in lacking:
            path = await self._parts.pieces.compacted_segment(here, each, folder)
            if path is None:
                return False
            if not await self._parts.in_thread(take_up, self._parts.fs, path, each):
                return False
        return here.log is merged


def _begun(here: MergedPartition, order: CompactCommand, now: float) -> CompactionProgress:
    """How far this node is with an order, which it knows of from now on at the latest."""
    if here.compaction is None or here.compaction.number != order.number:
        here.compaction = CompactionProgress(order.number, now, now)
    return here.compaction
