"""The leader's rounds of archiving: gathers what a majority reports, plans, proposes.

Time, too, is what a majority's clocks have reached, so that one wrong clock archives nothing; and
a disk counts as full only when a majority's are.

Invariant: only the leader proposes, and only what `archiver.plan` says of what a majority has
merged durably, and of that what is to be copied only with a verified copy.
Also: the policy is the member's, so a group plans for its share of it.
"""

from __future__ import annotations

import asyncio
import logging
import os
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from contextlib import suppress

import msgspec

from samelog.archiver.command import ArchiveCommand, ArchivedSegment
from samelog.archiver.compaction import CompactCommand
from samelog.archiver.copies.manifests import FORMATS, Manifest, formats_of
from samelog.archiver.copies.required import RequiredCopies
from samelog.archiver.parts import ArchiverParts, PartitionLog, PartitionView
from samelog.archiver.plan import (
    DISK,
    LIMIT,
    ArchiveProposal,
    Hold,
    PartitionFacts,
    RolledSegment,
    RoundPlan,
    majority_pressure,
    plan_archiving,
)
from samelog.archiver.policy import (
    CLEANUP_POLICY,
    Rules,
    hold_of,
    is_compacted,
    rules_of,
)
from samelog.archiver.shares import GroupBytes
from samelog.consensus import Busy, NotLeader
from samelog.format.errors import LogFormatError
from samelog.format.file_names import LOG, segment_name
from samelog.format.segment import Segment
from samelog.runtime.flag import Flag
from samelog.runtime.log import log_event
from samelog.store.merged.truncation import describe_segment

log = logging.getLogger(__name__)

FILES_AT_ONCE = 256
"""Of one partition in one entry."""


