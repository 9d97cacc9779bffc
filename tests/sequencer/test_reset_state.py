"""What resets change in the replicated state, and what they leave alone."""

from __future__ import annotations

import pytest

from samelog.format.positions import SessionPosition
from samelog.sequencer.state.command_base import Rejection
from samelog.sequencer.state.commands import AnyCommand, decode_commands, encode_commands
from samelog.sequencer.state.instructions import Merge, Range, Sequence5
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.tables.epochs import EpochsTable
from samelog.sequencer.state.tables.groups import CommitOffsets, CommittedOffset
from samelog.sequencer.state.tables.resets import HardReset, SoftReset
from samelog.sequencer.state.tables.sessions import OpenInputCommand, OpenRunCommand
from samelog.sequencer.state.tables.topics import CreateTopicCommand, DeleteTopicCommand
from samelog.sequencer.state.units.resets import EPOCH_STEP

RESET = HardReset("r1", 77, 5)


@pytest.fixture
def machine() -> StateMachine:
    """Two topics; one record merged into partition 1, from byte 0 to 10 of input 1."""
    machine = StateMachine()
    machine.apply(CreateTopicCommand("a" * 32, "flights", 2, {"segment.bytes": "65536"}, 1))
    machine.apply(CreateTopicCommand("b" * 32, "other", 1, {}, 1))
    machine.apply(OpenRunCommand("ewr", "d1", "i", 0, "run", None, None))
    machine.apply(OpenInputCommand("ewr", "a" * 32, 0))
    machine.apply(merge(1, 0, 0, 10))
    machine.apply(CommitOffsets([("g", [(1, CommittedOffset(1, 3, "", 9))])]))
    return machine


def merge(partition: int, base: int, start: int, stop: int) -> Merge:
    part = Range(1, 0, 0, start, stop, 1, stop - start, 7)
    learnt = [Sequence5(42, 0, base, base, base)]
    return Merge(partition, base, 3, 1000, False, [part], learnt, [("twin", 5)])


def test_a_hard_reset_gives_every_log_another_identity(machine: StateMachine) -> None:
    machine.apply(RESET)
    flights = machine.state.topics.named("flights")
    assert flights is not None
    assert flights.former_logs == ["a" * 32]
    assert flights.log_id not in ("a" * 32, "b" * 32)
    assert flights.settings == {"segment.bytes": "65536"}
    assert flights.partition_numbers == [4, 5]
    assert list(machine.state.partitions.by_number) == [4, 5, 6]
    assert all(each.next_offset == 0 for each in machine.state.partitions.by_number.values())
    assert machine.state.topics.of_log(flights.log_id) is flights
    assert machine.state.topics.of_log("a" * 32) is None
    assert len({each.log_id for each in machine.state.topics.by_id.values()}) == 2
    assert machine.state.epochs == EpochsTable(EPOCH_STEP, EPOCH_STEP + 5)
    assert [event.kind for event in machine.state.events.remembered] == ["hard-reset"]


def test_what_was_merged_is_not_merged_again_and_the_rest_is(machine: StateMachine) -> None:
    machine.apply(RESET)
    entry = machine.state.sessions.inputs[1]
    assert (entry.partition, entry.place) == (4, SessionPosition(0, 0, 10))
    assert machine.state.sessions.input_of("ewr", 4) is entry
    assert machine.state.sessions.input_of("ewr", 1) is None
    again = machine.apply(merge(4, 0, 0, 10))
    assert isinstance(again, Rejection)
    late = machine.apply(merge(1, 1, 10, 20))
    assert isinstance(late, Rejection)
    assert not isinstance(machine.apply(merge(4, 0, 10, 20)), Rejection)


def test_dedup_is_remembered_and_offsets_are_not(machine: StateMachine) -> None:
    machine.apply(RESET)
    assert machine.state.producers.batches == {42: {4: [Sequence5(42, 0, 0, 0, -1)]}}
    assert machine.state.watermarks.by_dedup_id == {"twin": {4: 5}}
    assert machine.state.groups.by_id["g"].offsets == {}
    machine.apply(CommitOffsets([("g", [(1, CommittedOffset(1, 3, "", 9))])]))
    assert machine.state.groups.by_id["g"].offsets == {}


def test_a_reset_that_is_proposed_twice_is_done_once(machine: StateMachine) -> None:
    machine.apply(RESET)
    machine.apply(merge(4, 0, 10, 20))
    before = machine.encode()
    assert isinstance(machine.apply(RESET), Rejection)
    assert machine.encode() == before
    machine.apply(HardReset("r2", 78, 5))
    flights = machine.state.topics.named("flights")
    assert flights is not None
    assert len({flights.log_id, *flights.former_logs}) == 3
    assert machine.state.epochs.base == 2 * EPOCH_STEP
    machine.apply(RESET)
    assert machine.state.epochs.base == 2 * EPOCH_STEP


def test_a_soft_reset_leaves_everything_but_an_event(machine: StateMachine) -> None:
    before = StateMachine.decode(machine.encode()).state
    machine.apply(SoftReset("r1", 77))
    assert [event.kind for event in machine.state.events.remembered] == ["soft-reset"]
    machine.state.events.remembered, machine.state.resets.ids = [], []
    assert machine.state == before


def test_a_snapshot_and_an_entry_bring_it_along(machine: StateMachine) -> None:
    commands: list[AnyCommand] = [RESET, SoftReset("r2", 1)]
    assert decode_commands(encode_commands(commands)) == commands
    machine.apply(RESET)
    again = StateMachine.decode(machine.encode())
    assert again.state == machine.state
    flights = machine.state.topics.named("flights")
    assert flights is not None
    assert again.state.topics.of_log(flights.log_id) == flights


def test_a_topic_can_be_deleted_and_made_anew_after_it(machine: StateMachine) -> None:
    machine.apply(RESET)
    machine.apply(DeleteTopicCommand("a" * 32))
    assert machine.state.topics.named("flights") is None
    machine.apply(CreateTopicCommand("c" * 32, "flights", 1, {}, 1))
    flights = machine.state.topics.of_log("c" * 32)
    assert flights is not None
    assert flights.former_logs == []
