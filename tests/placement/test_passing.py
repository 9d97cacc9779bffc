"""Partitions go from group to group, and back, and tasks are cancelled in each phase of that:
nothing is lost, doubled, or in two places.
"""

from __future__ import annotations

import json
from collections import Counter

import pytest
from msgspec.structs import replace

from samelog.archiver.compaction import CompactCommand, Compactions, RewrittenCommand
from samelog.format._kernels import crc32c
from samelog.format.compaction import CompactedSegment
from samelog.format.segment import SealedSegment
from samelog.placement import steps
from samelog.placement.changes import TurnTask
from samelog.placement.members import MemberStates, PlacementLimits
from samelog.placement.tasks import Action, GroupOrder, TaskState
from samelog.sequencer.data_groups.placing import moved_by
from samelog.sequencer.levels import LOWEST
from samelog.sequencer.state.command_base import Rejection
from samelog.sequencer.state.tables.keys import TellKeys
from samelog.sequencer.state.tables.open_transactions import (
    JoinedInLog,
    LogTransactions,
    OpenInLog,
    TakePart,
)
from samelog.sequencer.state.tables.placement import OpenPartition
from samelog.sequencer.state.tables.schemas import SetSchemaCommand
from samelog.sequencer.state.tables.sessions import (
    CloseRun,
    Input,
    OpenPlacedInput,
    Run,
    Session,
    SessionsTable,
)
from samelog.sequencer.state.tables.stages import PinStage
from samelog.sequencer.state.tables.transfers import PassPartition
from samelog.sequencer.state.units.moves import carry
from samelog.wire.peer_messages import PassTold
from tests.placement.passing_world import CHIEF, MOVING, STAYING, TOPIC, Group, PassingWorld

WORLDS = 150


def test_partitions_pass_with_all_that_is_known_of_them() -> None:
    ends: Counter[TaskState] = Counter()
    for seed in range(WORLDS):
        world = PassingWorld(seed)
        world.run()
        ends.update(world.ends)
    assert ends[TaskState.DONE] > WORLDS / 2, ends
    assert ends[TaskState.CANCELLED] > WORLDS / 10, ends


@pytest.mark.campaign
def test_many_partitions_pass() -> None:
    for seed in range(1_000, 21_000):
        PassingWorld(seed).run()


def test_what_left_is_not_opened_by_an_old_table() -> None:
    group = Group(1, MOVING)
    again = OpenPartition(MOVING, TOPIC, "t", {}, 1, [MOVING, STAYING])
    for action in (Action.HOLD_PARTITION, Action.SEAL_PARTITION, Action.DROP_PARTITION):
        assert group.machine.apply(PassPartition(1, action, MOVING, b"")) is not None
    refused = group.machine.apply(again)
    assert isinstance(refused, Rejection)
    assert refused.code == "LEFT"
    assert MOVING not in group.state.partitions.by_number


def test_a_partition_with_an_open_transaction_is_not_sealed() -> None:
    group = Group(1, MOVING)
    group.state.partitions.by_number[MOVING].next_offset = 9
    log = LogTransactions(open={1: OpenInLog(0, 1, 5, 1)})
    group.state.open_transactions.by_partition[MOVING] = log
    assert took(group, 1, Action.HOLD_PARTITION) == ""
    assert took(group, 1, Action.SEAL_PARTITION) == "TRANSACTION_OPEN"
    log.open.clear()
    assert took(group, 1, Action.SEAL_PARTITION) == ""
    assert group.state.transfers.is_on_its_way(MOVING)


def order(number: int, stop: int = 5) -> CompactCommand:
    """The compaction of that number."""
    return CompactCommand(MOVING, number, 0, stop, 0, 1 << 20, bytes(16), [1], 1)


def written(number: int, stop: int = 5) -> RewrittenCommand:
    """The only voter says what it wrote in a compaction."""
    sealed = SealedSegment(0, 100, stop, 1, 7, 0, 0, 0, 0)
    return RewrittenCommand(
        MOVING, number, 1, [CompactedSegment(sealed, number, 0, 5, bytes(32))], 1
    )


def compacted(group: Group) -> Compactions:
    """The group's partition, compacted once up to offset 5."""
    partition = group.state.partitions.by_number[MOVING]
    partition.next_offset, partition.rolls = 9, ((5, 1), (7, 2))
    for command in (order(1), written(1)):
        assert not isinstance(group.machine.apply(command), Rejection)
    assert len(partition.compactions.segments) == 1
    return partition.compactions


