"""New topics with thousands of partitions are planned, proposed and applied in short turns."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from samelog.placement.values import NewGroup
from samelog.sequencer.admin.placement import PlacementPlan
from samelog.sequencer.node import Node
from samelog.sequencer.raft.proposer import ENTRY_PARTITIONS, in_entries
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.tables.members import Member, SetMembers
from samelog.sequencer.state.tables.placement import PlaceTopic
from samelog.sequencer.state.tables.topics import AddPartitions, CreateTopicCommand
from samelog.sequencer.state.types import State
from tests.kafka.test_turns import BOUND, Turns
from tests.sequencer.cluster import RunWith

MANY = 10_000
GROUPS = 80
"""As many as four members have at most, so that a plan makes none."""


def creation(name: str, partitions: int = 1) -> CreateTopicCommand:
    return CreateTopicCommand(name.rjust(32, "0"), name, partitions, {}, 1)


def member(number: int) -> Member:
    return Member(number, f"n{number}", f"h:{number}", "i", voter=True)


def placed(partitions: int = MANY) -> PlaceTopic:
    groups = [NewGroup(3, (1, 2, 3), 1) for _ in range(GROUPS)]
    where = [1 + number % GROUPS for number in range(partitions)]
    return PlaceTopic(0, "f" * 32, "wide", {}, 1, groups, where)


def machine_with(partitions: int) -> StateMachine:
    made = StateMachine()
    made.apply(SetMembers([*map(member, (1, 2, 3, 4))]))
    made.apply(placed(partitions))
    return made


def test_no_creation_is_applied_in_a_long_turn(tmp_path: Path, run_with: RunWith) -> None:
    turns = Turns()

    async def body(nodes: list[Node]) -> None:
        with turns:
            await nodes[0].raft.proposer.propose(creation("wide", MANY), longer_s=60)
        assert nodes[0].logs.machine.state.topics.named("wide") is not None
        topic_id = nodes[0].logs.machine.state.topics.by_name["wide"]
        with turns:
            await nodes[0].raft.proposer.propose(AddPartitions(topic_id, 2 * MANY), longer_s=60)

    run_with(tmp_path, 1, body)
    assert turns.most <= BOUND


def test_no_function_is_called_for_each_new_partition_of_a_data_group() -> None:
    turns, machine = Turns(), StateMachine()
    machine.apply(SetMembers([*map(member, (1, 2, 3))]))
    before = turns.calls
    turns.count(lambda: machine.apply(placed()))
    assert machine.state.topics.named("wide") is not None
    assert turns.calls - before < 20 * GROUPS
    assert len(machine.state.placement.partitions) == MANY


def test_a_plan_copies_no_partitions() -> None:
    calls = []
    for partitions in (20 * GROUPS, MANY):
        machine, turns = machine_with(partitions), Turns()
        commands = turns.count(partial(plan_topics, machine.state))
        calls.append(turns.calls)
        for command in commands:
            machine.apply(command)
            assert machine.state.topics.named(command.name) is not None
    assert calls[1] <= calls[0]


def plan_topics(state: State) -> list[PlaceTopic]:
    plan = PlacementPlan(state, lambda _: True, 1)
    return [plan.topic(creation(f"t{number}"), 3) for number in range(5)]


def test_entries_are_bounded_by_the_partitions_that_they_make() -> None:
    commands = [*(creation(f"t{number}", 300) for number in range(10)), creation("wide", MANY)]
    entries = [*in_entries(commands)]
    assert [each for entry in entries for each in entry] == commands
    assert [*map(len, entries)] == [ENTRY_PARTITIONS // 300] * 3 + [1, 1]
