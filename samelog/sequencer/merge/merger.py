"""The merger: executes committed merge instructions, one queue for each partition.

Same instructions and same session bytes give the same merged bytes. The merged log is its own
applied index: what is already there, from before a restart or copied from a peer, is skipped, at
any batch. A range whose session bytes are missing or not those the leader planned (their digest
differs) stalls its partition only, until the bytes come.

Invariant: bytes are appended only for committed instructions, at exactly the offsets the
instruction names.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain, islice
from typing import Protocol

import msgspec

from samelog.format import _kernels as kernels
from samelog.format.batch import HELD_BATCH_BYTES, leave_out, max_timestamp, slice_batch
from samelog.format.errors import InvariantError
from samelog.format.positions import SessionPosition
from samelog.format.transactions import marker_batch
from samelog.sequencer.merge.checked_ranges import CheckedRanges
from samelog.sequencer.state.instructions import (
    NO_EXTRAS,
    End,
    Merge,
    MergeExtras,
    Mirrored,
    Range,
    Verdict,
    VoidRecordsCommand,
)
from samelog.store.merged.log import MergedLog
from samelog.store.merged.lost_records import append_void

SAMPLE_RECORDS = 4096
SAMPLES_KEPT = 64
_NONE_PENDING: deque[Merge] = deque()
"""Of every idle partition; never changed, since a deque of its own takes 0.7 KB."""


class RangeReader(Protocol):
    """Reads the session bytes that this node holds."""

    checked: CheckedRanges
    """Bytes of ranges that were found to have the range's digest."""

    def read_range(self, part: Range, *, from_file: bool = False) -> bytearray | None:
        """The range's bytes in a new buffer; None when this node does not hold all of them.
        `from_file`: what is in memory is not believed.
        """


@dataclass(frozen=True, slots=True)
class Missing:
    """Why a partition stalls: it needs `part` (None: offsets below `offset`, which only peers
    have).
    """

    partition: int
    offset: int
    """The merged log is needed up to here to go on without session bytes."""
    part: Range | None


class _Step(msgspec.Struct, frozen=True):
    """One range of the instruction in hand, or one marker, and the offsets its output takes."""

    part: Range | End
    base: int
    next: int


