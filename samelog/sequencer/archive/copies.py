"""Which segments the leader has to copy before it archives them, as topics and its configuration
say.

Records that were deleted are not copied: whoever deletes wants them gone.

Invariant: what is to be copied is archived only with a verified copy; where nobody has said where
to, it is not archived at all.
"""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from typing import TYPE_CHECKING

from samelog.archiver.copies import CopyJob, Manifest, Place, formats_of
from samelog.archiver.plan import Proposal
from samelog.archiver.value_schema import VALUE_SCHEMA
from samelog.format.file_names import LOG, segment_name
from samelog.format.segment import Segment
from samelog.sequencer.archive.copy_queue import CopyQueue
from samelog.sequencer.host import Host
from samelog.wire.admin_archive import CopyState

if TYPE_CHECKING:
    from samelog.sequencer.node import Node


class Copies:
    """One node's copies."""

    def __init__(self, node: Node, host: Host) -> None:
        self._node = node
        self._config = node.config.archive
        self.queue = CopyQueue(host.new_copier(), node.clock, random.Random(node.config.name))
        self._without_target: list[str] = []

    def want(self, taken: Sequence[tuple[Proposal, list[Segment]]]) -> None:
        """A round's proposals, each with the segments that it would archive now."""
        self._without_target = []
        jobs = [job for each, segments in taken for job in self._jobs(each, segments)]
        self.queue.want(jobs)

    def _jobs(self, each: Proposal, segments: list[Segment]) -> list[CopyJob]:
        found = [self.job_of(each.partition, one) for one in segments]
        jobs = [job for job in found if job is not None]
        if jobs and self._config.copy_to is None:
            self._without_target.append(each.name)
            return []
        return jobs

    def job_of(self, number: int, segment: Segment) -> CopyJob | None:
        """How a segment is to be copied before it may go; None: not at all."""
        state = self._node.replica.machine.state
        partition = state.partitions[number]
        topic = state.topics[partition.topic_id]
        formats = formats_of(topic.settings, self._config.copy_formats)
        if not formats or segment.next_offset <= partition.log_start:
            return None
        log = self._node.merging.partitions[number].log
        begin, end = log.checksums(segment.base_offset)
        return CopyJob(
            url=self._config.copy_to or "",
            path=os.path.join(log.path, segment_name(segment.base_offset, LOG)),
            place=Place(self._node.config.cluster, topic.name, topic.log_id, partition.index),
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

    def state(self) -> CopyState:
        """For an operator."""
        found = self.queue.state(self._config.copy_to or "")
        return found._replace(problem=self.trouble[:500])
