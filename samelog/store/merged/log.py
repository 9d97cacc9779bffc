"""One merged partition's directory, at a node (offsets are assigned here) or a subscriber (a copy).

The segments are Kafka's: `<base offset>.log`, `.index`, `.timeindex`; `partition.json` says whose
they are, `marks` up to where they are durable. A reader in another process (`read_only=True`) tails
the same files.

Invariant: offsets are dense; the same batches give the same files, however they arrived. Nothing
below the durable mark is ever cut or deleted.
"""

from __future__ import annotations

import os
from contextlib import suppress

import msgspec

from samelog.format import _kernels as kernels
from samelog.format.batch import HELD_BATCH_BYTES, Bytes
from samelog.format.compaction import CompactedSegment
from samelog.format.directory_files import PartitionFile, RowsFile
from samelog.format.errors import CorruptBatch, CorruptLog, NotContiguous
from samelog.format.file_names import (
    INDEX,
    LOG,
    TIME_INDEX,
    TXN_INDEX,
    segment_bases,
)
from samelog.format.marks import LogCheckpoint, MergedMarks
from samelog.format.segment import GrowingSegment, Growth
from samelog.format.transactions import TRANSACTIONAL
from samelog.store.disk.append_file import AppendFile
from samelog.store.disk.directories import HeldDirectory
from samelog.store.disk.dirty_files import DirtyFiles, ReadOnly, read_marks
from samelog.store.disk.disk_errors import NoSpace
from samelog.store.disk.files import File, FileSystem, StrPath
from samelog.store.disk.quarantine import copy_bytes
from samelog.store.merged.generations import Generations
from samelog.store.merged.missing_files import find_missing_files, put_back
from samelog.store.merged.partition_file import claim, write_partition_file
from samelog.store.merged.reader import MergedReader
from samelog.store.merged.recovery import MergedRecovery
from samelog.store.merged.segment_chain import PendingCheckpoints
from samelog.store.merged.segment_files import append_entries
from samelog.store.merged.spares import Spares
from samelog.store.merged.tail import MergedTail
from samelog.store.merged.truncation import LogStart

SAVE_MARKS_EVERY_BYTES = 64 << 20


