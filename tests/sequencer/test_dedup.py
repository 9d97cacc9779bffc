"""Dedup verdicts: Kafka's sequences, and twins that share a dedup id."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from samelog.sequencer.merge.dedup import (
    SEQUENCES,
    BatchFacts,
    judge_ids,
    judge_sequence,
    unwrap,
)
from samelog.sequencer.state.instructions import Sequence5, Verdict


def batch(sequence: int, *, records: int = 2, epoch: int = 0) -> BatchFacts:
    return BatchFacts(records, 7, epoch, sequence)


KNOWN = [Sequence5(7, 1, first, first + 1, first * 10) for first in (0, 2, 4)]


def test_the_first_batch_of_a_producer_is_taken() -> None:
    assert judge_sequence([], batch(40)).verdict is Verdict.TAKE


def test_the_next_sequence_is_taken() -> None:
    assert judge_sequence(KNOWN, batch(6, epoch=1)).verdict is Verdict.TAKE


def test_a_repeated_batch_is_a_duplicate_of_its_offset() -> None:
    judged = judge_sequence(KNOWN, batch(2, epoch=1))
    assert (judged.verdict, judged.detail) == (Verdict.DUPLICATE, 20)


def test_a_gap_is_out_of_order() -> None:
    assert judge_sequence(KNOWN, batch(8, epoch=1)).verdict is Verdict.OUT_OF_ORDER


def test_an_older_epoch_is_fenced_and_a_newer_starts_at_zero() -> None:
    assert judge_sequence(KNOWN, batch(6, epoch=0)).verdict is Verdict.FENCED
    assert judge_sequence(KNOWN, batch(0, epoch=2)).verdict is Verdict.TAKE
    assert judge_sequence(KNOWN, batch(6, epoch=2)).verdict is Verdict.OUT_OF_ORDER


def test_sequences_wrap() -> None:
    known = [Sequence5(7, 0, SEQUENCES - 2, SEQUENCES - 1, 5)]
    assert judge_sequence(known, batch(0)).verdict is Verdict.TAKE


@given(st.integers(0, 2**62), st.integers(0, SEQUENCES - 1))
def test_ids_are_unwrapped_from_the_one_before(previous: int, gap: int) -> None:
    assert unwrap(previous, (previous + gap) % SEQUENCES) == previous + gap


@given(st.integers(-1, 50), st.integers(0, 60), st.integers(1, 20))
def test_a_watermark_splits_a_batch_exactly(watermark: int, first: int, records: int) -> None:
    judged = judge_ids(watermark, first, records)
    new = [number for number in range(first, first + records) if number > watermark]
    kept = {
        Verdict.TAKE: records,
        Verdict.DUPLICATE: 0,
        Verdict.SLICE: records - judged.detail,
    }[judged.verdict]
    assert kept == len(new)
    assert (judged.verdict is Verdict.SLICE) == (0 < len(new) < records)
