"""What is remembered of idempotent producers' batches, so that a retry is recognised.

Invariant: the newest five batches of a producer's newest epoch, as in Kafka's broker.
"""

from __future__ import annotations

from samelog.sequencer.state.commands import Sequence5

BATCHES_REMEMBERED = 5


def remember(batches: list[Sequence5], sequence: Sequence5) -> None:
    """Add a batch to a producer's memory, forgetting those of an older epoch and all but the newest
    few.
    """
    if batches and batches[-1].epoch != sequence.epoch:
        batches.clear()
    batches.append(sequence)
    del batches[:-BATCHES_REMEMBERED]
