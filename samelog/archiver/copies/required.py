"""Which segments the leader has to copy before it archives them, as topics and its configuration
say.

Records that were deleted are not copied: whoever deletes wants them gone.

They are copied one after the other. A target that fails holds everything back that is to be copied
to it, and is tried again ever more rarely; a segment that cannot be read holds its own partition
back. Nothing here is remembered across a change of the leader: the next one finds the copies that
are there.

Invariant: what is to be copied is archived only with a verified copy; where nobody has said where
to, it is not archived at all.
Also: a segment is said to be copied only after its copy was read back.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
from bisect import bisect_right
from collections.abc import Callable, Sequence
from contextlib import suppress
from operator import itemgetter
from typing import NamedTuple

from msgspec.structs import replace

from samelog.admin.answers import CopyProgress
from samelog.archiver.copies.manifests import (
    SEGMENTS,
    CopiedLog,
    CopyFault,
    CopyJob,
    Manifest,
    SegmentSchemas,
    SourceFault,
    formats_of,
)
from samelog.archiver.copies.process import SegmentCopier
from samelog.archiver.copies.value_schema import VALUE_SCHEMA
from samelog.archiver.parts import ArchiverParts, PartitionView, StateView
from samelog.archiver.plan import ArchiveProposal
from samelog.format.file_names import LOG, segment_name
from samelog.format.segment import Segment
from samelog.runtime.backoff import Backoff
from samelog.runtime.clock import Clock
from samelog.runtime.flag import Flag
from samelog.runtime.log import log_event

log = logging.getLogger(__name__)

RETRY_S, RETRY_MOST_S = 1.0, 60.0
LEAST_WAIT_S = 0.01
TEXT_CHARACTERS = 500
_TARGET = ""
"""Stands for the target among the paths of what has failed."""


class _Failure(NamedTuple):
    until: float
    why: str


class CopyQueue:
    """One node's copying; only the leader asks for any."""

    def __init__(
        self,
        copier: SegmentCopier,
        clock: Clock,
        rng: random.Random,
        *,
        on_copied: Callable[[], None],
    ) -> None:
        """`on_copied` is told when one more segment has a verified copy."""
        self._copier = copier
        self._clock = clock
        self._on_copied = on_copied
        self._done: dict[CopyJob, Manifest] = {}
        self._waiting: list[CopyJob] = []
        self._current: CopyJob | None = None
        self._running: asyncio.Task[None] | None = None
        self._read = 0
        self._copied = 0
        self._wake = Flag()
        self._backoff = Backoff(rng, base_s=RETRY_S, maximum_s=RETRY_MOST_S)
        self._failed: dict[str, _Failure] = {}
        """Until when not to try again: a segment, by its path, or the target."""

    # --- what is asked for ------------------------------------------------------------------------

    def replace_jobs(self, jobs: Sequence[CopyJob]) -> None:
        """These are to be copied, in this order, and nothing else any more."""
        self._done = {job: self._done[job] for job in jobs if job in self._done}
        self._waiting = [job for job in jobs if job not in self._done and job != self._current]
        if self._current is not None and self._current not in jobs and self._running is not None:
            self._running.cancel()
        self._forget_failures({job.path for job in jobs})
        self._wake.set()

    def _forget_failures(self, wanted: set[str]) -> None:
        """Keep what is known of the target and these segments; nothing if there are none."""
        if not wanted:
            self._failed.clear()
            self._backoff.reset()
        for path in self._failed.keys() - wanted - {_TARGET}:
            del self._failed[path]

    def copy_of(self, job: CopyJob) -> Manifest | None:
        """The verified copy of a segment; None: there is none (yet)."""
        return self._done.get(job)

    @property
    def is_due(self) -> bool:
        """Whether anything is being copied, or waits for it."""
        return self._current is not None or bool(self._waiting)

    @property
    def trouble(self) -> str:
        """Why copying waits; empty if it does not."""
        return "; ".join(each.why for each in self._failed.values())

    def state(self, target: str) -> CopyProgress:
        """The state of copying, for an operator."""
        job, why, counts = self._current, self.trouble, (self._copied, len(self._waiting))
        if job is None:
            return CopyProgress(target, *counts, problem=why[:TEXT_CHARACTERS])
        total = job.size * (1 + len(job.formats))  # a copy is read back, and rarely larger
        read, file = min(self._read, total), job.log.file(SEGMENTS, job.base)
        return CopyProgress(target, *counts, file, read, total, why[:TEXT_CHARACTERS])

    # --- copying ----------------------------------------------------------------------------------

    async def run(self) -> None:
        """Until cancelled."""
        try:
            while True:
                self._wake.clear()
                job = self._next()
                if job is None:
                    await self._pause()
                else:
                    await self._copy(job)
        finally:
            if self._running is not None:
                self._running.cancel()
                await asyncio.gather(self._running, return_exceptions=True)
            await self._copier.close()

    def _is_held(self, path: str) -> bool:
        failed = self._failed.get(path)
        return failed is not None and self._clock.now() < failed.until

    def _next(self) -> CopyJob | None:
        if self._is_held(_TARGET):
            return None
        held = {job.log for job in self._waiting if self._is_held(job.path)}
        return next((job for job in self._waiting if job.log not in held), None)

    async def _pause(self) -> None:
        """Until something new is wanted, or something is to be tried again."""
        if not self._waiting:
            await self._copier.close()
        held = [each.until for path, each in self._failed.items() if self._is_held(path)]
        left: float | None = None
        if held and self._waiting:
            left = max(LEAST_WAIT_S, min(held) - self._clock.now())
        with suppress(TimeoutError):
            async with asyncio.timeout(left):
                await self._wake.wait()

    async def _copy(self, job: CopyJob) -> None:
        self._waiting.remove(job)
        self._current, self._read = job, 0
        self._running = asyncio.create_task(self._do(job))
        await asyncio.wait([self._running])
        ended, self._current, self._running = self._running, None, None
        if not ended.cancelled():  # it is when it is not wanted any more
            ended.result()

    async def _do(self, job: CopyJob) -> None:
        try:
            manifest = await self._copier.copy(job, self._advanced)
        except CopyFault as fault:
            self._fails(job, fault)
            return
        self._done[job] = manifest
        self._copied += 1
        for path in (_TARGET, job.path):
            self._failed.pop(path, None)
        self._backoff.reset()
        log_event(log, logging.INFO, "segment copied", file=job.path, to=job.url)
        self._on_copied()

    def _advanced(self, read: int) -> None:
        self._read = read

    def _fails(self, job: CopyJob, fault: CopyFault) -> None:
        """Keep the segment, and try again later."""
        is_source = isinstance(fault, SourceFault)
        delay_s = RETRY_MOST_S if is_source else self._backoff.next_delay_s()
        at = job.path if is_source else _TARGET
        self._failed[at] = _Failure(self._clock.now() + delay_s, str(fault))
        self._waiting.insert(0, job)
        again = f"{delay_s:.1f} s"
        what = "not copied, so not archived"
        log_event(log, logging.ERROR, what, file=job.path, error=fault, again_in=again)


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
        partition = state.partitions.by_number[number]
        topic = state.topics.by_id[partition.topic_id]
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
            schemas=schemas_of(state, partition, segment),
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


def schemas_of(state: StateView, partition: PartitionView, segment: Segment) -> SegmentSchemas:
    """What its records were written with. Newer versions change nothing: the segment is sealed, and
    who marks a record with a version has seen it in force.
    """
    since = [pair for pair in partition.schema_since if pair[0] < segment.next_offset]
    if not since:
        return SegmentSchemas()
    at_base = bisect_right(since, segment.base_offset, key=itemgetter(0)) - 1
    texts = state.schema_texts(partition.topic_id, since[-1][1])
    return SegmentSchemas(texts, tuple(since[max(0, at_base) :]))