def test_a_compacted_partition_takes_its_segments_along() -> None:
    source, target = Group(1, MOVING), Group(2, STAYING)
    segments = compacted(source).segments
    assert move(source, target, 1) == ""
    came = target.state.partitions.by_number[MOVING]
    assert came.compactions.segments == segments
    came.next_offset = 9
    assert not isinstance(target.machine.apply(order(2, 7)), Rejection)
    assert not isinstance(target.machine.apply(written(2, 7)), Rejection)
    assert [each.number for each in came.compactions.segments] == [2]


def test_nothing_is_compacted_on_its_way() -> None:
    """The new group copies segments that the old one would replace meanwhile: some of its members
    would have the old ones, which no member gives any more.
    """
    source, target = Group(1, MOVING), Group(2, STAYING)
    compactions = compacted(source)
    assert not isinstance(source.machine.apply(order(2, 7)), Rejection)
    segments = compactions.segments
    assert took(source, 1, Action.HOLD_PARTITION) == ""
    assert (compactions.order, compactions.segments) == (None, segments)
    copied = carry(source.state, MOVING, is_sealed=False)
    assert took(target, 1, Action.COPY_PARTITION, copied) == ""
    for group in (source, target):
        for command in (order(3, 7), written(2, 7)):
            refused = group.machine.apply(command)
            assert isinstance(refused, Rejection)
            assert refused.code == "ON_ITS_WAY"
    assert compactions.segments == segments


def test_what_is_not_moved_after_all_is_compacted_again() -> None:
    group = Group(1, MOVING)
    compactions = compacted(group)
    assert took(group, 1, Action.HOLD_PARTITION) == ""
    assert took(group, 1, Action.FORBID_SEAL) == ""
    assert not isinstance(group.machine.apply(order(2, 7)), Rejection)
    assert compactions.order is not None


def test_what_is_known_of_keys_comes_along() -> None:
    settings = {"dedup.key": "first", "dedup.key.horizon": "7d"}
    source, target = Group(1, MOVING, settings), Group(2, STAYING, settings)
    keyed = source.state.keys.by_partition[MOVING]
    keyed.floor, keyed.marks, keyed.agreed, keyed.told = 3, [(3, 5)], {0: 7}, {1: {1: 9}}
    assert took(source, 1, Action.HOLD_PARTITION) == ""
    copied = carry(source.state, MOVING, is_sealed=False)
    assert took(target, 1, Action.COPY_PARTITION, copied) == ""
    came = target.state.keys.by_partition[MOVING]
    assert (came.floor, came.marks, came.agreed, came.told) == (3, [(3, 5)], {0: 7}, {})
    tell = TellKeys(MOVING, 1, 2, 9, [2])
    assert code(target.machine.apply(tell)) == "ON_ITS_WAY"
    source.machine.apply(TellKeys(MOVING, 1, 1, 9, [1]))
    assert took(source, 1, Action.SEAL_PARTITION) == ""
    assert code(source.machine.apply(tell)) == "ON_ITS_WAY"
    sealed = carry(source.state, MOVING, is_sealed=True)
    assert took(target, 1, Action.OPEN_PARTITION, sealed) == ""
    assert target.state.keys.by_partition[MOVING].agreed == {0: 7, 1: 9}
    assert code(target.machine.apply(TellKeys(MOVING, 2, 2, 9, [2]))) == ""


def test_what_is_not_held_is_not_sealed() -> None:
    """The list of segments that its new group has may be out of date."""
    assert took(Group(1, MOVING), 1, Action.SEAL_PARTITION) == "OVERTAKEN"


def test_a_move_ends_that_keeps_a_partition_from_being_compacted_for_too_long() -> None:
    world = PassingWorld(1)
    world.begin()
    [task] = world.cluster.placement.tasks.values()
    settings, change = world.groups[1].state.topics.by_id[TOPIC].settings, object()
    for policy, ends in (("delete", False), ("compact", True)):
        settings["cleanup.policy"] = policy
        took(world.groups[1], 1, Action.HOLD_PARTITION)
        world.passes[1].carry_out(CHIEF, GroupOrder(1, Action.HOLD_PARTITION, 1, 1, partition=1))
        world.late.pop()()
        states = MemberStates(world.table, PlacementLimits(), 0)
        for is_late in (False, True):
            moved = moved_by(task, world.said, is_late=is_late)
            for each in (task, replace(task, state=TaskState.PAUSED)):
                change = steps.next_step(world.table, states, each, moved).change
                is_undone = isinstance(change, TurnTask) and change.declines
                assert is_undone is (ends and is_late)
    assert isinstance(change, TurnTask)
    assert change.state is TaskState.CANCELLING


