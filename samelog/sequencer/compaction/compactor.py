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
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from samelog.archiver.compaction import (
    SEED_BYTES,
    CompactCommand,
    Compactions,
    RewrittenCommand,
)
from samelog.archiver.compaction_plan import ClosedSegment, CompactionFacts, due
from samelog.archiver.plan import majority_time
from samelog.archiver.policy import CLEANUP_POLICY, hold_of, is_compacted
from samelog.archiver.rounds import rolled_ms
from samelog.consensus import Busy, NotLeader
from samelog.format.compaction import CompactedSegment
from samelog.format.errors import CorruptLog, LogFormatError, NotContiguous
from samelog.format.file_names import LOG, segment_name
from samelog.runtime.at_work import AtWork
from samelog.runtime.disk.threads import InThread
from samelog.runtime.log import log_event
from samelog.sequencer.cluster.archiving import MemberViews
from samelog.sequencer.cluster.repair.pieces import PieceRepair
from samelog.sequencer.ingest.room import Room
from samelog.sequencer.levels import COMPACTION
from samelog.sequencer.merge.merged_partition import MergedPartition
from samelog.sequencer.merge.merging import Merging
from samelog.sequencer.raft.coordinator import Coordinator
from samelog.sequencer.raft.group import RaftGroup
from samelog.sequencer.raft.proposer import Proposer
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.topic_settings import SEGMENT_BYTES
from samelog.sequencer.state.types import Partition
from samelog.store.disk.disk_errors import DiskFault
from samelog.store.disk.files import FileSystem
from samelog.store.merged.fetched import take_up
from samelog.store.merged.log import MergedLog
from samelog.store.merged.rewriting import Rewriting

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
    random: Random
    machine: StateMachine
    merging: Merging
    group: RaftGroup
    coordinator: Coordinator
    proposer: Proposer
    members: MemberViews
    pieces: PieceRepair
    room: Room
    mending: asyncio.Lock
    """Who holds it may write to a segment that was there already."""
    segment_bytes: int
    """Of a topic that says nothing."""
    number: int
    """Of this member."""
    at_work: AtWork


