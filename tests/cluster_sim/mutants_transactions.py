"""Planted bugs about transactions that only a cluster in trouble shows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from inspect import getclosurevars
from typing import Any
from unittest.mock import patch

from samelog.consensus import Effects
from samelog.format.marks import LogCheckpoint
from samelog.format.transactions import OpenTransactions
from samelog.kafka.transactions import coordinator
from samelog.sequencer.cluster.repair.sessions import SessionRepair
from samelog.sequencer.data_groups import stages
from samelog.sequencer.raft.group import RaftGroup
from samelog.sequencer.state.instructions import End
from samelog.sequencer.state.tables import transactions
from samelog.sequencer.state.tables.transactions import Transaction, TransactionsTable
from samelog.sequencer.state.two_phase import Decision, TwoPhase
from samelog.store.merged.transaction_index import TransactionIndex


@contextmanager
def end_in_one_partition() -> Iterator[None]:
    """A transaction gets a marker in one of its partitions only."""
    original, all_due = TwoPhase.carried_out, TransactionsTable.markers_due

    def markers_due(self: TransactionsTable) -> Mapping[int, list[End]]:
        return dict(list(all_due(self).items())[:1])

    def carried_out(self: TwoPhase, participant: int) -> bool:
        is_news = original(self, participant)
        for each in self.unfinished() if is_news else ():
            original(self, each)
        return is_news

    with (
        patch.object(TwoPhase, "carried_out", carried_out),
        patch.object(TransactionsTable, "markers_due", markers_due),
    ):
        yield


@contextmanager
def commit_what_is_overdue() -> Iterator[None]:
    """A transaction whose producer is gone is committed."""

    def fence(known: TransactionsTable, name: str, record: Transaction, at_ms: int) -> None:
        record.epoch += 1
        transactions._decide(known, name, record, Decision.COMMIT, at_ms)

    with patch.object(transactions, "_fence", fence):
        yield


@contextmanager
def forget_what_is_open() -> Iterator[None]:
    """After a start nothing is open but what is found behind the durable mark."""
    original = TransactionIndex.begin

    def begin(self: TransactionIndex, durable: LogCheckpoint | None) -> None:
        original(self, durable)
        self._chain.transactions = OpenTransactions(self._chain.transactions.offset)

    with patch.object(TransactionIndex, "begin", begin):
        yield


@contextmanager
def ask_only_who_has_reported() -> Iterator[None]:
    """Bytes that a leader names are asked of it only when it has reported what it holds."""
    original = SessionRepair.__init__

    def made(self: SessionRepair, *parts: Any, is_up: Callable[[int], bool], **more: Any) -> None:
        ask = getclosurevars(is_up).nonlocals["ask"]
        original(self, *parts, is_up=lambda number: number in ask(), **more)

    with patch.object(SessionRepair, "__init__", made):
        yield


@contextmanager
def forget_who_waits() -> Iterator[None]:
    """A request whose entry is lost with its leader's term is not answered, and has no deadline."""
    original = RaftGroup._apply

    def apply(self: RaftGroup, effects: Effects) -> None:
        for entry in effects.apply:
            known = self._waiting.get(entry.index)
            if known is not None and known[0] != entry.term:
                del self._waiting[entry.index]
        original(self, effects)

    with (
        patch.object(RaftGroup, "_apply", apply),
        patch.object(RaftGroup, "_fail_lost_proposals", lambda self: self._proposed.clear()),
        patch.object(coordinator, "ANSWER_S", 1e9),
        patch.object(stages, "DECIDE_S", 1e9),
    ):
        yield


TRANSACTIONS = (
    ask_only_who_has_reported,
    end_in_one_partition,
    commit_what_is_overdue,
    forget_what_is_open,
    forget_who_waits,
)
