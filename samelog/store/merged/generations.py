"""Which segments of a merged log were compacted: `compacted.json`, and the swap that it decides.

New segments are written in a folder of their own and made durable there; `written.json` in it says
so, and which these are. Such a folder stays until it is told that nobody needs it: what a node has
told the others it wrote may be all there is of what they decide. Then `compacted.json` is replaced,
which is the swap; then the files get their names. A log that is opened in between does what is left
of that. Its indexes and checksums are those of the file, whichever it is.

What was there before is renamed into the folder, not removed, because the file system may take long
to free it: `clear_folders` does that outside the event loop. Who has it open reads it on.

Invariant: after a crash a log has the segments of before or those of after, never some of each.
"""

from __future__ import annotations

import os
from collections.abc import Collection

import msgspec

from samelog.format.compaction import CompactedSegment, replaced
from samelog.format.directory_files import CompactedFile
from samelog.format.errors import CorruptLog, NotContiguous
from samelog.format.file_names import (
    COMPACTED_FILE,
    COMPACTING,
    INDEX,
    LOG,
    TIME_INDEX,
    TXN_INDEX,
    WRITTEN_FILE,
    segment_bases,
    segment_name,
)
from samelog.store.disk.file_cache import FileCache
from samelog.store.disk.files import FileSystem
from samelog.store.disk.json_files import read_json_file, write_json_file
from samelog.store.merged.rewriting import OldSegment
from samelog.store.merged.segment_chain import SegmentChain
from samelog.store.merged.segment_files import SegmentFiles

SUFFIXES = (LOG, INDEX, TIME_INDEX, TXN_INDEX)
OLD = ".old"


LIMIT_BYTES = 16 << 20
"""Of a file that names segments, each of which takes less than 300 bytes."""


def read_compacted(fs: FileSystem, directory: str) -> CompactedFile:
    """What a log's directory says was compacted. Raises CorruptLog, DiskFault."""
    path = os.path.join(directory, COMPACTED_FILE)
    return read_json_file(fs, path, CompactedFile, limit_bytes=LIMIT_BYTES) or CompactedFile()


