"""Retries of idempotent producers, recognised before they are written.

A session's records carry no producer ids of others, so the cluster cannot tell a retry from a new
batch: the sidecar does, for as long as it lives, by the rule of Kafka's broker.

Invariant: of each producer and partition the newest five batches are known, and of producers the
ones that wrote last.
"""

from __future__ import annotations

from collections import OrderedDict

from kio.schema.errors import ErrorCode

from samelog.format.batch import BatchHeader
from samelog.kafka.codec.errors import ApiError
from samelog.sequencer.merge.dedup import BatchFacts, judge_sequence, last_sequence
from samelog.sequencer.state.commands import Sequence5, Verdict
from samelog.sequencer.state.sequences import remember

PRODUCERS_MAX = 100_000
"""Pairs of producer and partition; beyond that the one that wrote least lately is forgotten."""
NO_OFFSET = -1
ProducerPartition = tuple[int, str, int]
"""Producer id, topic, partition."""


class Sequences:
    """The newest batches of each idempotent producer."""

    def __init__(self, limit: int = PRODUCERS_MAX) -> None:
        self._limit = limit
        self._known: OrderedDict[ProducerPartition, list[Sequence5]] = OrderedDict()

    def is_new(self, header: BatchHeader, topic: str, index: int) -> bool:
        """Whether a batch is to be written; False: it is there already. Raises ApiError."""
        if header.producer_id < 0:
            return True
        facts = BatchFacts(
            header.records, header.producer_id, header.producer_epoch, header.base_sequence
        )
        known = self._known.get((header.producer_id, topic, index), [])
        verdict = judge_sequence(known, facts).verdict
        if verdict is Verdict.FENCED:
            raise ApiError(ErrorCode.invalid_producer_epoch, "a newer epoch has written")
        if verdict is Verdict.OUT_OF_ORDER:
            text = f"sequence {header.base_sequence} does not follow what was written last"
            raise ApiError(ErrorCode.out_of_order_sequence_number, text)
        return verdict is Verdict.TAKE

    def written(self, header: BatchHeader, topic: str, index: int) -> None:
        """A batch was written."""
        if header.producer_id < 0:
            return
        key = header.producer_id, topic, index
        first, last = header.base_sequence, last_sequence(header.base_sequence, header.records)
        batch = Sequence5(header.producer_id, header.producer_epoch, first, last, NO_OFFSET)
        remember(self._known.setdefault(key, []), batch)
        self._known.move_to_end(key)
        if len(self._known) > self._limit:
            self._known.popitem(last=False)
