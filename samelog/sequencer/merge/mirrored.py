"""What the planner does with the batches of mirrors, which have their offsets.

A batch is taken if it begins at the mirror's next offset, with what was proposed and not yet seen
applied on top. Any other one is passed over: it is there already, or something before it was passed
over, or the topic is a mirror no more. Nothing of dedup or of this cluster's transactions is asked
or taught: producer ids in mirrored batches are the source's. What was sent under them is noted, for
the time after a promotion.

Invariant: what is taken follows what is there, batch by batch (docs/mirror.md, M4, M7 to M9).
"""

from __future__ import annotations

import struct

from samelog.format import _kernels as kernels
from samelog.format.batch import HELD_BATCH_BYTES
from samelog.format.names import is_mirror_session
from samelog.format.positions import SessionPosition
from samelog.format.transactions import is_marker
from samelog.sequencer.merge.dedup import last_sequence
from samelog.sequencer.merge.drafts import Draft, MirrorDraft, MirrorTail
from samelog.sequencer.merge.in_flight import Speculation
from samelog.sequencer.state.instructions import Mirrored, Range, Sequence5, Verdict
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.tables.mirrors import Mirror
from samelog.sequencer.state.tables.producers import remember
from samelog.sequencer.state.tables.sessions import Input

_OFFSET, _EPOCH = struct.Struct(">q"), struct.Struct(">i")
_EPOCH_AT = 12
SEQUENCES_MOST = 512
"""So many batches of producers are in one instruction at most."""
INSTRUCTION_OFFSETS = 1 << 29
SEGMENT_OFFSETS, FULL = 1 << 30, 1 << 62
"""The index of a segment counts offsets in 31 bits, and what is compacted at a source takes more of
them than it has records.
"""


class MirroredRanges:
    """One planner's."""

    def __init__(self, machine: StateMachine) -> None:
        self._machine = machine
        self.tails = Speculation[int, MirrorTail]()
        """To be forgotten when leadership is lost."""

    def concerns(self, entry: Input) -> bool:
        """Whether an input's batches are of a mirror, or were to be."""
        mirrors = self._machine.state.mirrors
        if entry.partition in mirrors.places:
            return True
        return entry.partition in mirrors.ended and is_mirror_session(entry.session)

    def take(self, entry: Input, place: SessionPosition, data: bytes, draft: Draft) -> int:
        """Plan the first batches of `data` that have the same fate; their bytes."""
        headers = kernels.batch_headers(data, 0, len(data))
        if not headers:
            return 0
        verdict = self._verdict(entry, data, headers[0], draft.next_offset)
        offset, stop = draft.next_offset, 0
        for header in headers:
            if self._verdict(entry, data, header, offset) is not verdict or _is_full(
                draft, offset, header[2]
            ):
                break
            if verdict is Verdict.TAKE:
                epoch = _EPOCH.unpack_from(data, header[0] + _EPOCH_AT)[0]
                self._drafted(draft, entry).take(header, epoch, offset)
                _learn(draft, header, offset)
                offset += header[2]
            stop = header[0] + header[1]
        if stop:
            self._add(entry, place, data[:stop], verdict, draft)
        return stop

    def _verdict(
        self, entry: Input, data: bytes, header: tuple[int, ...], next_offset: int
    ) -> Verdict:
        if entry.partition not in self._machine.state.mirrors.places:
            return Verdict.FENCED
        offset = _OFFSET.unpack_from(data, header[0])[0]
        if offset < next_offset:
            return Verdict.DUPLICATE
        return Verdict.TAKE if offset == next_offset else Verdict.OUT_OF_ORDER

    def _add(
        self, entry: Input, place: SessionPosition, data: bytes, verdict: Verdict, draft: Draft
    ) -> None:
        scan = kernels.scan(data, verify_crc=False, max_batch_bytes=HELD_BATCH_BYTES)
        added = (scan.records, scan.end) if verdict is Verdict.TAKE else (0, 0)
        where = entry.number, *place, place.byte + scan.end
        draft.add(Range(*where, *added, scan.digest, verdict))
        if entry.partition in self._machine.state.mirrors.places:
            drafted = self._drafted(draft, entry)
            drafted.sums.append(kernels.crc32c(data) if scan.records else 0)
            if added[1] and drafted.tail.checksum is not None:
                drafted.tail.checksum = kernels.crc32c(data, drafted.tail.checksum)
            if draft.next_offset - drafted.tail.segment_base > SEGMENT_OFFSETS:
                draft.tail.segment_bytes = FULL

    def _drafted(self, draft: Draft, entry: Input) -> MirrorDraft:
        if draft.mirrored is None:
            keeps_epochs = self._mirror(entry).source.keeps_epochs
            draft.mirrored = MirrorDraft(self._tail(entry.partition), keeps_epochs)
        return draft.mirrored

    def _tail(self, number: int) -> MirrorTail:
        known = self.tails.get(number)
        if known is None:
            place = self._machine.state.mirrors.places[number]
            begins = self._machine.state.partitions.by_number[number]
            base = begins.rolls[-1][0] if begins.rolls else begins.start_segment
            known = MirrorTail(place.crc or 0, place.checksum, set(place.open), base)
            self.tails[number] = known
        return known

    def _mirror(self, entry: Input) -> Mirror:
        state = self._machine.state
        return state.mirrors.topics[state.partitions.by_number[entry.partition].topic_id]


def _learn(draft: Draft, header: tuple[int, ...], offset: int) -> None:
    """What is to be known of a batch's producer once the topic is a mirror no more."""
    producer_id, epoch, sequence = header[6:9]
    if producer_id < 0 or is_marker(header[3]):
        return
    last = last_sequence(sequence, header[2])
    known = draft.sequences.pop(producer_id, [])
    remember(known, Sequence5(producer_id, epoch, sequence, last, offset))
    draft.sequences[producer_id] = known  # the one that came last is behind the others
    draft.learnt += 1


def _is_full(draft: Draft, offset: int, offsets: int) -> bool:
    """Whether a batch there is for the next instruction."""
    behind = offset + offsets - draft.base_offset
    is_wide = offset > draft.base_offset and behind > INSTRUCTION_OFFSETS
    return is_wide or draft.learnt >= SEQUENCES_MOST


def mirrored_part(drafted: MirrorDraft) -> Mirrored:
    """Return what an instruction for a mirror says of its ranges."""
    tail, keeps_epochs = drafted.tail, drafted.keeps_epochs
    return Mirrored(
        drafted.sums,
        tail.crc,
        tail.checksum if keeps_epochs else None,
        keeps_epochs,
        drafted.top_epoch if keeps_epochs else -1,
        drafted.begins,
        drafted.ends,
    )
