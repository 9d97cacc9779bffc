"""What is idle for so long that the cluster need not remember it: producer ids, transactional ids
and sessions; and transactions that are open for longer than their producers said they might be.

The leader judges by the majority's time (rule operations.5); what is forgotten is in a Raft entry,
so that all nodes forget the same (rule sessions.5). A session with an open run never expires: its
publisher may come back with records. If more than ten times as many sessions of an identity are
remembered as it may have open, those that ended longest ago expire early. Of one that expires, its
name, its owner and a number above all its runs stay, so that a late sender of an old run and
another directory are refused as before. What was staged goes as soon as its run is closed, and
nothing stays of it.

Invariant: nothing is named that was used after the times given, or that has bytes which a majority
has not merged durably.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice

from samelog.config.tables.node import Expiry, Quotas
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.tables.open_transactions import OpenTransaction
from samelog.sequencer.state.tables.sessions import Expire, Input, Session
from samelog.sequencer.state.tables.transactions import (
    TIMEOUT_MS_MAX,
    ForgetTransactionalIds,
    TimeOutTransaction,
)
from samelog.sequencer.state.two_phase import TwoPhase

MOST_AHEAD_MS = 10_000
"""By so much may clocks of nodes differ."""
LIMIT = 1_000
"""Of each kind in one entry; more go with the next."""


def due(
    machine: StateMachine, now_ms: int, expiry: Expiry, *, is_released: Callable[[Input], bool]
) -> Expire | None:
    """The command that forgets what is idle for too long; None if nothing is."""
    producers = _idle_producers(machine, now_ms - 1000 * expiry.producers_s)
    idle_before = now_ms - 1000 * expiry.sessions_s
    sessions = (
        (session.name, session.idle_since_ms)
        for session in _ended(machine, idle_before)
        if session.idle_since_ms >= 0 and all(map(is_released, _merged(machine, session)))
    )
    command = Expire(list(islice(producers, LIMIT)), list(islice(sessions, LIMIT)))
    return command if command.producers or command.sessions else None


def _ended(machine: StateMachine, before_ms: int) -> Iterator[Session]:
    """Sessions that ended before a time, and all whose runs were staged. They are in the order they
    ended, so that the first younger one ends the search.
    """
    known = machine.state.sessions.by_name
    for name in machine.index.staged:
        if known[name].runs[-1].closed:
            yield known[name]
    for name in machine.index.ended:
        if known[name].idle_since_ms >= before_ms:
            return
        if not known[name].is_staged:
            yield known[name]


def crowded(
    machine: StateMachine, quotas: Quotas, *, is_released: Callable[[Input], bool]
) -> Expire | None:
    """The command that forgets, of identities of which too many sessions are remembered, those that
    ended longest ago; None if there are none.
    """
    found: list[tuple[str, int]] = []
    for identity, excess in machine.index.crowded(quotas.sessions, quotas.partitions).items():
        idle = (machine.state.sessions.by_name[name] for name in machine.index.idle(identity))
        merged = (
            each
            for each in idle
            if each.idle_since_ms >= 0 and all(map(is_released, _merged(machine, each)))
        )
        ended = [(each.name, each.idle_since_ms) for each in islice(merged, min(excess, LIMIT))]
        if not ended:  # until one ends, or something of one is released
            machine.index.grown.discard(identity)
        found += ended
    return Expire([], found[:LIMIT]) if found else None


def _idle_producers(machine: StateMachine, seen_before: int) -> Iterator[tuple[int, int]]:
    named, logs = machine.state.transactions.producers, machine.state.open_transactions
    for producer, seen_ms in machine.state.producers.seen_ms.items():
        is_idle = seen_ms < seen_before
        if is_idle and producer not in named and not logs.has_any(producer):
            yield producer, seen_ms


def overdue(machine: StateMachine, now_ms: int) -> list[TimeOutTransaction]:
    """The commands that abort transactions whose producers seem to be gone."""
    known = machine.state.transactions
    late = (
        TimeOutTransaction(name, known.by_id[name].number, at_ms)
        for name in known.ongoing
        if (unit := known.by_id[name].unit) is not None
        and unit.is_overdue(at_ms := _looked_at(unit, now_ms))
    )
    return list(islice(late, LIMIT))


def forgotten(here: StateMachine, cluster: StateMachine, now_ms: int) -> list[OpenTransaction]:
    """Transactions that have been open in a data group for longer than any may be, and that group 0
    does not know. If its state `cluster` is current, they are aborted (rule transactions.12).
    """
    known, before_ms = cluster.state.transactions, now_ms - TIMEOUT_MS_MAX
    found = (
        (partition, producer, opened.number)
        for partition, log in here.state.open_transactions.by_partition.items()
        for producer, opened in log.open.items()
        if opened.at_ms < before_ms and not known.knows(producer, opened.number)
    )
    return list(islice(found, LIMIT))


def _looked_at(unit: TwoPhase, now_ms: int) -> int:
    """At which time a transaction is judged: now, or, if it began so far ahead of now that the
    clock of the leader of that time must have been wrong, when it is overdue by that clock
    (rule transactions.9).
    """
    overdue_ms = unit.began_ms + unit.timeout_ms
    return overdue_ms if unit.began_ms > now_ms + unit.timeout_ms + MOST_AHEAD_MS else now_ms


def idle_transactions(
    machine: StateMachine, now_ms: int, expiry: Expiry
) -> ForgetTransactionalIds | None:
    """The command that forgets unused transactional ids; None if there are none."""
    idle_before = now_ms - 1000 * expiry.producers_s
    idle = (
        (name, known.used_ms)
        for name, known in machine.state.transactions.by_id.items()
        if known.used_ms < idle_before and not (known.is_open or known.is_deciding)
    )
    found = list(islice(idle, LIMIT))
    return ForgetTransactionalIds(found) if found else None


def _merged(machine: StateMachine, session: Session) -> Iterator[Input]:
    """The inputs of which something was merged; what was staged and not published never is."""
    for entry in machine.state.sessions.inputs_of(session.name):
        if not session.is_staged or entry.place[1:] != (0, 0):
            yield entry
