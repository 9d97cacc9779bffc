"""Reads all merged segments now and then, slowly, and mends what has rotted from other nodes; at
once, where a reader has complained.

Damage at rest is otherwise found by whoever reads it, years later, when the other copies may have
rotted too. How far a round has come is kept, so that it happens on a node that is restarted often.

Invariant: reading and mending happen outside the event loop; rounds never go beyond the configured
rate.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from samelog.config.tables.node import Scrub
from samelog.format.directory_files import ScrubFile
from samelog.format.errors import CorruptLog, LogFormatError
from samelog.format.file_names import LOG, segment_name
from samelog.format.segment import Segment
from samelog.replicator.pull.acknowledger import Budget
from samelog.runtime.at_work import AtWork
from samelog.runtime.clock import Clock
from samelog.runtime.disk.threads import InThread
from samelog.runtime.flag import Flag
from samelog.runtime.log import log_event
from samelog.store.disk.disk_errors import NoSpace
from samelog.store.disk.files import FileSystem, NoSuchFile
from samelog.store.disk.json_files import read_json_file, write_json_file
from samelog.store.merged.scrub import ScrubProgress, check_piece, mend

if TYPE_CHECKING:
    from samelog.sequencer.cluster.repair.pieces import PieceRepair
    from samelog.sequencer.merge.merged_partition import MergedPartition
    from samelog.sequencer.merge.merging import Merging

log = logging.getLogger(__name__)

SAVE_S = 10.0
COMPLAINT_BYTES_PER_S = 64 << 20
"""A reader waits."""


class ScrubPace(Budget):
    """How often, and how fast, merged logs are read: all replicas of a member together."""

    def __init__(self, config: Scrub) -> None:
        super().__init__(config.bytes_per_s)
        self.is_on = config.bytes_per_s > 0
        self.interval_s = config.interval_s


class Scrubber:
    """One node's search for damage at rest."""

    def __init__(
        self,
        fs: FileSystem,
        merging: Merging,
        repair: PieceRepair,
        *,
        path: str,
        pace: ScrubPace,
        in_thread: InThread,
        clock: Clock,
        at_work: AtWork,
    ) -> None:
        """`path`: of the file that says how far it has come; `pace` is the member's."""
        self._fs = fs
        self._path = path
        self._merging = merging
        self._repair = repair
        self._pace = pace
        self._in_thread = in_thread
        self._clock = clock
        self._at_work = at_work
        self._damaged: dict[str, str] = {}
        """Path -> what is wrong with it that no other node could mend."""
        self._complaint = Flag()
        self.mending = asyncio.Lock()
        """Held while a piece of a segment is looked at and mended."""
        self._known: ScrubFile | None = None
        self._saved_at = clock.now()

    @property
    def troubles(self) -> Iterable[str]:
        """What is damaged here, and was not mended yet."""
        return self._damaged.values()

    async def run(self) -> None:
        """Round after round, until cancelled."""
        while self._pace.is_on:
            with self._at_work:
                known = await self._progress()
            interval_s = self._pace.interval_s
            due_s = known.done_ms / 1000 + interval_s - self._clock.wall_ms() / 1000
            if known.partition < 0:  # else a round was under way when the node stopped
                await asyncio.sleep(min(max(0.0, due_s), interval_s))
            with self._at_work:
                await self.scrub()

    async def _progress(self) -> ScrubFile:
        """What is kept; a node that never kept anything begins its first interval."""
        if self._known is None:
            self._known = await self._in_thread(self._read)
        if self._known is None:
            await self._save(ScrubFile(done_ms=self._clock.wall_ms()))
        return self._known or ScrubFile(done_ms=self._clock.wall_ms())

    def _read(self) -> ScrubFile | None:
        try:
            return read_json_file(self._fs, self._path, ScrubFile)
        except CorruptLog as fault:  # reading everything again is harmless
            log_event(log, logging.WARNING, "progress of scrubbing is lost", error=fault)
            return ScrubFile(done_ms=0)

    async def _save(self, known: ScrubFile) -> None:
        self._known, self._saved_at = known, self._clock.now()
        try:
            await self._in_thread(write_json_file, self._fs, self._path, known)
        except NoSpace as fault:  # a segment is read twice
            log_event(log, logging.WARNING, "progress of scrubbing not saved", error=fault)

    async def scrub(self) -> None:
        """Read everything once, from where the present round has come to."""
        known = await self._progress()
        for number, partition in sorted(self._merging.partitions.items()):
            for segment in partition.log.segments():
                if (number, segment.base_offset) <= (known.partition, known.base_offset):
                    continue
                await self._guard(partition, segment, self._pace)
                place = {"partition": number, "base_offset": segment.base_offset}
                if self._clock.now() >= self._saved_at + SAVE_S:
                    await self._save(ScrubFile(done_ms=known.done_ms, **place))
        await self._save(ScrubFile(done_ms=self._clock.wall_ms()))

    def complained(self) -> None:
        """A reader got something that is not valid."""
        self._complaint.set()

    async def serve_complaints(self) -> None:
        """Look at once at what readers complain of, until cancelled."""
        while True:
            await self._complaint.wait()
            with self._at_work:
                self._complaint.clear()
                for partition in tuple(self._merging.partitions.values()):
                    await self._look_into(partition)

    async def _look_into(self, partition: MergedPartition) -> None:
        at_once = Budget(COMPLAINT_BYTES_PER_S)
        while partition.suspects:
            segment = partition.log.segment(partition.suspects.pop())
            if segment is not None:
                await self._guard(partition, segment, at_once)

    async def _guard(self, partition: MergedPartition, segment: Segment, pace: Budget) -> None:
        path = os.path.join(partition.log.path, segment_name(segment.base_offset, LOG))
        if partition.fault is not None:
            return
        try:
            await self._scrub(partition, segment, path, pace)
        except NoSuchFile:  # let go meanwhile, or set aside
            self._damaged.pop(path, None)
        except LogFormatError as error:
            self._damaged[path] = str(error)
            log_event(log, logging.ERROR, "a segment cannot be checked", file=path, error=error)

    async def _scrub(
        self, partition: MergedPartition, segment: Segment, path: str, pace: Budget
    ) -> None:
        begin, end = partition.log.file_checksums(segment.base_offset)
        number = partition.log.number_of(segment.base_offset)
        known = ScrubProgress(0, segment.base_offset, begin)
        while known.byte < segment.size:
            before = known
            async with self.mending:  # two may read, one mends
                if partition.log.number_of(segment.base_offset) != number:
                    return  # compacted meanwhile
                known = await self._in_thread(check_piece, self._fs, path, before, segment.size)
                if partition.log.segment(segment.base_offset) is None:
                    break  # archived meanwhile
                if known.damage is not None:
                    mended = await self._mend(partition, segment, path, known)
                    if not mended:
                        self._damaged[path] = f"{path}: at byte {known.byte} {known.damage}"
                        return
                    known = replace(known, damage=None)
            read = max(1, known.byte - before.byte)
            await asyncio.sleep(pace.spend(read, self._clock.now()))
        self._damaged.pop(path, None)
        is_whole = known.byte == segment.size
        if (
            is_whole and end is not None and known.checksum != end
        ):  # the batches are good: what no CRC covers
            self._damaged[path] = f"{path}: a leader epoch has changed"
            log_event(log, logging.ERROR, "a leader epoch has changed", file=path)

    async def _mend(
        self, partition: MergedPartition, segment: Segment, path: str, bad: ScrubProgress
    ) -> bool:
        """Get the batch from a peer that has it; whether one did."""
        log_event(log, logging.ERROR, "damage at rest", file=path, byte=bad.byte, why=bad.damage)
        batch = await self._repair.batch_of(partition, segment.base_offset, bad)
        if batch is None or bad.byte + len(batch) > segment.size:
            return False
        await self._in_thread(mend, self._fs, path, bad.byte, batch)
        log_event(log, logging.WARNING, "mended from another node", file=path, byte=bad.byte)
        return True
