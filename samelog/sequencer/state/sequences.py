"""What is remembered of idempotent producers' batches, so that a retry is recognised.

Invariant: the newest five batches of a producer's newest epoch, as in Kafka's broker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from samelog.sequencer.state.commands import Merge, Sequence5

if TYPE_CHECKING:
    from samelog.sequencer.state.types import State

BATCHES_REMEMBERED = 5


def remember(batches: list[Sequence5], sequence: Sequence5) -> None:
    """Add a batch to a producer's memory, forgetting those of an older epoch and all but the newest
    few.
    """
    if batches and batches[-1].epoch != sequence.epoch:
        batches.clear()
    batches.append(sequence)
    del batches[:-BATCHES_REMEMBERED]


def learn(state: State, command: Merge) -> None:
    """Take over what dedup learns from an instruction. That for a mirror teaches it nothing, before
    it is promoted.
    """
    if command.is_mirrored:
        return
    for sequence in command.sequences:
        per_partition = state.producers.setdefault(sequence.producer_id, {})
        remember(per_partition.setdefault(command.partition, []), sequence)
        state.producers_seen[sequence.producer_id] = command.append_ms
    for dedup_id, watermark in command.watermarks:
        state.watermarks.setdefault(dedup_id, {})[command.partition] = watermark
    for number, last_id in command.unwrapped:
        state.inputs[number].last_id = last_id
