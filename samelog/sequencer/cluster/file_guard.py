"""Looks whether the files of merged logs are still there, and gets back what somebody removed or
cut under the running node.

A file that is still open is written again from there. Another one comes whole from a peer. The
growing segment, if it was cut, is reopened, and peers send what it lacks, as after a start.

Invariant: a file that is not there is never taken for an archived one, nor for a reason to remove
anything.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress

from samelog.format.errors import LogFormatError
from samelog.format.file_names import LOG, segment_name
from samelog.format.segment import Segment
from samelog.runtime.at_work import AtWork
from samelog.runtime.disk.threads import InThread
from samelog.runtime.log import log_event
from samelog.sequencer.cluster.repair.pieces import PieceRepair
from samelog.sequencer.events import Recording
from samelog.sequencer.merge.merged_partition import MergedPartition
from samelog.sequencer.merge.merging import Merging
from samelog.store.disk.files import File, FileSystem
from samelog.store.merged.missing_files import (
    MissingFile,
    checksum_of,
    copy_open,
    find_missing_files,
    put_back,
    restored_path,
)

log = logging.getLogger(__name__)

LOOK_S = 5.0
FILES_PER_S = 10_000
LOGS_AT_ONCE = 100
"""Partitions whose files are looked for in one go: each go is a switch of threads."""

_Segments = list[tuple[int, int]]
"""Base offset and size of each."""


class FileGuard:
    """One node's guard."""

    def __init__(
        self,
        fs: FileSystem,
        merging: Merging,
        repair: PieceRepair,
        *,
        in_thread: InThread,
        events: Recording,
        at_work: AtWork,
    ) -> None:
        self._fs = fs
        self._merging = merging
        self._repair = repair
        self._in_thread = in_thread
        self._events = events
        self._at_work = at_work
        self._lost: dict[str, str] = {}
        """Path -> what is wrong with it, until it is put back."""

    @property
    def troubles(self) -> Iterable[str]:
        """What is lost here, and was not got back yet."""
        return self._lost.values()

    async def run(self) -> None:
        """Until cancelled."""
        looked_at = 0
        while True:
            await asyncio.sleep(max(LOOK_S, looked_at / FILES_PER_S))
            with self._at_work:
                looked_at = await self.look()

    async def look(self) -> int:
        """Look at all files once: how many there are."""
        count, left = 0, list(self._merging.partitions.items())
        while left:
            now, left = left[:LOGS_AT_ONCE], left[LOGS_AT_ONCE:]
            wanted = {
                number: (partition.log.path, segments)
                for number, partition in now
                if (segments := _written(partition)) or self._lost
            }
            count += sum(len(segments) for _, segments in wanted.values())
            if wanted:
                numbers = {number: partition.log.generations.number for number, partition in now}
                found = await self._in_thread(_look_for, self._fs, wanted)
                same = {n: p for n, p in now if p.log.generations.number == numbers[n]}
                await self._get_all_back(same, found)
        return count

    async def _get_all_back(
        self, looked_at: Mapping[int, MergedPartition], found: Mapping[int, list[MissingFile]]
    ) -> None:
        for number, missing in found.items():
            if number not in looked_at:
                continue  # compacted meanwhile
            with suppress(LogFormatError):  # whoever reads or writes there says so
                await self._get_back(number, looked_at[number], missing)

    async def _get_back(
        self, number: int, partition: MergedPartition, found: list[MissingFile]
    ) -> None:
        for path in [path for path in self._lost if os.path.dirname(path) == partition.log.path]:
            if not any(path.endswith(segment_name(each.base, LOG)) for each in found):
                del self._lost[path]
        for lost in found:
            segment = partition.log.segment(lost.base)
            is_here = self._merging.partitions.get(number) is partition
            if segment is None or not is_here or partition.fault is not None:
                return  # archived or set aside meanwhile
            await self._restore(number, partition, segment, lost)

    async def _restore(
        self, number: int, partition: MergedPartition, segment: Segment, lost: MissingFile
    ) -> None:
        path = os.path.join(partition.log.path, segment_name(lost.base, LOG))
        what = "was removed" if lost.size < 0 else f"was cut to {lost.size} bytes"
        if path not in self._lost:
            log_event(log, logging.ERROR, "a segment's file is lost", file=path, how=what)
        self._lost[path] = f"{path} {what}, not by this node"
        try:
            source = await self._source_of(number, partition, segment, lost)
        except LogFormatError as error:
            log_event(log, logging.ERROR, "not restored", file=path, error=error)
            return
        if source:
            del self._lost[path]
            log_event(log, logging.WARNING, "a segment's file is restored", file=path, how=source)
            text = f"{path} {what}, not by the node; restored {source}"
            self._events.record_event("file-lost", text)

    async def _source_of(
        self, number: int, partition: MergedPartition, segment: Segment, lost: MissingFile
    ) -> str:
        """Get a file back: from where; empty if that cannot be done now. Raises LogFormatError."""
        merged, directory = partition.log, partition.log.path
        opened, compaction = merged.open_file(lost.base), merged.number_of(lost.base)
        if lost.size < 0 and opened is not None and self._fs.exists(directory):
            await self._copy(partition, segment, opened)
            return "from what was still open"
        if not segment.sealed or not self._fs.exists(directory):
            self._merging.reopen(number, "its files were removed or cut")
            return "by reopening the log"
        begin, end = merged.file_checksums(lost.base)
        path = restored_path(directory, lost.base)
        peer = await self._repair.segment_of(partition, segment, path, number=compaction)
        if peer is None or await self._in_thread(checksum_of, self._fs, path, begin) != end:
            return ""
        if merged.segment(lost.base) is None or merged.number_of(lost.base) != compaction:
            return ""  # archived or compacted meanwhile
        put_back(self._fs, directory, lost.base)
        merged.look_at_file_again(lost.base)
        return f"from {peer}"

    async def _copy(self, partition: MergedPartition, segment: Segment, opened: File) -> None:
        merged, path = partition.log, restored_path(partition.log.path, segment.base_offset)
        compaction = merged.number_of(segment.base_offset)
        await self._in_thread(copy_open, self._fs, opened, path, segment.size)
        if merged.number_of(segment.base_offset) != compaction:
            return  # compacted meanwhile
        if merged.segment(segment.base_offset) is None:
            return  # archived meanwhile
        merged.take_restored(segment.base_offset, path, segment.size)


def _written(partition: MergedPartition) -> _Segments:
    """Segments that hold something."""
    return [(each.base_offset, each.size) for each in partition.log.segments() if each.size]


def _look_for(
    fs: FileSystem, wanted: Mapping[int, tuple[str, _Segments]]
) -> dict[int, list[MissingFile]]:
    """What is missing of each partition whose directory can be read."""
    found: dict[int, list[MissingFile]] = {}
    for number, (path, segments) in wanted.items():
        with suppress(LogFormatError):  # whoever reads or writes there says so
            found[number] = find_missing_files(fs, path, segments)
    return found
