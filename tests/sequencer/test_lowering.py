"""A data group goes on alone with less than group 0 knows of: no consumer group is ahead of it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from samelog.placement.changes import ConfirmGroup, RecoverGroup
from samelog.placement.values import PlacedReplica
from samelog.sequencer.data_groups.upkeep import DataGroupUpkeep
from samelog.sequencer.state.command_base import Rejection
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.tables.groups import CommitOffsets, CommittedOffset
from samelog.sequencer.state.tables.placement import ChangePlacement, LowerOffsets
from samelog.sequencer.state.tables.topics import CreateTopicCommand
from samelog.sequencer.state.tables.transactions import (
    AddToTransaction,
    CommitInTransaction,
    EndTransaction,
    InitProducer,
)
from samelog.sequencer.state.tables.views import CreateViewCommand
from tests.sequencer.test_ending import TOPIC, data_group, group_0

GROUP, LOST, HERE, OTHER = 1, 1, 4000, 2
"""The group that lost records, and its partition; where the log ended; one of another group."""


def commit(machine: StateMachine, group: str, partition: int, offset: int) -> None:
    position = CommittedOffset(offset, 3, "m", 7)
    machine.apply(CommitOffsets([(group, [(partition, position)])]))


def committed(machine: StateMachine, group: str) -> dict[int, int]:
    known = machine.state.groups.by_id[group].offsets
    return {number: each.offset for number, each in known.items()}


@pytest.fixture
def cluster() -> StateMachine:
    """Group 0: its table says that one replica is to go on alone."""
    machine = group_0()
    machine.apply(CreateTopicCommand("e" * 32, "__events", 1, {}, 1))
    machine.apply(ChangePlacement(-1, [RecoverGroup(GROUP, 0)]))
    return machine


def lowered(machine: StateMachine) -> LowerOffsets:
    recovered = machine.state.placement.groups[GROUP].recovered
    return LowerOffsets(GROUP, recovered, [(LOST, HERE)], 9)


def goes_on(machine: StateMachine) -> ChangePlacement:
    known = machine.state.placement.groups[GROUP]
    return ChangePlacement(-1, [ConfirmGroup(GROUP, known.recovered, known.replicas)])


def test_offsets_behind_the_end_are_lowered_to_it_and_told(cluster: StateMachine) -> None:
    for group, offset in (("ahead", 5000), ("behind", 3000)):
        commit(cluster, group, LOST, offset)
        commit(cluster, group, OTHER, 6000)
    assert cluster.apply(lowered(cluster)) == lowered(cluster)
    assert committed(cluster, "ahead") == {LOST: HERE, OTHER: 6000}
    assert committed(cluster, "behind") == {LOST: 3000, OTHER: 6000}
    position = cluster.state.groups.by_id["ahead"].offsets[LOST]
    assert position == CommittedOffset(HERE, -1, "m", 7), "its epoch was of a lost record"
    event = cluster.state.events.remembered[-1]
    assert event.kind == "offsets-lowered"
    assert event.text.endswith("Lowered: ahead in t-0 from 5000 to 4000")
    told = cluster.state.events.waiting[-1]
    assert (told.kind, told.subject, told.detail) == (event.kind, "group 1", event.text)


def test_the_status_of_the_cluster_lists_that_a_group_went_on_alone(cluster: StateMachine) -> None:
    """`samelog recover group` says so; the event in the group's own log is on its replicas only."""
    for _ in range(2):  # its fate may not be known
        assert cluster.apply(lowered(cluster)) == lowered(cluster)
    (event,) = [each for each in cluster.state.events.remembered if each.kind == "majority-lost"]
    assert event.text.startswith("group 1 went on with one replica alone.")
    assert event.text.endswith("Partitions: t-0 at 4000")
    told = cluster.state.events.waiting
    assert ("majority-lost", event.text) in {(each.kind, each.detail) for each in told}


def test_what_a_transaction_will_commit_is_lowered_too(cluster: StateMachine) -> None:
    cluster.apply(InitProducer("x", 1000, -1, -1, 77, 0))
    cluster.apply(AddToTransaction("x", 77, 0, [], ["g"], 5))
    position = CommittedOffset(5000, 3, "", 6)
    cluster.apply(CommitInTransaction("x", 77, 0, "g", [(LOST, position)], joins=False, at_ms=6))
    cluster.apply(lowered(cluster))
    cluster.apply(EndTransaction("x", 77, 0, True, False, 88, 7))
    assert committed(cluster, "g") == {LOST: HERE}


def test_what_was_committed_in_a_view_is_lowered_too(cluster: StateMachine) -> None:
    view = CreateViewCommand("a" * 32, "big", TOPIC, "key > 'b'", [], 0, {}, "", "owner", 1)
    assert not isinstance(cluster.apply(view), Rejection)
    number = cluster.state.views.by_id["a" * 32].partition_numbers[0]
    commit(cluster, "g", number, 5000)
    cluster.apply(lowered(cluster))
    assert committed(cluster, "g") == {number: HERE}
    assert "g in big-0 from 5000 to 4000" in cluster.state.events.remembered[-1].text


def test_what_is_committed_once_the_group_goes_on_stays(cluster: StateMachine) -> None:
    """A command that was proposed twice, because its fate was not known."""
    commit(cluster, "g", LOST, 5000)
    again = lowered(cluster)
    cluster.apply(again)
    cluster.apply(goes_on(cluster))
    commit(cluster, "g", LOST, 4500)
    assert isinstance(cluster.apply(again), Rejection)
    assert committed(cluster, "g") == {LOST: 4500}


def upkeep(here: StateMachine, cluster: StateMachine) -> DataGroupUpkeep:
    """Of the leader, which is the replica that went on."""
    anything: Any = SimpleNamespace()
    group = SimpleNamespace(is_leader=True, raft=SimpleNamespace())
    clock = SimpleNamespace(wall_ms=lambda: 9)
    proposer = SimpleNamespace(clock=clock)
    raft = SimpleNamespace(group=group, proposer=proposer, coordinator=anything)
    replica: Any = SimpleNamespace(raft=raft, logs=SimpleNamespace(machine=here))
    presence: Any = SimpleNamespace(number=0)
    return DataGroupUpkeep(
        replica,
        lambda: cluster.state.placement.groups[GROUP],
        clock=anything,
        presence=presence,
        lives=anything,
        cluster=lambda: cluster.state,
        contents=lambda: (LOST,),
    )


@pytest.mark.parametrize(
    ("ends", "offset"), [({LOST: HERE}, HERE), ({}, 0), (None, 5000)], ids=["less", "none", "older"]
)
def test_group_0_lowers_offsets_before_it_knows_that_a_group_goes_on(
    cluster: StateMachine, ends: dict[int, int] | None, offset: int
) -> None:
    """What the replica did not have is empty; an older version says no ends."""
    commit(cluster, "g", LOST, 5000)
    here, known = data_group(), cluster.state.placement.groups[GROUP]
    own = here.state.placement
    own.own = [PlacedReplica(0, known.replicas[0].replica)]
    own.version = own.recovered = known.recovered
    own.ends = ends
    untold = upkeep(here, cluster).unconfirmed()
    assert isinstance(untold[-1], ChangePlacement)
    for command in untold:
        assert not isinstance(cluster.apply(command), Rejection)
    assert not cluster.state.placement.groups[GROUP].is_recovering
    assert committed(cluster, "g") == {LOST: offset}
    assert not upkeep(here, cluster).unconfirmed()
