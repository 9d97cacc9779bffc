"""Brings copies of segments back as a merged log, in a directory that subscribers and Kafka's tools
read.

From copies as segments it is the same to the byte; from Parquet the records are, in batches of
their own. Whole segments come back; reading begins where it is asked for.

Invariant: the directory has its name only once every copy in it was checked against its checksum.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from samelog.admin.known_schemas import KnownSchemas
from samelog.archiver.copies.copying import ReportBytes, pieces_of, read_back, read_manifest
from samelog.archiver.copies.manifests import (
    PARQUET,
    SEGMENTS,
    CopiedLog,
    CopyFault,
    Manifest,
)
from samelog.archiver.copies.parquet import rebuild
from samelog.archiver.copies.targets import Target, translated_errors
from samelog.format import _kernels as kernels
from samelog.format.batch import HELD_BATCH_BYTES
from samelog.format.errors import CorruptBatch
from samelog.store.disk.files import FileSystem
from samelog.store.merged.log import MergedLog
from samelog.store.merged.lost_records import append_void
from samelog.store.merged.truncation import LogStart


@dataclass(frozen=True, slots=True)
class SegmentCopy:
    """One segment's copy, and where it is."""

    target: Target
    manifest: Manifest


@dataclass(frozen=True, slots=True)
class Restored:
    """What came back: readable are offsets [first_offset, next_offset)."""

    topic: str
    topic_id: str
    partition: int
    directory: str
    format: str
    first_offset: int
    next_offset: int
    segments: int
    size_bytes: int


def find_copied_log(
    target: Target, topic: str, partition: int, *, cluster: str | None, log_id: str | None = None
) -> CopiedLog:
    """The log of this topic that a target has copies of. Raises CopyFault: none, or of several."""
    found = []
    for name in [cluster] if cluster is not None else target.list(""):
        for each in [log_id] if log_id is not None else target.list(f"{name}/{topic}"):
            log = CopiedLog(name, topic, each, partition)
            if target.list(log.manifests):
                found.append(log)
    if not found:
        raise CopyFault(f"there is no copy of {topic}-{partition} at this target")
    if len(found) > 1:
        names = ", ".join(log.directory for log in found)
        raise CopyFault(f"there are copies of several logs of this name: {names}; choose one")
    return found[0]


def manifests_of(target: Target, log: CopiedLog) -> list[Manifest]:
    """The manifests of a partition, in order. Raises CopyFault."""
    names = [name for name in target.list(log.manifests) if name.endswith(".json")]
    found = [read_manifest(target, log, f"{log.manifests}/{name}") for name in names]
    return [manifest for manifest in found if manifest is not None]


def common_format(copies: Iterable[SegmentCopy]) -> str:
    """The format to restore from: segments if all have them. Raises CopyFault."""
    known = [set(copy.manifest.files) for copy in copies]
    for kind in (SEGMENTS, PARQUET):
        if all(kind in kinds for kinds in known):
            return kind
    raise CopyFault("some of it was copied as segments only, some as Parquet only: two ranges")


