"""Which batches have been merged before: idempotent producers' sequences, and twins that share a
dedup id.

Both rules look only at batch headers and at what the state machine remembers, plus what the planner
has proposed but not yet seen applied. Kafka's producers are recognised by (producer id, epoch,
sequence), as Kafka's broker does. Twins number their records themselves: a watermark per (dedup id,
partition) drops what the slower one sends again; the 64-bit ids are unwrapped from the 31 bits that
a batch header carries.

Invariant: a verdict depends on nothing but its arguments, so that the leader's decision can be
replayed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from samelog.format.dedup import dedup_producer_id
from samelog.sequencer.merge.in_flight import Speculation, SpeculativeKey
from samelog.sequencer.state.instructions import Merge, Sequence5, Verdict
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.tables.producers import remember
from samelog.sequencer.state.tables.sessions import Input

SEQUENCES = 1 << 31


@dataclass(frozen=True, slots=True)
class BatchFacts:
    """The fields of a batch header that dedup uses."""

    records: int
    producer_id: int
    epoch: int
    sequence: int
    is_transactional: bool = False


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verdict, and its detail: the offset a duplicate repeats, or the records a slice drops."""

    verdict: Verdict
    detail: int = -1


TAKE = Judgement(Verdict.TAKE)


def last_sequence(first: int, records: int) -> int:
    """The sequence of a batch's last record; Kafka's sequences wrap at 2^31."""
    return (first + records - 1) % SEQUENCES


def judge_sequence(remembered: Sequence[Sequence5], batch: BatchFacts) -> Judgement:
    """Kafka's rule for an idempotent producer's batch (its ProducerAppendInfo)."""
    if not remembered:
        return TAKE
    newest = remembered[-1]
    if batch.epoch < newest.epoch:
        return Judgement(Verdict.FENCED)
    if batch.epoch > newest.epoch:
        return TAKE if batch.sequence == 0 else Judgement(Verdict.OUT_OF_ORDER)
    last = last_sequence(batch.sequence, batch.records)
    for known in remembered:
        if (known.first, known.last) == (batch.sequence, last):
            return Judgement(Verdict.DUPLICATE, known.offset)
    if batch.sequence == (newest.last + 1) % SEQUENCES:
        return TAKE
    return Judgement(Verdict.OUT_OF_ORDER)


def follows_loss(newest: Sequence5, batch: BatchFacts) -> bool:
    """Whether a producer goes on in its epoch, and what is between is not here."""
    lacks = (batch.sequence - newest.last - 1) % SEQUENCES
    return batch.epoch == newest.epoch and lacks < SEQUENCES // 2


def unwrap(previous: int, sequence: int) -> int:
    """The lowest id >= `previous` whose low 31 bits are `sequence`."""
    return previous + (sequence - previous) % SEQUENCES


def judge_ids(watermark: int | None, first: int, records: int) -> Judgement:
    """What of a twin's batch with ids first .. first + records - 1 is new."""
    if watermark is None or first > watermark:
        return TAKE
    if first + records - 1 <= watermark:
        return Judgement(Verdict.DUPLICATE)
    return Judgement(Verdict.SLICE, watermark - first + 1)


@dataclass(slots=True)
class DedupView:
    """The state machine's dedup memory with the planner's own proposals on top."""

    machine: StateMachine
    _sequences: Speculation[tuple[int, int], list[Sequence5]] = field(default_factory=Speculation)
    _watermarks: Speculation[tuple[str, int], int] = field(default_factory=Speculation)
    _last_ids: Speculation[int, int] = field(default_factory=Speculation)

    def clear(self) -> None:
        """Forget all proposals."""
        self._sequences.clear()
        self._watermarks.clear()
        self._last_ids.clear()

    def places(self, entry: Input, producer_id: int, dedup_id: str) -> Iterator[tuple[Any, Any]]:
        """Where proposals of a batch are noted, each a dict and a key."""
        yield self._sequences, (producer_id, entry.partition)
        yield self._watermarks, (dedup_id, entry.partition)
        yield self._last_ids, entry.number

    def changes(self, merge: Merge) -> Iterator[SpeculativeKey]:
        """What an instruction changes here."""
        partition = merge.partition
        for sequence in merge.sequences:
            yield self._sequences, (sequence.producer_id, partition)
        for dedup_id, _ in merge.watermarks:
            yield self._watermarks, (dedup_id, partition)
        for number, _ in merge.unwrapped:
            yield self._last_ids, number

    def _remembered(self, producer_id: int, partition: int) -> Sequence[Sequence5]:
        """The last batches of a producer in a partition, oldest first."""
        known = self._sequences.get((producer_id, partition))
        if known is not None:
            return known
        return self.machine.state.producers.batches.get(producer_id, {}).get(partition, ())

    def judge(self, batch: BatchFacts, partition: int) -> Judgement:
        """As `judge_sequence`. What a producer sent before a site was promoted may be lost there:
        it goes on behind it, once.
        """
        remembered = self._remembered(batch.producer_id, partition)
        judged = judge_sequence(remembered, batch)
        if judged.verdict is Verdict.OUT_OF_ORDER and not batch.is_transactional:
            end = self.machine.state.placement.sites.promoted_at(partition)
            if remembered[-1].offset < end and follows_loss(remembered[-1], batch):
                return TAKE
        return judged

    def add_sequence(self, partition: int, sequence: Sequence5) -> None:
        """Note a batch that is about to be proposed."""
        batches = list(self._remembered(sequence.producer_id, partition))
        remember(batches, sequence)
        self._sequences[sequence.producer_id, partition] = batches

    def watermark(self, dedup_id: str, partition: int, near: int) -> int | None:
        """The highest id merged or proposed; `near`: the one that is asked about."""
        known = self._watermarks.get((dedup_id, partition))
        if known is None:
            known = self.machine.state.watermarks.by_dedup_id.get(dedup_id, {}).get(partition)
        return self._mirrored(dedup_id, partition, near) if known is None else known

    def _mirrored(self, dedup_id: str, partition: int, near: int) -> int | None:
        """The highest id that came before a mirror was promoted. Its batches say the low 31 bits:
        of all that have these the nearest is meant.
        """
        state = self.machine.state
        if partition not in state.mirrors.ended:
            return None
        known = state.producers.batches.get(dedup_producer_id(dedup_id), {}).get(partition)
        if not known:
            return None
        half = SEQUENCES // 2
        return near + (known[-1].last - near + half) % SEQUENCES - half

    def set_watermark(self, dedup_id: str, partition: int, value: int) -> None:
        """Note ids that are about to be proposed."""
        self._watermarks[dedup_id, partition] = value

    def last_id(self, number: int, base: int) -> int:
        """The input's last id, from which the next is unwrapped; `base` before its first batch."""
        known = self._last_ids.get(number)
        if known is None:
            known = self.machine.state.sessions.inputs[number].last_id
        return base if known is None else known

    def set_last_id(self, number: int, value: int) -> None:
        """Note an input's last id."""
        self._last_ids[number] = value
