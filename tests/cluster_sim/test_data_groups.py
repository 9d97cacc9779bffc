"""What the world knows of data groups, so that its faults spare their majorities, and what its
operator does at the end.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from samelog.placement.changes import PlaceGroups, StartTask, WantGroup, apply_change
from samelog.placement.table import PlacementTable
from samelog.placement.tasks import PlacementTask, TaskKind, TaskState
from samelog.placement.values import NewGroup, Placement
from samelog.sequencer.state.tables.placement import ChangePlacement
from tests.cluster_sim.data_groups import DataGroups
from tests.cluster_sim.memory_faults import MemoryFaults
from tests.cluster_sim.operator import Operator
from tests.cluster_sim.options import many_groups


@dataclass(eq=False)
class DownNode:
    """A node that is not running."""

    number: int
    node: Any = None
    process: Any = None
    is_condemned: bool = False
    stays_away: bool = False


def world_of(nodes: int) -> Any:
    """A world whose nodes are all down."""
    return SimpleNamespace(
        options=many_groups(1),
        nodes=[DownNode(number) for number in range(nodes)],
        membership=SimpleNamespace(number_of=lambda actor: actor.number),
    )


def test_groups_are_known_while_all_nodes_are_down() -> None:
    """A fault took the only copy of a group, because no node that ran knew of the group (world
    62000001 of many groups): what had been acknowledged there was lost with it.
    """
    world = world_of(3)
    groups, table = DataGroups(world), Placement()
    apply_change(table, PlaceGroups(1, (NewGroup(1, (0,), 0),)))
    assert all(map(groups.may_forget, world.nodes))
    groups.know(table)
    assert [groups.may_forget(actor) for actor in world.nodes] == [False, True, True]
    assert [groups.may_stay_away(actor) for actor in world.nodes] == [False, True, True]
    assert groups.table() == {1: (0,)}


def test_a_condemned_node_may_be_the_only_one_of_a_group() -> None:
    """A node with unread rot was given the only replica of a group, and then an empty disk (world
    910086).
    """
    world = world_of(3)
    world.data_groups, table = DataGroups(world), Placement()
    world.membership.may_forget = 1
    faults = MemoryFaults(world)
    world.nodes[2].is_condemned = True
    assert [faults.may_condemn(actor) for actor in world.nodes] == [False, False, True]
    apply_change(table, PlaceGroups(1, (NewGroup(1, (2,), 2), NewGroup(3, (0, 1, 2), 0))))
    world.data_groups.know(table)
    assert not any(map(faults.may_condemn, world.nodes))


def test_a_group_counts_from_its_proposal_on() -> None:
    """The only member of a group lost its disk before its replica began (world 9400481120 of
    converting groups).
    """
    world = world_of(3)
    groups = DataGroups(world)
    groups.asked_for(0, NewGroup(1, (2,), 2))
    assert [groups.may_forget(actor) for actor in world.nodes] == [True, True, False]
    groups.know(Placement(version=1))
    assert all(map(groups.may_forget, world.nodes)), "a table of another version refused it"


def test_groups_of_a_change_count_from_its_proposal_on() -> None:
    """The only member of a group for a converted topic lost its disk before the leader that
    proposed the group had spread the entry (world 77000019 of converting groups).
    """
    world = world_of(3)
    groups, table = DataGroups(world), Placement()
    planned = PlaceGroups(1, (NewGroup(1, (1,), 1),))
    groups.plans([planned, WantGroup(1, 1)])
    assert [groups.may_forget(actor) for actor in world.nodes] == [True, False, True]
    apply_change(table, PlaceGroups(1, (NewGroup(1, (0,), 0),)))
    groups.know(table)
    assert [groups.may_forget(actor) for actor in world.nodes] == [False, True, True]


def test_only_who_no_group_needs_stays_away() -> None:
    """A group of two lost its majority for good (world 80500039)."""
    world = world_of(3)
    groups, table = DataGroups(world), Placement()
    apply_change(table, PlaceGroups(1, (NewGroup(2, (0, 1), 0), NewGroup(3, (0, 1, 2), 0))))
    groups.know(table)
    assert [groups.may_stay_away(actor) for actor in world.nodes] == [False, False, True]
    world.nodes[2].stays_away = True
    assert not groups.may_stay_away(world.nodes[0])


def test_the_operator_cancels_tasks_for_nodes_that_stay_away() -> None:
    """A task gave a replica to a node that had just lost power for good (world 88003 at 4a2e281f).
    It would have waited for `replace_after_s`, and its group's leader never rested.
    """
    world, table, proposed = world_of(5), Placement(), list[ChangePlacement]()
    groups = (NewGroup(2, (1, 3), 1), NewGroup(2, (1, 3), 3))
    apply_change(table, PlaceGroups(1, groups))
    for number, gets in (1, 0), (2, 2):
        task = PlacementTask(number, TaskKind.FILL, number, gets=gets, replica=table.next_replica)
        apply_change(table, StartTask(task))
    leader = SimpleNamespace(is_leader=True, propose=proposed.extend)
    world.nodes[4].process = SimpleNamespace()
    world.nodes[4].node = SimpleNamespace(
        cluster=SimpleNamespace(placement=table, members=range(5)),
        placing=SimpleNamespace(look=lambda: PlacementTable(table)),
        raft=SimpleNamespace(group=leader),
        data_groups=SimpleNamespace(replicas={}),
        member=SimpleNamespace(config=SimpleNamespace(name="n4")),
    )
    world.loop = SimpleNamespace(
        call_in=lambda _process, _delay_s, call, *given: call(*given), time=lambda: 0.0
    )
    world.data_groups = DataGroups(world)
    operator = Operator(world, random.Random(1))
    operator.settle()
    assert not proposed
    world.nodes[0].stays_away = True
    operator.settle()
    for change in (change for command in proposed for change in command.changes):
        apply_change(table, change)
    states = {number: task.state for number, task in table.tasks.items()}
    assert states == {1: TaskState.CANCELLING, 2: TaskState.RUNNING}
    assert table.declined == [(TaskKind.FILL, 1)]
    operator.settle()
    for change in proposed[-1].changes:
        apply_change(table, change)
    assert not table.declined
    proposed.clear()
    operator.settle()
    assert not proposed
