"""Carries out on this node what Raft has archived: hides the records at once, then gives the disk
back.

A node whose log has not come as far as the first segment that is kept goes on there: what it lacks
is archived, and its inputs may be gone everywhere.

Invariant: a file is truncated only when the entry that says so is durable here, and only below the
segment that it names; a partition that is halted keeps everything.
"""

from __future__ import annotations

import asyncio
import logging

from samelog.archiver.parts import ArchiverParts, PartitionLog
from samelog.format.errors import LogFormatError
from samelog.runtime.log import log_event
from samelog.store.disk.disk_errors import NoSpace
from samelog.store.merged.log import MergedLog
from samelog.store.merged.truncation import LogStart, not_truncated, truncate_segments

log = logging.getLogger(__name__)

FULL_RETRY_S = 1.0
FILES_AT_ONCE = 64
"""Truncated one after the other before others have their turn."""


class Truncation:
    """One node's truncation of what is archived."""

    def __init__(self, parts: ArchiverParts) -> None:
        self._fs = parts.fs
        self._machine = parts.machine
        self._merging = parts.merging
        self._replication = parts.replication
        self._in_thread = parts.in_thread
        self.pending_bytes = 0
        """Archived, and not truncated yet."""
        self._due: dict[int, None] = {}
        self._carried_out: dict[int, tuple[MergedLog, int, int]] = {}
        """Partition -> its log, and the log start and segment that were carried out in it."""
        self._wake = asyncio.Event()

    def log_start_changed(self, number: int) -> None:
        """A partition was opened, or some of it archived: readers see that at once."""
        known = self._machine.state.partitions[number]
        partition = self._merging.partitions[number]
        start = known.log_start, known.start_segment
        if known.log_start == 0 or self._carried_out.get(number) == (partition.log, *start):
            return
        partition.log.hide_below(known.log_start)
        partition.changed()
        self._do_soon(number)

    def _do_soon(self, number: int) -> None:
        self._due[number] = None
        self._wake.set()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            await self._replication.sync()
            while self._due:
                number = next(iter(self._due))
                del self._due[number]
                await self._guard(number)

    async def _guard(self, number: int) -> None:
        """What cannot be archived now stays, and is tried again when more is archived."""
        try:
            await self._truncate(number)
        except NoSpace:
            asyncio.get_running_loop().call_later(FULL_RETRY_S, self._do_soon, number)
        except LogFormatError as error:
            log_event(log, logging.ERROR, "not archived", partition=number, error=error)

    async def _truncate(self, number: int) -> None:
        known = self._machine.state.partitions.get(number)
        partition = self._merging.partitions.get(number)
        if known is None or partition is None or partition.fault is not None:
            self._carried_out.pop(number, None)
            return
        self._carried_out[number] = partition.log, known.log_start, known.start_segment
        start = LogStart(known.log_start, known.start_segment, known.start_checksum)
        self.pending_bytes = sum(
            each.size for each in partition.log.segments() if each.base_offset < start.segment
        )
        self._begin_at(number, partition, start)
        path = partition.log.path
        left = await self._in_thread(not_truncated, self._fs, path, start.segment)
        while left and partition.fault is None:
            now, left = left[:FILES_AT_ONCE], left[FILES_AT_ONCE:]
            await self._in_thread(truncate_segments, self._fs, path, now)
        self.pending_bytes = 0

    def _begin_at(self, number: int, partition: PartitionLog, start: LogStart) -> None:
        """Let the merged log begin there, if need be ahead of where it is."""
        before = partition.log.next_offset
        partition.log.archive(start)
        if partition.log.next_offset > before:
            text = f"{partition.topic}-{partition.index}"
            what = "goes on behind what is archived"
            log_event(log, logging.WARNING, what, partition=text, end=before, start=start.segment)
            self._merging.copied(number)
        else:
            partition.changed()
