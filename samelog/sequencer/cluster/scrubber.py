"""Reads all merged segments now and then, slowly, and mends what has rotted from other nodes; soon,
where a reader has complained.

Damage at rest is otherwise found by whoever reads it, years later, when the other copies may have
rotted too.

Invariant: reading and mending happen outside the event loop, and never beyond the configured rate.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from samelog.config.tables.node import Scrub
from samelog.format.errors import LogFormatError
from samelog.format.file_names import LOG, segment_name
from samelog.format.segment import Segment
from samelog.runtime.clock import Clock
from samelog.runtime.disk.threads import InThread
from samelog.runtime.log import log_event
from samelog.store.disk.files import FileSystem, NoSuchFile
from samelog.store.merged.scrub import ScrubProgress, check_piece, mend

if TYPE_CHECKING:
    from samelog.sequencer.cluster.repair.pieces import PieceRepair
    from samelog.sequencer.merge.merging import MergedPartition, Merging

log = logging.getLogger(__name__)

LOOK_S = 1.0


class Scrubber:
    """One node's search for damage at rest."""

    def __init__(
        self,
        fs: FileSystem,
        merging: Merging,
        repair: PieceRepair,
        *,
        config: Scrub,
        in_thread: InThread,
        clock: Clock,
    ) -> None:
        self._fs = fs
        self._merging = merging
        self._repair = repair
        self._config = config
        self._in_thread = in_thread
        self._clock = clock
        self._damaged: dict[str, str] = {}
        """Path -> what is wrong with it that no other node could mend."""

    @property
    def troubles(self) -> Iterable[str]:
        """What is damaged here, and was not mended yet."""
        return self._damaged.values()

    async def run(self) -> None:
        """Until cancelled."""
        next_round = self._clock.now() + self._config.interval_s
        while self._config.bytes_per_s:
            await asyncio.sleep(LOOK_S)
            is_due = self._clock.now() >= next_round
            await self.scrub(only_suspects=not is_due)
            if is_due:
                next_round = self._clock.now() + self._config.interval_s

    async def scrub(self, *, only_suspects: bool = False) -> None:
        """Read everything once, or the partitions of which readers have complained."""
        for partition in tuple(self._merging.partitions.values()):
            if partition.is_suspect or not only_suspects:
                partition.is_suspect = False
                for segment in partition.log.segments():
                    await self._guard(partition, segment)

    async def _guard(self, partition: MergedPartition, segment: Segment) -> None:
        path = os.path.join(partition.log.path, segment_name(segment.base_offset, LOG))
        if partition.fault is not None:
            return
        try:
            await self._scrub(partition, segment, path)
        except NoSuchFile:  # let go meanwhile, or set aside
            self._damaged.pop(path, None)
        except LogFormatError as error:
            self._damaged[path] = str(error)
            log_event(log, logging.ERROR, "a segment cannot be checked", file=path, error=error)

    async def _scrub(self, partition: MergedPartition, segment: Segment, path: str) -> None:
        begin, end = partition.log.checksums(segment.base_offset)
        known = ScrubProgress(0, segment.base_offset, begin)
        while known.byte < segment.size:
            before = known
            known = await self._in_thread(check_piece, self._fs, path, before, segment.size)
            read = known.byte - before.byte
            if partition.log.segment(segment.base_offset) is None:
                break  # archived meanwhile
            if known.damage is not None:
                mended = await self._mend(partition, segment, path, known)
                if not mended:
                    self._damaged[path] = f"{path}: at byte {known.byte} {known.damage}"
                    return
                known = replace(known, damage=None)
            await asyncio.sleep(max(1, read) / self._config.bytes_per_s)
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
