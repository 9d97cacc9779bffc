"""All of a node's archiving: the leader's rounds, carrying out what Raft decided, and the history
of it.

`EmptyFiles` makes the empty files of segments that a node never held: it was away while they were
archived, or lost its disk, and its log goes on behind them. All copies of a log then have files of
the same names. Only logs that were opened, or that went on behind something, since the last time
are examined. What this node's history lacks is waited for.

`Truncation` carries out what Raft has archived: it hides the records at once, then gives the disk
back. A node whose log has not come as far as the first segment that is kept goes on there: what it
lacks is archived, and its inputs may be gone everywhere.

Invariant: what is applied is in the history before the next snapshot counts.
Also: only files that the history names as archived are made, and none that is there is
touched.
Also: a file is truncated only when the entry that says so is durable here, and only below the
segment that it names; a partition that is halted keeps everything.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Container, Coroutine, Iterator
from functools import partial
from typing import Any

from samelog.archiver.command import ArchiveCommand
from samelog.archiver.copies.required import RequiredCopies
from samelog.archiver.history import ArchiveHistory, Digests
from samelog.archiver.log_history import LogHistoryReader
from samelog.archiver.parts import ArchiverParts, PartitionLog
from samelog.archiver.rounds import ArchiveRounds
from samelog.format.errors import LogFormatError
from samelog.format.file_names import LOG, segment_bases, segment_name
from samelog.runtime.flag import Flag
from samelog.runtime.log import log_event
from samelog.store.disk.disk_errors import NoSpace
from samelog.store.disk.files import File, FileSystem
from samelog.store.merged.log import MergedLog
from samelog.store.merged.truncation import LogStart, not_truncated, truncate_segments
from samelog.wire.peer_messages import HistoryAsked, HistoryTold

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
        self._at_work = parts.at_work
        self._complete: dict[int, tuple[MergedLog, int]] = {}
        """Partition -> its log, and up to where files are complete."""

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await asyncio.sleep(INTERVAL_S)
            with self._at_work:
                await self._complete_all()

    async def _complete_all(self) -> None:
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
        self._at_work = parts.at_work
        self._note_pending = partial(parts.shares.note_pending, parts.group)
        self._due: dict[int, None] = {}
        self._carried_out: dict[int, tuple[MergedLog, int, int]] = {}
        """Partition -> its log, and the log start and segment that were carried out in it."""
        self._wake = Flag()

    def log_start_changed(self, number: int) -> None:
        """A partition was opened, or some of it archived: readers see that at once."""
        known = self._machine.state.partitions.by_number[number]
        if known.log_start == 0:
            return
        partition, start = self._merging.partitions[number], (known.log_start, known.start_segment)
        if self._carried_out.get(number) == (partition.log, *start):
            return
        partition.log.hide_below(known.log_start)
        partition.changed()
        self._do_soon(number)

    @property
    def is_due(self) -> bool:
        """Whether anything waits to be truncated."""
        return bool(self._due)

    def _do_soon(self, number: int) -> None:
        self._due[number] = None
        self._wake.set()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._wake.wait()
            with self._at_work:
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
        known = self._machine.state.partitions.by_number.get(number)
        partition = self._merging.partitions.get(number)
        if known is None or partition is None or partition.fault is not None:
            self._carried_out.pop(number, None)
            return
        self._carried_out[number] = partition.log, known.log_start, known.start_segment
        start = LogStart(known.log_start, known.start_segment, known.start_checksum)
        archived = (s.size for s in partition.log.segments() if s.base_offset < start.segment)
        self._note_pending(sum(archived))
        self._begin_at(number, partition, start)
        path = partition.log.path
        left = await self._in_thread(not_truncated, self._fs, path, start.segment)
        while left and partition.fault is None:
            now, left = left[:FILES_AT_ONCE], left[FILES_AT_ONCE:]
            await self._in_thread(truncate_segments, self._fs, path, now)
        self._note_pending(0)

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


class NodeArchive:
    """One node's archiving."""

    def __init__(self, parts: ArchiverParts) -> None:
        self._replication = parts.replication
        self._cluster = parts.cluster
        due = Flag()
        self.policy = parts.policy
        self._forget_shares = partial(parts.shares.forget, parts.group)
        self.copies = RequiredCopies(parts, on_copied=due.set)
        self.rounds = ArchiveRounds(parts, self.copies, due)
        self.truncation = Truncation(parts)
        self.history = ArchiveHistory(parts)
        self.digests = Digests(parts)
        self.empty_files = EmptyFiles(parts, self.history)
        self.log_history = LogHistoryReader(parts, self.history, self.digests)

    def runs(self) -> Iterator[Coroutine[Any, Any, None]]:
        """What is to run."""
        parts = (self.truncation, self.rounds, self.copies.queue, self.digests, self.empty_files)
        return (part.run() for part in parts)

    @property
    def is_busy(self) -> bool:
        """Whether this node has yet to truncate or copy files, or to fetch their history."""
        is_due = self.truncation.is_due or self.copies.queue.is_due
        return is_due or self.history.is_lacking

    def forget(self) -> None:
        """The member has no replica of the group any more."""
        self._forget_shares()

    def close(self) -> None:
        """Close the files of the history, once everything has ended."""
        self.history.close()

    # --- events -----------------------------------------------------------------------------------

    def applied(self, command: ArchiveCommand) -> None:
        """An entry that archives is applied."""
        self.history.applied(command)
        self.truncation.log_start_changed(command.partition)
        if not command.files:
            self.rounds.start_soon()  # files may have become deletable

    def receive(self, node: int, message: HistoryAsked | HistoryTold) -> None:
        """A peer asks what was archived, or tells it."""
        try:
            if isinstance(message, HistoryAsked):
                self.history.answer(node, message)
            else:
                self.history.answered(node, message)
        except LogFormatError as error:
            what = "history not read"
            log_event(log, logging.ERROR, what, partition=message.partition, error=error)

    def partition_opened(self, number: int) -> None:
        """The merged log of a partition was opened."""
        self.truncation.log_start_changed(number)

    def forget_deleted(self, known: Container[str]) -> None:
        """Remove what is left of logs that are not among the known ones."""
        self.history.forget_deleted(known)
        self.digests.forget_deleted(known)

    def take_dirty(self) -> list[File]:
        """What has to be synced before a snapshot may count."""
        return self.history.take_dirty()

    # --- what an operator asks --------------------------------------------------------------------

    def disagreements(self) -> list[str]:
        """Nodes whose policy is not the leader's, which counts, as far as is known here."""
        policies = {
            number: health.policy
            for number in self._cluster.connected()
            if (health := self._cluster.health(number)) is not None
        }
        leader = self._replication.leader
        if leader not in policies:
            return []
        counts = policies[leader]
        return [
            f"{self._cluster.name(number)} has {policy or 'no policy'}, not the leader's"
            for number, policy in sorted(policies.items())
            if policy != counts
        ]
