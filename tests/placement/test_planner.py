"""What a planner begins, and in which order; what it leaves alone."""

from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec.structs import replace as changed

from samelog.placement import operations
from samelog.placement.changes import (
    ConfirmGroup,
    DrainMember,
    DropGroup,
    PauseTasks,
    TopicsDropped,
    TurnTask,
    WantGroup,
    WantMembers,
)
from samelog.placement.converting import change_copies
from samelog.placement.guards import refuse_removal
from samelog.placement.needs import Need
from samelog.placement.planner import PlacementPlanner
from samelog.placement.steps import next_step
from samelog.placement.table import PlacedMember, PlacementTable
from samelog.placement.tasks import Action, PlacementRefused, TaskKind, TaskState
from samelog.placement.topics import check_assignments, place_topic
from samelog.placement.values import PlacedReplica
from samelog.sequencer.state.tables.placement import forget
from tests.placement.tables import LIMITS, add_groups, apply, begun, create, states_of, table_of

LATER = LIMITS.replace_after_ms


def silence(table: PlacementTable, *members: int) -> None:
    for each in members:
        table.put_member(replace(table.members[each], silent_since_ms=0))


def confirm(table: PlacementTable, group: int, *replicas: PlacedReplica) -> None:
    version = table.groups[group].version + 1
    apply(table, ConfirmGroup(group, version, replicas))


def test_a_lost_member_is_replaced_after_a_time() -> None:
    table = table_of(5, [1, 2, 3])
    silence(table, 3)
    assert begun(table, LATER - 1) == []
    [task] = begun(table, LATER)
    assert (task.kind, task.gets, task.loses) == (TaskKind.REPLACE, 4, 3)
    assert task.reason == "n3 is lost"


def test_nobody_is_replaced_in_maintenance() -> None:
    table = table_of(5, [1, 2, 3])
    silence(table, 3)
    table.put_member(replace(table.members[3], maintenance_until_ms=LATER * 2))
    assert begun(table, LATER * 2 - 1) == []
    assert begun(table, LATER * 3)[0].kind is TaskKind.REPLACE


def test_nobody_is_replaced_by_itself_while_a_third_is_silent() -> None:
    table = table_of(6, [1, 2, 3], [4, 5, 6])
    silence(table, 3, 4)
    assert begun(table, LATER) == []
    apply(table, *operations.drain(table, states_of(table, LATER), "n3"))
    assert [each.loses for each in begun(table, LATER)] == [3]


def test_who_has_one_copy_left_comes_first() -> None:
    table = table_of(12, [1, 2, 3], [1, 4, 5], [1, 6, 7], [1, 8, 9])
    silence(table, 1)
    weak = table.groups[4]
    short = (weak.replicas[0], weak.replicas[1], changed(weak.replicas[2], is_whole=False))
    apply(table, ConfirmGroup(4, 0, (*short[:2], short[2])))
    planner = PlacementPlanner(table, LIMITS)
    planner.look(LATER)
    kinds = [(each.group, each.healthy, bool(each.obstacle)) for each in planner.needs]
    assert kinds[0][:2] == (4, 1)


def test_a_member_has_so_many_tasks_at_once() -> None:
    table = table_of(6, *[[1, 2, 3]] * 9)
    apply(table, *operations.drain(table, states_of(table), "n1"))
    tasks = begun(table)
    assert [each.loses for each in tasks] == [1, 1]
    assert {each.gets for each in tasks} == {4, 5}


def test_nothing_begins_while_tasks_are_paused() -> None:
    table = table_of(4, [1, 2, 3])
    silence(table, 3)
    apply(table, PauseTasks(are_paused=True))
    assert begun(table, LATER) == []


def test_what_an_operator_cancelled_does_not_begin_again_by_itself() -> None:
    table = table_of(5, [1, 2, 3])
    silence(table, 3)
    [task] = begun(table, LATER)
    apply(table, *operations.cancel(table, task.number))
    confirm(table, 1, *table.groups[1].replicas[:3])
    assert begun(table, LATER) == []
    assert table.placement.ended[-1].state is TaskState.CANCELLED
    planner = PlacementPlanner(table, LIMITS)
    planner.look(LATER)
    assert "samelog tasks resume" in planner.needs[0].obstacle
    apply(table, *operations.allow(1))
    assert begun(table, LATER)[0].kind is TaskKind.REPLACE