class RangeRestore:
    """Restores one range of one partition."""

    def __init__(
        self, fs: FileSystem, copies: list[SegmentCopy], kind: str, *, progress: ReportBytes
    ) -> None:
        """`copies`: one behind the other; `kind`: the format that they are taken from."""
        self._fs = fs
        self._copies = copies
        self._kind = kind
        self._progress = progress

    def into(
        self, directory: str, *, first: int | None = None, from_ms: int | None = None
    ) -> Restored:
        """Restore below a directory; records before `first`, or before the first one that is as
        young as `from_ms`, are not read. Raises CopyFault, LogFormatError.
        """
        copied = self._copies[0].manifest.log
        name = f"{copied.topic}-{copied.partition}"
        path = os.path.join(directory, name)
        if self._fs.exists(path):
            raise CopyFault(f"{path} is there already: choose another directory")
        os.makedirs(directory, exist_ok=True)
        temporary = os.path.join(directory, f".{name}.restoring")
        if self._fs.exists(temporary):
            self._fs.remove_tree(temporary)
        log = self._build(temporary, copied)
        try:
            self._begin_reading(log, first, from_ms)
            _make_durable(log)
            restored = self._describe(log, path)
        finally:
            log.close()
        self._note_schemas(directory, copied)
        self._fs.rename(temporary, path)
        self._fs.sync_directory(directory)
        return restored

    def _note_schemas(self, directory: str, copied: CopiedLog) -> None:
        """Where subscribers look that have no cluster to ask. Raises CopyFault, DiskFault."""
        told = [copy.manifest.schemas for copy in self._copies]
        texts = max((each.texts for each in told), key=len)
        if not texts:
            return
        known = KnownSchemas(self._fs, directory, None)
        before = known.known(copied.topic)
        if before is not None and before.topic_id != copied.topic_id:
            raise CopyFault(
                f"{directory} has the schema of another log of {copied.topic}: choose another "
                "directory"
            )
        since = tuple(sorted({pair for each in told for pair in each.since}))
        end = self._copies[-1].manifest.next_offset
        known.note(
            copied.topic, copied.topic_id, texts, {copied.partition: (end, since)}, durable=True
        )

    def _describe(self, log: MergedLog, path: str) -> Restored:
        copied, ends = self._copies[0].manifest.log, (log.start_offset, log.next_offset)
        size = sum(segment.size for segment in log.segments())
        whose = copied.topic, copied.topic_id, copied.partition
        return Restored(*whose, path, self._kind, *ends, len(self._copies), size)

    def _build(self, path: str, copied: CopiedLog) -> MergedLog:
        topic, topic_id, partition = copied.topic, copied.topic_id, copied.partition
        log = MergedLog.open(self._fs, path, topic=topic, topic_id=topic_id, partition=partition)
        try:
            first = self._copies[0].manifest
            log.start_at(first.first_offset, checksum=first.begin_checksum)
            for copy in self._copies:
                if self._kind == SEGMENTS:
                    self._append_segment(log, copy)
                else:
                    self._append_records(log, copy)
                _check_end(log, copy.manifest)
            log.roll()
        except BaseException:
            log.close()
            raise
        return log

    def _append_segment(self, log: MergedLog, copy: SegmentCopy) -> None:
        manifest = copy.manifest
        name = manifest.log.file(SEGMENTS, manifest.first_offset)
        file = copy.target.open(name)
        if file is None:
            raise CopyFault(f"{name} is gone")
        digest, byte = hashlib.sha256(), 0
        for data in whole_batches(pieces_of(file, name), name):
            digest.update(data)
            try:
                log.append_copy(manifest.first_offset, byte, data)
            except CorruptBatch as error:
                raise CopyFault(f"{name} is damaged: {error}") from error
            byte += len(data)
            self._progress(len(data))
        if digest.hexdigest() != manifest.sha256 or log.checksum != manifest.end_checksum:
            raise CopyFault(f"{name} is not what was copied: its checksum differs")

    def _append_records(self, log: MergedLog, copy: SegmentCopy) -> None:
        manifest = copy.manifest
        name = manifest.log.file(PARQUET, manifest.first_offset)
        if read_back(copy.target, name, lambda count: None) != manifest.files[PARQUET]:
            raise CopyFault(f"{name} is not what was copied: its checksum differs")
        log.roll()
        with translated_errors(name), copy.target.open(name) as file:
            for offset, data in rebuild(file, name):
                _fill(log, offset, manifest)
                log.append(bytearray(data), base_offset=offset, leader_epoch=0)
        _fill(log, manifest.next_offset, manifest)
        self._progress(manifest.size)

    def _begin_reading(self, log: MergedLog, first: int | None, from_ms: int | None) -> None:
        offset = max(first or 0, log.start_offset)
        if from_ms is not None:
            offset = max(offset, log.locate_timestamp(from_ms))
        start = log.log_start
        log.archive(LogStart(offset, start.segment, start.checksum))


def _fill(log: MergedLog, offset: int, manifest: Manifest) -> None:
    """Records without a row were void in the segment, and are again."""
    if offset > log.next_offset:
        count, base = offset - log.next_offset, log.end()[0]
        append_void(log, count, segment_base=base, epoch=0, timestamp=manifest.first_ms)


def _check_end(log: MergedLog, manifest: Manifest) -> None:
    if log.next_offset != manifest.next_offset:
        wanted = f"{manifest.first_offset} to {manifest.next_offset - 1}"
        raise CopyFault(f"the copy of offsets {wanted} ends at {log.next_offset - 1}")


def whole_batches(pieces: Iterator[bytes], name: str) -> Iterator[bytes]:
    """The bytes of a copy in pieces of whole valid batches. Raises CopyFault."""
    held = b""
    for data in pieces:
        held += data
        scan = kernels.scan(held, max_batch_bytes=HELD_BATCH_BYTES)
        if scan.error is not None:
            raise CopyFault(f"{name} is damaged: {scan.error}")
        if scan.end:
            yield held[: scan.end]
            held = held[scan.end :]
    if held:
        raise CopyFault(f"{name} ends inside a batch")


def _make_durable(log: MergedLog) -> None:
    offset = log.next_offset
    _sync(log)
    log.mark_durable(offset)
    log.save_marks()
    _sync(log)


def _sync(log: MergedLog) -> None:
    for file in log.take_dirty():
        file.datasync()