class Compactor:
    """One replica's."""

    def __init__(self, parts: CompactorParts) -> None:
        self._parts = parts
        self._waits: dict[int, int] = {}
        """Partition -> in how many rounds it is tried again."""
        self._unfinished: set[int] = set()
        """Partitions that the last round left with an order, or without what was decided."""

    @property
    def is_busy(self) -> bool:
        """Whether there will be something to do in the next round."""
        return bool(self._unfinished)

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await asyncio.sleep(INTERVAL_S)
            if self._parts.machine.state.level < COMPACTION:
                continue
            with self._parts.at_work:
                await self.look()

    async def look(self) -> None:
        """One round."""
        concerned = set(filter(self._concerns, self._parts.merging.partitions))
        self._unfinished &= concerned
        for number in sorted(concerned):
            await self._try(number)

    def _concerns(self, number: int) -> bool:
        """Whether the partition is compacted, or was."""
        state = self._parts.machine.state
        known = state.partitions.get(number)
        if known is None:
            return False
        policy = state.topics[known.topic_id].settings.get(CLEANUP_POLICY, "")
        return known.compacted is not None or is_compacted(policy)

    async def _try(self, number: int) -> None:
        left = self._waits.pop(number, 0)
        if left > 0:
            self._waits[number] = left - 1
            return
        self._unfinished.discard(number)
        try:
            await self.look_at(number)
            if self._is_unfinished(number):
                self._unfinished.add(number)
        except LogFormatError as error:
            self._waits[number] = ROUNDS_BETWEEN_TRIES
            log_event(log, logging.WARNING, "not compacted", partition=number, error=error)

    def _is_unfinished(self, number: int) -> bool:
        here = self._parts.merging.partitions.get(number)
        known = self._parts.machine.state.partitions.get(number)
        if here is None or known is None or here.fault is not None:
            return False
        held = here.log.generations.segments
        return known.compactions.order is not None or bool(
            _lacking(known.compactions.segments, held)
        )

    async def look_at(self, number: int) -> None:
        """Do what is to be done now for one partition. Raises LogFormatError."""
        here = self._parts.merging.partitions.get(number)
        known = self._parts.machine.state.partitions.get(number)
        if here is None or known is None or here.fault is not None:
            return
        await self._follow(number, here, known.compactions)
        if self._parts.group.is_leader:
            self._order(here, known)
        if known.compactions.order is not None:
            await self._write(number, here, known.compactions.order)

    # --- the leader ----------------------------------------------------------------------------

    def _order(self, here: MergedPartition, known: Partition) -> None:
        """Propose a compaction that is due, or one under way anew if others vote now."""
        voters = sorted(self._parts.group.raft.voters)
        order = known.compactions.order
        if order is not None and order.voters == voters:
            return
        topic = self._parts.machine.state.topics[known.topic_id]
        if not is_compacted(topic.settings.get(CLEANUP_POLICY, "")):
            return
        now_ms = self._now_ms()
        found = due(topic.settings, self._facts(here, known), now_ms)
        if found is None:
            return
        size = int(topic.settings.get(SEGMENT_BYTES, self._parts.segment_bytes))
        command = CompactCommand(
            known.number,
            known.compactions.number + 1,
            known.start_segment,
            *found,
            size,
            self._parts.random.randbytes(SEED_BYTES),
            voters,
            now_ms,
        )
        try:
            self._parts.group.propose([command])
        except (NotLeader, Busy):
            return  # the next round finds it again

    def _now_ms(self) -> int:
        """What a majority's clocks have reached."""
        voters = self._parts.group.raft.voters
        health = filter(None, map(self._parts.members.health, voters))
        known = [each.wall_ms for each in health]
        return majority_time(known, len(voters))

    def _facts(self, here: MergedPartition, known: Partition) -> CompactionFacts:
        merged = self._parts.coordinator.majority_merged([known.number])
        limit = min(merged.get(known.number, 0), here.log.last_stable_offset)
        limit = min([limit, *(void.base_offset for void in known.voids)])
        closed = [
            ClosedSegment(each.base_offset, each.next_offset, each.size, rolled_ms(known, each))
            for each in here.log.segments()
            if each.sealed
        ]
        return CompactionFacts(closed, limit, known.compactions, self._held_from(known))

    def _held_from(self, known: Partition) -> int:
        """From where on consumer groups hold records."""
        state = self._parts.machine.state
        rule = hold_of(state.topics[known.topic_id].settings)
        if rule is None:
            return known.next_offset
        return min(self._parts.members.committed_offset(name, known.number) for name in rule.groups)

    # --- writing -------------------------------------------------------------------------------

    async def _write(self, number: int, here: MergedPartition, order: CompactCommand) -> None:
        """Write what is ordered, and say so. What is not here yet is written later."""
        done = here.log.generations.written.get(order.number)
        if done is None:
            done = await self._rewrite(here, order)
        if done is None or number not in self._parts.machine.state.partitions:
            return
        known = self._parts.machine.state.partitions[number].compactions
        if known.order != order or known.written.get(self._parts.number) == done:
            return
        told = RewrittenCommand(number, order.number, self._parts.number, done, self._now_ms())
        try:
            await self._parts.proposer.propose(told)
        except TimeoutError:
            return  # the next round says it again

    async def _rewrite(
        self, here: MergedPartition, order: CompactCommand
    ) -> list[CompactedSegment] | None:
        merged, generations = here.log, here.log.generations
        known = self._parts.machine.state.partitions[order.partition].compactions
        is_there = min(merged.durable_offset, merged.last_stable_offset) >= order.stop
        held = [each for each in generations.segments if each.base >= order.start]
        if not is_there or held != known.segments:
            return None
        try:
            sources = generations.sources(order.start, order.stop)
        except NotContiguous:
            return None
        if not self._parts.room.has(2 * sum(each.size for each in sources)):
            return None
        aborted = merged.aborted(order.start, order.stop)
        folder = await self._parts.in_thread(generations.make_folder, order.number)
        work = Rewriting(
            self._parts.fs, folder, sources, order, aborted=aborted, memory_bytes=MEMORY_BYTES
        )
        if not await self._carry_out(work, here, merged):
            return None
        await self._parts.in_thread(generations.complete, order.number, work.written)
        kept, dropped = work.counts
        name = f"{here.topic}-{here.index}"
        log_event(log, logging.INFO, "compacted", partition=name, kept=kept, dropped=dropped)
        return work.written

    async def _carry_out(self, work: Rewriting, here: MergedPartition, merged: MergedLog) -> bool:
        """Whether it was written: the log may be opened anew meanwhile. Raises LogFormatError."""
        try:
            while (done := await self._parts.in_thread(work.step)) > 0:
                if not self._is_still(here, merged):
                    work.close()
                    return False
                await asyncio.sleep(done / BYTES_PER_S)
        except CorruptLog as fault:
            for base in (each.base for each in work.sources if each.path == fault.path):
                here.suspect(base)
            raise
        return True

    def _is_still(self, here: MergedPartition, merged: MergedLog) -> bool:
        return here.log is merged and here.fault is None

    # --- swapping ------------------------------------------------------------------------------

    async def _follow(self, number: int, here: MergedPartition, known: Compactions) -> None:
        """Let the log have the compacted segments that the cluster has."""
        generations = here.log.generations
        lacking = _lacking(known.segments, generations.segments)
        if not lacking or lacking[-1].stop > here.log.durable_offset:
            return
        if await self._has_written(here, lacking) or await self._fetch(here, lacking):
            async with self._parts.mending:
                self._swap(number, here, lacking)
            if here.fault is None:
                needed = () if known.order is None else (known.order.number,)
                await self._parts.in_thread(generations.clear_folders, needed)

    async def _has_written(self, here: MergedPartition, lacking: list[CompactedSegment]) -> bool:
        """Whether this node has written the segments itself, and they are as they were."""
        merged, number = here.log, lacking[-1].number
        written = merged.generations.written.get(number, [])
        if not all(each in written for each in lacking):
            return False
        for each in lacking:
            path = os.path.join(merged.generations.folder(number), segment_name(each.base, LOG))
            if not await self._parts.in_thread(take_up, self._parts.fs, path, each):
                return False
        return self._is_still(here, merged)

    def _swap(self, number: int, here: MergedPartition, segments: list[CompactedSegment]) -> None:
        """Raises LogFormatError: nothing was changed, or the log was opened anew."""
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
        return self._is_still(here, merged)


def _lacking(
    wanted: Sequence[CompactedSegment], held: Sequence[CompactedSegment]
) -> list[CompactedSegment]:
    """From the first to the last segment that is not the wanted one."""
    there = {each.base: each for each in held}
    differ = [number for number, each in enumerate(wanted) if there.get(each.base) != each]
    return list(wanted[differ[0] : differ[-1] + 1]) if differ else []