def code(outcome: object) -> str:
    """Why a command was rejected; empty if it was not."""
    return outcome.code if isinstance(outcome, Rejection) else ""


def took(group: Group, task: int, action: Action, carried: bytes = b"") -> str:
    """A step; why it is refused, empty if it is not."""
    return code(group.machine.apply(PassPartition(task, action, MOVING, carried)))


def test_steps_that_come_late_change_nothing() -> None:
    source, target = Group(1, MOVING), Group(2, STAYING)
    copied = carry(source.state, MOVING, is_sealed=False)
    assert took(source, 1, Action.FORBID_SEAL) == ""
    assert took(source, 1, Action.SEAL_PARTITION) == "OVERTAKEN"
    assert took(target, 1, Action.COPY_PARTITION, copied) == ""
    assert took(target, 1, Action.DROP_PARTITION) == ""
    assert took(target, 1, Action.COPY_PARTITION, copied) == "OVERTAKEN"
    assert took(source, 3, Action.FORBID_SEAL) == ""
    assert took(source, 2, Action.HOLD_PARTITION) == "OVERTAKEN"
    assert took(source, 2, Action.SEAL_PARTITION) == "OVERTAKEN"
    assert took(target, 4, Action.OPEN_PARTITION, copied) == "OVERTAKEN"
    assert MOVING not in target.state.partitions.by_number
    assert not source.state.transfers.is_on_its_way(MOVING)


def begin(group: Group, partition: int, run: int) -> None:
    """A session begins a run in one of the group's partitions."""
    run_id, of_session = f"r{run}", ("p", "p", "i", run, run)
    asked = OpenPlacedInput(*of_session, run_id, None, None, None, TOPIC, partition - 1)
    assert not isinstance(group.machine.apply(asked), Rejection)


def move(source: Group, target: Group, task: int) -> str:
    """All steps up to the last one of the target."""
    copied = carry(source.state, MOVING, is_sealed=False)
    assert took(source, task, Action.HOLD_PARTITION) == ""
    assert took(target, task, Action.COPY_PARTITION, copied) == ""
    assert took(source, task, Action.SEAL_PARTITION) == ""
    return took(target, task, Action.OPEN_PARTITION, carry(source.state, MOVING, is_sealed=True))


def test_a_run_goes_on_where_its_partition_is() -> None:
    source, target = Group(1, MOVING), Group(2, STAYING)
    for group, partition in ((source, MOVING), (target, STAYING)):
        begin(group, partition, 1)
    target.machine.apply(CloseRun("p", "r1", 1))
    assert move(source, target, 1) == ""
    run = target.machine.state.sessions.open_run_of("p")
    assert run is not None
    assert run.run_id == "r1"
    entry = target.machine.state.sessions.input_of("p", MOVING)
    assert entry is not None
    assert entry.run == 1

    source, target = Group(1, MOVING), Group(2, STAYING)
    begin(source, MOVING, 2)
    begin(target, STAYING, 1)
    assert move(source, target, 1) == "RUN_OPEN"
    target.machine.apply(CloseRun("p", "r1", 1))
    sealed = carry(source.state, MOVING, is_sealed=True)
    assert took(target, 1, Action.OPEN_PARTITION, sealed) == ""
    run = target.machine.state.sessions.open_run_of("p")
    assert run is not None
    assert run.number == 2
    assert {each.run for each in target.state.sessions.inputs.values()} == {2}


def set_schema(group: Group, follows: int, *fields: str) -> None:
    """One more version of the topic's schema in a group."""
    made = [{"name": name, "type": "int64", "nullable": True} for name in fields]
    text = json.dumps({"format": "json", "columns": made})
    outcome = group.machine.apply(SetSchemaCommand(TOPIC, follows, text, 1))
    assert not isinstance(outcome, Rejection), outcome


@pytest.mark.parametrize(("here", "there"), [(2, 1), (1, 2), (2, 2), (1, 0)])
def test_schemas_come_along(here: int, there: int) -> None:
    source, target = Group(1, MOVING), Group(2, STAYING)
    for group, versions in ((source, here), (target, there)):
        for version in range(versions):
            set_schema(group, version, *["a", "b"][: version + 1])
    source.state.partitions.by_number[MOVING].next_offset = 7
    assert move(source, target, 1) == ""
    newest = max(here, there)
    assert len(target.state.topics.by_id[TOPIC].schemas) == newest
    for number in (MOVING, STAYING):
        assert target.state.partitions.by_number[number].schema_since[-1][1] == newest
    moved = target.state.partitions.by_number[MOVING].schema_since
    assert moved[0] == (0, here)
    assert len(moved) == (1 if here >= there else 2)
    assert set(target.state.schemas.texts) >= {
        each.fingerprint for each in source.state.topics.by_id[TOPIC].schemas
    }