def test_leaders_are_preferred_in_sites_that_should_have_them() -> None:
    table = table_of(4, [1, 2, 3], [2, 3, 4], [3, 4, 1])
    planner = PlacementPlanner(table, LIMITS)
    assert settled(table, planner) == {1: 1, 2: 2, 3: 3}
    sites = table.placement.sites
    sites.votes, sites.members = {"lon": True, "par": True}, {1: "lon", 2: "lon", 3: "par"}
    sites.let_lead("lon", leads=True)
    assert settled(table, planner) == {1: 1, 2: 2, 3: 1}, "of each group one who is there"
    sites.let_lead("lon", leads=False)
    sites.let_lead("par", leads=True)
    assert settled(table, planner) == {1: 3, 2: 3, 3: 3}, "though one then leads all"
    silence(table, 3)
    assert settled(table, planner) == {1: 3, 2: 3, 3: 3}, "whoever can leads until it is back"


def test_replicas_vote_so_there_are_none_where_a_site_only_reads() -> None:
    table = table_of(5, [1, 2, 3])
    sites = table.placement.sites
    sites.votes = {"lon": True, "nyc": False}
    sites.members = {1: "lon", 2: "lon", 3: "nyc", 5: "nyc"}
    [task] = begun(table)
    assert (task.loses, task.gets) == (3, 4), "who is in no site may vote, as before"
    with pytest.raises(PlacementRefused, match="n5"):
        check_assignments(table, [(1, 5)])
    sites.votes["nyc"] = True
    [group] = place_topic(table, states_of(table), LIMITS, 3, 5).new_groups
    assert len(group.members) == 5


def settled(table: PlacementTable, planner: PlacementPlanner) -> dict[int, int]:
    """Who shall lead each group once the planner has nothing to change."""
    for _ in range(20):
        changes = planner.look(0).changes
        apply(table, *changes)
        for number, group in table.groups.items():
            table.put_leader(number, group.preferred)
        if not changes:
            return {number: group.preferred for number, group in table.groups.items()}
    raise AssertionError("leaders go to and fro")


def test_a_new_leader_of_group_0_goes_on_where_the_old_one_was() -> None:
    table = table_of(5, [1, 2, 3])
    silence(table, 3)
    [task] = begun(table, LATER)
    other = PlacementTable(table.placement, table.members.values())
    orders = PlacementPlanner(other, LIMITS).look(LATER).orders
    assert [(each.task, each.action) for each in orders] == [(task.number, Action.ADD_LEARNER)]


def test_a_task_goes_step_by_step() -> None:
    table = table_of(4, [1, 2, 3])
    apply(table, *operations.drain(table, states_of(table), "n1"))
    [task] = begun(table)
    one, two, three, new = table.groups[1].replicas
    asked = []
    for replicas, leader in (
        ((one, two, three), 1),
        ((one, two, three, new), 1),
        ((one, two, three, changed(new, is_whole=True)), 1),
        ((one, two, three, changed(new, is_whole=True, votes=True)), 1),
        ((one, two, three, changed(new, is_whole=True, votes=True)), 2),
    ):
        confirm(table, 1, *replicas)
        table.put_leader(1, leader)
        order = next_step(table, states_of(table), task).order
        asked.append(None if order is None else (order.action, order.member))
    assert asked == [
        (Action.ADD_LEARNER, 4),
        (Action.ADD_LEARNER, 4),
        (Action.PROMOTE, 4),
        (Action.LEAD, 4),
        (Action.REMOVE, 1),
    ]
    confirm(table, 1, two, three, changed(new, is_whole=True, votes=True))
    assert table.groups[1].preferred == 4
    step = next_step(table, states_of(table), task)
    assert step.change == TurnTask(task.number, TaskState.DONE)


def test_a_member_that_comes_is_given_its_share() -> None:
    table = table_of(3, *[[1, 2, 3]] * 8)
    assert begun(table) == []
    other = table_of(4)
    add_groups(other, *[[1, 2, 3]] * 8)
    planner = PlacementPlanner(other, LIMITS)
    planner.look(0)
    assert [each.gets for each in planner.needs] == [4] * 6


def test_racks_that_were_renamed_are_gone_by() -> None:
    table = table_of(6, [1, 2, 3])
    for number, rack in ((1, "a"), (2, "a"), (3, "b"), (4, "c"), (5, "c"), (6, "c")):
        table.put_member(replace(table.members[number], rack=rack))
    [task] = begun(table)
    assert (task.kind, task.gets in (4, 5, 6), task.loses in (1, 2)) == (
        TaskKind.SPREAD,
        True,
        True,
    )


def test_without_a_change_there_is_nothing_to_look_at() -> None:
    table = table_of(5, [1, 2, 3], [3, 4, 5])
    planner = PlacementPlanner(table, LIMITS)
    planner.look(0)
    planner._judge = planner._even_out = None  # type: ignore[assignment, method-assign]
    for now_ms in range(0, 10_000, 1_000):
        assert planner.look(now_ms).changes == []


