"""Transactions in the replicated state, from the producer's id to the marker in the log."""

from __future__ import annotations

import pytest

from samelog.config.tables.node import Expiry
from samelog.format import _kernels as kernels
from samelog.format.transactions import (
    Aborted,
    OpenTransactions,
    decode_aborted,
    encode_aborted,
    marker_batch,
)
from samelog.sequencer.merge.dedup import BatchFacts
from samelog.sequencer.merge.transaction_view import TransactionView
from samelog.sequencer.state.command_base import Rejection
from samelog.sequencer.state.expiry import MOST_AHEAD_MS, idle_transactions, overdue
from samelog.sequencer.state.instructions import Begin, End, Merge, MergeExtras, Verdict
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.tables import transactions
from samelog.sequencer.state.tables.groups import CommittedOffset, NativeMember, SaveNativeGroup
from samelog.sequencer.state.tables.topics import CreateTopicCommand
from samelog.sequencer.state.tables.transactions import (
    AddToTransaction,
    CommitInTransaction,
    EndTransaction,
    ForgetTransactionalIds,
    InitProducer,
    ProducerIdAndEpoch,
    TimeOutTransaction,
)
from samelog.sequencer.state.two_phase import Decision, TwoPhase


def begun() -> StateMachine:
    machine = StateMachine()
    machine.apply(CreateTopicCommand("t", "flights", 1, {}, 0))
    assert machine.apply(InitProducer("x", 1000, -1, -1, 77, 0)) == ProducerIdAndEpoch(77, 0)
    assert machine.apply(AddToTransaction("x", 77, 0, [1], ["g"], 5)) == ProducerIdAndEpoch(77, 0)
    offset = (1, CommittedOffset(3, -1, "", 6))
    machine.apply(CommitInTransaction("x", 77, 0, "g", [offset], joins=False, at_ms=6))
    return machine


def end(*, commit: bool, bumps: bool = False) -> EndTransaction:
    return EndTransaction("x", 77, 0, commit, bumps, 88, 7)


def test_offsets_for_a_group_that_subscribers_joined_meanwhile_are_left_out() -> None:
    machine = begun()
    native = NativeMember("samelog://client/a", 6, 6)
    machine.apply(SaveNativeGroup("g", 1, [], [], [], 6, [("m", native)]))
    machine.apply(end(commit=True))
    assert machine.state.groups.by_id["g"].offsets == {}
    assert machine.state.events.remembered[-1].kind == "offsets-left-out"


def marker(machine: StateMachine, epoch: int) -> Merge:
    known = machine.state.partitions.by_number[1]
    is_commit = machine.state.transactions.markers_due()[1][0].is_commit
    ends = [End(77, epoch, 1, is_commit)]
    return Merge(1, known.next_offset, 3, 9, False, [], extras=MergeExtras(ends=ends))


def test_offsets_are_committed_by_the_decision_and_the_marker_ends_it() -> None:
    machine = begun()
    assert machine.state.groups.by_id == {}
    assert machine.apply(end(commit=True)) == ProducerIdAndEpoch(77, 0)
    assert machine.state.groups.by_id["g"].offsets[1].offset == 3
    refused = machine.apply(AddToTransaction("x", 77, 0, [1], [], 8))
    assert isinstance(refused, Rejection)
    assert refused.code == "CONCURRENT_TRANSACTIONS"
    merge = marker(machine, 0)
    assert machine.apply(merge) is merge
    assert machine.state.transactions.by_id["x"].state_name == "CompleteCommit"
    assert machine.state.partitions.by_number[1].next_offset == 1
    assert merge.extras is not None
    again = Merge(1, 1, 3, 9, False, [], extras=MergeExtras(ends=merge.extras.ends))
    assert isinstance(machine.apply(again), Rejection)
    late = [Begin(77, 0, 1, 1)]
    assert isinstance(
        machine.apply(Merge(1, 1, 3, 9, False, [], extras=MergeExtras(late))), Rejection
    )


