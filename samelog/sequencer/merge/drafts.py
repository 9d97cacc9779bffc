"""What a planner is about to propose for one partition, and how much more may go into an entry.

Invariant: a draft is only booked (`Planner._finish`) when everything in it was read and verified.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from samelog.format.batch import joined
from samelog.format.transactions import MARKER_BYTES, TRANSACTIONAL, is_marker
from samelog.sequencer.state.instructions import Begin, End, Range, Sequence5, Verdict
from samelog.sequencer.state.topic_settings import SEGMENT_MS_DEFAULT
from samelog.wire.refusals import RefusedBatch

DIGEST_FACTOR = 0x9E3779B97F4A7C15
DIGEST_MASK = (1 << 64) - 1
JOINED_BYTES = 1 << 20
"""What comes out of a range is in one buffer: only one of a single batch may be larger."""


@dataclass(frozen=True, slots=True)
class PlannerLimits:
    """Bounds of one round; each bounds a node's memory and the time of a turn of its loop."""

    entry_bytes: int = 4 << 20
    input_bytes: int = 1 << 20
    entry_ranges: int = 256
    entry_sequences: int = 512
    entry_runs: int = 16384
    filtered_bytes: int = 128 << 10
    """Of an input that filters look into, which takes longer."""
    in_flight_entries: int = 8
    in_flight_bytes: int = 8 << 20
    segment_bytes: int = 1 << 30
    segment_ms: int = SEGMENT_MS_DEFAULT


class Tail(msgspec.Struct):
    """A partition as it will be once everything proposed is applied."""

    next_offset: int
    segment_bytes: int
    segment_started_ms: int
    append_ms: int


class MirrorTail(msgspec.Struct):
    """A mirrored partition as it will be once everything proposed is applied."""

    crc: int
    checksum: int | None
    open: set[int]
    segment_base: int = 0
    """Where its newest segment begins."""


class MirrorDraft(msgspec.Struct):
    """What one instruction for a mirror is about to say beside its ranges."""

    tail: MirrorTail
    keeps_epochs: bool
    sums: list[int] = []
    top_epoch: int = -1
    begins: list[tuple[int, int, int]] = []
    ends: list[int] = []

    def take(self, header: tuple[int, ...], epoch: int, offset: int) -> None:
        """A batch at an offset is taken."""
        self.tail.crc = header[9]
        self.top_epoch = max(self.top_epoch, epoch)
        if not header[3] & TRANSACTIONAL:
            return
        producer_id = header[6]
        if is_marker(header[3]):
            self.tail.open.discard(producer_id)
            self.ends.append(producer_id)
            self.begins = [begin for begin in self.begins if begin[0] != producer_id]
        elif producer_id not in self.tail.open:
            self.tail.open.add(producer_id)
            self.begins.append((producer_id, header[7], offset))


ASKED_INPUTS = 8


class LeftOut(msgspec.Struct):
    """What an instruction in the making leaves out of its ranges."""

    runs: list[list[int]] = []
    """Which records stay, of the ranges that say so."""
    numbers: int = 0
    """How many it takes to say that."""
    version: int | None = None
    """Of the topic's schema, if its records are checked."""
    oldest: int = 1
    """The oldest version that a record may be of."""
    refused: list[RefusedBatch] = []
    """Of those, what does not fit."""
    asked: int = 0
    """Of how many inputs somebody is asked whether it fits."""
    later: list[int] = []
    """Inputs that are looked at when the first of those answers has come."""

    def puts_off(self, number: int) -> bool:
        """Enough is asked for at a time, so an input is not looked at now."""
        if self.asked >= ASKED_INPUTS:
            self.later.append(number)
        return self.asked >= ASKED_INPUTS

    def refuse(self, batch: RefusedBatch) -> None:
        """Records of a batch do not fit."""
        self.refused.append(batch)
        self.numbers += batch.weight

    def take_back(self) -> None:
        """Those of the last batch do, for now."""
        self.numbers -= self.refused.pop().weight


