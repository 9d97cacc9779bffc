"""Copies merged bytes from peers: what a partition that stalls, for want of session bytes or behind
an installed snapshot, needs to go on.

What is copied is decided in `plan`. A copy is one stream: the peer sends ahead as much as its
window holds, and this node appends what comes and tells what it took, no faster than `[node]
recovery_bytes_per_s`. The merger goes on meanwhile wherever it can; what it was faster with is
dropped from the stream.

Invariant: what is copied is appended only where the log ends and only up to what this node knows to
be committed, after its CRCs and offsets were checked; its running checksum is compared with the
newest one that a majority agreed on.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from samelog.format import _kernels as kernels
from samelog.format.batch import HELD_BATCH_BYTES
from samelog.format.compaction import segment_at
from samelog.format.errors import CorruptLog, LogFormatError
from samelog.replicator.pull.acknowledger import Budget
from samelog.replicator.pull.repair_pull import MergedName, PullSink
from samelog.runtime.clock import Clock
from samelog.runtime.errors import RuntimeFault
from samelog.runtime.log import log_event
from samelog.runtime.loop import end_all
from samelog.sequencer.cluster.repair.compacted import begin_next, place_to_cut
from samelog.sequencer.cluster.repair.plan import CopyOrder, CopyPlan, Lack
from samelog.sequencer.ingest.peer_pulls import PeerPulls
from samelog.sequencer.ingest.room import Room
from samelog.sequencer.merge.merged_partition import MergedPartition
from samelog.sequencer.merge.merging import Merging
from samelog.sequencer.state.machine import StateMachine
from samelog.store.disk.disk_errors import NoSpace
from samelog.store.merged.lost_records import append_spare
from samelog.wire.bounds import METADATA_GROUP
from samelog.wire.errors import ProtocolFault
from samelog.wire.messages import NO_BATCH
from samelog.wire.receiver import ResumePoint

log = logging.getLogger(__name__)

MANY_RECORDS = 10_000
"""Copying fewer is not worth a line of the log."""


class MergedPull(Protocol):
    """A way to merged logs of one member."""

    async def merged(
        self,
        name: MergedName,
        start: ResumePoint,
        sink: PullSink,
        *,
        budget: Budget | None = None,
        number: int = 0,
    ) -> bool:
        """See RepairPull."""


class OtherGroups(Protocol):
    """Members of another group, from which a partition is on its way into this one."""

    def members(self, number: int) -> Sequence[int]:
        """Who has a partition; empty if it is not on its way, or known to be here."""

    def group(self, number: int) -> int:
        """The group that a partition comes from."""

    def pull(self, member: int) -> MergedPull | None:
        """The way to one of them, which may be this member itself; None: there is none now."""


class NowhereElse:
    """Of group 0, into which no partition moves. Implements OtherGroups."""

    def members(self, number: int) -> Sequence[int]:
        """Nobody."""
        return ()

    def group(self, number: int) -> int:
        """No partition comes."""
        return METADATA_GROUP

    def pull(self, member: int) -> MergedPull | None:
        """None."""
        return None


NOWHERE = NowhereElse()


class CopyDiffers(LogFormatError):
    """What a peer gives is whole, but not what a majority has."""


class MergedRepair:
    """One node's copying of merged bytes."""

    def __init__(
        self,
        pulls: PeerPulls,
        *,
        machine: StateMachine,
        merging: Merging,
        clock: Clock,
        ask: Callable[[], list[int]],
        room: Room,
        budget: Budget,
        elsewhere: OtherGroups,
    ) -> None:
        """`ask` names the peers to ask, the leader first; `room`: of this node's disk; `budget`: of
        all copies together.
        """
        self._elsewhere = elsewhere
        self._pulls = pulls
        self._budget = budget
        self._machine = machine
        self._merging = merging
        self._clock = clock
        self._ask = ask
        self._room = room
        self._plan = CopyPlan()
        self._to_look_at: set[int] = set()
        self._busy: set[asyncio.Task[None]] = set()

    @property
    def is_busy(self) -> bool:
        """Whether a partition may lack something."""
        return bool(self._to_look_at or self._busy)

    @property
    def waits_since_ms(self) -> int | None:
        """The append time of the oldest instruction that waits for bytes here; None: none does."""
        waiting = [self._merging.partitions.get(number) for number in self._to_look_at]
        first = (next(iter(each.merger.pending), None) for each in waiting if each is not None)
        return min((merge.append_ms for merge in first if merge is not None), default=None)

    @property
    def lacks(self) -> int:
        """How many records this node knows to be merged, and does not have."""
        found = filter(None, map(self._lack, self._to_look_at))
        return sum(lack.known - lack.end for lack in found)

    def look_at(self, number: int) -> None:
        """A partition may lack something."""
        self._to_look_at.add(number)

    def tick(self) -> None:
        """Start the copies that are due; to be called some times a second."""
        now = self._clock.now()
        for number in tuple(self._to_look_at):
            lack = self._lack(number)
            self._plan.note(number, lack, now)
            if lack is None:
                self._to_look_at.discard(number)
        if self._to_look_at and self._room.stopped is None:
            for order in self._plan.next(self._ask(), now):
                name = f"copy partition {order.partition}"
                task = asyncio.create_task(self._copy(order), name=name)
                self._busy.add(task)
                task.add_done_callback(self._busy.discard)

    def _lack(self, number: int) -> Lack | None:
        """What a partition needs from a peer; None if it needs nothing."""
        partition = self._merging.partitions.get(number)
        if partition is None or partition.fault is not None:
            return None
        first = next(iter(partition.merger.pending), None)
        known = self._machine.state.partitions.by_number[number].next_offset
        end, goal = partition.log.next_offset, known if first is None else first.base_offset
        if end >= goal:
            missing = partition.merger.missing
            goal = 0 if missing is None else missing.offset
        return Lack(end, goal, known) if end < goal else None

    async def _copy(self, order: CopyOrder) -> None:
        """An entry that removes the partition may be applied before the copy begins."""
        number, partition = order.partition, self._merging.partitions.get(order.partition)
        if partition is None:
            self._plan.ended(number, 0, self._clock.now(), failed=False)
            return
        failed = False
        try:
            await self._copy_from(order.peer, number, partition)
        except (RuntimeFault, ProtocolFault, LogFormatError) as error:
            log_event(log, logging.INFO, "copying failed", partition=_name(partition), error=error)
            failed = True
            if isinstance(error, CopyDiffers) and order.peer is not None:
                self._plan.distrust(number, order.peer)
        self._plan.ended(number, partition.log.next_offset, self._clock.now(), failed=failed)
        if self.has_given_up(number):
            await self._take_spares(number, partition)
        self._to_look_at.add(number)  # what it lacks now, if anything, is for the next look
        self.tick()

    async def _copy_from(self, peer: int | None, number: int, partition: MergedPartition) -> None:
        pull: MergedPull | None = None if peer is None else self._pulls.get(peer)
        if members := self._elsewhere.members(number):
            peer = members[self._plan.fruitless(number) % len(members)]
            pull = self._elsewhere.pull(peer)
        if pull is None or peer is None:
            return
        first, until = (
            partition.log.next_offset,
            self._machine.state.partitions.by_number[number].next_offset,
        )
        log_event(
            log,
            logging.INFO if until - first >= MANY_RECORDS else logging.DEBUG,
            "copying merged bytes",
            partition=_name(partition),
            first=first,
            until=until,
            member=peer,
        )
        stream = MergedName(partition.topic, partition.topic_id, partition.index)
        sink = MergedSink(self._machine, self._merging, number, partition, self._room)
        if not self._takes_compacted(number, partition):
            return
        place, compaction = _end_of(partition), partition.log.number_of(partition.log.end()[0])
        await pull.merged(stream, place, sink, budget=self._budget, number=compaction)

    def _takes_compacted(self, number: int, partition: MergedPartition) -> bool:
        """Prepare for segments that the cluster has compacted; False: the log had to be reopened.
        Raises LogFormatError.
        """
        segments = self._machine.state.partitions.by_number[number].compactions.segments
        place = place_to_cut(partition.log, segments)
        if place is None:
            try:
                begin_next(partition.log, segments)
                return True
            except CorruptLog:
                copied = partition.log.generations.copied
                if copied is None:
                    raise
                place = copied.base
        partition.log.cut_back(place)
        reason = f"the cluster compacted it, from offset {place} on"
        self._merging.reopen(number, reason, level=logging.INFO)
        return False

    # --- what nobody has --------------------------------------------------------------------------

    def has_given_up(self, number: int) -> bool:
        """Whether every peer that could be asked was, and none has what a partition needs next."""
        is_asked_elsewhere = bool(self._elsewhere.members(number))
        return not is_asked_elsewhere and self._plan.fruitless(number) > len(self._ask())

    def wanted(self, number: int) -> int:
        """The offset up to which records are missing that nobody has who could be asked; 0: none
        are missed for good.
        """
        lack = self._lack(number) if self.has_given_up(number) else None
        if lack is None:
            return 0
        spares = self._merging.partitions[number].log.spares
        return min(lack.goal, spares.next_after(lack.end) or lack.goal)

    async def _take_spares(self, number: int, partition: MergedPartition) -> None:
        """No peer has what comes next: perhaps this node set it aside behind a damaged batch."""
        for _ in partition.log.spares.read_new():
            await asyncio.sleep(0)
        first = partition.log.next_offset
        while (lack := self._lack(number)) is not None and append_spare(partition.log):
            self._merging.copied(number)
            await asyncio.sleep(0)
            first = min(first, lack.end)
        if partition.log.next_offset > first:
            log.warning(
                "%s: records %d to %d come from files that were set aside as damaged",
                _name(partition),
                first,
                partition.log.next_offset - 1,
            )

    async def close(self) -> None:
        """End every copy."""
        await end_all(self._busy)