class ArchiveRounds:
    """One node's rounds; only the leader's do anything."""

    def __init__(self, parts: ArchiverParts, copies: RequiredCopies, due: Flag) -> None:
        """`due` is set when a round is to begin at once."""
        self._parts = parts
        self._policy = parts.policy
        self._copies = copies
        self._due = due
        self._next_at = parts.clock.now() + parts.config.archive.interval_s
        self.held: list[str] = []
        """Partitions of which the last round left something to the groups that hold it."""
        self._held_up: set[int] = set()
        """Partitions of which the last round would have archived something, and which were being
        compacted.
        """

    def start_soon(self) -> None:
        """Begin a round now: there is something to do."""
        self._due.set()

    def comes_first(self, partition: int) -> bool:
        """Return whether archiving has waited for a compaction of a partition. Then a round begins
        now, and the next compaction follows it.
        """
        is_held_up = partition in self._held_up
        if is_held_up:
            self.start_soon()
        return is_held_up

    async def run(self) -> None:
        """A round every now and then, until cancelled."""
        while True:
            left_s = max(0.0, self._next_at - self._parts.clock.now())
            with suppress(TimeoutError):  # wait_for would lose a cancellation to a wake-up
                async with asyncio.timeout(left_s):
                    await self._due.wait()
            with self._parts.at_work:
                await self._look()

    async def _look(self) -> None:
        self._next_at = self._parts.clock.now() + self._parts.config.archive.interval_s
        self._due.clear()
        self.held = []
        self._held_up = set()
        if self._parts.replication.is_leader:
            await self.round()
        else:
            self._note_bytes()
            self._copies.require([])

    async def round(self) -> None:
        """Archive what is to go now. What cannot be read is not archived."""
        found = self.plan()
        self.held = found.held
        self._held_up = {each.partition for each in found.proposals if self._order_of(each)}
        free = [each for each in found.proposals if not self._waits(each)]
        taken = [(each, self._segments(each)) for each in free]
        self._copies.require(taken)
        for each, segments in taken:
            try:
                command = await self._command(each, self._ready(each.partition, segments))
                if command is not None:
                    self._parts.replication.propose(command)
            except LogFormatError as error:
                log_event(log, logging.ERROR, "not archived", partition=each.name, error=error)
            except (NotLeader, Busy):
                return  # the next round finds them again

    def _waits(self, each: ArchiveProposal) -> bool:
        """Whether it is being compacted, and that goes on. What is needed at once goes before."""
        order = self._order_of(each)
        progress = self._parts.merging.partitions[each.partition].compaction
        if order is None or progress is None or {LIMIT, DISK} & set(each.reason.split("+")):
            return False
        return progress.goes_on(order.number, self._parts.clock.now())

    def _order_of(self, each: ArchiveProposal) -> CompactCommand | None:
        """Return the compaction that is under way."""
        return self._parts.machine.state.partitions.by_number[each.partition].compactions.order

    def _segments(self, each: ArchiveProposal) -> list[Segment]:
        """The oldest of the files that are proposed, not too many at once."""
        merged = self._parts.merging.partitions[each.partition]
        segments = merged.log.segments()
        return [one for one in segments if one.next_offset <= each.segment][:FILES_AT_ONCE]

    def _ready(self, number: int, segments: list[Segment]) -> list[tuple[Segment, Manifest | None]]:
        """Those that may go, up to the first one that is to be copied and is not; with the copy."""
        ready: list[tuple[Segment, Manifest | None]] = []
        for segment in segments:
            job = self._copies.job_of(number, segment)
            copy = None if job is None else self._copies.copy_of(job)
            if job is not None and copy is None:
                break
            ready.append((segment, copy))
        return ready

    async def _command(
        self, each: ArchiveProposal, ready: list[tuple[Segment, Manifest | None]]
    ) -> ArchiveCommand | None:
        """Archive these files; None: there are none, or they are gone already."""
        merged = self._parts.merging.partitions.get(each.partition)
        if not ready or merged is None or each.first != merged.log.log_start.segment:
            return None
        files = [await self._file(each, merged, one, copy) for one, copy in ready]
        if len(files) == FILES_AT_ONCE:
            self.start_soon()  # there may be more
        end = files[-1].next_offset
        if merged.log.segment(end) is None:
            return None
        checksum, now_ms = merged.log.checksums(end)[0], self._parts.clock.wall_ms()
        archive = ArchiveCommand(each.partition, end, end, checksum, now_ms, each.reason, files)
        return self._with_copies(archive, [copy for _, copy in ready if copy is not None])

    def _with_copies(self, archive: ArchiveCommand, copies: list[Manifest]) -> ArchiveCommand:
        """The command, saying also where the copies are and in which formats."""
        url = self._copies.target
        if not copies or url is None:
            return archive
        formats = [kind for kind in FORMATS if all(kind in copy.files for copy in copies)]
        return msgspec.structs.replace(archive, copy_url=url, copy_formats=formats)

    async def _file(
        self, each: ArchiveProposal, merged: PartitionLog, segment: Segment, copy: Manifest | None
    ) -> ArchivedSegment:
        """Raises LogFormatError."""
        path = os.path.join(merged.log.path, segment_name(segment.base_offset, LOG))
        if copy is None:
            work = describe_segment, self._parts.fs, path, segment.size
            first_ms, sha256 = await self._parts.in_thread(*work)
        else:
            first_ms, sha256 = copy.first_ms, bytes.fromhex(copy.sha256)
        partition = self._parts.machine.state.partitions.by_number.get(each.partition)
        rolled = None if partition is None else rolled_ms(partition, segment)
        return ArchivedSegment(
            segment.base_offset,
            segment.next_offset,
            segment.size,
            first_ms,
            segment.max_timestamp,
            -1 if rolled is None else rolled,
            sha256,
            -1 if copy is None else copy.copied_ms,
        )

    def plan(self) -> RoundPlan:
        """What a round would do now."""
        policy, voters = self._policy.policy, self._parts.replication.voters
        health = [self._parts.cluster.health(number) for number in voters]
        known = [each for each in health if each is not None]
        limit, pressure = None, 0
        if policy is not None:
            self._note_bytes()
            disks = [(each.disk_used, each.disk_total) for each in known]
            limit = self._limit(policy.limit)
            pressure = self._pressure(majority_pressure(disks, len(voters), policy.disk))
        return plan_archiving(
            list(self._facts()),
            limit=limit,
            pressure=pressure,
            now_ms=self._parts.clock.wall_ms() if self._parts.clock.is_agreed else 0,
        )

    def _limit(self, limit: int | None) -> int | None:
        """This group's part."""
        parts = self._parts
        if limit is None:
            return None
        others = [parts.cluster.log_bytes(number) for number in parts.replication.voters]
        return parts.shares.limit_of(parts.group, limit, others)

    def _pressure(self, pressure: int) -> int:
        """This group's part."""
        return self._parts.shares.pressure_of(self._parts.group, pressure)

    def _note_bytes(self) -> None:
        """How much this group has here, so that all of the member's know their share."""
        if self._policy.policy is None:
            return
        state, limited, spared = self._parts.machine.state, 0, 0
        for number, here in self._parts.merging.partitions.items():
            partition = state.partitions.by_number.get(number)
            if partition is None or here.fault is not None:
                continue
            size = sum(segment.size for segment in here.log.segments())
            rules = self._rules(state.topics.by_id[partition.topic_id].settings)
            limited += size * rules.counts
            spared += size * (not rules.for_ever)
        self._parts.shares.note(self._parts.group, GroupBytes(limited, spared))

    def _facts(self) -> Iterator[PartitionFacts]:
        there = self._parts.merging.partitions
        merged = self._parts.cluster.majority_merged(there)
        for number in sorted(there):
            partition = self._parts.machine.state.partitions.by_number.get(number)
            if partition is not None and there[number].fault is None:
                yield self._facts_of(partition, merged.get(number, 0))

    def _facts_of(self, partition: PartitionView, merged: int) -> PartitionFacts:
        state = self._parts.machine.state
        topic = state.topics.by_id[partition.topic_id]
        segments = self._parts.merging.partitions[partition.number].log.segments()
        return PartitionFacts(
            partition.number,
            f"{topic.name}-{partition.index}",
            [
                RolledSegment(
                    each.base_offset, each.next_offset, each.size, rolled_ms(partition, each)
                )
                for each in segments
                if each.sealed
            ],
            segments[-1].size,
            merged,
            self._rules(topic.settings),
            self._hold(partition.number, topic.settings),
            partition.log_start,
        )

    def _rules(self, settings: Mapping[str, str]) -> Rules:
        """What counts. Compacted segments are not copied: while copies are required, they stay."""
        is_compact = is_compacted(settings.get(CLEANUP_POLICY, ""))
        if is_compact and formats_of(settings, self._parts.config.archive.copy_formats):
            return Rules(counts=False, for_ever=True)
        return rules_of(self._policy.policy, settings)

    def _hold(self, number: int, settings: Mapping[str, str]) -> Hold | None:
        rule = hold_of(settings)
        if rule is None:
            return None
        committed = self._parts.cluster.committed_offset
        lowest = min(committed(name, number) for name in rule.groups)
        return Hold(lowest, rule.max_ms, rule.max_bytes)


def rolled_ms(partition: PartitionView, segment: Segment) -> int | None:
    """When a segment was rolled, at the latest; None: not known."""
    at = bisect_left(partition.rolls, (segment.next_offset, -1))
    return partition.rolls[at][1] if at < len(partition.rolls) else None
