"""The state machine: preconditions, runs, sessions, topics; a snapshot of it is all of it."""

from __future__ import annotations

import gc

import pytest

from samelog.format.positions import SessionPosition
from samelog.sequencer.levels import OtherVersion
from samelog.sequencer.state.command_base import Rejection
from samelog.sequencer.state.commands import (
    AnyCommand,
    CommandError,
    decode_commands,
    encode_commands,
)
from samelog.sequencer.state.instructions import Merge, Range, Sequence5, VoidRecordsCommand
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.tables.members import LetIn, NodeStarted
from samelog.sequencer.state.tables.partitions import Checkpoint, Partition
from samelog.sequencer.state.tables.sessions import (
    RUNS_REMEMBERED,
    CloseRun,
    Expire,
    OpenInputCommand,
    OpenRunCommand,
    RetireSessionCommand,
)
from samelog.sequencer.state.tables.topics import CreateTopicCommand, DeleteTopicCommand


def open_run(
    run_id: str, *, number: int = 0, session_id: str = "d1", identity: str = "i"
) -> OpenRunCommand:
    return OpenRunCommand("ewr", session_id, identity, number, run_id, None, None)


@pytest.fixture
def machine() -> StateMachine:
    machine = StateMachine()
    machine.apply(CreateTopicCommand("t1", "flights", 2, {}, 1))
    machine.apply(open_run("r0"))
    machine.apply(OpenInputCommand("ewr", "t1", 0))
    return machine


def take(start: int, stop: int, *, roll: int = 0, run: int = 0, records: int = 1) -> Range:
    return Range(1, run, roll, start, stop, records, stop - start, 7)


def merge(base: int, *ranges: Range, **more: object) -> Merge:
    return Merge(1, base, 3, 1000, False, list(ranges), **more)  # type: ignore[arg-type]


def test_commands_survive_encoding() -> None:
    commands: list[AnyCommand] = [
        merge(0, take(0, 10)),
        open_run("x"),
        NodeStarted("n", 4, 0, "life", 1),
        LetIn(0, "life"),
        Checkpoint([(1, 2, 3)]),
    ]
    assert decode_commands(encode_commands(commands)) == commands


def test_an_unreadable_entry_is_a_typed_error() -> None:
    with pytest.raises(CommandError):
        decode_commands(b"\x91\x92\xff")


def test_merge_moves_offset_and_place(machine: StateMachine) -> None:
    assert not isinstance(machine.apply(merge(0, take(0, 10, records=3))), Rejection)
    assert machine.state.partitions.by_number[1].next_offset == 3
    assert machine.state.sessions.inputs[1].place == SessionPosition(0, 0, 10)


@pytest.mark.parametrize(
    "command",
    [
        merge(1, take(0, 10)),
        merge(0, take(5, 10)),
        merge(0, take(0, 10), take(11, 12)),
        merge(0, take(0, 10, run=1)),
        Merge(9, 0, 3, 1, False, [take(0, 10)]),
        merge(0, Range(44, 0, 0, 0, 10, 1, 10, 7)),
    ],
)
def test_a_violated_precondition_changes_nothing(machine: StateMachine, command: Merge) -> None:
    before = machine.encode()
    assert isinstance(machine.apply(command), Rejection)
    assert machine.encode() == before


def test_a_range_may_start_the_next_file(machine: StateMachine) -> None:
    machine.apply(merge(0, take(0, 10), take(0, 4, roll=1)))
    assert machine.state.sessions.inputs[1].place == SessionPosition(0, 1, 4)


def test_nothing_of_a_closed_run_merges(machine: StateMachine) -> None:
    machine.apply(merge(0, take(0, 10)))
    run = machine.apply(CloseRun("ewr", "r0"))
    assert run.ends == [(1, 0, 10)]
    assert isinstance(machine.apply(merge(1, take(10, 20))), Rejection)


def test_runs_open_one_after_another(machine: StateMachine) -> None:
    assert isinstance(machine.apply(open_run("r1", number=1)), Rejection)
    machine.apply(merge(0, take(0, 10)))
    machine.apply(CloseRun("ewr", "r0"))
    assert machine.apply(open_run("r1", number=1)).number == 1
    assert machine.state.sessions.inputs[1].place == SessionPosition(1, 0, 0)