def _name(partition: MergedPartition) -> str:
    return f"{partition.topic}-{partition.index}"


def _end_of(partition: MergedPartition) -> ResumePoint:
    """Where the merged log ends here, and the batch before that."""
    segment, byte = partition.log.end()
    last = partition.log.last_batch()
    if last is None or last[0] != segment:
        return ResumePoint(segment, byte, NO_BATCH, 0)
    return ResumePoint(segment, byte, last[1], last[2])


@dataclass(slots=True)
class MergedSink:
    """Appends copied bytes; instructions that they cover are skipped."""

    machine: StateMachine
    merging: Merging
    number: int
    partition: MergedPartition
    room: Room

    def on_data(self, file: int, byte: int, data: memoryview) -> None:
        """A piece; of which the merger may have written a part meanwhile. Raises NoSpace."""
        merged = self.partition.log
        if self._is_gone() or self._begins_compacted(file):
            return
        segment, end = merged.end()
        if (file, byte + len(data)) <= (segment, end):
            return
        if file == segment and byte < end:
            byte, data = end, data[end - byte :]
        data = self._committed(data)
        if not data:
            return
        if not self.room.take_copy(len(data)):
            raise NoSpace(_name(self.partition), "copy merged bytes", errno.ENOSPC)
        first, checksum = merged.next_offset, merged.checksum
        merged.append_copy(file, byte, data)
        self.merging.copied(self.number)
        if byte == 0:  # behind a compacted segment it is not that of the bytes that were copied
            checksum = merged.checksums(file)[0]
        self._compare(first, checksum, data)

    def _begins_compacted(self, file: int) -> bool:
        """Whether this is of a segment that was compacted: that is asked for as such."""
        segments = self.machine.state.partitions.by_number[self.number].compactions.segments
        found = segment_at(segments, file)
        number = 0 if found is None else found.number
        return number != self.partition.log.number_of(file)

    def _committed(self, data: memoryview) -> memoryview:
        """The batches that this node knows to be committed: the peer may know of more."""
        left = self._known() - self.partition.log.next_offset
        scan = kernels.scan(data, verify_crc=False, max_batch_bytes=HELD_BATCH_BYTES)
        return data if scan.records <= left else data[: _size_of(data, left)]

    def _known(self) -> int:
        return self.machine.state.partitions.by_number[self.number].next_offset

    def _compare(self, first: int, checksum: int, data: memoryview) -> None:
        """If the piece reaches over the offset of the newest agreed checksum: is that ours, too?"""
        agreed = self.machine.state.partitions.by_number[self.number]
        is_in = first < agreed.checked_offset <= self.partition.log.next_offset
        is_compacted = self.partition.log.generations.copied is not None
        if agreed.checked_sum is None or not is_in or is_compacted:
            return
        size = _size_of(data, agreed.checked_offset - first)
        own = kernels.crc32c(data[:size], checksum)
        self.partition.merger.samples[agreed.checked_offset] = own
        self.merging.compare([(self.number, agreed.checked_offset, agreed.checked_sum)])
        if own != agreed.checked_sum:
            raise CopyDiffers(f"it differs from the majority below offset {agreed.checked_offset}")

    def on_sealed(self, file: int, length: int, next_file: int) -> None:
        """The next segment begins with its first bytes."""

    def has_enough(self) -> bool:
        """Whether all is here that the cluster has merged, or the copy is not wanted any more."""
        end = self.partition.log.next_offset
        return self._is_gone() or end >= self._known() or self._begins_compacted(end)

    def _is_gone(self) -> bool:
        """The topic was deleted, or its log restarted or halted."""
        is_held = self.merging.partitions.get(self.number) is self.partition
        return not is_held or self.partition.fault is not None


def _size_of(data: memoryview, records: int) -> int:
    """The bytes of the first batches, which have so many records."""
    size = 0
    for header in kernels.batch_headers(data, 0, len(data)):
        if records <= 0:
            break
        size, records = header[0] + header[1], records - header[2]
    return size