class PartitionMerger:
    """One partition's queue of committed instructions and the log they are executed into."""

    def __init__(self, number: int, log: MergedLog, reader: RangeReader) -> None:
        self.number = number
        self.log = log
        self.missing: Missing | None = None
        self.samples: dict[int, int] = {}
        """Offset -> running checksum, at the ends of some instructions, the same ones on every
        node.
        """
        self.to_sample: set[int] = set()
        """Offsets that the log has yet to reach, where the checksum is to be remembered too."""
        self.voids: dict[int, VoidRecordsCommand] = {}
        """By their first offset: records that void batches stand for."""
        self.newest_ms = 0
        """The newest timestamp of the first batch that was appended last."""
        self.pending = _NONE_PENDING
        """Instructions not executed, oldest first: part of every snapshot."""
        self._reader = reader
        self._waiting: dict[int, deque[Range]] = {}
        """Input -> its ranges in `pending`."""
        self._steps: list[_Step] = []
        self._stop = 0
        """Where the instruction at the head ends."""

    def enqueue(self, merge: Merge) -> None:
        """Take a committed instruction; they come in offset order. Between two may be offsets that
        no instruction ever had: those that a mirror's source has not, and which are void.
        """
        end = self.pending[-1].next_offset if self.pending else merge.base_offset
        if end != merge.base_offset and not self._leads_to(end, merge.base_offset):
            self._drop_executed(self.log.next_offset)  # an empty mirror may begin later
            if self.pending:
                raise InvariantError(
                    f"partition {self.number}: instruction out of order {merge.base_offset}"
                )
        if not self.pending:
            self.pending = deque()
        self.pending.append(merge)
        for part in merge.ranges:
            self._waiting.setdefault(part.input, deque()).append(part)
        if len(self.pending) == 1:
            self._begin()

    def _leads_to(self, end: int, base: int) -> bool:
        """Whether an instruction at `base` follows one that ends at `end`. Where it does so at
        once, a void may be of what it adds.
        """
        while end != base and (void := self.voids.get(end)) is not None:
            end = void.next_offset
        return end == base

    def starts(self, number: int) -> Iterable[SessionPosition]:
        """Where the ranges of an input start that instructions wait for, in its order: kept, and
        not looked for, because a node that was away has many thousand instructions to execute.
        """
        return map(_start_of, self._waiting.get(number, ()))

    def needed(self, number: int, run: int) -> SessionPosition | None:
        """From where on an input's bytes of a run are still to be executed; None: none are waited
        for. What the merged log holds already, from before a restart, needs none.
        """
        self._drop_executed(self.log.next_offset)
        ranges = (step.part for step in self._steps if isinstance(step.part, Range))
        head = [part for part in ranges if part.input == number]
        first = self.pending[0].ranges if self.pending else ()
        count = sum(part.input == number for part in first)
        waiting = chain(head, islice(self._waiting.get(number, ()), count, None))
        return next((_start_of(part) for part in waiting if part.run == run), None)

    def drop_pending(self) -> None:
        """Forget the queue: the node takes up a snapshot."""
        self.pending = _NONE_PENDING
        self._waiting.clear()
        self._steps.clear()
        self.missing = None

    def step(self) -> int:
        """Execute at most one range; the bytes it appended. 0 when there is nothing to do or bytes
        are missing. What is being copied as it was compacted goes on as such.
        """
        done, generations = self.log.next_offset, self.log.generations
        copied = generations.copied if generations.may_copy else None
        if copied is not None and done < copied.stop:
            self.missing = Missing(self.number, copied.stop, None)
            return 0
        void = self.voids.get(done)
        if void is not None:
            return self._fill(void)
        if not self._steps or self._steps[0].next <= done:
            self._drop_executed(done)
        if not self.pending:
            return 0
        if not self._steps:
            raise InvariantError(f"partition {self.number}: instruction without a step")
        return self._execute(self.pending[0], self._steps[0], done)

    def _fill(self, void: VoidRecordsCommand) -> int:
        self.missing = None
        return append_void(
            self.log,
            void.records,
            segment_base=void.segment,
            epoch=void.epoch,
            timestamp=void.timestamp,
        )

    def _begin(self) -> None:
        """Lay out the steps of the instruction at the head."""
        offset = self.pending[0].base_offset
        for part in self.pending[0].ranges:
            if part.records:
                self._steps.append(_Step(part, offset, offset + part.records))
                offset += part.records
        for end in (self.pending[0].extras or NO_EXTRAS).ends:
            self._steps.append(_Step(end, offset, offset + 1))
            offset += 1
        self._stop = offset

    def _drop_executed(self, done: int) -> None:
        """Leave behind what the merged log, which reaches to `done`, already holds."""
        while self.pending:
            while self._steps and self._steps[0].next <= done:
                del self._steps[0]
                self.missing = None
            if self._steps:
                return
            self._leave_first(done)
            if self.pending:
                self._begin()

    def _leave_first(self, done: int) -> None:
        """The instruction at the head is executed. If it crosses a multiple of SAMPLE_RECORDS, or
        a sample is wanted there, and the log ends behind it, remember the checksum.
        """
        merge = self.pending.popleft()
        if not self.pending:
            self.pending = _NONE_PENDING
        end = self._stop
        for part in merge.ranges:
            waiting = self._waiting[part.input]
            waiting.popleft()
            if not waiting:
                del self._waiting[part.input]
        crosses = end // SAMPLE_RECORDS != merge.base_offset // SAMPLE_RECORDS
        if done == end and (crosses or end in self.to_sample):
            self._sample()
        if self.to_sample:
            self.to_sample = {offset for offset in self.to_sample if offset > end}

    def sample_at(self, offset: int) -> bool:
        """Remember the checksum up to there, which is the end of an instruction: whether at once,
        or when the log reaches it. A log that is beyond cannot tell any more.
        """
        done = self.log.next_offset
        if done == offset:
            return self._sample()
        if done < offset:
            self.to_sample.add(offset)
        return False

    def _sample(self) -> bool:
        """Whether it can be: of what is copied as it was compacted the log knows it once all is
        there.
        """
        generations = self.log.generations
        if generations.may_copy and generations.copied is not None:
            return False
        self.samples[self.log.next_offset] = self.log.checksum
        if len(self.samples) > SAMPLES_KEPT:
            del self.samples[next(iter(self.samples))]
        return True

    def _execute(self, merge: Merge, step: _Step, done: int) -> int:
        if done < step.base:
            self.missing = Missing(self.number, step.base, None)
            return 0
        output = self._output(merge, step.part)
        if output is None:
            self.missing = _lacking(self.number, step)
            return 0
        self.missing = None
        data = memoryview(output)
        if done > step.base:
            data = data[_position_of(output, done - step.base) :]
        if merge.roll and done == merge.base_offset and self.log.end()[0] != merge.base_offset:
            self.log.roll()
        self.newest_ms = max_timestamp(data)
        epoch = merge.epoch if merge.extras is None else _epoch_of(merge, merge.extras)
        reached = self.log.append(data, base_offset=done, leader_epoch=epoch)
        if reached != step.next:
            raise InvariantError(f"partition {self.number}: offset {reached}, planned {step.next}")
        self._drop_executed(reached)
        return len(data)

    def _output(self, merge: Merge, part: Range | End) -> bytearray | None:
        """The batches a range adds; None when the session bytes are not here, or not those that
        were planned. A marker needs none.
        """
        if isinstance(part, End):
            return marker_batch(
                part.producer_id,
                part.epoch,
                is_commit=part.is_commit,
                coordinator_epoch=merge.epoch,
                at_ms=merge.append_ms,
            )
        data = self._reader.checked.take(part) or read_agreed(self._reader, part)
        extras = merge.extras or NO_EXTRAS
        if data is None or (extras.mirrored and not _has_sum(data, part, merge, extras.mirrored)):
            return None
        if part.verdict == Verdict.SLICE:
            data = bytearray(slice_batch(bytes(data), part.detail))
        elif part.verdict == Verdict.LEAVE_OUT:
            data = leave_out(data, extras.left_out[part.detail])
        if extras.stamp:
            kernels.stamp_append_time(data, merge.append_ms)
        return data