class Generations:
    """Of one merged log."""

    def __init__(
        self, fs: FileSystem, chain: SegmentChain, segments: SegmentFiles, files: FileCache
    ) -> None:
        self._fs = fs
        self._chain = chain
        self._segment_files = segments
        self._files = files
        self._known = CompactedFile()
        self.may_copy = False
        """Whether `copied` is worth a look."""
        self.written: dict[int, list[CompactedSegment]] = {}
        """Number of a compaction -> what its folder has, all of it and durable."""

    def folder(self, number: int) -> str:
        """Where a compaction writes its segments."""
        return os.path.join(self._segment_files.directory, f"{COMPACTING}.{number}")

    @property
    def number(self) -> int:
        """Of the last compaction that was carried out here."""
        return self._known.number

    @property
    def segments(self) -> list[CompactedSegment]:
        """The compacted segments, as the file has them."""
        return self._known.segments

    # --- opening -------------------------------------------------------------------------------

    def load(self) -> None:
        """Take up what the file says; finish a swap that a crash interrupted. Raises CorruptLog,
        DiskFault.
        """
        self._known = read_compacted(self._fs, self._segment_files.directory)
        self.may_copy = self._known.copied is not None
        if self._known.swapped is not None:
            if self._fs.exists(self.folder(self.number)):
                self._take_names(*self._known.swapped)
            self._write(msgspec.structs.replace(self._known, swapped=None))
        self._read_written()
        self.clear_folders(self.written)

    def _read_written(self) -> None:
        for number in self._folders():
            path = os.path.join(self.folder(number), WRITTEN_FILE)
            known = read_json_file(self._fs, path, CompactedFile, limit_bytes=LIMIT_BYTES)
            if known is not None and number > self.number:
                self.written[number] = known.segments

    def _folders(self) -> list[int]:
        """The numbers of compactions that have one."""
        names = self._fs.list_directory(self._segment_files.directory)
        found = [name.removeprefix(COMPACTING + ".") for name in names if COMPACTING in name]
        return [int(number) for number in found if number.isdecimal()]

    def clear_folders(self, needed: Collection[int] = ()) -> None:
        """Remove what was written and not taken, and what was put away, but of these compactions.
        May take long; safe outside the event loop. Raises DiskFault.
        """
        for number in self._folders():
            if number not in needed:
                self.written.pop(number, None)
                self._fs.remove_tree(self.folder(number))

    def make_folder(self, number: int) -> str:
        """An empty folder for new segments. Raises DiskFault."""
        if self._fs.exists(self.folder(number)):
            self.written.pop(number, None)
            self._fs.remove_tree(self.folder(number))
        self._fs.make_directory(self.folder(number))
        return self.folder(number)

    def complete(self, number: int, segments: list[CompactedSegment]) -> None:
        """All of these are in the folder, and durable. Raises DiskFault."""
        path = os.path.join(self.folder(number), WRITTEN_FILE)
        known = CompactedFile(number=number, segments=segments)
        write_json_file(self._fs, path, known, limit_bytes=LIMIT_BYTES)
        self.written[number] = segments

    def keep_below(self, offset: int) -> None:
        """The log ends there: what a compacted segment had behind that was damaged. Raises
        DiskFault.
        """
        left = [each for each in self._known.segments if each.stop <= offset]
        if left != self._known.segments:
            self._write(msgspec.structs.replace(self._known, segments=left))

    # --- swapping ------------------------------------------------------------------------------

    def sources(self, first: int, stop: int) -> list[OldSegment]:
        """The sealed segments between two offsets, as they are now. Raises NotContiguous: these
        are not where segments begin.
        """
        found = [self._source(base) for base in self._chain.sealed if first <= base < stop]
        if not found or found[0].base != first or found[-1].stop != stop:
            raise NotContiguous(f"{self._segment_files.directory}: no segments {first} to {stop}")
        return found

    def _source(self, base: int) -> OldSegment:
        sealed = self._chain.sealed[base]
        begin, end = self._chain.file_checksums(base)
        path, checksum = self._segment_files.path(base, LOG), sealed.checksum
        own = checksum if end is None else end
        return OldSegment(path, base, sealed.next_offset, sealed.size, begin, checksum, own)

    def swap(self, new: list[CompactedSegment]) -> None:
        """Replace the present segments by those in the folder, which are durable there. Raises
        NotContiguous, DiskFault: then the log must be reopened.
        """
        self.sources(new[0].base, new[-1].stop)
        number = max(each.number for each in new)
        known = replaced(self._kept(), new)
        swapped = new[0].base, new[-1].stop
        self._write(CompactedFile(number=number, segments=known, swapped=swapped))
        self._take_names(*swapped)
        for base in self._chain.replace(new):
            for suffix in SUFFIXES:
                self._files.drop((base, suffix))
        self._segment_files.forget()
        self._write(msgspec.structs.replace(self._known, swapped=None))

    def _kept(self) -> list[CompactedSegment]:
        """The compacted segments that are not archived."""
        return [each for each in self._known.segments if each.stop > self._chain.start.base]

    def _take_names(self, first: int, stop: int) -> None:
        """Give the segments in the folder their names, and take them from what was there."""
        folder, directory = self.folder(self.number), self._segment_files.directory
        names = set(self._fs.list_directory(folder))
        self._put_away(first, stop, names)
        for base in [base for base in segment_bases(names) if first <= base < stop]:
            for suffix in (TIME_INDEX, INDEX, LOG):
                name = segment_name(base, suffix)
                if name in names:
                    self._fs.rename(os.path.join(folder, name), os.path.join(directory, name))
        self._fs.sync_directory(directory)

    def _put_away(self, first: int, stop: int, names: set[str]) -> None:
        """Take names from what was there. What has its name already keeps it, as when a crash came
        in between.
        """
        folder, directory = self.folder(self.number), self._segment_files.directory
        kept = {each.base for each in self.segments}
        for base in segment_bases(self._fs.list_directory(directory)):
            if not first <= base < stop:
                continue
            for suffix in SUFFIXES:
                name = segment_name(base, suffix)
                is_new = base in kept and suffix != TXN_INDEX and name not in names
                if not is_new and self._fs.exists(os.path.join(directory, name)):
                    old = os.path.join(folder, name + OLD)
                    self._fs.rename(os.path.join(directory, name), old)

    def _write(self, known: CompactedFile) -> None:
        path = os.path.join(self._segment_files.directory, COMPACTED_FILE)
        write_json_file(self._fs, path, known, limit_bytes=LIMIT_BYTES)
        self._known = known
        self.may_copy = known.copied is not None

    # --- copying -------------------------------------------------------------------------------

    def begin_copy(self, segment: CompactedSegment) -> None:
        """What comes for the empty growing segment is a compacted one. Raises DiskFault."""
        if self._known.copied != segment:
            self._write(msgspec.structs.replace(self._known, copied=segment))
            self._chain.layout += 1

    @property
    def copied(self) -> CompactedSegment | None:
        """What the growing segment is a copy of; None: it is as it was merged."""
        copied = self._known.copied
        return copied if copied and copied.base == self._chain.growing.base_offset else None

    def number_of(self, base: int) -> int:
        """Of the compaction that made a segment; 0: it is as it was merged."""
        copied = self.copied
        is_it = copied is not None and copied.base == base
        return copied.number if copied is not None and is_it else self._chain.number_of(base)

    def seal(self) -> None:
        """The growing segment ends. Raises CorruptLog: it is not the one that was to be copied."""
        wanted, chain = self.copied, self._chain
        if wanted is None:
            chain.seal()
            return
        sealed = chain.growing.seal(wanted.sealed.checksum)
        path = self._segment_files.path(wanted.base, LOG)
        if chain.checksum != wanted.bytes_checksum or sealed != wanted.sealed:
            raise CorruptLog(path, 0, "is not the compacted segment that the cluster has")
        self._segment_files.log(wanted.base).datasync()
        number, known = max(self.number, wanted.number), replaced(self._kept(), [wanted])
        self._write(CompactedFile(number=number, segments=known))
        chain.add_sealed(wanted.sealed, wanted)

    def forget_from(self, base: int) -> None:
        """The log is cut there. Raises DiskFault."""
        left = [each for each in self._known.segments if each.stop <= base]
        if left != self._known.segments or self._known.copied is not None:
            self._write(CompactedFile(number=self.number, segments=left))
