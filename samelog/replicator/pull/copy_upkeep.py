"""Periodic maintenance of copies: sync them, cut them to their budget, free the space of archived
records, and mark the copies of deleted topics.

Invariant: a failed sync stops its copies and is never retried; a copy that is recreated, closed or
moved during a sync stops no other copy. Files are truncated only of copies that are in their place.
Files that were set aside are removed only once their replacement is durable. A copy is marked as
deleted only after its last byte was synced.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from samelog.format.errors import LogFormatError
from samelog.replicator.pull.copy import Copy
from samelog.replicator.pull.copy_budget import segments_of_all, starts_within
from samelog.replicator.pull.copy_directory import CopyDirectory
from samelog.runtime.disk.syncer import Syncer
from samelog.runtime.log import format_event
from samelog.store.disk.dirty_files import report_left, take_dirty
from samelog.store.disk.disk_errors import NoSpace
from samelog.store.disk.files import FileSystem
from samelog.store.merged.log import MergedLog
from samelog.store.merged.truncation import LogStart, not_truncated, truncate_segments
from samelog.wire.pull.copies import CopyState

log = logging.getLogger(__name__)


class CopyUpkeep:
    """For the copies of one directory."""

    def __init__(self, directory: CopyDirectory, fs: FileSystem, syncer: Syncer) -> None:
        self._directory = directory
        self._fs = fs
        self._syncer = syncer
        self._archived: dict[Copy, int] = {}
        """Copies with files to be truncated: those below the segment."""
        self._replaced: list[tuple[Copy, int, list[str]]] = []
        """Files that were set aside, and go once the copy is durable up to the offset again."""
        self._unmarked: set[Copy] = set()
        """Copies whose directory does not say yet what is known of the topic's deletion."""
        self._unsynced: set[Copy] = set()
        """Copies with bytes that a sync has taken and not made durable: it is under way, has failed
        or was cancelled.
        """
        self._lacks_room = False
        """Whether the last sync left copies without room."""

    def changed(self, copy: Copy) -> None:
        """Note whether the cluster has deleted the copy's topic. A cluster that was restored from a
        backup may serve the topic again.
        """
        is_gone = copy.state is CopyState.GONE and not copy.successor
        is_back = copy.state is CopyState.COPYING
        if is_back if copy.log.is_deleted else is_gone:
            self._unmarked.add(copy)

    def mark_deleted(self) -> None:
        """Record in copies whether their topic was deleted, for readers that know no cluster. A
        mark that cannot be written is retried the next time.
        """
        for copy in tuple(filter(self._is_kept, self._unmarked)):
            if copy.log.dirty() or copy in self._unsynced:
                continue  # the mark says that no more bytes come
            try:
                copy.log.mark_deleted(is_deleted=copy.state is CopyState.GONE)
            except LogFormatError as error:
                log.error("the deletion of %s-%d is not marked in its copy: %s", *copy.name, error)
                continue
            self._unmarked.discard(copy)

    def archived(self, copy: Copy, start: LogStart, *, keep: bool) -> None:
        """The cluster has archived what is before `start`: so does the copy; with `keep` only if it
        has not come so far. Raises LogFormatError.
        """
        if copy.archive(start, keep=keep):
            self._let_go_below(copy, start.segment)

    def _let_go_below(self, copy: Copy, base: int) -> None:
        self._archived[copy] = max(base, self._archived.get(copy, 0))

    def forget(self, copy: Copy) -> None:
        """Its files are touched no more."""
        self._archived.pop(copy, None)
        self._unmarked.discard(copy)
        self._unsynced.discard(copy)
        self._replaced = [each for each in self._replaced if each[0] is not copy]

    def cut(self, copy: Copy, base: int, *, keep: bool) -> None:
        """Cut what the cluster has compacted from `base` on, which is copied again; with `keep` the
        old bytes are set aside. Raises LogFormatError.
        """
        end = copy.log.next_offset
        aside = copy.cut(base)
        if not keep:
            self._replaced.append((copy, end, aside))

    async def remove_replaced(self) -> None:
        """What was set aside goes, where all of it is here again as the cluster compacted it."""
        done = [each for each in self._replaced if each[0].log.durable_offset >= each[1]]
        self._replaced = [each for each in self._replaced if each not in done]
        for copy, _, names in done:
            try:
                for name in names:
                    await asyncio.to_thread(self._fs.unlink, name)
            except LogFormatError as error:
                log.error("what %s-%d has aside is not removed: %s", *copy.name, error)

    async def keep_budget(self, budget_bytes: int | None) -> None:
        """Let copies begin later, as far as they take more than the budget, if there is one. Files
        are looked at in a thread: there may be many.
        """
        if budget_bytes is None:
            return
        try:
            copies = {copy.name: copy for copy in self._directory.alive()}
            paths = {name: copy.log.path for name, copy in copies.items()}
            held = await asyncio.to_thread(segments_of_all, self._fs, paths)
            for name, base in starts_within(budget_bytes, held).items():
                if self._directory.copies.get(name) is copies[name]:  # not restarted meanwhile
                    self._cut(copies[name], base)
        except LogFormatError as error:
            log.error("the copies cannot be kept within budget_bytes: %s", error)

    def _cut(self, copy: Copy, base: int) -> None:
        copy.log.archive(LogStart(base, base, checksum=0))  # it has its own
        self._let_go_below(copy, base)
        log.info("%s", format_event("copy cut to its budget", copy=copy.name, start=base))

    async def truncate(self) -> None:
        """Give the room of what is archived back; what cannot be now is, when more is archived."""
        while self._archived:
            copy, below = self._archived.popitem()
            try:
                if copy.is_in_place:
                    await asyncio.to_thread(_truncate_below, self._fs, copy.log, below)
            except LogFormatError as error:
                log.error("archived files of %s-%d are not truncated: %s", *copy.name, error)

    async def sync(self) -> None:
        """Make what was copied durable. A failed sync stops its copies: nothing is retried. What
        fails of one copy alone stops that one. Copies for whose files there is no room stay dirty,
        for the next call.
        """
        copies = self._directory.copies.values()
        dirty = [copy for copy in copies if copy.log.dirty() and copy.is_in_place]
        written = [(copy, copy.log.next_offset) for copy in dirty]
        taken = set(dirty) - self._unsynced
        self._unsynced |= taken
        try:
            files, left = take_dirty({number: copy.log for number, copy in enumerate(dirty)})
            await self._syncer.sync(files)
        except LogFormatError as error:
            for copy in filter(self._is_kept, dirty):
                self._directory.stop(copy, error)
            return
        self._unsynced -= taken
        self._report(left)
        for number in set(range(len(written))) - left.keys():
            self._mark_durable(*written[number])

    def _report(self, left: Mapping[int, NoSpace]) -> None:
        """Log a lack of room once."""
        if left and not self._lacks_room:
            report_left(left)
        self._lacks_room = bool(left)

    def _is_kept(self, copy: Copy) -> bool:
        """Whether the copy is closed, and was not recreated, shared or set aside meanwhile."""
        return self._directory.copies.get(copy.name) is copy

    def _mark_durable(self, copy: Copy, offset: int) -> None:
        try:
            if self._is_kept(copy):
                copy.log.mark_durable(offset)
        except LogFormatError as error:
            self._directory.stop(copy, error)


def _truncate_below(fs: FileSystem, held: MergedLog, below: int) -> None:
    """Another directory may take the copy's place meanwhile."""
    bases = not_truncated(fs, held.path, below)
    truncate_segments(fs, held.path, bases, held.directory_identity)
