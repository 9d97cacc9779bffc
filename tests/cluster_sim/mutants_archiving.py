"""Planted bugs in what archives: at the leader, at nodes, at copies."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from samelog.archiver import node_archive
from samelog.archiver.command import ArchiveCommand, ArchivedSegment
from samelog.archiver.copies import copying
from samelog.archiver.copies.manifests import CopiedFile, CopyJob, Manifest, encode_manifest
from samelog.archiver.plan import ArchiveProposal, PartitionFacts
from samelog.archiver.rounds import ArchiveRounds
from samelog.format.file_names import segment_bases
from samelog.format.segment import Segment
from samelog.replicator.pull.copy_upkeep import CopyUpkeep
from samelog.store.merged.log import MergedLog
from samelog.store.merged.truncation import LogStart
from samelog.store.merged.truncation import not_truncated as original_not_truncated


@contextmanager
def archive_the_active_file() -> Iterator[None]:
    """Whoever archives takes the growing segment along."""

    async def command(self: ArchiveRounds, each: ArchiveProposal, ready: Any) -> ArchiveCommand:
        log = self._parts.merging.partitions[each.partition].log
        files = [
            ArchivedSegment(one.base_offset, one.next_offset, one.size, -1, -1, -1, bytes(32))
            for one in log.segments()
        ]
        end = log.next_offset
        return ArchiveCommand(each.partition, end, end, log.checksum, 0, each.reason, files)

    with patch.object(ArchiveRounds, "_command", command):
        yield


@contextmanager
def archive_by_a_minority() -> Iterator[None]:
    """The leader archives what it alone has merged durably."""
    original = ArchiveRounds._facts_of

    def facts_of(self: ArchiveRounds, partition: Any, merged: int) -> PartitionFacts:
        log = self._parts.merging.partitions[partition.number].log
        return replace(original(self, partition, merged), merged=log.durable_offset)

    with patch.object(ArchiveRounds, "_facts_of", facts_of):
        yield


@contextmanager
def truncate_what_is_kept() -> Iterator[None]:
    """A node truncates one segment more than Raft says."""

    def not_truncated(fs: Any, directory: str, below: int) -> list[int]:
        bases = segment_bases(fs.list_directory(directory))
        kept = [base for base in bases if base >= below]
        return original_not_truncated(fs, directory, kept[1] if len(kept) > 2 else below)

    with patch.object(node_archive, "not_truncated", not_truncated):
        yield


@contextmanager
def forget_the_copies() -> Iterator[None]:
    """Subscribers' copies are not truncated."""

    async def truncate(self: CopyUpkeep) -> None:
        self._archived.clear()

    with patch.object(CopyUpkeep, "truncate", truncate):
        yield


@contextmanager
def wait_for_what_is_archived() -> Iterator[None]:
    """A log that ends before what is kept waits for what is gone."""
    original = MergedLog.archive

    def archive(self: MergedLog, start: LogStart) -> None:
        if start.segment <= self.next_offset:
            original(self, start)

    with patch.object(MergedLog, "archive", archive):
        yield


@contextmanager
def archive_what_is_not_copied() -> Iterator[None]:
    """What could not be copied is archived all the same."""

    def ready(self: ArchiveRounds, number: int, segments: list[Segment]) -> list[Any]:
        return [(segment, None) for segment in segments]

    with patch.object(ArchiveRounds, "_ready", ready):
        yield


@contextmanager
def believe_what_was_written() -> Iterator[None]:
    """A copy is not read back before it counts."""

    def checked(self: copying._SegmentCopies, kind: str, progress: Any) -> CopiedFile:
        return self._uploads[kind].file

    with patch.object(copying._SegmentCopies, "_checked", checked):
        yield


@contextmanager
def believe_what_is_there() -> Iterator[None]:
    """A file that an earlier attempt has left is taken for a copy."""
    original = copying.copy_segment

    def copy(fs: Any, target: Any, job: CopyJob, **how: Any) -> Manifest:
        if target.open(job.log.file("segments", job.base)) is None:
            return original(fs, target, job, **how)
        zeros = "00" * 32
        facts: dict[str, Any] = {
            "begin_checksum": job.begin_checksum,
            "end_checksum": job.end_checksum,
            "first_offset": job.base,
            "next_offset": job.next_offset,
            "size": job.size,
            **dict.fromkeys(("first_ms", "last_ms", "copied_ms"), 0),
        }
        made = Manifest(log=job.log, sha256=zeros, files={}, **facts)
        copying.write_file(target, job.log.manifest(job.base), encode_manifest(made))
        return made

    with patch.object(copying, "copy_segment", copy):
        yield


ARCHIVING = (
    archive_the_active_file,
    archive_by_a_minority,
    truncate_what_is_kept,
    forget_the_copies,
    wait_for_what_is_archived,
    archive_what_is_not_copied,
    believe_what_was_written,
    believe_what_is_there,
)
