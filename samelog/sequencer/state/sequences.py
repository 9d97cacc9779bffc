"""What is remembered of idempotent producers' batches, so that a retry is recognised.

Invariant: the newest five batches of a producer's newest epoch, as in Kafka's broker.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from samelog.sequencer.state.commands import Merge, Sequence5

BATCHES_REMEMBERED = 5


class Learner(Protocol):
    """What learning changes of a State, which imports this module by way of mirrors."""

    producers: dict[int, dict[int, list[Sequence5]]]
    producers_seen: dict[int, int]
    watermarks: dict[str, dict[int, int]]

    @property
    def inputs(self) -> Mapping[int, Any]:
        """By number."""


def remember(batches: list[Sequence5], sequence: Sequence5) -> None:
    """Add a batch to a producer's memory, forgetting those of an older epoch and all but the newest
    few.
    """
    if batches and batches[-1].epoch != sequence.epoch:
        batches.clear()
    batches.append(sequence)
    del batches[:-BATCHES_REMEMBERED]


def learn(state: Learner, command: Merge) -> None:
    """Take over what dedup learns from an instruction. That for a mirror teaches it nothing, before
    it is promoted.
    """
    if command.extras is not None and command.extras.mirrored is not None:
        return
    for sequence in command.sequences:
        per_partition = state.producers.setdefault(sequence.producer_id, {})
        remember(per_partition.setdefault(command.partition, []), sequence)
        state.producers_seen[sequence.producer_id] = command.append_ms
    for dedup_id, watermark in command.watermarks:
        state.watermarks.setdefault(dedup_id, {})[command.partition] = watermark
    for number, last_id in command.unwrapped:
        state.inputs[number].last_id = last_id
