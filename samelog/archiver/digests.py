"""SHA-256 of sealed segments, for the log-history: made in a thread, one segment after the other,
at a rate that leaves the disk to others.

They are kept in files of the history's format, and could be made again at any time: a
file that is missing, or ends early, is only more work.

Invariant: a digest is of a segment that nothing is added to any more; the ingest waits for none.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Container

from samelog.archiver.history import forget_deleted_logs
from samelog.archiver.parts import ArchiverParts, PartitionLog
from samelog.format.errors import LogFormatError
from samelog.format.file_names import LOG, segment_name
from samelog.format.history import ArchivedFile
from samelog.format.segment import Segment
from samelog.runtime.log import log_event
from samelog.store.disk.disk_errors import NoSpace
from samelog.store.merged.history_file import HistoryFile
from samelog.store.merged.truncation import SegmentFacts

log = logging.getLogger(__name__)

INTERVAL_S = 1.0
BYTES_PER_S = 8 << 20
"""As the scrubber: about a twentieth of a processor that has no instructions for SHA-256."""
NONE = -1


class Digests:
    """One node's digests."""

    def __init__(self, parts: ArchiverParts) -> None:
        self._fs = parts.fs
        self._directory = os.path.join(parts.config.data, "digests")
        self._merging = parts.merging
        self._in_thread = parts.in_thread
        self._ends: dict[str, int] = {}
        """Path -> up to where segments have one, as far as it was looked at."""
        self._fs.make_directory(self._directory)

    def forget_deleted(self, known: Container[str]) -> None:
        """Remove what is left of logs that are not among the known ones."""
        forget_deleted_logs(self._fs, self._directory, known)

    def digest_of(self, partition: PartitionLog, base: int) -> bytes:
        """The digest of a sealed segment; empty: there is none yet. Raises LogFormatError."""
        path = self._path(partition)
        if not self._fs.exists(path):
            return b""
        file = HistoryFile(self._fs, path)
        try:
            found = file.read(base, 1)
        finally:
            file.close()
        return found[0].sha256 if found and found[0].base == base else b""

    def _path(self, partition: PartitionLog) -> str:
        return os.path.join(self._directory, f"{partition.topic_id}-{partition.index}")

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await asyncio.sleep(INTERVAL_S)
            for partition in tuple(self._merging.partitions.values()):
                await self.complete(partition)

    async def complete(self, partition: PartitionLog) -> None:
        """Make what is lacking of one partition."""
        path = self._path(partition)
        try:
            while (segment := self._next(partition, path)) is not None:
                await self._add(partition, path, segment)
        except NoSpace:
            return  # there will be room again
        except LogFormatError as error:  # whoever needs the segment says so too
            log_event(log, logging.WARNING, "no digest", partition=path, error=error)

    def _next(self, partition: PartitionLog, path: str) -> Segment | None:
        """The oldest sealed segment without a digest."""
        if partition.fault is not None or partition.log.end()[0] <= self._end(path):
            return None
        found = (each for each in partition.log.segments() if each.base_offset >= self._ends[path])
        segment = next(found, None)
        return segment if segment is not None and segment.sealed and segment.size else None

    def _end(self, path: str) -> int:
        if path not in self._ends:
            file = HistoryFile(self._fs, path)
            self._ends[path] = file.end
            file.close()
        return self._ends[path]

    async def _add(self, partition: PartitionLog, path: str, segment: Segment) -> None:
        name = os.path.join(partition.log.path, segment_name(segment.base_offset, LOG))
        facts = SegmentFacts(self._fs, name, segment.size)
        while True:
            read = await self._in_thread(facts.read)
            if not read:
                break
            await asyncio.sleep(read / BYTES_PER_S)
        if segment.base_offset > self._ends[path] and self._fs.exists(path):
            self._fs.unlink(path)  # the log goes on behind what was archived
        file = HistoryFile(self._fs, path)
        try:
            file.begin_at(segment.base_offset)
            file.append([_record(segment, facts)])
            self._ends[path] = file.end
        finally:
            file.close()


def _record(segment: Segment, facts: SegmentFacts) -> ArchivedFile:
    ends = segment.base_offset, segment.next_offset
    times = facts.first_ms, segment.max_timestamp, NONE, NONE
    return ArchivedFile(*ends, segment.size, *times, facts.sha256, "")