def test_a_run_that_is_not_remembered_is_not_opened_again(machine: StateMachine) -> None:
    machine.apply(CloseRun("ewr", "r0"))
    for number in range(1, RUNS_REMEMBERED + 2):
        machine.apply(open_run(f"r{number}", number=number))
        machine.apply(CloseRun("ewr", f"r{number}"))
    for forgotten in ("r0", "r1"):
        outcome = machine.apply(open_run(forgotten, number=int(forgotten[1:])))
        assert isinstance(outcome, Rejection)
        assert outcome.code == "RUN_FORGOTTEN"
    again = machine.apply(open_run("r2", number=2))
    assert not isinstance(again, Rejection)
    assert again.closed
    restored = machine.apply(open_run("other", number=3))
    assert not isinstance(restored, Rejection), "not forgotten: another run that took the number"
    assert restored.number == RUNS_REMEMBERED + 2
    assert StateMachine.decode(machine.encode()).state == machine.state


def test_a_number_taken_by_another_run_id_is_renumbered(machine: StateMachine) -> None:
    machine.apply(CloseRun("ewr", "r0"))
    assert machine.apply(open_run("other", number=0)).number == 1
    assert machine.apply(open_run("other", number=0)).number == 1
    assert machine.apply(open_run("r0", number=0)).closed


def test_two_directories_cannot_share_a_session(machine: StateMachine) -> None:
    answer = machine.apply(open_run("r9", session_id="d2"))
    assert isinstance(answer, Rejection)
    assert answer.code == "SESSION_CONFLICT"


def test_another_identity_cannot_take_a_session(machine: StateMachine) -> None:
    answer = machine.apply(open_run("r0", identity="thief"))
    assert isinstance(answer, Rejection)
    assert answer.code == "SESSION_CONFLICT"


def test_a_retired_session_goes_to_a_new_directory_and_fences_the_old(
    machine: StateMachine,
) -> None:
    machine.apply(RetireSessionCommand("ewr"))
    assert machine.apply(open_run("r9", session_id="d2", number=0)).number == 1
    answer = machine.apply(open_run("r0"))
    assert isinstance(answer, Rejection)
    assert answer.code == "SESSION_FENCED"


def test_a_retirement_that_comes_twice_spares_the_new_directory(machine: StateMachine) -> None:
    """A proposal whose fate is unknown is repeated."""
    old = machine.state.sessions.by_name["ewr"].session_id
    machine.apply(RetireSessionCommand("ewr", old))
    machine.apply(open_run("r9", session_id="d2", number=0))
    machine.apply(RetireSessionCommand("ewr", old))
    assert not machine.state.sessions.by_name["ewr"].retired
    assert machine.state.sessions.open_run_of("ewr") is not None


def test_a_creation_that_comes_twice_is_one(machine: StateMachine) -> None:
    command = CreateTopicCommand("t9", "twice", 2, {}, 2)
    assert machine.apply(command) is machine.apply(command)
    assert len(machine.state.topics.by_id["t9"].partition_numbers) == 2


def test_a_recreated_topic_shares_nothing(machine: StateMachine) -> None:
    machine.apply(merge(0, take(0, 10), sequences=[Sequence5(5, 0, 0, 0, 0)]))
    machine.apply(DeleteTopicCommand("t1"))
    machine.apply(CreateTopicCommand("t2", "flights", 1, {}, 2))
    topic = machine.state.topics.named("flights")
    assert topic is not None
    assert topic.partition_numbers == [3]
    assert machine.state.partitions.by_number[3].next_offset == 0
    assert machine.state.sessions.inputs == {}
    assert machine.state.producers.batches[5] == {}


def test_only_five_batches_are_remembered(machine: StateMachine) -> None:
    for number in range(8):
        sequence = Sequence5(5, 0, number, number, number)
        machine.apply(merge(number, take(number, number + 1), sequences=[sequence]))
    assert [known.first for known in machine.state.producers.batches[5][1]] == [3, 4, 5, 6, 7]


def test_an_older_boot_is_refused(machine: StateMachine) -> None:
    assert machine.apply(NodeStarted("n", 4, 0, "a", 1)) == 4
    assert isinstance(machine.apply(NodeStarted("n", 3, 0, "b", 1)), Rejection)


def test_a_snapshot_is_the_whole_state(machine: StateMachine) -> None:
    machine.apply(merge(0, take(0, 10), watermarks=[("d", 9)], unwrapped=[(1, 9)]))
    twin = StateMachine.decode(machine.encode())
    for command in (
        merge(1, take(10, 12)),
        OpenInputCommand("ewr", "t1", 1),
        CloseRun("ewr", "r0"),
    ):
        twin.apply(command)
        machine.apply(command)
    assert twin.encode() == machine.encode()


def test_a_foreign_snapshot_is_refused() -> None:
    with pytest.raises(OtherVersion, match="unreadable"):
        StateMachine.decode(b"nonsense")


def void(first: int, behind: int) -> VoidRecordsCommand:
    return VoidRecordsCommand(1, first, behind, segment=0, epoch=1, timestamp=2, at_ms=3)


