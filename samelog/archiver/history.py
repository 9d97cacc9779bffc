"""Which files were ever archived: on disk, one file for each partition, outside the replicated
state, whose snapshots would grow with them.

Archive commands name the files. A node that missed some, because it took a snapshot over or lost
its disk, asks its peers.

`Digests` are SHA-256 of sealed segments, for the log-history: made in a thread, one segment after
the other, at a rate that leaves the disk to others. They are kept in files of the history's format,
and could be made again at any time: a file that is missing, or ends early, is only more work.

What is lost everywhere is not waited for without end: once no voter has it, the leader writes one
record in its place, which the others fetch from it.

Invariant: a snapshot counts only when the history it implies is durable; the history has no gap.
Also: a digest is of a segment that nothing is added to any more; the ingest waits for none.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections import Counter, OrderedDict
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, field

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
LOST = "lost"
"""The reason in a record that stands for files whose own records no voter has."""
GIVE_UP_S = 600.0
"""Records are waited for so long that a voter may have which cannot be reached."""
SAY_S = 60.0
"""Until then a lack is no trouble: a replica that is new fetches what it lacks."""


@dataclass(slots=True)
class _Lack:
    """What this node does not know of a partition: since when, and which members lack it, too."""

    since: float
    denied: set[int] = field(default_factory=set)


class ArchiveHistory:
    """One node's history of all partitions."""

    def __init__(self, parts: ArchiverParts) -> None:
        self._fs = parts.fs
        self._directory = os.path.join(parts.config.data, "history")
        self._machine = parts.machine
        self._cluster = parts.cluster
        self._replication = parts.replication
        self._clock = parts.clock
        self._open: OrderedDict[int, HistoryFile] = OrderedDict()
        self._dirty: set[int] = set()
        self._ends: dict[int, int] = {}
        self._paths: dict[int, str] = {}
        self._asked: Counter[int] = Counter()
        """Partition -> how often peers were asked."""
        self._lacking: dict[int, _Lack] = {}
        self._moved: set[int] = set()
        self._fs.make_directory(self._directory)

    @property
    def is_lacking(self) -> bool:
        """Whether this node's history lacked archived files at the last call of `fetch_missing`."""
        return bool(self._lacking)

    @property
    def troubles(self) -> Iterator[str]:
        """Return what has been lacking for long, and who may have it; at the leader only."""
        for number, lack in self._lacking.items():
            if self._own and self._clock.now() - lack.since >= SAY_S:
                members = ", ".join(map(self._cluster.name, sorted(self._may_have_it(lack))))
                yield (
                    f"the history of archived files of partition {number} ends at"
                    f" {self._ends[number]}: start {members}, which may have the rest"
                )

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
            self._moved.add(number)
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

    def end(self, number: int) -> int:
        """Return where the history of a partition ends; 0 if it was not opened yet."""
        return self._ends.get(number, 0)

    def take_moved(self) -> set[int]:
        """Return of which partitions histories were opened, or grew, since the last call."""
        moved, self._moved = self._moved, set()
        return moved

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

    def _append(self, number: int, files: list[ArchivedFile], *, is_replayed: bool = True) -> bool:
        """`is_replayed`: the Raft log repeats it until it is synced with a snapshot."""
        try:
            file = self._file(number)
            is_first = file.file is None
            if not file.append(files):
                return False
            if is_first:
                self._fs.sync_directory(self._directory)  # the name goes with the power otherwise
            if not is_replayed and file.file is not None:
                file.file.datasync()
        except LogFormatError as error:
            log_event(log, logging.ERROR, "history not written", partition=number, error=error)
            return False
        self._ends[number] = file.end
        self._moved.add(number)
        self._lacking.pop(number, None)
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
        """Ask for what is lacking, or give it up, and drop deleted topics; once a second."""
        partitions = self._machine.state.partitions.by_number
        for number in [number for number in self._paths if number not in partitions]:
            self._remove(number)
        behind = self._behind()
        for number in self._lacking.keys() - set(behind):
            del self._lacking[number]
        for number in behind:
            try:
                if self.lacks(number):
                    self._seek(number)
            except DiskFault as error:
                log_event(log, logging.ERROR, "history not read", partition=number, error=error)

    def _behind(self) -> list[int]:
        """Return the partitions that may lack something; one that is being copied gets it later."""
        partitions = self._machine.state.partitions.by_number.items()
        ends, is_coming = self._ends, self._machine.state.transfers.is_coming
        return [
            number
            for number, each in partitions
            if ends.get(number, 0) < each.start_segment and not is_coming(number)
        ]

    def _seek(self, number: int) -> None:
        lack = self._lacking.setdefault(number, _Lack(self._clock.now()))
        if self._is_lost(lack):
            self._give_up(number)
        else:
            self._ask(number)

    def _ask(self, number: int) -> None:
        peers = self._cluster.peers()
        if peers:
            self._asked[number] += 1
            peer = peers[self._asked[number] % len(peers)]
            self._cluster.send(peer, HistoryAsked(number, self._ends[number]))

    def _may_have_it(self, lack: _Lack) -> set[int]:
        """Return the other voters that have not said that they lack it, too."""
        return {*self._replication.voters} - lack.denied - self._own

    @property
    def _own(self) -> set[int]:
        """This node's number, if it leads."""
        leader = self._replication.leader
        return set() if leader is None or not self._replication.is_leader else {leader}

    def _is_lost(self, lack: _Lack) -> bool:
        """Whether this node leads, and no voter has what is lacking. Voters that cannot be reached
        are waited for, unless a majority lacks it for long.
        """
        if not self._own:
            return False
        waits, voters = self._may_have_it(lack), len(self._replication.voters)
        if not waits:
            return True
        is_late = self._clock.now() - lack.since >= GIVE_UP_S
        return is_late and waits.isdisjoint(self._cluster.peers()) and len(waits) * 2 < voters

    def _give_up(self, number: int) -> None:
        """Write one record instead of all that are lost."""
        first, known = self._ends[number], self._machine.state.partitions.by_number[number]
        times = NONE, NONE, NONE, self._clock.wall_ms()
        lost = ArchivedFile(first, known.start_segment, 0, *times, bytes(32), LOST)
        if self._append(number, [lost], is_replayed=False):
            what = "the history of archived files is lost; copies of them stay where they are"
            log_event(log, logging.ERROR, what, partition=number, first=first, end=lost.next_offset)

    def _remove(self, number: int) -> None:
        path = self._paths.pop(number)
        self._ends.pop(number, None)
        self._dirty.discard(number)
        self._asked.pop(number, None)
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
        """Send a peer the part of the history that it lacks. Raises LogFormatError."""
        number, files, lacks = message.partition, list[ArchivedFile](), False
        if number in self._machine.state.partitions.by_number:
            files = self.read(number, message.offset, PAGE_FILES)
            lacks = self.lacks(number) and self._ends[number] <= message.offset
        records = b"".join(map(encode_record, files))
        self._cluster.send(node, HistoryTold(number, records, lacks))

    def answered(self, node: int, message: HistoryTold) -> None:
        """Take over the part of the history that a peer has sent. Raises LogFormatError."""
        number, files = message.partition, decode_records(message.records)
        partition = self._machine.state.partitions.by_number.get(number)
        if partition is None or files is None:
            return
        if message.lacks and number in self._lacking:
            self._lacking[number].denied.add(node)
        files = [file for file in files if file.next_offset <= partition.start_segment]
        if files and self._append(number, files, is_replayed=False) and self.lacks(number):
            self._ask(number)


def forget_deleted_logs(fs: FileSystem, directory: str, known: Container[str]) -> None:
    """Remove the files `<log id>-<partition>` of logs that are not among the known ones."""
    for name in fs.list_directory(directory):
        if name.rpartition("-")[0] not in known:
            fs.unlink(os.path.join(directory, name))