class Draft(msgspec.Struct):
    """One partition's instruction in the making."""

    partition: int
    tail: Tail
    """The partition before it."""
    next_offset: int
    size: int = 0
    ranges: list[Range] = []
    sequences: dict[int, list[Sequence5]] = {}
    watermarks: dict[str, int] = {}
    unwrapped: dict[int, int] = {}
    learnt: int = 0
    """How many sequences."""
    begins: list[Begin] = []
    ends: list[End] = []
    left: LeftOut = msgspec.field(default_factory=LeftOut)
    most_bytes: int = 0
    """Of each input."""
    append_ms: int = 0
    """When it is planned, by the majority's time; never before the last one."""
    mirrored: MirrorDraft | None = None

    @property
    def base_offset(self) -> int:
        """The offset at which the instruction begins: where the partition ends before it."""
        return self.tail.next_offset

    def end(self, ends: Sequence[End]) -> None:
        """Put markers behind all that is there."""
        self.ends.extend(ends)
        self.next_offset += len(ends)
        self.size += MARKER_BYTES * len(ends)

    def add(self, part: Range) -> None:
        """Put a range behind all that is there."""
        self.ranges.append(part)
        self.next_offset += part.records
        self.size += part.size


class EntryBudget(msgspec.Struct):
    """How much more may go into one entry; its encoded size grows with ranges and sequences."""

    bytes: int
    ranges: int
    sequences: int
    runs: int
    is_spent: bool = False

    def charge(self, taken: int, ranges: int, sequences: int, runs: int) -> None:
        """So much was taken."""
        self.bytes -= taken
        self.ranges -= ranges
        self.sequences -= sequences
        self.runs -= runs
        is_full = self.ranges <= 0 or self.sequences <= 0 or self.runs <= 0
        self.is_spent = self.bytes <= 0 or is_full


def newest(sequences: Mapping[int, Sequence[Sequence5]]) -> list[Sequence5]:
    """What is remembered of each producer."""
    return [known for batches in sequences.values() for known in batches[-5:]]


_JOINED = frozenset({Verdict.TAKE, Verdict.LEAVE_OUT})


def append_joined(draft: Draft, part: Range, runs: Sequence[int] = ()) -> None:
    """Add a range, growing the last one when records of both are taken and they are adjacent.
    `runs`: which of its records stay (format.batch.leave_out), if not all do.
    """
    last = draft.ranges[-1] if draft.ranges else None
    adjacent = (
        last is not None
        and (last.input, last.run, last.roll, last.stop)
        == (part.input, part.run, part.roll, part.start)
        and _JOINED.issuperset((last.verdict, part.verdict))
        and last.size + part.size <= JOINED_BYTES
    )
    if last is None or not adjacent:
        draft.add(part if not runs else _leaving(draft, part, [*runs]))
        return
    verdict, detail = Verdict.TAKE, -1
    if runs or last.verdict == Verdict.LEAVE_OUT:
        verdict, detail = _join_runs(draft, last, runs)
    draft.ranges[-1] = Range(
        last.input,
        last.run,
        last.roll,
        last.start,
        part.stop,
        last.records + part.records,
        last.size + part.size,
        (last.digest * DIGEST_FACTOR + part.digest) & DIGEST_MASK,
        int(verdict),
        detail,
    )
    draft.next_offset += part.records
    draft.size += part.size


def _leaving(draft: Draft, part: Range, runs: list[int]) -> Range:
    draft.left.runs.append(runs)
    draft.left.numbers += len(runs)
    place = len(draft.left.runs) - 1
    return msgspec.structs.replace(part, verdict=int(Verdict.LEAVE_OUT), detail=place)


def _join_runs(draft: Draft, last: Range, runs: Sequence[int]) -> tuple[Verdict, int]:
    """The verdict and detail of the last range, once it has grown by one with these runs."""
    before: list[int] = []
    if last.verdict == Verdict.LEAVE_OUT:
        before, place = draft.left.runs[last.detail], last.detail
    else:
        draft.left.runs.append(before)
        place = len(draft.left.runs) - 1
    grown = joined(before, last.records + sum(before[1::2]), runs)
    draft.left.numbers += len(grown) - len(before)
    draft.left.runs[place] = grown
    return Verdict.LEAVE_OUT, place
