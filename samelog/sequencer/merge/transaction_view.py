"""What the planner knows of transactions: the replicated state, with its own proposals on top.

The coordinator's part of the state says whether a batch belongs to a transaction that is open; the
log's part, whether it begins there. Both are asked when the batch is planned, because the order is
made then: a batch that was late when it came in may be behind its transaction's marker now
(rule transactions.1).

Invariant: a marker is planned once for each participant, unless its instruction was not applied.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from samelog.sequencer.merge.dedup import BatchFacts
from samelog.sequencer.merge.in_flight import Speculation, SpeculativeKey
from samelog.sequencer.state.instructions import Begin, End, MergeExtras, Verdict
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.tables.open_transactions import (
    EndedInLog,
    JoinedInLog,
    LogTransactions,
    OpenInLog,
    OpenTransaction,
    OpenTransactionsTable,
)
from samelog.sequencer.state.tables.transactions import Transaction, TransactionsTable
from samelog.sequencer.state.two_phase import Decision

MARKED_PARTITIONS = 256
"""At most so many get markers by one entry."""


class TransactionView:
    """One planner's."""

    def __init__(self, machine: StateMachine, cluster: StateMachine) -> None:
        """`cluster`: of group 0, which has what the coordinator decides."""
        self._machine = machine
        self._cluster = cluster
        self.begun = Speculation[tuple[int, int], int]()
        """(producer id, partition) -> the transaction that a proposed instruction begins."""
        self._ended = Speculation[tuple[int, int, int], None]()
        """(partition, producer id, transaction): a marker is proposed."""
        self.forgotten: set[OpenTransaction] = set()
        """Those that are to be aborted, because group 0 does not know them."""

    @property
    def _known(self) -> TransactionsTable:
        return self._machine.state.transactions

    @property
    def _logs(self) -> OpenTransactionsTable:
        return self._machine.state.open_transactions

    def clear(self) -> None:
        """Forget all proposals."""
        self.begun.clear()
        self._ended.clear()
        self.forgotten.clear()

    def judge(self, partition: int, facts: BatchFacts) -> Verdict:
        """Whether a batch that is new may be merged, as far as transactions go."""
        log, producer = self._logs.in_log(partition), facts.producer_id
        known = self._known.of_producer(producer) if facts.is_transactional else None
        part = self._part(partition, producer) if facts.is_transactional else None
        newest = max(map(_epoch_of, (log.ended.get(producer), known, part)))
        if facts.epoch < newest:
            return Verdict.FENCED
        begun = self._number_in(log, partition, producer)
        if not facts.is_transactional:
            return Verdict.TAKE if begun is None else Verdict.INVALID_TRANSACTION
        if part is None or facts.epoch > part.epoch:
            return Verdict.INVALID_TRANSACTION
        return Verdict.TAKE if begun in (None, part.number) else Verdict.INVALID_TRANSACTION

    def begin(self, partition: int, facts: BatchFacts, offset: int) -> Begin | None:
        """A transactional batch is taken: what begins with it, if anything does."""
        part = self._part(partition, facts.producer_id)
        log = self._logs.in_log(partition)
        if part is None or self._number_in(log, partition, facts.producer_id) is not None:
            return None
        self.begun[facts.producer_id, partition] = part.number
        return Begin(facts.producer_id, facts.epoch, part.number, offset)

    def changes(self, partition: int, extras: MergeExtras) -> Iterator[SpeculativeKey]:
        """What an instruction changes here."""
        for begin in extras.begins:
            yield self.begun, (begin.producer_id, partition)
        for end in extras.ends:
            yield self._ended, _key(partition, end)

    def place(self, producer: int, partition: int) -> tuple[dict[tuple[int, int], int], Any]:
        """Where it is noted that a proposed instruction begins a transaction: a dict and a key."""
        return self.begun, (producer, partition)

    def _part(self, partition: int, producer: int) -> JoinedInLog | None:
        """The producer's transaction in a partition, until its marker is proposed."""
        part = self._logs.in_log(partition).joined.get(producer)
        part = part or self._known.taking_part(partition, producer)
        if part is not None and (partition, producer, part.number) in self._ended:
            return None
        return part

    def _number_in(self, log: LogTransactions, partition: int, producer: int) -> int | None:
        """The producer's transaction that is open in a log, or will be."""
        if (opened := log.open.get(producer)) is not None:
            return opened.number
        proposed, ended = self.begun.get((producer, partition)), log.ended.get(producer)
        is_over = proposed is not None and ended is not None and proposed <= ended.number
        return None if is_over else proposed

    # --- markers ----------------------------------------------------------------------------------

    @property
    def owes_markers(self) -> bool:
        """Whether there are markers to plan."""
        return self.may_owe_markers and bool(self._due())

    @property
    def may_owe_markers(self) -> bool:
        """Whether looking for markers is worth while: something was decided, promoted or lost."""
        state = self._machine.state
        may_lack = state.placement.recovered, state.mirrors.owed, self.forgotten
        return bool(self._cluster.state.transactions.deciding) or any(may_lack)

    def take_markers(self) -> list[tuple[int, list[End]]]:
        """The markers to plan now, by partition."""
        logs = self._logs
        self.forgotten -= {each for each in self.forgotten if not logs.is_open(*each)}
        due = [*islice(self._due().items(), MARKED_PARTITIONS)]
        self._ended.update((_key(number, end), None) for number, ends in due for end in ends)
        return due

    def _all_due(self) -> dict[int, list[End]]:
        due = self._machine.state.mirrors.owed_ends()
        for number, ends in self._cluster.state.transactions.markers_due().items():
            due.setdefault(number, []).extend(ends)
        if self._machine.state.placement.recovered or self.forgotten:
            due = {**dict(self._lost()), **due}
        return due

    def _due(self) -> dict[int, list[End]]:
        found = {}
        for number, ends in self._all_due().items():
            if not self._is_here(number):
                continue
            log = self._logs.in_log(number)
            left = [end for end in ends if _key(number, end) not in self._ended]
            left = [end for end in left if not log.has_ended(end)]
            if left:
                found[number] = left
        return found

    def _is_here(self, number: int) -> bool:
        """Whether markers go into a partition here: it is in no other group, nor on its way."""
        state = self._machine.state
        return state.has_here(number) and not state.transfers.is_on_its_way(number)

    def _lost(self) -> Iterator[tuple[int, list[End]]]:
        """Markers that this group had written before one replica went on alone, and lost: of
        transactions that group 0 has done with; and of those that group 0 has forgotten.
        """
        for number, log in self._logs.by_partition.items():
            ends = [self._end_of(number, *each) for each in log.open.items()]
            if left := [each for each in ends if each is not None]:
                yield number, left

    def _end_of(self, partition: int, producer: int, opened: OpenInLog) -> End | None:
        """What became of an open transaction; None: it is open, or group 0 does not know."""
        known = self._cluster.state.transactions.of_producer(producer)
        if known is None or known.number < opened.number:
            is_forgotten = (partition, producer, opened.number) in self.forgotten
            aborted = End(producer, opened.epoch, opened.number, is_commit=False)
            return aborted if is_forgotten else None
        is_newest = known.number == opened.number
        if is_newest and (known.is_open or known.unit is None):
            return None
        is_commit = is_newest and known.was_decided(Decision.COMMIT)
        return End(producer, opened.epoch, opened.number, is_commit)


def _epoch_of(known: EndedInLog | JoinedInLog | Transaction | None) -> int:
    return -1 if known is None else known.epoch


def _key(partition: int, end: End) -> tuple[int, int, int]:
    return partition, end.producer_id, end.number