def test_who_is_overdue_is_aborted_and_fenced() -> None:
    machine = begun()
    assert isinstance(machine.apply(TimeOutTransaction("x", 1, 1004)), Rejection)
    assert machine.apply(TimeOutTransaction("x", 1, 1005)) == ProducerIdAndEpoch(77, 1)
    assert code_of(machine.apply(end(commit=True))) == "INVALID_TXN_STATE"
    assert code_of(machine.apply(AddToTransaction("x", 77, 0, [1], [], 8))) == "PRODUCER_FENCED"
    machine.apply(marker(machine, 1))
    assert machine.state.transactions.by_id["x"].state_name == "CompleteAbort"
    assert machine.state.groups.by_id == {}


def code_of(outcome: object) -> str:
    assert isinstance(outcome, Rejection)
    return outcome.code


def timed_out() -> StateMachine:
    """The marker of the abort is written, too."""
    machine = begun()
    machine.apply(TimeOutTransaction("x", 1, 1005))
    assert code_of(machine.apply(end(commit=False))) == "CONCURRENT_TRANSACTIONS"
    machine.apply(marker(machine, 1))
    return machine


@pytest.mark.parametrize("bumps", [False, True])
def test_a_producer_whose_transaction_timed_out_aborts_and_goes_on(bumps: bool) -> None:
    machine = timed_out()
    assert code_of(machine.apply(end(commit=True, bumps=bumps))) == "INVALID_TXN_STATE"
    for _ in range(2):
        aborted = machine.apply(end(commit=False, bumps=bumps))
        assert aborted == ProducerIdAndEpoch(77, 1)
    for _ in range(2):
        assert machine.apply(InitProducer("x", 1000, 77, 0, 99, 9)) == ProducerIdAndEpoch(77, 1)
    machine.apply(AddToTransaction("x", 77, 1, [1], [], 10))
    assert machine.apply(EndTransaction("x", 77, 1, True, bumps, 88, 11)).producer_id == 77


def test_whoever_has_the_epoch_before_is_fenced_once_the_next_transaction_has_begun() -> None:
    machine = timed_out()
    machine.apply(InitProducer("x", 1000, 77, 0, 99, 9))
    machine.apply(AddToTransaction("x", 77, 1, [1], [], 10))
    machine.apply(EndTransaction("x", 77, 1, False, False, 88, 11))
    for commit in (False, True):
        assert code_of(machine.apply(end(commit=commit))) == "PRODUCER_FENCED"
    machine.apply(marker_of_second(machine))
    assert code_of(machine.apply(InitProducer("x", 1000, 77, 0, 99, 12))) == "PRODUCER_FENCED"


def marker_of_second(machine: StateMachine) -> Merge:
    ends = [End(77, 1, 2, False)]
    return Merge(1, 1, 3, 9, False, [], extras=MergeExtras(ends=ends))


def test_a_rival_fences_the_producer_whose_transaction_it_ends() -> None:
    machine = begun()
    assert machine.apply(InitProducer("x", 1000, -1, -1, 99, 9)).must_wait
    for commit in (False, True):
        assert code_of(machine.apply(end(commit=commit))) == "PRODUCER_FENCED"
    machine.apply(marker(machine, 1))
    assert machine.apply(InitProducer("x", 1000, -1, -1, 99, 10)) == ProducerIdAndEpoch(77, 2)
    assert code_of(machine.apply(InitProducer("x", 1000, 77, 0, 99, 11))) == "PRODUCER_FENCED"


