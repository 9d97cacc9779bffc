"""What the leader decides about bytes, and every node carries out: merge instructions.

Commands hold no payload bytes of records, only names, positions and verdicts, and every merge
instruction is fully resolved: applying it needs no clock, no file and no choice
(docs/state-machine.md).

Invariant: field order is the format.
"""

from __future__ import annotations

from enum import IntEnum

import msgspec

from samelog.format.numbers import Unsigned32
from samelog.format.transactions import MARKER_BYTES
from samelog.sequencer.state.command_base import Command
from samelog.wire.refusals import RefusedBatch


class Verdict(IntEnum):
    """What the leader decides about a range of session bytes."""

    TAKE = 0
    DUPLICATE = 1
    OUT_OF_ORDER = 2
    FENCED = 3
    SLICE = 4
    INVALID_TRANSACTION = 5
    LEAVE_OUT = 6
    REFUSED = 7


class Range(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Bytes [start, stop) of `log.<run>.<roll>` of one input, and what to do with them.

    `records` and `size` are of the output (0 unless taken or sliced); `digest` is the batch digest
    of the input bytes (docs/formats.md); `detail` is the offset a duplicate repeats (-1 unknown),
    or the records to drop of a sliced batch, or the place in `left_out` of a range of which some
    records are left out, or that in `refused` of a batch that was refused.
    """

    input: Unsigned32
    run: Unsigned32
    roll: int
    start: int
    stop: int
    records: int
    size: int
    digest: int
    verdict: int = 0
    detail: int = -1


class Sequence5(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One batch of an idempotent producer, as remembered to recognise its repetition."""

    producer_id: int
    epoch: int
    first: int
    last: int
    offset: int


class Mirrored(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What an instruction for a mirror says of its ranges, whose batches have their offsets and
    keep them, with `keeps_epochs` their leader epochs, too, of which `top_epoch` is the highest.

    `sums` are the CRC-32C of each range's bytes, headers included, which no digest covers. Behind
    the ranges, `crc` is that of the last batch, and `checksum` the running checksum (None: not
    known). `begins` (producer id, epoch, offset) and `ends` (producer ids) are of transactions of
    the source.
    """

    sums: list[int]
    crc: int
    checksum: int | None
    keeps_epochs: bool
    top_epoch: int
    begins: list[tuple[int, int, int]]
    ends: list[int]


class Begin(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A producer's transaction `number` has its first record in this partition at `offset`."""

    producer_id: int
    epoch: int
    number: int
    offset: int


class End(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A producer's transaction `number` ends in this partition: a marker with this epoch."""

    producer_id: int
    epoch: int
    number: int
    is_commit: bool


class MergeExtras(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What a merge instruction has beyond a plain one, which encodes all of it as one byte.

    `begins` are transactions that begin in batches of the ranges; `ends` become markers behind the
    ranges. `left_out` has, for each range with the verdict LEAVE_OUT, which records stay
    (`format.batch.leave_out`), so that applying it depends on no filter. `version` of the schema
    counted (0: the topic has none; None: records are not checked), and `refused` lists every batch
    with records that do not fit: those of a publisher are left out, a batch of a Kafka client is
    refused as a whole. `stamp` puts `append_ms` into the batches (the topic's
    message.timestamp.type at that moment). `mirrored`: the partition is one of a mirror.
    """

    begins: list[Begin] = msgspec.field(default_factory=list)
    ends: list[End] = msgspec.field(default_factory=list)
    left_out: list[list[int]] = msgspec.field(default_factory=list)
    version: int | None = None
    refused: list[RefusedBatch] = msgspec.field(default_factory=list)
    stamp: bool = False
    mirrored: Mirrored | None = None


NO_EXTRAS = MergeExtras()
"""Those of a plain instruction."""


class Merge(Command, frozen=True, tag=6):
    """Append ranges to one partition at `base_offset`: a merge instruction.

    `epoch` is the leader epoch put into the batches (the planner's term), `append_ms` never falls
    within a partition, `roll` starts a new segment first. `sequences` and `watermarks` (dedup id,
    highest id merged) and `unwrapped` (input, last full dedup id) are what dedup learns from these
    ranges. A plain instruction has no `extras`.
    """

    partition: Unsigned32
    base_offset: int
    epoch: int
    append_ms: int
    roll: bool
    ranges: list[Range]
    sequences: list[Sequence5] = msgspec.field(default_factory=list)
    watermarks: list[tuple[str, int]] = msgspec.field(default_factory=list)
    unwrapped: list[tuple[int, int]] = msgspec.field(default_factory=list)
    extras: MergeExtras | None = None

    @property
    def extent(self) -> tuple[int, int]:
        """Bytes this instruction adds to the merged log, and the partition's next offset then."""
        markers = 0 if self.extras is None else len(self.extras.ends)
        size, offset = MARKER_BYTES * markers, self.base_offset + markers
        for part in self.ranges:
            size += part.size
            offset += part.records
        return size, offset

    @property
    def size(self) -> int:
        """Bytes this instruction adds to the merged log."""
        return self.extent[0]

    @property
    def next_offset(self) -> int:
        """The partition's next offset once this is executed."""
        return self.extent[1]


class VoidRecordsCommand(Command, frozen=True, tag=13):
    """Offsets [base_offset, next_offset) of a partition are filled with void batches, in the
    segment that begins at `segment`, with the epoch and highest timestamp of the batch before: no
    node has the records that committed instructions put there.
    """

    partition: Unsigned32
    base_offset: int
    next_offset: int
    segment: int
    epoch: int
    timestamp: int
    at_ms: int

    @property
    def records(self) -> int:
        """How many records are given up."""
        return self.next_offset - self.base_offset
