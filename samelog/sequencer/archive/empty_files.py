"""Makes the empty files of what a node never held: it was away while that was archived, or lost its
disk, and its log goes on behind it.

All copies of a log then have files of the same names. Looked at is what was opened, or went on
behind something, since the last look; what the history here lacks yet is waited for.

Invariant: only files that the history names as archived are made, and none that is there is
touched.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from samelog.format.errors import LogFormatError
from samelog.format.file_names import LOG, segment_bases, segment_name
from samelog.runtime.log import log_event
from samelog.sequencer.host import InThread
from samelog.store.disk.files import FileSystem
from samelog.store.merged.truncation import not_truncated

if TYPE_CHECKING:
    from samelog.sequencer.archive.history import History
    from samelog.sequencer.merge.merging import MergedPartition, Merging
    from samelog.store.merged.log import MergedLog

log = logging.getLogger(__name__)

LOOK_S = 2.0
PAGE_FILES = 256


class EmptyFiles:
    """One node's."""

    def __init__(
        self, fs: FileSystem, merging: Merging, history: History, *, in_thread: InThread
    ) -> None:
        self._fs = fs
        self._merging = merging
        self._history = history
        self._in_thread = in_thread
        self._seen: dict[int, tuple[MergedLog, int]] = {}
        """Partition -> its log, and up to where files are complete."""

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await asyncio.sleep(LOOK_S)
            for number, partition in tuple(self._merging.partitions.items()):
                try:
                    await self.look(number, partition)
                except LogFormatError as error:
                    what = "empty files not made"
                    log_event(log, logging.WARNING, what, partition=number, error=error)

    async def look(self, number: int, partition: MergedPartition) -> None:
        """Make what is lacking of one partition. Raises LogFormatError."""
        merged = partition.log
        start = merged.log_start.segment
        known = self._seen.get(number)
        if known is not None and known[0] is merged and known[1] >= start:
            return
        if start and (partition.fault is not None or self._history.lacks(number)):
            return
        done = known[1] if known is not None and known[0] is merged else 0
        bases = list(self._bases(number, done, start))
        if not bases or await self._in_thread(_make_files, self._fs, merged.path, bases, start):
            self._seen[number] = merged, start

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