def test_the_leader_finds_what_is_overdue_and_what_nobody_uses() -> None:
    machine, expiry = begun(), Expiry(producers_s=60)
    assert overdue(machine, 1004) == []
    (late,) = overdue(machine, 1005)
    assert late == TimeOutTransaction("x", 1, 1005)
    assert idle_transactions(machine, 100_000, expiry) is None  # it is open
    machine.apply(late)
    assert overdue(machine, 9999) == []
    assert idle_transactions(machine, 100_000, expiry) is None  # its markers are missing
    machine.apply(marker(machine, 1))
    assert idle_transactions(machine, 61_005, expiry) is None
    found = idle_transactions(machine, 61_006, expiry)
    assert found == ForgetTransactionalIds([("x", 1005)])
    machine.apply(found)
    assert machine.state.transactions.by_id == {}


def test_a_transaction_that_began_by_a_clock_that_was_far_ahead_is_overdue_at_once() -> None:
    """It would be open for as long as that clock was ahead."""
    machine, day_ms = begun(), 86_400_000
    assert overdue(machine, 1000 - MOST_AHEAD_MS) == []  # clocks may differ by that
    (late,) = overdue(machine, 1000 - day_ms)
    assert late == TimeOutTransaction("x", 1, 1005)
    assert machine.apply(late) == ProducerIdAndEpoch(77, 1)


def test_a_planner_that_always_has_something_under_way_goes_from_one_to_the_next() -> None:
    """What it proposed for the first transaction is applied, and not forgotten yet."""
    machine = begun()
    view, batch = TransactionView(machine, machine), BatchFacts(1, 77, 0, 0, is_transactional=True)
    first = view.begin(1, batch, 0)
    assert first == Begin(77, 0, 1, 0)
    machine.apply(Merge(1, 0, 3, 9, False, [], extras=MergeExtras([first])))
    machine.apply(end(commit=True))
    assert len(view.take_markers()) == 1
    assert not view.owes_markers
    machine.apply(marker(machine, 0))
    machine.apply(AddToTransaction("x", 77, 0, [1], [], 10))
    assert view.judge(1, batch) is Verdict.TAKE
    assert view.begin(1, batch, 2) == Begin(77, 0, 2, 2)
    machine.apply(end(commit=True))
    assert view.owes_markers


def test_markers_whose_proposal_was_lost_are_proposed_again() -> None:
    """With leadership, for example: whoever leads next takes what is decided from the state."""
    machine = begun()
    machine.apply(end(commit=True))
    view = TransactionView(machine, machine)
    proposed = view.take_markers()
    assert [number for number, _ in proposed] == [1]
    assert not view.owes_markers
    view.clear()
    assert view.take_markers() == proposed


def test_a_batch_is_judged_when_it_is_planned() -> None:
    machine = begun()
    view = TransactionView(machine, machine)

    def judged(epoch: int = 0, partition: int = 1, **more: bool) -> Verdict:
        facts = {"is_transactional": True} | more
        return view.judge(partition, BatchFacts(1, 77, epoch, 0, **facts))

    assert judged() is Verdict.TAKE
    assert judged(partition=2) is Verdict.INVALID_TRANSACTION
    assert judged(epoch=1) is Verdict.INVALID_TRANSACTION
    assert view.judge(1, BatchFacts(1, 5, 0, 0, is_transactional=True)) is (
        Verdict.INVALID_TRANSACTION
    )
    assert judged(is_transactional=False) is Verdict.TAKE
    assert view.begin(1, BatchFacts(1, 77, 0, 0, is_transactional=True), 0) is not None
    assert judged(is_transactional=False) is Verdict.INVALID_TRANSACTION
    machine.apply(TimeOutTransaction("x", 1, 1005))
    assert judged() is Verdict.FENCED
    machine.apply(marker(machine, 1))
    assert judged(is_transactional=False) is Verdict.FENCED


def test_a_second_producer_waits_for_the_abort_of_the_first() -> None:
    machine = begun()
    assert machine.apply(InitProducer("x", 1000, -1, -1, 99, 7)).must_wait
    assert isinstance(machine.apply(InitProducer("x", 1000, -1, -1, 99, 7)), Rejection)
    machine.apply(marker(machine, 1))
    assert machine.apply(InitProducer("x", 1000, -1, -1, 99, 8)) == ProducerIdAndEpoch(77, 2)