def read_agreed(reader: RangeReader, part: Range) -> bytearray | None:
    """The range's bytes if they have its digest, else None. A mismatch is read a second time, from
    the file, before it counts as damage.
    """
    for from_file in (False, True):
        data = reader.read_range(part, from_file=from_file)
        if data is None:
            return None
        scan = kernels.scan(data, verify_crc=True, max_batch_bytes=HELD_BATCH_BYTES)
        if scan.end == len(data) and scan.digest == part.digest:
            return data
    return None


def _lacking(number: int, step: _Step) -> Missing:
    part = step.part if isinstance(step.part, Range) else None
    return Missing(number, step.next, part)


def _epoch_of(merge: Merge, extras: MergeExtras) -> int | None:
    """Return the leader epoch that the batches get; None: mirrored ones keep theirs."""
    keeps = extras.mirrored is not None and extras.mirrored.keeps_epochs
    return None if keeps else merge.epoch


def _has_sum(data: bytearray, part: Range, merge: Merge, mirrored: Mirrored) -> bool:
    """Whether a range's bytes are the source's, headers included."""
    return kernels.crc32c(data) == mirrored.sums[merge.ranges.index(part)]


def _start_of(part: Range) -> SessionPosition:
    return SessionPosition(part.run, part.roll, part.start)


def _position_of(data: bytearray, records: int) -> int:
    """Where the batch behind the first `records` records starts."""
    for header in kernels.batch_headers(data, 0, len(data)):
        if records == 0:
            return int(header[0])
        records -= header[2]
    raise InvariantError("the merged log ends inside a batch of the instruction")
