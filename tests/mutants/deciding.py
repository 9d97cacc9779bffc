"""Planted bugs in transactions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from samelog.format.transactions import OpenTransactions
from samelog.sequencer import group_replica
from samelog.sequencer.merge.dedup import BatchFacts
from samelog.sequencer.merge.transaction_view import TransactionView
from samelog.sequencer.state import expiry
from samelog.sequencer.state.instructions import MergeExtras, Verdict
from samelog.sequencer.state.tables import transactions as transaction_table
from samelog.sequencer.state.tables.open_transactions import LogTransactions, OpenTransactionsTable
from samelog.sequencer.state.tables.transactions import (
    Transaction,
    TransactionsTable,
)
from samelog.sequencer.state.two_phase import Decision
from samelog.sequencer.state.types import State
from samelog.sequencer.state.units import transactions


@contextmanager
def take_late_batches() -> Iterator[None]:
    """What came in before its transaction ended is merged behind the marker."""

    def judge(self: TransactionView, partition: int, facts: BatchFacts) -> Verdict:
        return Verdict.TAKE

    with patch.object(TransactionView, "judge", judge):
        yield


@contextmanager
def go_by_what_is_over() -> Iterator[None]:
    """What was proposed of a producer's last transaction counts for the next one."""

    def number_in(
        self: TransactionView, log: LogTransactions, partition: int, producer: int
    ) -> int | None:
        opened = log.open.get(producer)
        return self.begun.get((producer, partition)) if opened is None else opened.number

    with patch.object(TransactionView, "_number_in", number_in):
        yield


@contextmanager
def end_again() -> Iterator[None]:
    """A marker that comes twice is written twice."""

    def problem_with(
        self: OpenTransactionsTable, partition: int, extras: MergeExtras
    ) -> str | None:
        return None

    with patch.object(OpenTransactionsTable, "problem_with", problem_with):
        yield


@contextmanager
def trust_every_clock() -> Iterator[None]:
    """A transaction that began by a clock that was a day ahead is open for that day."""
    with patch.object(expiry, "_looked_at", lambda unit, now_ms: now_ms):
        yield


@contextmanager
def fence_nobody() -> Iterator[None]:
    """Who is overdue keeps its epoch, and goes on."""

    def fence(known: TransactionsTable, name: str, record: Transaction, at_ms: int) -> None:
        transaction_table._decide(known, name, record, Decision.ABORT, at_ms)

    with patch.object(transaction_table, "_fence", fence):
        yield


@contextmanager
def abort_with_offsets() -> Iterator[None]:
    """Offsets of a transaction are committed, whatever is decided."""
    original = transactions._apply

    def apply(state: State, command: Any) -> Any:
        known = state.transactions.by_id.get(getattr(command, "transactional_id", ""))
        groups = known.groups if known is not None and known.is_open else {}
        outcome = original(state, command)
        if known is not None and not known.is_open:
            transactions._commit(state, command, groups)
        return outcome

    with patch.object(transactions, "_apply", apply):
        yield


@contextmanager
def wait_for_what_is_forgotten() -> Iterator[None]:
    """A transaction that group 0 does not know stays open."""
    with patch.object(group_replica, "forgotten", lambda *_: []):
        yield


@contextmanager
def abort_what_is_young() -> Iterator[None]:
    """A transaction of which group 0 has not heard yet is aborted."""
    with patch.object(expiry, "TIMEOUT_MS_MAX", 0):
        yield


@contextmanager
def number_transactions_again() -> Iterator[None]:
    """A recovered group 0 gives a transaction a number that entries that are lost had given."""
    with patch.object(Transaction, "next_number", property(lambda self: self.number + 1)):
        yield


@contextmanager
def all_is_stable() -> Iterator[None]:
    """The last stable offset is the end of the log."""
    with patch.object(OpenTransactions, "last_stable_offset", property(lambda self: self.offset)):
        yield


@contextmanager
def forget_what_is_aborted() -> Iterator[None]:
    """Aborted transactions are not noted."""
    original = OpenTransactions.take

    def take(self: OpenTransactions, data: Any) -> list[Any]:
        original(self, data)
        return []

    with patch.object(OpenTransactions, "take", take):
        yield


@contextmanager
def propose_markers_once() -> Iterator[None]:
    """A leader whose proposals were lost proposes their markers no more."""
    original = TransactionView.clear

    def clear(self: TransactionView) -> None:
        ended = dict(self._ended)
        original(self)
        self._ended |= ended

    with patch.object(TransactionView, "clear", clear):
        yield


_STATE = "tests/sequencer/test_transaction_state.py::"
_RECOVERED = "tests/sequencer/test_group_recovery.py::"

DECIDING = (
    (
        "transactions.12",
        wait_for_what_is_forgotten,
        _RECOVERED + "test_the_leader_of_an_idle_group_aborts_what_is_forgotten",
    ),
    (
        "transactions.12",
        abort_what_is_young,
        _RECOVERED + "test_transactions_that_group_0_has_forgotten_are_aborted",
    ),
    (
        "transactions.12",
        number_transactions_again,
        _RECOVERED + "test_a_recovered_group_0_numbers_no_transaction_again",
    ),
    ("transactions.1", take_late_batches, _STATE + "test_a_batch_is_judged_when_it_is_planned"),
    (
        "transactions.1",
        go_by_what_is_over,
        _STATE + "test_a_planner_that_always_has_something_under_way_goes_from_one_to_the_next",
    ),
    (
        "transactions.1",
        end_again,
        _STATE + "test_offsets_are_committed_by_the_decision_and_the_marker_ends_it",
    ),
    ("transactions.1", fence_nobody, _STATE + "test_who_is_overdue_is_aborted_and_fenced"),
    (
        "transactions.9",
        trust_every_clock,
        _STATE + "test_a_transaction_that_began_by_a_clock_that_was_far_ahead_is_overdue_at_once",
    ),
    (
        "transactions.1",
        propose_markers_once,
        _STATE + "test_markers_whose_proposal_was_lost_are_proposed_again",
    ),
    ("transactions.1", abort_with_offsets, _STATE + "test_who_is_overdue_is_aborted_and_fenced"),
    (
        "transactions.2",
        all_is_stable,
        _STATE + "test_what_is_open_and_aborted_follows_from_the_bytes",
    ),
    (
        "transactions.2",
        forget_what_is_aborted,
        _STATE + "test_what_is_open_and_aborted_follows_from_the_bytes",
    ),
)
"""Rule, bug, and the test that finds it."""
