"""Which files were ever archived: on disk, one file for each partition, outside the replicated
state, whose snapshots would grow with them.

Archive commands name the files. A node that missed some, because it took a snapshot over or lost
its disk, asks its peers.

`Digests` are SHA-256 of sealed segments, for the log-history: made in a thread, one segment after
the other, at a rate that leaves the disk to others. They are kept in files of the history's format,
and could be made again at any time: a file that is missing, or ends early, is only more work.

Invariant: a snapshot counts only when the history it implies is durable; the history has no gap.
Also: a digest is of a segment that nothing is added to any more; the ingest waits for none.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections import OrderedDict
from collections.abc import Container, Sequence

import msgspec

from samelog.archiver.command import ArchiveCommand, ArchivedSegment
from samelog.archiver.copies.manifests import format_bits
from samelog.archiver.parts import ArchiverParts, PartitionLog
from samelog.format.errors import LogFormatError
from samelog.format.file_names import LOG, segment_name
from samelog.format.history import (
    ArchivedFile,
    CopyNote,
    decode_records,
    encode_record,
)
from samelog.format.segment import Segment
from samelog.runtime.log import log_event
from samelog.store.disk.disk_errors import NoSpace
from samelog.store.disk.files import DiskFault, File, FileSystem, NoSuchFile
from samelog.store.merged.history_file import HistoryFile
from samelog.store.merged.log import MergedLog
from samelog.store.merged.truncation import SegmentFacts
from samelog.wire.peer_messages import HistoryAsked, HistoryTold

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
        self._at_work = parts.at_work
        self._complete: dict[int, tuple[MergedLog, int]] = {}
        """Partition -> its log, and the segment that grew when all before it had a digest."""
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
            with self._at_work:
                await self._complete_all()

    async def _complete_all(self) -> None:
        for number, partition in tuple(self._merging.partitions.items()):
            growing = partition.log, partition.log.end()[0]
            is_complete = self._complete.get(number) == growing
            if not is_complete and await self.complete(partition):
                self._complete[number] = growing

    async def complete(self, partition: PartitionLog) -> bool:
        """Make what is lacking of one partition: whether nothing is lacking until it grows."""
        path = self._path(partition)
        try:
            while (segment := self._next(partition, path)) is not None:
                await self._add(partition, path, segment)
        except NoSpace:
            return False  # there will be room again
        except LogFormatError as error:  # whoever needs the segment says so too
            log_event(log, logging.WARNING, "no digest", partition=path, error=error)
            return False
        return partition.fault is None

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


log = logging.getLogger(__name__)

OPEN_FILES = 64
PAGE_FILES = 256


class ArchiveHistory:
    """One node's history of all partitions."""

    def __init__(self, parts: ArchiverParts) -> None:
        self._fs = parts.fs
        self._directory = os.path.join(parts.config.data, "history")
        self._machine = parts.machine
        self._cluster = parts.cluster
        self._open: OrderedDict[int, HistoryFile] = OrderedDict()
        self._dirty: set[int] = set()
        self._ends: dict[int, int] = {}
        self._paths: dict[int, str] = {}
        self._asked = 0
        self._fs.make_directory(self._directory)

    # --- files ------------------------------------------------------------------------------------

    def _file(self, number: int) -> HistoryFile:
        """A partition's file, opened if need be. Raises LogFormatError."""
        known = self._open.get(number)
        if known is None:
            partition = self._machine.state.partitions.by_number[number]
            log_id = self._machine.state.topics.by_id[partition.topic_id].log_id
            name = f"{log_id}-{partition.index}"
            path = os.path.join(self._directory, name)
            known = self._open[number] = HistoryFile(self._fs, path)
            self._paths[number] = path
            self._ends[number] = known.end
            self._close_some()
        self._open.move_to_end(number)
        return known

    def _close_some(self) -> None:
        while len(self._open) > OPEN_FILES:
            number, oldest = self._open.popitem(last=False)
            if number in self._dirty and oldest.file is not None:
                oldest.file.datasync()
                self._dirty.discard(number)
            oldest.close()

    def take_dirty(self) -> list[File]:
        """What has been written since the last call, to be synced."""
        files = [self._open[number].file for number in self._dirty if number in self._open]
        self._dirty.clear()
        return [file for file in files if file is not None]

    def close(self) -> None:
        """Close every file."""
        for file in self._open.values():
            file.close()
        self._open.clear()

    def forget_deleted(self, known: Container[str]) -> None:
        """Remove what is left of topics that are not among the known ones."""
        forget_deleted_logs(self._fs, self._directory, known)

    # --- what is archived -------------------------------------------------------------------------

    def applied(self, command: ArchiveCommand) -> None:
        """An entry is applied. What cannot be written now is asked for later."""
        files = [self._record_of(command, file) for file in command.files]
        if files:
            self._append(command.partition, files)

    def _record_of(self, command: ArchiveCommand, file: ArchivedSegment) -> ArchivedFile:
        copy: CopyNote | None = None
        if file.copied_ms >= 0:
            target = self._machine.state.copy_targets.index(command.copy_url)
            copy = CopyNote(file.copied_ms, target, format_bits(tuple(command.copy_formats)))
        *numbers, sha256, _ = msgspec.structs.astuple(file)
        return ArchivedFile._make((*numbers, command.at_ms, sha256, command.reason, copy))

    def _append(self, number: int, files: list[ArchivedFile]) -> bool:
        try:
            file = self._file(number)
            is_first = file.file is None
            if not file.append(files):
                return False
            if is_first:
                self._fs.sync_directory(self._directory)  # the name goes with the power otherwise
        except LogFormatError as error:
            log_event(log, logging.ERROR, "history not written", partition=number, error=error)
            return False
        self._ends[number] = file.end
        self._dirty.add(number)
        return True

    def lacks(self, number: int) -> bool:
        """Whether files were archived that are not in the history here. Raises LogFormatError."""
        start = self._machine.state.partitions.by_number[number].start_segment
        if start == 0:
            return False
        if number not in self._ends:
            self._file(number)
        return self._ends[number] < start

    def read(self, number: int, offset: int, limit: int) -> list[ArchivedFile]:
        """Up to `limit` archived files from the one on that begins at `offset` or behind it. Raises
        LogFormatError.
        """
        if self._machine.state.partitions.by_number[number].start_segment == 0:
            return []
        return self._file(number).read(offset, limit)

    # --- from and to other groups -----------------------------------------------------------------

    def whole(self, number: int) -> bytes | None:
        """All of a partition, for the group that it moves to; None: some is lacking here. Raises
        LogFormatError.
        """
        if self.lacks(number):
            return None
        found, offset = list[ArchivedFile](), 0
        while files := self.read(number, offset, PAGE_FILES):
            found += files
            offset = files[-1].next_offset
        return b"".join(map(encode_record, found))

    def came(self, number: int, records: bytes, targets: Sequence[str]) -> None:
        """A partition came from another group, with its history; `targets`: of copies, by the
        numbers that they have there.
        """
        own = self._machine.state.copy_targets
        files = [
            each
            if each.copy is None
            else each._replace(copy=each.copy._replace(target=own.index(targets[each.copy.target])))
            for each in decode_records(records) or ()
        ]
        if files:
            self._append(number, files)

    # --- from and to peers ------------------------------------------------------------------------

    def fetch_missing(self) -> None:
        """Ask for what is lacking, and let go of deleted topics; once a second."""
        partitions = self._machine.state.partitions.by_number
        for number in [number for number in self._paths if number not in partitions]:
            self._remove(number)
        ends = self._ends
        behind = [n for n, each in partitions.items() if ends.get(n, 0) < each.start_segment]
        for number in behind:
            try:
                if self.lacks(number):
                    self._ask(number)
            except DiskFault as error:
                log_event(log, logging.ERROR, "history not read", partition=number, error=error)

    def _ask(self, number: int) -> None:
        peers = self._cluster.peers()
        if peers:
            self._asked += 1
            peer = peers[self._asked % len(peers)]
            self._cluster.send(peer, HistoryAsked(number, self._ends[number]))

    def _remove(self, number: int) -> None:
        path = self._paths.pop(number)
        self._ends.pop(number, None)
        self._dirty.discard(number)
        file = self._open.pop(number, None)
        if file is not None:
            file.close()
        if self._is_former(path):
            return
        try:
            self._fs.unlink(path)
        except NoSuchFile:
            return

    def _is_former(self, path: str) -> bool:
        """Whether it belongs to a log that was restarted: the log is set aside with its history."""
        log_id = os.path.basename(path).rpartition("-")[0]
        return any(log_id in each.former_logs for each in self._machine.state.topics.by_id.values())

    def answer(self, node: int, message: HistoryAsked) -> None:
        """Send a peer the part of the history that it lacks."""
        files: list[ArchivedFile] = []
        if message.partition in self._machine.state.partitions.by_number:
            files = self.read(message.partition, message.offset, PAGE_FILES)
        records = b"".join(map(encode_record, files))
        self._cluster.send(node, HistoryTold(message.partition, records))

    def answered(self, message: HistoryTold) -> None:
        """Take over the part of the history that a peer has sent."""
        files = decode_records(message.records)
        partition = self._machine.state.partitions.by_number.get(message.partition)
        if partition is None or files is None:
            return
        files = [file for file in files if file.next_offset <= partition.start_segment]
        if files and self._append(message.partition, files) and self.lacks(message.partition):
            self._ask(message.partition)


def forget_deleted_logs(fs: FileSystem, directory: str, known: Container[str]) -> None:
    """Remove the files `<log id>-<partition>` of logs that are not among the known ones."""
    for name in fs.list_directory(directory):
        if name.rpartition("-")[0] not in known:
            fs.unlink(os.path.join(directory, name))
