"""Hard resets of data groups: what group 0 decides, what each group does, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from samelog.placement.changes import GroupBegunAnew, StartTask
from samelog.placement.tasks import PlacementTask, TaskKind
from samelog.sequencer.data_groups import resets
from samelog.sequencer.state.command_base import Rejection
from samelog.sequencer.state.commands import decode_commands, encode_commands
from samelog.sequencer.state.instructions import Merge, Range, Sequence5
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.tables.placement import (
    BeginAnew,
    ChangePlacement,
    NewLog,
    OpenNewLog,
    OpenPartition,
    PlacePartitions,
)
from samelog.sequencer.state.tables.resets import HardReset
from samelog.sequencer.state.units import moves
from samelog.sequencer.state.units.resets import EPOCH_STEP
from tests.sequencer.test_ending import SESSION, TOPIC, begin, data_group, group_0

GROUP, TERM = 1, 7
RESET = HardReset("r1", 77, 5)


@pytest.fixture
def cluster() -> StateMachine:
    """A topic with a partition in each of two groups, one open run."""
    return group_0()


@pytest.fixture
def group() -> StateMachine:
    """The first of these, with one record merged."""
    machine = data_group()
    begin(machine, 0)
    machine.apply(merge(1, 0, 0, 10))
    return machine


def merge(partition: int, base: int, start: int, stop: int) -> Merge:
    part = Range(1, 0, 0, start, stop, 1, stop - start, 7)
    learnt = [Sequence5(42, 0, base, base, base)]
    return Merge(partition, base, 3, 1000, False, [part], learnt, [("twin", 5)])


def contents(cluster: StateMachine) -> list[int]:
    table = cluster.state.placement.partitions.values()
    return [each.number for each in table if each.group == GROUP]


def owed(group: StateMachine, cluster: StateMachine) -> BeginAnew | None:
    found = resets.owed_reset(group.state, cluster.state, GROUP, contents(cluster))
    return None if found is None else BeginAnew(found[0], 78, TERM, found[1])


def begin_anew(group: StateMachine, cluster: StateMachine) -> BeginAnew:
    command = owed(group, cluster)
    assert command is not None
    assert not isinstance(group.apply(command), Rejection)
    return command


def test_group_0_decides_ids_and_numbers(cluster: StateMachine) -> None:
    cluster.apply(RESET)
    topic, table = cluster.state.topics.by_id[TOPIC], cluster.state.placement
    assert topic.partition_numbers == [3, 4]
    assert {number: each.group for number, each in table.partitions.items()} == {3: 1, 4: 2}
    assert [each.number for each in table.partitions.values()] == [3, 4]
    assert all(each.epoch_base == EPOCH_STEP for each in table.partitions.values())
    assert table.resetting == {1: "r1", 2: "r1"}
    assert topic.log_id != TOPIC
    assert {each.partition for each in cluster.state.sessions.inputs.values()} == {3, 4}


def test_a_group_follows_by_an_entry_of_its_own(cluster: StateMachine, group: StateMachine) -> None:
    assert owed(group, cluster) is None
    cluster.apply(RESET)
    begin_anew(group, cluster)
    topic = group.state.topics.by_id[TOPIC]
    assert topic.log_id == cluster.state.topics.by_id[TOPIC].log_id
    assert topic.former_logs == [TOPIC]
    assert topic.partition_numbers == [3, 4]
    assert [(n, each.next_offset) for n, each in group.state.partitions.by_number.items()] == [
        (3, 0)
    ]
    assert group.state.epochs.by_partition == {3: EPOCH_STEP}
    assert group.state.topics.of_log(topic.log_id) is topic
    assert owed(group, cluster) is None


def test_what_was_merged_is_not_merged_again_and_the_rest_is(
    cluster: StateMachine, group: StateMachine
) -> None:
    cluster.apply(RESET)
    begin_anew(group, cluster)
    assert group.state.producers.batches == {42: {3: [Sequence5(42, 0, 0, 0, -1)]}}
    assert group.state.watermarks.by_dedup_id == {"twin": {3: 5}}
    assert isinstance(group.apply(merge(1, 1, 10, 20)), Rejection)
    assert isinstance(group.apply(merge(3, 0, 0, 10)), Rejection)
    assert not isinstance(group.apply(merge(3, 0, 10, 20)), Rejection)
    entry = group.state.sessions.input_of(SESSION, 3)
    assert entry is not None
    assert entry.byte == 20


def test_group_0_is_told_once_the_group_has_done_it(
    cluster: StateMachine, group: StateMachine
) -> None:
    cluster.apply(RESET)
    assert resets.begun_anew(group.state, cluster.state, GROUP) is None
    begin_anew(group, cluster)
    told = resets.begun_anew(group.state, cluster.state, GROUP)
    assert told == GroupBegunAnew(GROUP, "r1", TERM)
    assert cluster.state.placement.is_resetting(3)
    cluster.apply(ChangePlacement(-1, [told]))
    assert cluster.state.placement.resetting == {2: "r1"}
    assert not cluster.state.placement.is_resetting(3)
    assert cluster.state.placement.partitions[3].first_epoch == EPOCH_STEP + TERM
    assert cluster.state.placement.partitions[4].first_epoch == 0
    assert resets.begun_anew(group.state, cluster.state, GROUP) is None
    again: Any = cluster.apply(ChangePlacement(-1, [told]))
    assert again.code == "OVERTAKEN"


def test_an_older_reset_says_nothing_of_a_newer_one(
    cluster: StateMachine, group: StateMachine
) -> None:
    """A group that was away for two of them does what is left to do, once."""
    cluster.apply(RESET)
    late = owed(group, cluster)
    cluster.apply(HardReset("r2", 79, 5))
    newest = begin_anew(group, cluster)
    assert newest.reset_id == "r2"
    before = group.state.topics.by_id[TOPIC].partition_numbers
    assert before == [5, 6]
    assert late is not None
    group.apply(late)
    assert group.state.topics.by_id[TOPIC].partition_numbers == before
    told = resets.begun_anew(group.state, cluster.state, GROUP)
    assert told is not None
    assert told.reset_id == "r2"
    refused: Any = group.apply(newest)
    assert refused.code == "RESET_DONE"


def test_who_has_not_heard_of_it_opens_nothing(cluster: StateMachine, group: StateMachine) -> None:
    cluster.apply(RESET)
    begin_anew(group, cluster)
    late: Any = group.apply(OpenPartition(1, TOPIC, "t", {}, 1, [1, 2]))
    assert late.code == "OVERTAKEN"
    assert list(group.state.partitions.by_number) == [3]


def test_a_group_that_had_not_opened_it_opens_the_new_log(cluster: StateMachine) -> None:
    cluster.apply(RESET)
    group = StateMachine()
    assert owed(group, cluster) is not None, "it says that it has nothing of the old one"
    begin_anew(group, cluster)
    command = resets.opening(cluster.state, 3)
    assert isinstance(command, OpenNewLog)
    group.apply(command)
    topic = group.state.topics.by_id[TOPIC]
    assert topic.log_id == cluster.state.topics.by_id[TOPIC].log_id
    assert topic.former_logs == [TOPIC]
    assert group.state.epochs.by_partition == {3: EPOCH_STEP}
    assert group.state.topics.of_log(topic.log_id) is topic
    assert isinstance(resets.opening(group_0().state, 1), OpenPartition)


def test_later_partitions_and_moves_are_of_the_new_log(
    cluster: StateMachine, group: StateMachine
) -> None:
    cluster.apply(RESET)
    begin_anew(group, cluster)
    version = cluster.state.placement.version
    cluster.apply(PlacePartitions(version, TOPIC, 3, [], [GROUP]))
    group.apply(resets.opening(cluster.state, 5))
    assert sorted(group.state.partitions.by_number) == [3, 5]
    assert group.state.topics.by_id[TOPIC].partition_numbers == [3, 4, 5]
    assert owed(group, cluster) is None
    carried = moves.carry(group.state, 3, is_sealed=True)
    moved: Any = type("Step", (), {"carried": carried, "partition": 3})
    assert moves.decoded(moved).log_id == cluster.state.topics.by_id[TOPIC].log_id
    assert moves.decoded(moved).former_logs == [TOPIC]


def test_what_is_in_the_way_is_named(cluster: StateMachine) -> None:
    def refusal() -> str:
        outcome: Any = cluster.apply(RESET)
        return str(outcome.code)

    table = cluster.state.placement
    table.moves = {1: 2}
    assert refusal() == "MOVING"
    table.moves = {}
    units: Any = cluster.state.stages.units
    units[1] = None
    assert refusal() == "UNITS"
    assert table.resetting == {}
    del units[1]
    assert not isinstance(cluster.apply(RESET), Rejection)


def test_nothing_moves_until_it_is_done(cluster: StateMachine) -> None:
    cluster.apply(RESET)
    table = cluster.state.placement
    task = PlacementTask(table.next_task, TaskKind.MOVE_PARTITION, GROUP, partition=3, target=2)
    outcome: Any = cluster.apply(ChangePlacement(-1, [StartTask(task)]))
    assert outcome.code == "RESETTING"
    table.resetting = {}
    cluster.apply(ChangePlacement(-1, [StartTask(task)]))
    assert table.tasks == {task.number: task}


def test_entries_and_snapshots_bring_it_along(cluster: StateMachine, group: StateMachine) -> None:
    cluster.apply(RESET)
    command = begin_anew(group, cluster)
    assert decode_commands(encode_commands([command])) == [command]
    opened = resets.opening(cluster.state, 3)
    assert decode_commands(encode_commands([opened])) == [opened]
    assert command.logs == [
        NewLog(TOPIC, group.state.topics.by_id[TOPIC].log_id, [3, 4], [1000, 1000])
    ]
    for machine in (cluster, group):
        assert StateMachine.decode(machine.encode()).state == machine.state
