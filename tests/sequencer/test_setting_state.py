"""Commands about settings: listeners of nodes, settings and partitions of topics."""

from __future__ import annotations

from pathlib import Path

import pytest

from samelog.sequencer.node import Node
from samelog.sequencer.state.command_base import Rejection
from samelog.sequencer.state.commands import AnyCommand, decode_commands, encode_commands
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.tables.members import Advertised, Member, SetListeners, SetMembers
from samelog.sequencer.state.tables.topics import (
    AddPartitions,
    AlterTopicCommand,
    CreateTopicCommand,
    DeleteTopicCommand,
)
from tests.sequencer.cluster import RunWith, Session, batch, make_node, until

INSIDE = Advertised("inside", "host", 9092)


@pytest.fixture
def machine() -> StateMachine:
    machine = StateMachine()
    machine.apply(CreateTopicCommand("t1", "flights", 2, {"segment.bytes": "65536"}, 1))
    machine.apply(CreateTopicCommand("t2", "other", 1, {}, 1))
    return machine


def test_they_survive_encoding() -> None:
    commands: list[AnyCommand] = [
        SetListeners(2, [INSIDE]),
        AlterTopicCommand("t1", {"a": "b"}, ["c"]),
        AddPartitions("t1", 5),
    ]
    assert decode_commands(encode_commands(commands)) == commands


def test_partitions_are_added_with_new_numbers_and_twice_is_once(machine: StateMachine) -> None:
    for _ in range(2):
        machine.apply(AddPartitions("t1", 4))
    topic = machine.state.topics.by_id["t1"]
    assert topic.partition_numbers == [1, 2, 4, 5]
    assert [machine.state.partitions.by_number[n].index for n in topic.partition_numbers] == [
        0,
        1,
        2,
        3,
    ]
    assert StateMachine.decode(machine.encode()).state == machine.state


def test_partitions_are_never_taken_away(machine: StateMachine) -> None:
    before = machine.encode()
    outcome = machine.apply(AddPartitions("t1", 1))
    assert isinstance(outcome, Rejection)
    assert outcome.code == "INVALID_PARTITIONS"
    assert machine.encode() == before


def test_settings_are_set_and_unset(machine: StateMachine) -> None:
    command = AlterTopicCommand(
        "t1", {"message.timestamp.type": "LogAppendTime"}, ["segment.bytes"]
    )
    for _ in range(2):
        machine.apply(command)
    assert machine.state.topics.by_id["t1"].settings == {"message.timestamp.type": "LogAppendTime"}


@pytest.mark.parametrize("command", [AlterTopicCommand("t9", {}, []), AddPartitions("t9", 3)])
def test_an_unknown_topic_is_said(machine: StateMachine, command: AnyCommand) -> None:
    outcome = machine.apply(command)
    assert isinstance(outcome, Rejection)
    assert outcome.code == "UNKNOWN_TOPIC"


def test_a_deleted_topic_takes_added_partitions_along(machine: StateMachine) -> None:
    machine.apply(AddPartitions("t1", 4))
    machine.apply(DeleteTopicCommand("t1"))
    assert list(machine.state.partitions.by_number) == [3]


def test_listeners_belong_to_members(machine: StateMachine) -> None:
    machine.apply(SetListeners(0, [INSIDE]))
    members = [Member(n, f"n{n}", f"h:{n}", f"i{n}", voter=True) for n in (1, 2)]
    machine.apply(SetMembers(members))
    assert machine.state.members.listeners == {}
    machine.apply(SetListeners(2, [INSIDE]))
    outcome = machine.apply(SetListeners(7, [INSIDE]))
    assert isinstance(outcome, Rejection)
    assert machine.state.members.listeners == {2: [INSIDE]}
    assert StateMachine.decode(machine.encode()).state == machine.state


def test_new_partitions_are_on_every_node(tmp_path: Path, run_with: RunWith) -> None:
    async def body(nodes: list[Node]) -> None:
        await Session("a").send(nodes, batch(b"0"))
        (topic,) = nodes[0].logs.machine.state.topics.by_id.values()
        await nodes[0].raft.proposer.propose(AddPartitions(topic.topic_id, 3))
        await until(lambda: all(partitions(node) == [0, 1, 2] for node in nodes), "they have them")
        await nodes[1].stop()
        nodes[1] = make_node(tmp_path, 3, 1, bootstrap=False)
        await nodes[1].start()
        await until(lambda: partitions(nodes[1]) == [0, 1, 2], "it has them still")

    def partitions(node: Node) -> list[int]:
        state = node.logs.machine.state
        (numbers,) = (topic.partition_numbers for topic in state.topics.by_id.values())
        return [state.partitions.by_number[number].index for number in numbers]

    run_with(tmp_path, 3, body)
