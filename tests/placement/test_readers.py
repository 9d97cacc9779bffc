"""Replicas that only read: where they are, what they count for, and who goes on with them."""

from __future__ import annotations

from dataclasses import replace

from msgspec.structs import replace as changed

from samelog.placement import operations
from samelog.placement.changes import ConfirmGroup, RecoverGroup, TurnTask
from samelog.placement.needs import reads_first
from samelog.placement.planner import PlacementPlanner
from samelog.placement.steps import TaskStep, next_step
from samelog.placement.table import PlacementTable
from samelog.placement.tasks import Action, PlacementTask, TaskKind, TaskState
from samelog.placement.values import PlacedGroup, PlacedReplica
from tests.placement.tables import LIMITS, apply, begun, states_of, table_of

LATER = LIMITS.replace_after_ms
SITE_OF = {1: "lon", 2: "lon", 3: "lon", 4: "lon", 5: "nyc", 6: "nyc", 7: "tok"}
OTHER, BEST = sorted((5, 6), key=lambda each: reads_first(1, each))


def two_far_sites() -> PlacementTable:
    """Four members vote in lon, two read in nyc, one in tok; a group on three of lon."""
    table = table_of(7, [1, 2, 3])
    sites = table.placement.sites
    sites.votes, sites.members = {"lon": True, "nyc": False, "tok": False}, dict(SITE_OF)
    return table


def confirm(table: PlacementTable, *replicas: PlacedReplica) -> PlacedGroup:
    apply(table, ConfirmGroup(1, table.groups[1].version + 1, replicas))
    return table.groups[1]


def step(table: PlacementTable, task: PlacementTask, now_ms: int = 0) -> TaskStep:
    now = table.placement.tasks[task.number]
    return next_step(table, states_of(table, now_ms), now)


def add_reader(table: PlacementTable, *, is_whole: bool) -> PlacedGroup:
    """The next one that a planner begins is added by its group, and that task ends."""
    [task] = begun(table)
    group = table.groups[1]
    new = changed(group.coming[0], is_whole=is_whole)
    group = confirm(table, *group.replicas, *group.readers, new)
    done = step(table, task).change
    assert done == TurnTask(task.number, TaskState.DONE)
    apply(table, done)
    return table.groups[1]


def silence(table: PlacementTable, *members: int) -> None:
    for each in members:
        table.put_member(replace(table.members[each], silent_since_ms=0))


def test_a_group_is_read_once_in_each_site_that_only_reads() -> None:
    table = two_far_sites()
    [task] = begun(table)
    assert (task.kind, task.gets, task.reason) == (TaskKind.READ, BEST, "to be read in site nyc")
    group = table.groups[1]
    assert (group.members, group.everybody) == ((1, 2, 3), (1, 2, 3, BEST))
    order = step(table, task).order
    assert order is not None
    assert (order.action, order.member) == (Action.ADD_LEARNER, BEST)
    table = two_far_sites()
    add_reader(table, is_whole=True)
    group = add_reader(table, is_whole=True)
    assert [each.member for each in group.readers] == [BEST, 7]
    assert group.voters == (1, 2, 3)
    assert begun(table) == [], "nothing is left to do"


def test_it_is_no_copy_that_counts() -> None:
    table = two_far_sites()
    add_reader(table, is_whole=True)
    silence(table, 3)
    [task] = begun(table, LATER)
    assert (task.kind, task.gets, task.loses) == (TaskKind.REPLACE, 4, 3)
    assert not table.placement.has_replicas(BEST)
    operations.check_removal(table, f"n{BEST}")


def test_nobody_waits_until_it_is_whole() -> None:
    table = two_far_sites()
    group = add_reader(table, is_whole=False)
    assert not group.readers[0].is_whole
    assert not table.placement.tasks, "what counts may be repaired at once"


def test_one_that_is_lost_is_made_anew_in_its_site_only() -> None:
    table = two_far_sites()
    add_reader(table, is_whole=True)
    add_reader(table, is_whole=True)
    silence(table, BEST, 7)
    assert begun(table, LATER - 1) == []
    [task] = begun(table, LATER)
    assert (task.gets, task.loses) == (OTHER, BEST), "in tok nobody else is: that one may come back"
    group = table.groups[1]
    confirm(table, *group.replicas, *group.readers, *group.coming)
    order = step(table, task, LATER).order
    assert order is not None
    assert (order.action, order.member) == (Action.REMOVE, BEST)


def test_a_member_that_is_drained_is_read_no_more() -> None:
    table = two_far_sites()
    add_reader(table, is_whole=True)
    add_reader(table, is_whole=True)
    apply(table, *operations.drain(table, states_of(table), "n7"))
    [task] = begun(table)
    assert (task.gets, task.loses) == (None, 7)
    apply(table, *operations.stop_draining(table, "n7"))
    assert not table.placement.draining


def test_a_task_that_is_cancelled_leaves_none() -> None:
    table = two_far_sites()
    [task] = begun(table)
    apply(table, *operations.cancel(table, task.number))
    order = step(table, task).order
    assert order is not None
    assert order.action is Action.REMOVE
    confirm(table, *table.groups[1].replicas)
    assert table.groups[1].everybody == (1, 2, 3)
    assert step(table, task).change == TurnTask(task.number, TaskState.CANCELLED)


def test_where_a_site_votes_none_only_reads() -> None:
    table = two_far_sites()
    add_reader(table, is_whole=True)
    table.placement.sites.votes["nyc"] = True
    planner = PlacementPlanner(table, LIMITS)
    planner.look(0)
    [task] = begun(table)
    assert (task.kind, task.gets, task.loses) == (TaskKind.READ, 7, None), "tok is first"
    apply(table, *operations.cancel(table, task.number))
    confirm(table, *table.groups[1].replicas, *table.groups[1].readers)
    apply(table, TurnTask(task.number, TaskState.CANCELLED))
    apply(table, *operations.allow())
    table.placement.sites.votes["tok"] = True
    [task] = begun(table)
    assert (task.kind, task.gets, task.loses) == (TaskKind.READ, None, BEST)


def test_a_promoted_site_goes_on_with_what_was_only_read_there() -> None:
    table = two_far_sites()
    add_reader(table, is_whole=True)
    placement = table.placement
    assert operations.go_on_with_readers(placement, {5, 6}, own=5) == [RecoverGroup(1, BEST)]
    assert operations.go_on_with_readers(placement, {OTHER}, own=OTHER) == [], "nobody there has it"
    assert operations.go_on_with_readers(placement, {1, BEST}, own=BEST) == [], (
        "one that votes is left"
    )
    apply(table, RecoverGroup(1, BEST))
    group = table.groups[1]
    assert (group.voters, group.readers, group.preferred) == ((BEST,), (), BEST)


def test_a_member_that_comes_gets_a_share_and_is_read_once_it_is_whole() -> None:
    table = two_far_sites()
    silence(table, BEST)
    add_reader(table, is_whole=True)
    add_reader(table, is_whole=True)
    assert [each.member for each in table.groups[1].readers] == [OTHER, 7]
    table.put_member(replace(table.members[BEST], silent_since_ms=None))
    group = add_reader(table, is_whole=False)
    assert [each.member for each in group.readers] == [OTHER, 7, BEST]
    assert begun(table) == [], "the other one is read meanwhile"
    confirm(table, *group.replicas, *(changed(each, is_whole=True) for each in group.readers))
    [task] = begun(table)
    assert (task.kind, task.gets, task.loses) == (TaskKind.READ, None, OTHER)
