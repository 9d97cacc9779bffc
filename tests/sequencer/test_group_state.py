"""Consumer groups in the replicated state: what survives a snapshot, what goes with a topic."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from samelog.config.tables.kafka import GroupLimits
from samelog.format.steps import finished
from samelog.kafka.codec.error_codes import ErrorCode
from samelog.kafka.groups.desk import as_answer
from samelog.kafka.groups.requests import Beaten
from samelog.sequencer.state.command_base import Rejection
from samelog.sequencer.state.commands import AnyCommand, decode_commands, encode_commands
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.tables.groups import (
    ClassicMember,
    CommitOffsets,
    CommittedOffset,
    ConsumerMember,
    DeleteGroups,
    DropOffsets,
    NativeMember,
    Phase,
    SaveConsumerGroup,
    SaveGroup,
    SaveNativeGroup,
)
from samelog.sequencer.state.tables.topics import (
    AddPartitions,
    CreateTopicCommand,
    DeleteTopicCommand,
)


def member(name: str, assignment: bytes = b"") -> ClassicMember:
    return ClassicMember(name, None, "c", "/h", 10_000, 60_000, [("range", b"m")], assignment)


def consumer(name: str, assigned: list[int]) -> ConsumerMember:
    return ConsumerMember(name, None, "c", "/h", 60_000, ["flights"], None, 1, 0, assigned)


def save(
    generation: int,
    *members: ClassicMember,
    gone: tuple[str, ...] = (),
    assignments: tuple[tuple[str, bytes], ...] = (),
) -> SaveGroup:
    phase = Phase.STABLE if members or assignments else Phase.EMPTY
    return SaveGroup(
        "g",
        generation,
        phase,
        "consumer",
        "range",
        "m1",
        list(members),
        list(gone),
        list(assignments),
        5,
    )


def commit(group: str, partition: int, offset: int, at_ms: int = 1) -> CommitOffsets:
    return CommitOffsets([(group, [(partition, CommittedOffset(offset, -1, "", at_ms))])])


@pytest.fixture
def machine() -> StateMachine:
    machine = StateMachine()
    machine.apply(CreateTopicCommand("t1", "flights", 2, {}, 1))
    machine.apply(CreateTopicCommand("t2", "weather", 1, {}, 1))
    return machine


def committed(machine: StateMachine, group: str = "g") -> dict[int, int]:
    return {n: known.offset for n, known in machine.state.groups.by_id[group].offsets.items()}


def test_members_come_stay_and_go(machine: StateMachine) -> None:
    machine.apply(save(1, member("m1"), member("m2")))
    machine.apply(save(1, assignments=(("m1", b"a1"), ("m2", b"a2"), ("nobody", b"x"))))
    machine.apply(save(2, member("m3"), gone=("m1",)))
    members = machine.state.groups.by_id["g"].members
    assert {name: known.assignment for name, known in members.items()} == {"m2": b"a2", "m3": b""}


def test_a_generation_never_falls(machine: StateMachine) -> None:
    machine.apply(save(4, member("m1")))
    before = machine.encode()
    assert isinstance(machine.apply(save(3, member("m2"))), Rejection)
    assert machine.encode() == before


def test_a_deleted_topic_takes_its_offsets(machine: StateMachine) -> None:
    for partition in (1, 2, 3):
        machine.apply(commit("g", partition, 7))
    machine.apply(DeleteTopicCommand("t1"))
    assert committed(machine) == {3: 7}
    machine.apply(CreateTopicCommand("t3", "flights", 2, {}, 1))
    machine.apply(commit("g", 1, 9))  # it was on its way when the topic went
    assert committed(machine) == {3: 7}


def test_an_offset_that_was_committed_again_does_not_expire(machine: StateMachine) -> None:
    machine.apply(commit("g", 1, 7, at_ms=10))
    machine.apply(commit("g", 2, 7, at_ms=10))
    machine.apply(commit("g", 1, 8, at_ms=20))
    machine.apply(DropOffsets([("g", 1, 10), ("g", 2, 10), ("g", 9, 10), ("nobody", 1, -1)]))
    assert committed(machine) == {1: 8}
    machine.apply(DropOffsets([("g", 1, -1)]))
    assert committed(machine) == {}


def test_an_administrator_sets_only_groups_without_members(machine: StateMachine) -> None:
    reset = CommitOffsets([("g", [(1, CommittedOffset(3, -1, "", 9))])], only_empty=True)
    assert not isinstance(machine.apply(reset), Rejection)
    machine.apply(save(1, member("m1")))
    machine.apply(commit("g", 1, 7))
    assert isinstance(machine.apply(reset), Rejection)
    assert committed(machine) == {1: 7}


def test_only_groups_without_members_are_deleted(machine: StateMachine) -> None:
    machine.apply(commit("offsets", 1, 7))
    machine.apply(CommitOffsets([("unused", [])]))
    machine.apply(save(1, member("m1")))
    machine.apply(DeleteGroups(["offsets", "unused", "g", "nobody"], unused_only=True))
    assert sorted(machine.state.groups.by_id) == ["g", "offsets"]
    machine.apply(DeleteGroups(["offsets", "g"]))
    assert sorted(machine.state.groups.by_id) == ["g"]
    machine.apply(save(2, gone=("m1",)))
    machine.apply(DeleteGroups(["g"]))
    assert not machine.state.groups.by_id


def test_consumers_come_move_and_go(machine: StateMachine) -> None:
    both = [consumer("a", [1]), consumer("b", [2])]
    machine.apply(SaveConsumerGroup("g", 2, both, [], [("a", [1]), ("b", [2])], 5))
    group = machine.state.groups.by_id["g"]
    assert (group.generation, group.state_name) == (2, "Stable")
    machine.apply(DeleteGroups(["g"]))
    machine.apply(SaveConsumerGroup("g", 3, [], ["b"], [("a", [1, 2])], 6))
    assert (list(group.consumers), group.targets, group.state_name) == (
        ["a"],
        {"a": [1, 2]},
        "Reconciling",
    )
    assert isinstance(machine.apply(SaveConsumerGroup("g", 2, [], ["a"], [], 7)), Rejection)
    machine.apply(SaveConsumerGroup("g", 4, [], ["a"], [], 8))
    assert group.state_name == "Empty"


def test_a_snapshot_from_before_groups_has_none(machine: StateMachine) -> None:
    fields = msgspec.msgpack.decode(machine.encode())
    del fields["groups"]
    assert not StateMachine.decode(msgspec.msgpack.encode(fields)).state.groups.by_id


names = st.sampled_from(["g", "h", "i"])
numbers = st.integers(1, 4)
offsets = st.builds(
    CommittedOffset, st.integers(0, 9), st.just(-1), st.text(max_size=3), st.integers(0, 3)
)
ids = st.sampled_from(["m1", "m2", "m3"])
commands = st.one_of(
    st.builds(
        SaveGroup,
        names,
        st.integers(0, 4),
        st.sampled_from(Phase),
        st.just("consumer"),
        st.none(),
        st.none() | ids,
        st.lists(st.builds(member, ids, st.binary(max_size=3)), max_size=3),
        st.lists(ids, max_size=2),
        st.lists(st.tuples(ids, st.binary(max_size=3)), max_size=2),
        st.integers(0, 9),
    ),
    st.builds(
        CommitOffsets,
        st.lists(st.tuples(names, st.lists(st.tuples(numbers, offsets), max_size=3)), max_size=2),
    ),
    st.builds(
        SaveConsumerGroup,
        names,
        st.integers(0, 4),
        st.lists(st.builds(consumer, ids, st.lists(numbers, max_size=2)), max_size=3),
        st.lists(ids, max_size=2),
        st.lists(st.tuples(ids, st.lists(numbers, max_size=2)), max_size=2),
        st.integers(0, 9),
    ),
    st.builds(DropOffsets, st.lists(st.tuples(names, numbers, st.integers(-1, 3)), max_size=3)),
    st.builds(DeleteGroups, st.lists(names, max_size=2), st.booleans()),
    st.just(DeleteTopicCommand("t1")),
)


@given(st.lists(commands, max_size=12), st.integers(0, 12))
def test_a_node_that_restarts_anywhere_has_the_same_groups(
    history: list[AnyCommand], restart: int
) -> None:
    steady, restarted = StateMachine(), StateMachine()
    for machine in (steady, restarted):
        machine.apply(CreateTopicCommand("t1", "flights", 2, {}, 1))
        machine.apply(CreateTopicCommand("t2", "weather", 1, {}, 1))
    for index, command in enumerate(decode_commands(encode_commands(history))):
        if index == restart:
            restarted = StateMachine.decode(restarted.encode())
        outcomes = [machine.apply(command) for machine in (steady, restarted)]
        assert isinstance(outcomes[0], Rejection) == isinstance(outcomes[1], Rejection)
    assert steady.encode() == restarted.encode()
    for group in steady.state.groups.by_id.values():
        assert group.offsets.keys() <= steady.state.partitions.by_number.keys()


def test_partitions_that_are_newer_than_a_native_group_are_told_as_new(
    machine: StateMachine,
) -> None:
    def told() -> dict[tuple[str, int], bool]:
        numbers = tuple(sorted(machine.state.partitions.by_number))
        beaten = Beaten(ErrorCode.none, "m", 1, numbers)
        answer = finished(as_answer(machine.state, GroupLimits(), "g", beaten))
        assigned = answer.assigned or ()
        return {(each.topic, each.partition): each.is_new for each in assigned}

    native = NativeMember("samelog://me", 1, 1)
    machine.apply(SaveNativeGroup("g", 1, [consumer("m", [])], [], [], 6, [("m", native)]))
    assert told() == {("flights", 0): False, ("flights", 1): False, ("weather", 0): False}
    machine.apply(AddPartitions("t1", 3))
    machine.apply(DeleteTopicCommand("t2"))
    machine.apply(CreateTopicCommand("t3", "weather", 1, {}, 1))
    machine.apply(SaveNativeGroup("g", 2, [consumer("n", [])], ["m"], [], 7, [("n", native)]))
    new = {("flights", 2): True, ("weather", 0): True}
    assert told() == {("flights", 0): False, ("flights", 1): False, **new}
    (number,) = (n for n, p in machine.state.partitions.by_number.items() if p.index == 2)
    machine.apply(commit("g", number, 0))
    assert told()["flights", 2] is False
