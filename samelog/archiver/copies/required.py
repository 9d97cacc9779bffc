"""Which segments the leader has to copy before it archives them, as topics and its configuration
say.

Records that were deleted are not copied: whoever deletes wants them gone.

Invariant: what is to be copied is archived only with a verified copy; where nobody has said where
to, it is not archived at all.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from samelog.admin.answers import CopyProgress
from samelog.archiver.copies.manifests import CopiedLog, CopyJob, Manifest, formats_of
from samelog.archiver.copies.queue import CopyQueue
from samelog.archiver.copies.value_schema import VALUE_SCHEMA
from samelog.archiver.parts import ArchiverParts
from samelog.archiver.plan import ArchiveProposal
from samelog.format.file_names import LOG, segment_name
from samelog.format.segment import Segment


class RequiredCopies:
    """One node's copies before archiving."""

    def __init__(self, parts: ArchiverParts, *, on_copied: Callable[[], None]) -> None:
        """`on_copied` is told when one more segment has a verified copy."""
        self._machine = parts.machine
        self._merging = parts.merging
        self._cluster = parts.config.cluster
        self._config = parts.config.archive
        chance = random.Random(parts.config.name)
        self.queue = CopyQueue(parts.copier, parts.clock, chance, on_copied=on_copied)
        self._without_target: list[str] = []

    def require(self, proposed: Sequence[tuple[ArchiveProposal, list[Segment]]]) -> None:
        """A round's proposals, each with the segments that it would archive now."""
        self._without_target = []
        jobs = [job for each, segments in proposed for job in self._jobs(each, segments)]
        self.queue.replace_jobs(jobs)

    def _jobs(self, each: ArchiveProposal, segments: list[Segment]) -> list[CopyJob]:
        found = [self.job_of(each.partition, one) for one in segments]
        jobs = [job for job in found if job is not None]
        if jobs and self.target is None:
            self._without_target.append(each.name)
            return []
        return jobs

    def job_of(self, number: int, segment: Segment) -> CopyJob | None:
        """How a segment is to be copied before it may go; None: not at all."""
        state = self._machine.state
        partition = state.partitions[number]
        topic = state.topics[partition.topic_id]
        formats = formats_of(topic.settings, self._config.copy_formats)
        if not formats or segment.next_offset <= partition.log_start:
            return None
        log = self._merging.partitions[number].log
        begin, end = log.checksums(segment.base_offset)
        return CopyJob(
            url=self.target or "",
            path=os.path.join(log.path, segment_name(segment.base_offset, LOG)),
            log=CopiedLog(self._cluster, topic.name, topic.log_id, partition.index),
            base=segment.base_offset,
            next_offset=segment.next_offset,
            size=segment.size,
            last_ms=segment.max_timestamp,
            begin_checksum=begin,
            end_checksum=-1 if end is None else end,
            formats=formats,
            value_schema=topic.settings.get(VALUE_SCHEMA, ""),
        )

    def copy_of(self, job: CopyJob) -> Manifest | None:
        """Its verified copy; None: there is none (yet)."""
        return self.queue.copy_of(job)

    @property
    def target(self) -> str | None:
        """Where copies are made; None: nowhere."""
        return self._config.copy_to

    @property
    def trouble(self) -> str:
        """Why segments that are to be copied are not; empty if nothing is wrong."""
        names = ", ".join(self._without_target)
        nowhere = f"{names}: to be copied, but copy_to is not configured here" if names else ""
        return "; ".join(filter(None, [nowhere, self.queue.trouble]))

    @property
    def progress(self) -> str:
        """What is being copied, in words; empty: nothing."""
        found = self.queue.state("")
        if not found.file:
            return ""
        percent = 100 * found.done_bytes // max(1, found.total_bytes)
        return f"copies before archiving: {found.file}, {percent} %; {found.waiting} wait"

    def state(self) -> CopyProgress:
        """The state of copying, for an operator."""
        found = self.queue.state(self.target or "")
        return replace(found, problem=self.trouble[:500])