class MergedLog(MergedReader):
    """The merged log of one partition; made by `open`."""

    def __init__(self, fs: FileSystem, path: str, whose: PartitionFile, *, read_only: bool) -> None:
        super().__init__(fs, path, whose, read_only=read_only)
        self.damaged: list[CorruptLog] = []
        """What was found damaged and set aside."""
        self.spares = Spares(fs, path)
        self.generations = Generations(fs, self._chain, self._segment_files, self._files)
        self._tail = (
            MergedTail(fs, self._chain, self._segment_files, self._files) if read_only else None
        )
        self._checkpoints = PendingCheckpoints(self._chain.start)
        self._unsynced: dict[int, None] = {}
        """Segments whose files stay open until a sync of them is known to be done."""
        self._writer: AppendFile | None = None
        """Of the growing segment."""
        self._dirty = DirtyFiles(fs, path)
        self._files.may_close = self._may_close
        self._unsaved_bytes = 0
        self.has_directory = True
        """Otherwise the first change makes it, which takes some syncs."""
        self._held: HeldDirectory | None = None
        """Its directory, where that may be replaced under this process."""

    # --- opening -------------------------------------------------------------------------------

    @classmethod
    def open(
        cls,
        fs: FileSystem,
        path: StrPath,
        *,
        topic: str,
        topic_id: str,
        partition: int,
        came: int = 0,
        read_only: bool = False,
        hold: bool = False,
        rows: RowsFile | None = None,
    ) -> MergedLog:
        """Open a partition's directory; unless `read_only`, make it if needed, and recover it.

        `came`: as PartitionFile has it. With `hold` no file is made any more, and DirectoryGone
        raised instead, once another directory is in its place. `rows`: it has what passed this
        filter, not the log.

        Raises:
            OtherTopic: the directory belongs to another topic id.
            UnsupportedFormat: it is another partition's, or of another version of the format.
            NoSuchFile: it is not there (`read_only`).
            CorruptLog: a file is not a regular one, or partition.json is missing or unreadable.
            DiskFault, NoSpace: the disk fails.
        """
        name = os.fspath(path)
        wanted = PartitionFile(topic=topic, topic_id=topic_id, partition=partition, came=came)
        wanted = wanted if rows is None else rows.of(wanted)
        whose = claim(fs, name, wanted, read_only=read_only)
        log = cls(fs, name, whose, read_only=read_only)
        try:
            if hold:
                log._held = HeldDirectory(fs, name)
            marks = read_marks(fs, name, MergedMarks)
            if log._tail is not None:
                log._tail.begin(marks)
                log._transactions.begin(None if marks is None else marks.durable)
            else:
                log._recover(marks)
        except BaseException:
            log.close()
            raise
        return log

    @classmethod
    def unwritten(
        cls,
        fs: FileSystem,
        path: StrPath,
        *,
        topic: str,
        topic_id: str,
        partition: int,
        came: int = 0,
    ) -> MergedLog:
        """A log without a directory: the first change makes it, and may raise as `open` then."""
        whose = PartitionFile(topic=topic, topic_id=topic_id, partition=partition, came=came)
        log = cls(fs, os.fspath(path), whose, read_only=False)
        log.has_directory = False
        return log

    def _make_directory(self) -> None:
        claim(self._fs, self.path, self._whose, read_only=False)
        self.has_directory = True
        self.save_marks()

    def _recover(self, marks: MergedMarks | None) -> None:
        self.generations.load()
        held = segment_bases(self._fs.list_directory(self.path))
        bases = [base for base in held if base >= self._chain.start.base]
        compacted = {each.base: each for each in self.generations.segments}
        found = self._fs, self._chain, self._segment_files, marks, self.damaged, compacted
        recovery = MergedRecovery(*found)
        recovery.recover(bases)
        self.generations.keep_below(self._chain.growing.base_offset)
        self._checkpoints = PendingCheckpoints(recovery.durable)
        self._transactions.begin(recovery.durable)
        if bases:
            self._open_segment()
        for base in recovery.unsynced:
            for suffix in (LOG, INDEX, TIME_INDEX):
                self._dirty.files[self._hold(base, suffix)] = None
            self._dirty.touch_directory()
        self._unsynced = dict.fromkeys(recovery.unsynced)
        if marks is None or self.damaged:
            self.save_marks()

    # --- tailing -------------------------------------------------------------------------------

    def refresh(self) -> bool:
        """Take up what the writer has added since; whether anything changed. For readers only."""
        if self._tail is None:
            raise ReadOnly(f"{self.path} is open for writing: nobody else changes it")
        return self._tail.refresh()

    # --- appending -----------------------------------------------------------------------------

    def append(self, data: Bytes, *, base_offset: int, leader_epoch: int | None) -> int:
        """Give whole batches their offsets (None: they have them), and write them; the next offset.
        The caller changes `data` no more.

        Raises:
            NotContiguous: `base_offset` is not the next offset.
            CorruptBatch: a header is invalid; nothing was written.
            NoSpace, DiskFault: nothing counts as written.
        """
        growing = self._chain.growing
        if base_offset != growing.next_offset:
            raise NotContiguous(
                f"{self.path}: records for offset {base_offset}, the next is {growing.next_offset}"
            )
        growth = growing.assign(data, len(data), leader_epoch)
        return self._write(data, growth, is_final=True)

    def append_copy(self, segment_base: int, byte: int, data: Bytes) -> int:
        """Write batches that have their offsets, as another copy of this log has them.

        Byte 0 of a segment that starts at the next offset seals the one before.

        Raises:
            NotContiguous: (segment_base, byte) is not the end, or an offset is not the next one.
            CorruptBatch: a batch is not whole or not valid; nothing was written.
            NoSpace, DiskFault: nothing counts as written.
        """
        size = len(data)
        scan = kernels.scan(data, max_batch_bytes=HELD_BATCH_BYTES)
        if scan.end != size:
            raise CorruptBatch(scan.end, scan.error or "the last batch is cut")
        if byte == 0 and segment_base == self.next_offset != self.end()[0]:
            growth = GrowingSegment(segment_base).measure(data, size)
            self.roll()
            return self._write(data, growth)
        growing = self._chain.growing
        if (segment_base, byte) != (growing.base_offset, growing.size):
            raise NotContiguous(
                f"{self.path}: bytes for {segment_base}:{byte}, the end is {self.end()}"
            )
        return self._write(data, growing.measure(data, size))

    def _write(self, data: Bytes, growth: Growth, *, is_final: bool = False) -> int:
        growing, known = self._chain.growing, self._chain.transactions
        if known.offset != growing.next_offset:
            known = self._transactions.catch_up()
        writer = self._writer or self._open_segment()
        position = writer.append(data)
        if position == 0:  # the file's name may be as new: whoever made it may have been killed
            self._dirty.touch_directory()
        growing.grow(data, growth)
        if growth.attributes & TRANSACTIONAL:
            self._transactions.took(growing.base_offset, data)
        else:
            known.offset = growth.next_offset
        self._chain.checksum = kernels.crc32c(data, self._chain.checksum)
        self._last_append = (growing.base_offset, position)
        self._unsynced[growing.base_offset] = None
        self._dirty.files[writer.file] = None
        if self.recent is not None:
            place = self._chain.layout, growing.base_offset, position
            self.recent.wrote(*place, data, is_final=is_final)
        return growth.next_offset

    def _store_aborted(self, base: int, position: int, data: bytes) -> None:
        file = self._hold(base, TXN_INDEX)
        file.pwrite(data, position)
        file.truncate(position + len(data))
        self._dirty.files[file] = None
        self._dirty.touch_directory()

    def _open_segment(self) -> AppendFile:
        """Open the growing segment for writing, and make its files if they are not there."""
        self._check_writable()
        growing = self._chain.growing
        base = growing.base_offset
        if not self._fs.exists(self._segment_files.path(base, LOG)):
            self._dirty.touch_directory()
        log = self._hold(base, LOG)
        self._segment_files.store_indexes(base, growing.offsets, growing.times)
        self._writer = AppendFile(log, growing.size)
        return self._writer

    def _hold(self, base: int, suffix: str) -> File:
        """A file open for writing, which stays open until a sync of it is known to be done."""
        file = self._files.held((base, suffix))
        if file is None:
            file = self._fs.open(self._segment_files.path(base, suffix), create=True)
            self._files.hold((base, suffix), file)
        return file

    def roll(self) -> None:
        """Seal the growing segment, and start one at the next offset. Nothing if it is empty."""
        growing = self._chain.growing
        if growing.size == 0:
            return
        self._check_writable()
        writer = self._writer or self._open_segment()
        writer.seal()
        self._writer = None
        self.generations.seal()
        self._append_entries(growing)
        for suffix in (LOG, INDEX, TIME_INDEX):
            self._dirty.files[self._hold(growing.base_offset, suffix)] = None
        self._open_segment()

    def start_at(self, base_offset: int, *, checksum: int) -> None:
        """Let an empty copy begin at a later segment; `checksum` is the running one there.

        Raises:
            NotContiguous: the copy is not empty.
            DiskFault: the disk fails.
        """
        self._check_writable()
        if self.next_offset != self.start_offset:
            raise NotContiguous(f"{self.path} holds records: it cannot begin at {base_offset}")
        self._whose = msgspec.structs.replace(
            self._whose, start_offset=base_offset, start_checksum=checksum
        )
        write_partition_file(self._fs, self.path, self._whose)
        self._writer = None
        self._files.close()
        self._dirty.clear()
        if self._fs.exists(self._segment_files.path(self.start_offset, LOG)):
            self._segment_files.cut(self.start_offset, 0)
        self._chain.start = LogCheckpoint(base_offset, base_offset, 0, checksum)
        self._chain.restart_at(base_offset)
        self._transactions.begin(None)
        self._checkpoints = PendingCheckpoints(self._chain.start)
        self._save_whose()

    def mark_deleted(self, *, is_deleted: bool) -> None:
        """Record durably whether the topic was deleted in the cluster. Raises DiskFault."""
        self._check_writable()
        whose = msgspec.structs.replace(self._whose, is_deleted=is_deleted)
        write_partition_file(self._fs, self.path, whose)
        self._whose = whose
        self._save_whose()

    def _save_whose(self) -> None:
        with suppress(NoSpace):  # marks may lag until there is room
            self.save_marks()

    # --- compaction and archiving --------------------------------------------------------------

    def swap(self, new: list[CompactedSegment]) -> None:
        """Segments that `generations` has take the place of others. Raises as it does."""
        self.generations.swap(new)
        self._transactions.forget_found(new[0].base, new[-1].stop)
        self._last_append = None
        self.save_marks()

    def number_of(self, segment_base: int) -> int:
        """Of the compaction that made a segment, or that is copied; 0: it is as it was merged."""
        return self.generations.number_of(segment_base)

    def begin_copy(self, segment: CompactedSegment) -> None:
        """What comes for the empty growing segment is a compacted one. Raises DiskFault."""
        self._check_writable()
        self.generations.begin_copy(segment)

    def cut_back(self, base: int, *, keep: bool = False) -> list[str]:
        """End the log where a segment begins that is copied again; with `keep` the old bytes are
        set aside: as which files. Raises NotContiguous (no segment begins there), DiskFault.
        """
        gone = self._chain.bases_from(base)
        self._writer = self._last_append = None
        self._files.close()
        self._dirty.clear()
        self._chain.restart_at(base)
        self._transactions.begin(None)
        self._unsynced.clear()
        self._checkpoints = PendingCheckpoints(self._chain.end)
        self.save_marks()
        aside = self._segment_files.remove(gone, keep=keep)
        self.generations.forget_from(base)  # before, what is there would pass for bytes as merged
        return aside

    def hide_below(self, offset: int) -> None:
        """Records below `offset` are archived: hand them out no more."""
        self._chain.log_start = max(self._chain.log_start, offset)

    def archive(self, start: LogStart) -> None:
        """Let the log begin at `start`, durably; a log that ends before it goes on there. The files
        of what is archived can be truncated then (`store.merged.truncation`).

        Raises:
            NoSpace, DiskFault: perhaps only until the log is opened again, nothing is archived.
        """
        self._check_writable()
        self.hide_below(start.offset)
        whose = msgspec.structs.replace(self._whose, log_start=self._chain.log_start)
        begin = self._chain.start
        if start.segment > begin.base:
            is_held = self._chain.segment(start.segment) is not None
            checksum = self._chain.checksums(start.segment)[0] if is_held else start.checksum
            begin = LogCheckpoint(start.segment, start.segment, 0, checksum)
            whose = msgspec.structs.replace(
                whose, start_offset=begin.base, start_checksum=begin.checksum
            )
        if whose == self._whose:
            return
        write_partition_file(self._fs, self.path, whose)
        self._whose = whose
        if begin != self._chain.start:
            self._begin_at(begin)
        self._save_whose()

    def _begin_at(self, start: LogCheckpoint) -> None:
        if start.base > self._chain.growing.base_offset:
            self._writer, self._last_append = None, None
        for base in self._chain.begin_at(start):
            self._unsynced.pop(base, None)
            for suffix in (LOG, INDEX, TIME_INDEX, TXN_INDEX):
                self._dirty.forget(self._segment_files.path(base, suffix))
                self._files.drop((base, suffix))
        self._segment_files.forget()
        if self.durable_offset < start.offset:
            self._checkpoints = PendingCheckpoints(start)

    # --- files that somebody else removed ------------------------------------------------------

    def open_file(self, base: int) -> File | None:
        """A segment's log file, if it is open: it can be read even if its name is gone."""
        return self._files.find((base, LOG))

    def look_at_file_again(self, base: int) -> None:
        """Another file has a segment's name now."""
        self._files.drop((base, LOG))
        self._segment_files.forget()

    def take_restored(self, base: int, path: str, size: int) -> None:
        """The first `size` bytes of a segment whose name is gone are at `path`, durably: add what
        it has grown by meanwhile, and give it its name. Raises DiskFault.
        """
        opened = self.open_file(base)
        end = self._chain.size_of(base)
        if opened is not None and end > size:
            file = self._fs.open(path, writable=True)
            try:
                copy_bytes(opened, file, size, end, shift=0)
                file.datasync()
            finally:
                file.close()
        put_back(self._fs, self.path, base)
        if base != self._chain.growing.base_offset:
            return self.look_at_file_again(base)
        self._writer = None
        for suffix in (LOG, INDEX, TIME_INDEX):
            self._dirty.forget(self._segment_files.path(base, suffix))
            self._files.drop((base, suffix))
        self._dirty.files[self._open_segment().file] = None
        return None

    # --- durability ----------------------------------------------------------------------------

    @property
    def durable_offset(self) -> int:
        """Records below this offset are known to be on disk."""
        return self._checkpoints.durable.offset

    def dirty(self) -> bool:
        """Whether anything was written since the last `take_dirty`."""
        return bool(self._dirty)

    def take_dirty(self) -> list[File]:
        """The files (and directory) written since the last call, to be synced together."""
        self._transactions.catch_up()
        self._transactions.store()
        self._store_indexes()
        self._checkpoints.note(self._chain.end)
        return self._dirty.drain()

    def mark_durable(self, offset: int) -> None:
        """What was taken by `take_dirty` when `offset` was the next offset is synced."""
        self._dirty.synced()
        before = self._checkpoints.durable
        if offset == self.next_offset:
            self._checkpoints.note(self._chain.end)
        if not self._checkpoints.mark(offset):
            return
        durable = self._checkpoints.durable
        for base in [base for base in self._unsynced if base < durable.base]:
            del self._unsynced[base]
            self._files.release((base, LOG))
            for suffix in (INDEX, TIME_INDEX, TXN_INDEX):
                self._files.drop((base, suffix))
        self._unsaved_bytes += durable.byte - (before.byte if durable.base == before.base else 0)
        if durable.base != before.base or self._unsaved_bytes >= SAVE_MARKS_EVERY_BYTES:
            self._unsaved_bytes = 0
            with suppress(NoSpace):  # marks may lag until there is room
                self.save_marks()

    def save_marks(self) -> None:
        """Write the durable marks; they reach the disk with the next round of syncs."""
        if not self.has_directory:
            return
        self._check_writable()
        self._store_indexes()
        self._dirty.write_marks(self._marks())
        self._unsaved_bytes = 0

    def _marks(self) -> MergedMarks:
        durable = self._checkpoints.durable
        sealed = [s for s in self._chain.sealed.values() if s.next_offset <= durable.offset]
        first = sealed[-1].next_offset if sealed else self._chain.start.base
        indexes = [self._chain.index_mark(base) for base in self._chain.bases if base >= first]
        whose = None if isinstance(self._whose, RowsFile) else self._whose
        return MergedMarks(durable=durable, sealed=sealed, indexes=indexes, whose=whose)

    def _store_indexes(self) -> None:
        if self._writer is not None:
            self._append_entries(self._chain.growing)

    def _append_entries(self, segment: GrowingSegment) -> None:
        """Write new entries; without room they are made again when needed. Small logs have none."""
        with suppress(NoSpace):
            for suffix, index in ((INDEX, segment.offsets), (TIME_INDEX, segment.times)):
                if index.has_unwritten:
                    append_entries(index, self._hold(segment.base_offset, suffix))

    def rest(self) -> None:
        """Close all files until they are needed again; not while something is to be synced, or the
        only way to the bytes of a file whose name is gone. Raises DiskFault.
        """
        is_synced = not self._dirty.files and self.durable_offset == self.next_offset
        if is_synced and self._may_close():
            self._files.close()

    def _may_close(self) -> bool:
        """Prepare for the closing of all files; False while an open one is the only way to the
        bytes of a file whose name is gone. Raises DiskFault.
        """
        held = [(each.base_offset, each.size) for each in self.segments() if each.size]
        opened = [(base, size) for base, size in held if self.open_file(base) is not None]
        if opened and find_missing_files(self._fs, self.path, opened):
            return False
        self._writer = None
        return True

    def close(self) -> None:
        """Close all files; nothing is synced or marked."""
        self._writer = None
        self._files.close()
        self._dirty.close()
        if self._held is not None:
            self._held.close()

    @property
    def directory_identity(self) -> tuple[int, int] | None:
        """What tells its directory from others of that path; None unless it is held."""
        return None if self._held is None else self._held.identity

    def is_in_place(self) -> bool:
        """Whether its directory is still found where it was; always so unless it is held."""
        return self._held is None or self._held.is_in_place()

    def _check_writable(self) -> None:
        if self._tail is not None:
            raise ReadOnly(f"{self.path} is open for reading only")
        if self._held is not None:
            self._held.check()
        if not self.has_directory:
            self._make_directory()