def test_planned_records_can_be_given_up_once(machine: StateMachine) -> None:
    machine.apply(merge(0, take(0, 10, records=9)))
    assert machine.apply(void(3, 5)) == void(3, 5)
    assert machine.apply(void(3, 5)) == void(3, 5)
    assert machine.state.partitions.by_number[1].voids == (void(3, 5),)
    assert [event.kind for event in machine.state.events.remembered] == ["void"]
    assert "flights-0: offsets 3 to 4" in machine.state.events.remembered[0].text
    assert StateMachine.decode(machine.encode()).state == machine.state


def test_a_checksum_of_records_that_were_given_up_says_nothing(machine: StateMachine) -> None:
    machine.apply(merge(0, take(0, 10, records=9)))
    machine.apply(Checkpoint([(1, 4, 77)]))
    machine.apply(void(3, 5))
    partition = machine.state.partitions.by_number[1]
    assert (partition.checked_offset, partition.checked_sum) == (9, None)
    assert machine.apply(Checkpoint([(1, 9, 78)])) == Checkpoint([]), "of before, but late"
    assert (partition.checked_offset, partition.checked_sum) == (9, None)
    assert StateMachine.decode(machine.encode()).state == machine.state
    assert machine.apply(Checkpoint([(1, 10, 79), (1, 9, 78)])) == Checkpoint([(1, 10, 79)])
    assert (partition.checked_offset, partition.checked_sum) == (10, 79)


@pytest.mark.parametrize(("first", "behind"), [(4, 6), (2, 4), (0, 9), (8, 10), (5, 5), (-1, 2)])
def test_records_that_are_void_or_not_planned_are_not_given_up(
    machine: StateMachine, first: int, behind: int
) -> None:
    machine.apply(merge(0, take(0, 10, records=9)))
    machine.apply(void(3, 5))
    before = machine.encode()
    assert isinstance(machine.apply(void(first, behind)), Rejection)
    assert machine.encode() == before


def test_an_expired_session_refuses_its_late_senders_and_goes_on(machine: StateMachine) -> None:
    machine.apply(merge(0, take(0, 10)))
    machine.apply(CloseRun("ewr", "r0", 50))
    gone = machine.apply(Expire([], [("ewr", 50)]))
    assert [entry.number for entry in gone] == [1]
    assert machine.state.sessions.inputs == {}
    late = machine.apply(open_run("r0"))
    assert isinstance(late, Rejection)
    assert late.code == "RUN_FORGOTTEN"
    assert isinstance(machine.apply(open_run("r1", number=1, identity="other")), Rejection)
    assert machine.apply(open_run("r1", number=1)).number == 1
    assert machine.apply(OpenInputCommand("ewr", "t1", 0)).number == 2


def test_a_renumbered_run_does_not_get_an_expired_number(machine: StateMachine) -> None:
    machine.apply(CloseRun("ewr", "r0", 1))
    machine.apply(open_run("again"))
    machine.apply(CloseRun("ewr", "again", 50))
    machine.apply(Expire([], [("ewr", 50)]))
    assert machine.apply(open_run("r1", number=1)).number == 2


def test_what_was_used_meanwhile_does_not_expire(machine: StateMachine) -> None:
    machine.apply(merge(0, take(0, 10), sequences=[Sequence5(7, 0, 0, 0, 0)]))
    machine.apply(CloseRun("ewr", "r0", 50))
    before = machine.encode()
    machine.apply(Expire([(7, 999), (8, 1000)], [("ewr", 49), ("nobody", 1)]))
    assert machine.encode() == before
    machine.apply(open_run("r1", number=1))
    machine.apply(Expire([(7, 1000)], [("ewr", 50), ("ewr", -1)]))
    assert machine.state.producers.batches == {}
    assert machine.state.sessions.open_run_of("ewr") is not None


def test_a_decoded_state_names_everything_once(machine: StateMachine) -> None:
    """A string and a number for each place would be most of what an idle partition takes."""
    found = StateMachine.decode(machine.encode()).state
    assert found == machine.state
    (topic,), (entry,) = found.topics.by_id.values(), found.sessions.inputs.values()
    first, second = found.partitions.by_number.values()
    assert first.topic_id is second.topic_id is next(iter(found.topics.by_id))
    assert entry.session is next(iter(found.sessions.by_name))
    numbers = zip(found.partitions.by_number, topic.partition_numbers, (first, second), strict=True)
    assert all(key is number is each.number for key, number, each in numbers)


def test_partitions_that_nothing_was_written_to_have_no_lists_of_their_own() -> None:
    first, second = Partition(1, "t", 0), Partition(2, "t", 1)
    assert first.rolls is second.rolls
    assert not gc.is_tracked(first)