def test_what_is_staged_is_not_sealed() -> None:
    group = Group(1, MOVING)
    begin(group, MOVING, 1)
    run = group.machine.state.sessions.open_run_of("p")
    assert run is not None
    run.stage = "s"
    assert took(group, 1, Action.HOLD_PARTITION) == ""
    assert took(group, 1, Action.SEAL_PARTITION) == "STAGED"
    run.published = True
    assert took(group, 1, Action.SEAL_PARTITION) == ""


def test_who_takes_part_in_a_transaction_comes_along() -> None:
    source, target = Group(1, MOVING), Group(2, STAYING)
    source.machine.apply(TakePart(7, 0, 3, [MOVING]))
    assert move(source, target, 1) == ""
    assert target.state.open_transactions.in_log(MOVING).joined == {7: JoinedInLog(0, 3)}
    later = source.machine.apply(TakePart(8, 0, 1, [MOVING]))
    assert isinstance(later, Rejection)
    assert later.code == "CONCURRENT_TRANSACTIONS"
    assert not isinstance(target.machine.apply(TakePart(8, 0, 1, [MOVING])), Rejection)


def test_what_is_pinned_is_not_sealed() -> None:
    group = Group(1, MOVING)
    begin(group, MOVING, 1)
    pins = group.state.stages.pins
    pins[4] = PinStage(4, "s", [("p", "r1")], [(MOVING, [])])
    assert took(group, 1, Action.HOLD_PARTITION) == ""
    assert took(group, 1, Action.SEAL_PARTITION) == "PINNED"
    del pins[4]
    assert took(group, 1, Action.SEAL_PARTITION) == ""


def parts_to_come(world: PassingWorld, *partitions: int) -> None:
    """Group 0 has closed a run of a session that writes to both partitions; of these, parts are yet
    to come.
    """
    inputs = {number: Input(number, "p1", number) for number in (MOVING, STAYING)}
    ends = [(number, 0, 9) for number in inputs]
    run = Run("r", 0, closed=True, ends=ends, to_come=list(partitions))
    session = Session("p1", "p1", "i", [run, Run("s", 1)])
    world.cluster.sessions = SessionsTable({"p1": session}, inputs)


def test_a_partition_is_sealed_once_all_parts_are_there() -> None:
    """Behind the seal, its group could not take them."""
    world = PassingWorld(1)
    world.begin()
    source = world.groups[1]
    sealing = GroupOrder(1, Action.SEAL_PARTITION, 1, 0, partition=MOVING)
    assert took(source, 1, Action.HOLD_PARTITION) == ""
    parts_to_come(world, MOVING)
    world.passes[1].carry_out(CHIEF, sealing)
    assert not source.entries
    parts_to_come(world, STAYING)
    world.passes[1].carry_out(CHIEF, sealing)
    assert len(source.entries) == 1


def test_a_group_that_lacks_parts_takes_no_partition_of_the_session() -> None:
    """The newer run would come with it, and would have to wait behind the seal."""
    world = PassingWorld(1)
    world.begin()
    source, target = world.groups[1], world.groups[2]
    copying = GroupOrder(1, Action.COPY_PARTITION, 2, 0, partition=MOVING)
    for partition, is_whole in ((STAYING, False), (MOVING, True)):
        assert took(source, 1, Action.HOLD_PARTITION) == ""
        copied = carry(source.state, MOVING, is_sealed=False)
        assert took(target, 1, Action.COPY_PARTITION, copied) == ""
        parts_to_come(world, partition)
        world.late.clear()
        world.passes[2].carry_out(CHIEF, copying)
        world.late[-1]()
        assert world.said[2].is_whole is is_whole


def test_a_group_that_has_just_been_made_is_asked_again() -> None:
    world = PassingWorld(1)
    source, target = world.groups[1], world.groups[2]
    data = carry(source.state, MOVING, is_sealed=False)
    told = PassTold(1, MOVING, 2, False, crc32c(data, 0), 0, 1, data)
    target.state.members.level = 0
    world.passes[2].hear(told)
    assert not target.entries
    target.state.members.level = LOWEST
    world.passes[2].hear(told)
    assert len(target.entries) == 1