def test_who_is_replaced_by_another_member_is_emptied_first() -> None:
    table = table_of(4, [1, 2, 3])
    table.put_member(replace(table.members[2], is_leaving=True))
    [task] = begun(table)
    assert (task.kind, task.gets, task.loses) == (TaskKind.DRAIN, 4, 2)
    assert not next_step(table, states_of(table), task).change


def test_a_silent_member_that_is_drained_is_not_waited_for() -> None:
    table = table_of(5, [1, 2, 3])
    silence(table, 3)
    apply(table, *operations.drain(table, states_of(table), "n3"))
    assert [each.kind for each in begun(table, 1)] == [TaskKind.REPLACE]


# --- more copies than hosts -----------------------------------------------------------------------


def more_copies_than_hosts(copies: int = 7) -> PlacementTable:
    """Four members, and a topic with two partitions that is to have more copies than that."""
    table = table_of(4)
    create(table, 2, copies)
    return table


def test_a_goal_beyond_the_hosts_is_no_task_and_blocks_none() -> None:
    table = more_copies_than_hosts()
    planner = PlacementPlanner(table, LIMITS)
    assert planner.look(0).changes == []
    assert planner.outstanding(0) == []
    apply(table, *operations.drain(table, states_of(table), "n2"))
    assert [(each.kind, each.loses) for each in begun(table)] == [(TaskKind.DRAIN, 2)]


def test_a_group_is_filled_up_to_the_hosts_that_come() -> None:
    table = more_copies_than_hosts()
    planner = PlacementPlanner(table, LIMITS)
    planner.look(0)
    table.put_member(PlacedMember(5, "n5"))
    apply(table, *planner.look(0).changes)
    [task] = table.placement.tasks.values()
    assert (task.kind, task.gets, task.reason) == (TaskKind.FILL, 5, "4 of 5 copies")


def test_a_group_without_partitions_ends_whatever_it_lacks() -> None:
    table = more_copies_than_hosts()
    silence(table, 3, 4)
    apply(table, *operations.drain(table, states_of(table), "n3"))
    planner = PlacementPlanner(table, LIMITS)
    assert planner.look(LATER).changes == []
    lost, surplus = planner.outstanding(LATER)
    assert "recover group" in lost.obstacle
    assert surplus.obstacle == "2 of 4 voters of group 1 are no majority"
    delete(table)
    assert planner.look(LATER).changes == [DropGroup(1)]
    operations.drain(table, states_of(table, LATER), "n2")
    apply(table, DropGroup(1))
    operations.check_removal(table, "n3")


def test_a_group_ends_once_it_has_dropped_its_topics() -> None:
    table = table_of(4)
    create(table, 1, 3)
    planner = PlacementPlanner(table, LIMITS)
    delete(table, is_dropped=False)
    assert planner.look(0).changes == []
    version = table.placement.version
    apply(table, TopicsDropped(1, version - 1))
    assert planner.look(0).changes == []
    apply(table, TopicsDropped(1, version))
    assert planner.look(0).changes == [DropGroup(1)]


def test_a_group_that_is_lost_for_good_drops_nothing_any_more() -> None:
    table = table_of(5)
    create(table, 1, 3)
    planner = PlacementPlanner(table, LIMITS)
    first, second, _ = table.groups[1].members
    silence(table, first, second)
    delete(table, is_dropped=False)
    assert planner.look(LATER).changes == [], "they may come back, with what they took meanwhile"
    for each in (first, second):
        apply(table, *operations.drain(table, states_of(table, LATER), f"n{each}"))
    assert planner.look(LATER).changes == [DropGroup(1)]


def test_a_task_ends_with_the_partitions_of_its_group() -> None:
    table = table_of(4)
    create(table, 1, 3)
    apply(table, *operations.drain(table, states_of(table), "n1"))
    [task] = begun(table)
    apply(table, TurnTask(task.number, TaskState.PAUSED))
    delete(table)
    planner = PlacementPlanner(table, LIMITS)
    apply(table, *planner.look(0).changes)
    assert table.placement.ended[-1].state is TaskState.CANCELLED
    assert planner.look(0).changes == [DropGroup(1)]


def test_a_dead_member_leaves_a_group_that_nobody_can_fill() -> None:
    table = table_of(4)
    create(table, 1, 4)
    silence(table, 4)
    [blocked] = planned_from(table, LATER)
    assert (blocked.kind, blocked.obstacle[:7]) == (TaskKind.REPLACE, "no host")
    apply(table, *operations.drain(table, states_of(table, LATER), "n4"))
    [task] = begun(table, LATER)
    assert (task.kind, task.gets, task.loses) == (TaskKind.REPLACE, None, 4)
    order = next_step(table, states_of(table, LATER), task).order
    assert order is not None
    assert (order.action, order.copies) == (Action.REMOVE, 3)
    confirm(table, 1, *[each for each in table.groups[1].replicas if each.member != 4])
    operations.check_removal(table, "n4")
    apply(table, *PlacementPlanner(table, LIMITS).look(LATER).changes)
    assert planned_from(table, LATER) == []