def test_there_may_be_so_many_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = begun()
    monkeypatch.setattr(transactions, "IDS_MAX", 1)
    refused = machine.apply(InitProducer("y", 1000, -1, -1, 99, 7))
    assert isinstance(refused, Rejection)
    assert refused.code == "TOO_MANY"
    assert list(machine.state.transactions.by_id) == ["x"]


def test_each_transaction_of_the_newer_protocol_has_its_epoch() -> None:
    machine = begun()
    assert machine.apply(end(commit=True, bumps=True)) == ProducerIdAndEpoch(77, 1)
    machine.apply(marker(machine, 1))
    assert machine.apply(end(commit=True, bumps=True)) == ProducerIdAndEpoch(77, 1)  # asked again
    refused = machine.apply(end(commit=False, bumps=True))
    assert isinstance(refused, Rejection)
    assert refused.code == "INVALID_TXN_STATE"


def test_a_snapshot_has_all_of_it() -> None:
    machine = begun()
    machine.apply(end(commit=False))
    again = StateMachine.decode(machine.encode())
    assert again.state.transactions == machine.state.transactions


def test_commit_takes_all_and_a_decision_stays() -> None:
    unit = TwoPhase(1, began_ms=0)
    assert unit.join(1)
    assert unit.join(2, is_prepared=True)
    assert not unit.decide(Decision.COMMIT)
    assert unit.prepared(1)
    assert unit.decide(Decision.COMMIT)
    assert not unit.decide(Decision.ABORT)
    assert not unit.join(3)
    assert not unit.is_overdue(1 << 40)
    assert unit.carried_out(1)
    assert not unit.carried_out(1)
    assert not unit.is_done
    assert unit.carried_out(2)
    assert unit.is_done


def records(producer: int) -> bytearray:
    data = bytearray(
        kernels.build_batches(
            [b"v"],
            timestamps=1,
            producer_id=producer,
            producer_epoch=0,
            base_sequence=0,
            batch_bytes=1 << 20,
            max_record_bytes=1 << 20,
        )
    )
    data[22] |= 0x10
    return data


def test_what_is_open_and_aborted_follows_from_the_bytes() -> None:
    known = OpenTransactions(0)
    commits = {"coordinator_epoch": 1, "at_ms": 1}
    data = records(1) + records(2) + marker_batch(2, 0, is_commit=False, **commits)
    assert known.take(data) == [Aborted(2, 1, 2, 0)]
    assert (known.offset, known.last_stable_offset) == (3, 0)
    assert known.take(marker_batch(1, 0, is_commit=True, **commits)) == []
    assert known.last_stable_offset == 4
    entries = [Aborted(2, 1, 2, 0), Aborted(5, 7, 9, 10)]
    assert decode_aborted(encode_aborted(entries) + b"cut") == entries


def test_a_transactional_id_belongs_to_whoever_used_it_first_until_it_is_forgotten() -> None:
    machine = StateMachine()
    ann, bob = "samelog://user/ann", "samelog://user/bob"
    machine.apply(InitProducer("x", 1000, -1, -1, 77, 0, ann))
    assert code_of(machine.apply(InitProducer("x", 1000, -1, -1, 88, 1, bob))) == "NOT_OWNER"
    assert machine.state.transactions.by_id["x"].epoch == 0, "a refusal fences no producer"
    granted = InitProducer("x", 1000, -1, -1, 88, 2, bob, is_granted=True)
    assert machine.apply(granted) == ProducerIdAndEpoch(77, 1)
    assert machine.state.transactions.by_id["x"].owner == ann
    machine.apply(ForgetTransactionalIds([("x", 2)]))
    machine.apply(InitProducer("x", 1000, -1, -1, 99, 3, bob))
    assert machine.state.transactions.by_id["x"].owner == bob
