"""One node's compaction: the leader orders what is due, every node writes it, says what it wrote,
and swaps it in once the cluster has decided.

Writing happens outside the event loop, one partition at a time and no faster than
`BYTES_PER_S`, so that ingest has the disk and the processor first. What a node could not write
itself (it was away, or wrote something else) it gets from peers, segment by segment, checked
against the digests that are decided.

Invariant: a segment is swapped in only if it is the one that the cluster decided on, to the byte.
"""

from __future__ import annotations

import asyncio
import logging
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
from samelog.archiver.rounds import rolled_ms
from samelog.consensus import Busy, NotLeader
from samelog.format.compaction import CompactedSegment
from samelog.format.errors import LogFormatError, NotContiguous
from samelog.runtime.disk.threads import InThread
from samelog.runtime.log import log_event
from samelog.sequencer.cluster.presence import Presence
from samelog.sequencer.cluster.repair.pieces import PieceRepair
from samelog.sequencer.levels import COMPACTION
from samelog.sequencer.merge.merged_partition import MergedPartition
from samelog.sequencer.merge.merging import Merging
from samelog.sequencer.raft.coordinator import Coordinator
from samelog.sequencer.raft.group import RaftGroup
from samelog.sequencer.raft.proposer import Proposer
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.topic_settings import SEGMENT_BYTES
from samelog.sequencer.state.types import Partition
from samelog.store.disk.files import FileSystem
from samelog.store.merged.fetched import take_up
from samelog.store.merged.log import MergedLog
from samelog.store.merged.rewriting import Rewriting

log = logging.getLogger(__name__)

INTERVAL_S = 5.0
BYTES_PER_S = 64 << 20
MEMORY_BYTES = 128 << 20


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
    presence: Presence
    pieces: PieceRepair
    segment_bytes: int
    """Of a topic that says nothing."""
    number: int
    """Of this member."""


@dataclass(frozen=True, slots=True)
class _Written:
    """What this node wrote for an order, in which log."""

    log: MergedLog
    number: int
    segments: list[CompactedSegment]


class Compactor:
    """One replica's."""

    def __init__(self, parts: CompactorParts) -> None:
        self._parts = parts
        self._written: dict[int, _Written] = {}

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await asyncio.sleep(INTERVAL_S)
            if self._parts.machine.state.level < COMPACTION:
                continue
            for number in tuple(self._parts.merging.partitions):
                try:
                    await self.look_at(number)
                except LogFormatError as error:
                    log_event(log, logging.WARNING, "not compacted", partition=number, error=error)

    async def look_at(self, number: int) -> None:
        """Do what is to be done now for one partition. Raises LogFormatError."""
        here = self._parts.merging.partitions.get(number)
        known = self._parts.machine.state.partitions.get(number)
        if here is None or known is None or here.fault is not None:
            self._written.pop(number, None)
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
        voters, health = self._parts.group.raft.voters, self._parts.presence.health
        known = [health[number].wall_ms for number in voters if number in health]
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
        return CompactionFacts(closed, limit, known.compactions)

    # --- writing -------------------------------------------------------------------------------

    async def _write(self, number: int, here: MergedPartition, order: CompactCommand) -> None:
        """Write what is ordered, and say so. What is not here yet is written later."""
        done = self._written.get(number)
        if done is None or done.log is not here.log or done.number != order.number:
            segments = await self._rewrite(here, order)
            if segments is None:
                return
            self._written[number] = done = _Written(here.log, order.number, segments)
        told = RewrittenCommand(
            number, order.number, self._parts.number, done.segments, self._now_ms()
        )
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
        aborted = merged.aborted(order.start, order.stop)
        folder = await self._parts.in_thread(generations.make_folder, order.number)
        work = Rewriting(
            self._parts.fs, folder, sources, order, aborted=aborted, memory_bytes=MEMORY_BYTES
        )
        while (done := await self._parts.in_thread(work.step)) > 0:
            if not self._is_still(here, merged):
                return None
            await asyncio.sleep(done / BYTES_PER_S)
        kept, dropped = work.counts
        name = f"{here.topic}-{here.index}"
        log_event(log, logging.INFO, "compacted", partition=name, kept=kept, dropped=dropped)
        return work.written

    def _is_still(self, here: MergedPartition, merged: MergedLog) -> bool:
        return here.log is merged and here.fault is None

    # --- swapping ------------------------------------------------------------------------------

    async def _follow(self, number: int, here: MergedPartition, known: Compactions) -> None:
        """Let the log have the compacted segments that the cluster has."""
        generations = here.log.generations
        lacking = _lacking(known.segments, generations.segments)
        if not lacking or lacking[-1].stop > here.log.durable_offset:
            return
        done = self._written.pop(number, None)
        if done is not None and done.log is here.log and done.segments == lacking:
            self._swap(here, done.segments)
        elif await self._fetch(here, lacking):
            self._swap(here, lacking)
        await self._parts.in_thread(generations.clear_folders)

    def _swap(self, here: MergedPartition, segments: list[CompactedSegment]) -> None:
        here.log.swap(segments)
        here.changed()

    async def _fetch(self, here: MergedPartition, lacking: list[CompactedSegment]) -> bool:
        """Get segments from peers into the folder; whether all are there, and right."""
        merged, generations = here.log, here.log.generations
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
    differ = [number for number, each in enumerate(wanted) if each not in held]
    return list(wanted[differ[0] : differ[-1] + 1]) if differ else []
