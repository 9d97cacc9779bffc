"""Makes the empty files of segments that a node never held: it was away while they were archived,
or lost its disk, and its log goes on behind them.

All copies of a log then have files of the same names. Only logs that were opened, or that went on
behind something, since the last time are examined. What this node's history lacks is waited for.

Invariant: only files that the history names as archived are made, and none that is there is
touched.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Iterator

from samelog.archiver.history import ArchiveHistory
from samelog.archiver.parts import ArchiverParts, PartitionLog
from samelog.format.errors import LogFormatError
from samelog.format.file_names import LOG, segment_bases, segment_name
from samelog.runtime.log import log_event
from samelog.store.disk.files import FileSystem
from samelog.store.merged.log import MergedLog
from samelog.store.merged.truncation import not_truncated

log = logging.getLogger(__name__)

INTERVAL_S = 2.0
PAGE_FILES = 256


class EmptyFiles:
    """One node's empty files of archived segments."""

    def __init__(self, parts: ArchiverParts, history: ArchiveHistory) -> None:
        self._fs = parts.fs
        self._merging = parts.merging
        self._history = history
        self._in_thread = parts.in_thread
        self._complete: dict[int, tuple[MergedLog, int]] = {}
        """Partition -> its log, and up to where files are complete."""

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await asyncio.sleep(INTERVAL_S)
            for number, partition in tuple(self._merging.partitions.items()):
                try:
                    await self.complete(number, partition)
                except LogFormatError as error:
                    what = "empty files not made"
                    log_event(log, logging.WARNING, what, partition=number, error=error)

    async def complete(self, number: int, partition: PartitionLog) -> None:
        """Make what is lacking of one partition. Raises LogFormatError."""
        merged = partition.log
        start = merged.log_start.segment
        known, done = self._complete.get(number, (None, 0))
        if known is not merged:
            done = 0
        elif done >= start:
            return
        if start and (partition.fault is not None or self._history.lacks(number)):
            return
        bases = list(self._bases(number, done, start))
        if not bases or await self._in_thread(_make_files, self._fs, merged.path, bases, start):
            self._complete[number] = merged, start

    def _bases(self, number: int, offset: int, start: int) -> Iterator[int]:
        """The archived files from an offset on, as the history names them."""
        while offset < start:
            files = self._history.read(number, offset, PAGE_FILES)
            if not files:
                return
            yield from (each.base for each in files if each.base < start)
            offset = files[-1].next_offset


def _make_files(fs: FileSystem, directory: str, bases: list[int], start: int) -> bool:
    """Make those that are not there; False: not now, since what is to be truncated is found by
    looking for the newest empty one.
    """
    if not_truncated(fs, directory, start):
        return False
    held = set(segment_bases(fs.list_directory(directory)))
    for base in bases:
        if base not in held:
            path = os.path.join(directory, segment_name(base, LOG))
            fs.open(path, writable=True, create=True).close()
    return True