def test_a_copy_is_not_removed_where_the_rest_would_be_no_majority() -> None:
    table = table_of(3)
    create(table, 1, 7)
    silence(table, 3)
    for drained in (1, 2):
        apply(table, DrainMember(drained, is_draining=True))
    found = planned_from(table, 0)
    assert any("no majority" in each.obstacle for each in found)
    assert {each.loses for each in found} <= {None, 3}, "the silent one may go"
    assert "no majority" in refuse_removal(table.groups[1], 1, [1, 2], copies=1)
    assert refuse_removal(table.groups[1], 3, [1, 2], copies=1) == ""


def test_an_accepted_alter_is_listed_at_once_with_what_it_waits_for() -> None:
    table = table_of(3)
    create(table, 3, 1)
    silence(table, 1)
    planner = PlacementPlanner(table, LIMITS)
    planner.look(LATER)
    numbers = sorted(table.partitions)
    apply(table, *change_copies(table, states_of(table, LATER), numbers, 2))
    found = {each.partition: each for each in planner.outstanding(LATER) if each.partition}
    assert sorted(found) == numbers
    apply(table, *planner.look(LATER).changes)
    running = {task.partition for task in table.placement.tasks.values()}
    waiting = {each.partition: each for each in planner.outstanding(LATER) if each.partition}
    assert running
    assert running | waiting.keys() == set(numbers)
    assert all(each.waits_for or each.obstacle for each in waiting.values())
    apply(table, PauseTasks(are_paused=True))
    waits = [each.waits_for for each in planner.outstanding(LATER) if not each.obstacle]
    assert waits
    assert set(waits) == {"no task is begun: samelog tasks resume"}


def test_a_blocked_need_hides_no_other() -> None:
    """A group lacks a copy that no member can take: another member is to lead it, and its topic is
    to have fewer copies.
    """
    table = table_of(4)
    create(table, 1, 4)
    silence(table, 4)
    assert [bool(each.obstacle) for each in planned_from(table, LATER)] == [True]
    table.put_leader(1, 2)
    assert [each.kind for each in planned_from(table, LATER)] == [TaskKind.REPLACE, TaskKind.LEAD]
    table.put_leader(1, 1)
    apply(table, *change_copies(table, states_of(table, LATER), sorted(table.partitions), 2))
    assert [task.kind for task in begun(table, LATER)] == [TaskKind.MOVE_PARTITION]


def test_no_partition_goes_to_a_group_without_a_majority() -> None:
    table = table_of(2)
    create(table, 2, 1)
    homes = {each.group: each.number for each in table.partitions.values()}
    [lost] = [number for number in homes if table.groups[number].members == (2,)]
    [kept] = homes.keys() - {lost}
    silence(table, 2)
    assert create(table, 3, 1, "u").groups == (kept, kept, kept)
    apply(table, WantGroup(homes[kept], lost))
    [blocked] = [each for each in planned_from(table, 0) if each.partition == homes[kept]]
    assert blocked.obstacle == f"group {lost} has no majority: start its members"
    table.put_member(replace(table.members[2], silent_since_ms=None))
    assert TaskKind.MOVE_PARTITION in [task.kind for task in begun(table)]


def test_members_that_are_gone_are_not_waited_for_where_they_were_wanted() -> None:
    table = table_of(3)
    create(table, 1, 2)
    apply(table, WantMembers(1, (3, 9)))
    assert [(task.kind, task.gets) for task in begun(table)] == [(TaskKind.ASSIGN, 3)]
    one, two, three = table.groups[1].replicas
    assert (one.member, table.placement.tasks[1].loses) == (1, 1)
    confirm(table, 1, two, changed(three, votes=True, is_whole=True))
    table.put_leader(1, 3)
    for _ in range(3):
        apply(table, *PlacementPlanner(table, LIMITS).look(0).changes)
    assert table.groups[1].wanted == ()
    assert sorted(table.groups[1].members) == [2, 3]


def planned_from(table: PlacementTable, now_ms: int) -> list[Need]:
    planner = PlacementPlanner(table, LIMITS)
    planner.look(now_ms)
    return planner.outstanding(now_ms)


def delete(table: PlacementTable, *, is_dropped: bool = True) -> None:
    """All topics are deleted, and dropped by the groups that had them."""
    forget(table.placement, "id", "t", list(table.placement.partitions))
    for number, group in dict(table.placement.groups).items() if is_dropped else ():
        if group.owed:
            apply(table, TopicsDropped(number, table.placement.version))
    table.follow(table.placement)
