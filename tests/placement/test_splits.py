"""Default groups exist before topics, and a member that joins gets its share of what there is."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest

from samelog.placement import operations
from samelog.placement.changes import (
    AnyChange,
    DropGroup,
    SetDefaultCopies,
    apply_change,
)
from samelog.placement.colocation import keep_together, let_go
from samelog.placement.planner import SEAL_MS, PlacementPlanner
from samelog.placement.table import PlacedMember, PlacementTable
from samelog.placement.tasks import PartitionMove, PlacementTask, TaskKind, TaskState
from samelog.placement.values import Placement
from tests.placement.cluster import Cluster, RealPartition
from tests.placement.tables import LIMITS, apply, create, put_partitions, states_of, table_of

STEPS_MOST = 4_000
STEP_MS = 1_000


class Home:
    """A cluster whose topics have three copies by default, without faults, and group 0's leader."""

    def __init__(self, members: int) -> None:
        self.cluster = Cluster(random.Random(1))
        self.table = PlacementTable(Placement(default_copies=3))
        self.planner = PlacementPlanner(self.table, LIMITS)
        self.now_ms = 0
        self.seen: Counter[TaskKind] = Counter()
        for _ in range(members):
            self.join()

    def join(self, host: str = "") -> int:
        number = len(self.table.members) + 1
        self.table.put_member(PlacedMember(number, f"n{number}", host=host))
        self.cluster.up.add(number)
        return number

    def apply(self, changes: list[AnyChange]) -> None:
        table = self.table.placement
        before = set(table.groups)
        for change in changes:
            apply_change(table, change)
            if isinstance(change, DropGroup):
                del self.cluster.groups[change.number]
        for number in table.groups.keys() - before:
            self.cluster.found(table.groups[number])
        self.table.follow(table)

    def step(self) -> bool:
        """Whether anything happened."""
        self.now_ms += STEP_MS
        table = self.table
        self.cluster.live()
        for number, group in self.cluster.groups.items():
            if group.leader is not None:
                table.put_leader(number, group.leader)
        moved = {
            task.number: self.cluster.moved(task.number, task.partition, task.target)
            for task in table.placement.tasks.values()
            if task.partition is not None and task.target is not None
        }
        planned = self.planner.look(self.now_ms, moved)
        before = set(table.placement.tasks)
        self.apply(planned.changes)
        begun = [table.placement.tasks[each] for each in table.placement.tasks.keys() - before]
        self.seen.update(each.kind for each in begun)
        self.cluster.under_way += planned.orders
        self.cluster.carry_out_some(1.0)
        for number in list(self.cluster.groups):
            self.cluster.report(number)
            self.apply([self.cluster.reports[number].pop()] if number in self.leaders else [])
        return bool(planned.changes or table.placement.tasks)

    @property
    def leaders(self) -> dict[int, int]:
        found = self.cluster.groups.items()
        return {number: each.leader for number, each in found if each.leader is not None}

    def rest(self) -> None:
        quiet = 0
        for _ in range(STEPS_MOST):
            quiet = 0 if self.step() else quiet + 1
            if quiet > 20:
                return
        raise AssertionError(f"no rest: {self.table.placement.tasks} {self.planner.needs}")

    def topic(self, partitions: int, name: str) -> None:
        first = max(self.table.partitions, default=0) + 1
        placed = create(self.table, partitions, 3, name)
        for number in self.table.groups.keys() - self.cluster.groups.keys():
            self.cluster.found(self.table.groups[number])
        for number, group in enumerate(placed.groups, first):
            self.cluster.partitions[number] = RealPartition(number, group, {group})

    def delete(self, name: str) -> None:
        table = self.table.placement
        for number in [n for n, each in table.partitions.items() if each.topic_id == name]:
            del table.partitions[number], self.cluster.partitions[number]
        table.version += 1
        self.table.follow(table)

    def led(self) -> Counter[int]:
        """How many partitions each member leads."""
        found = Counter(dict.fromkeys(self.table.members, 0))
        for number, leader in self.leaders.items():
            found[leader] += self.table.size_of(number)
        return found

    def copies(self) -> Counter[int]:
        """How many copies of partitions each member has."""
        held = self.table.held
        return Counter(
            {
                member: sum(self.table.size_of(number) for number in held.get(member, ()))
                for member in self.table.members
            }
        )


def evenness(counts: Counter[int]) -> float:
    """The mean, divided by the busiest."""
    return sum(counts.values()) / len(counts) / max(counts.values())


def test_default_groups_are_made_before_any_topic_and_each_member_leads_one() -> None:
    home = Home(3)
    home.rest()
    assert sorted(home.leaders.values()) == [1, 2, 3]
    assert all(len(each.members) == 3 for each in home.table.groups.values())
    before = dict(home.table.groups)
    home.topic(2, "t")
    assert home.table.groups.keys() == before.keys(), "the first topic waits for no group"


def test_without_a_default_no_group_is_made() -> None:
    home = Home(3)
    home.table.placement.default_copies = 0
    home.rest()
    assert not home.table.groups


def test_the_first_groups_wait_for_members_that_are_about_to_start() -> None:
    home = Home(3)
    late = home.table.members[3]
    home.table.put_member(replace(late, maintenance_until_ms=10 * STEP_MS))
    home.cluster.up.discard(3)
    home.step()
    assert not home.table.groups
    home.table.put_member(late)
    home.cluster.up.add(3)
    home.step()
    assert [len(each.founders) for each in home.table.groups.values()] == [3, 3, 3]


@pytest.mark.parametrize(("topics", "partitions"), [(3, 10), (10, 10), (25, 10), (60, 1)])
def test_five_hosts_share_default_topics_and_a_sixth_gets_its_share(
    topics: int, partitions: int
) -> None:
    home = Home(5)
    home.rest()
    for number in range(topics):
        home.topic(partitions, f"t{number}")
    home.rest()
    assert all(len(set(each.members)) == 3 for each in home.table.groups.values())
    held = [len(home.table.held[each]) for each in home.table.members]
    assert max(held) - min(held) <= 1
    assert evenness(home.led()) >= 0.8, home.led()
    assert evenness(home.copies()) >= 0.8, home.copies()
    sixth = home.join()
    home.rest()
    assert home.seen[TaskKind.SPLIT]
    assert home.led()[sixth] > 0
    assert evenness(home.led()) >= 0.8, home.led()
    assert evenness(home.copies()) >= 0.8, home.copies()
    assert sum(home.led().values()) == topics * partitions
    assert sum(home.copies().values()) == 3 * topics * partitions
    held = [len(home.table.held[each]) for each in home.table.members]
    assert max(held) - min(held) <= 1
    for number, partition in home.table.partitions.items():
        there = home.cluster.partitions[number]
        assert (there.open_in, there.files) == (partition.group, {partition.group})


def test_a_fourth_member_adds_capacity() -> None:
    home = Home(3)
    home.rest()
    home.topic(12, "t")
    assert sorted(home.led().values()) == [4, 4, 4]
    home.join()
    home.rest()
    assert sorted(home.led().values()) == [3, 3, 3, 3]


def test_groups_that_differ_by_one_partition_stay_as_they_are() -> None:
    home = Home(3)
    home.rest()
    home.topic(10, "t")
    home.rest()
    assert sorted(home.led().values()) == [3, 3, 4]
    assert not home.seen[TaskKind.SPLIT]


def test_a_lost_default_group_that_is_empty_is_made_elsewhere() -> None:
    home = Home(3)
    home.rest()
    home.cluster.up -= {1, 2}
    for number in (1, 2):
        home.table.put_member(replace(home.table.members[number], silent_since_ms=0))
        drained = operations.drain(home.table, states_of(home.table), f"n{number}")
        home.apply(drained)
    home.rest()
    assert {each.members for each in home.table.groups.values()} == {(3,)}
    for number in (1, 2):
        operations.check_removal(home.table, f"n{number}")


def test_members_of_one_host_lead_a_group_each() -> None:
    home = Home(0)
    for host in ("a", "a", "b", "b", "c", "c"):
        home.join(host)
    home.rest()
    assert sorted(home.leaders.values()) == [1, 2, 3, 4, 5, 6]
    for group in home.table.groups.values():
        assert {home.table.host_of(each) for each in group.members} == {"a", "b", "c"}


def test_default_groups_stay_when_their_topics_go_and_others_do_not() -> None:
    home = Home(3)
    home.rest()
    home.topic(120, "t")
    home.rest()
    assert len(home.table.groups) == 6
    home.delete("t")
    home.rest()
    assert len(home.table.groups) == 3
    assert sorted(home.leaders.values()) == [1, 2, 3]
    home.apply([SetDefaultCopies(2)])
    home.rest()
    assert {each.copies for each in home.table.groups.values()} == {2}, "those of three are gone"


def test_a_member_that_is_drained_leaves_its_groups_to_the_others() -> None:
    home = Home(4)
    home.rest()
    home.topic(40, "t")
    home.apply(operations.drain(home.table, states_of(home.table), "n4"))
    home.rest()
    assert home.led()[4] == 0
    assert all(4 not in each.members for each in home.table.groups.values())


def two_groups(full: int) -> PlacementTable:
    """Two groups of which one has all partitions, and nothing else to do."""
    table = table_of(3, (1, 2, 3), (2, 3, 1))
    put_partitions(table, "t", [1] * full)
    return table


def begun(table: PlacementTable, planner: PlacementPlanner, now_ms: int) -> list[PlacementTask]:
    apply(table, *planner.look(now_ms).changes)
    return list(table.placement.tasks.values())


def test_topics_that_share_a_group_are_not_parted() -> None:
    table = two_groups(3)
    put_partitions(table, "u", [1])
    keep_together(table.placement, "t", "u")
    assert begun(table, PlacementPlanner(table, LIMITS), 0) == []
    let_go(table.placement, ["u"])
    [task] = begun(table, PlacementPlanner(table, LIMITS), 0)
    assert (task.kind, task.group, task.target) == (TaskKind.SPLIT, 1, 2)


def test_a_split_that_cannot_be_sealed_is_given_up_and_another_partition_is_taken() -> None:
    table = two_groups(3)
    planner = PlacementPlanner(table, LIMITS)
    [task] = begun(table, planner, 0)
    copied = {task.number: PartitionMove(is_held=True, is_copied=True, has_files=True)}
    assert not planner.look(1, copied).changes
    [change] = planner.look(SEAL_MS + 1, copied).changes
    apply(table, change)
    assert table.placement.tasks[task.number].state is TaskState.CANCELLING
    undone = {task.number: PartitionMove(is_forbidden=True)}
    apply(table, *planner.look(SEAL_MS + 2, undone).changes)
    [other] = begun(table, planner, SEAL_MS + 3)
    assert (other.kind, other.partition != task.partition) == (TaskKind.SPLIT, True)


def test_a_split_gives_way_to_what_is_lost() -> None:
    table = two_groups(3)
    planner = PlacementPlanner(table, LIMITS)
    [task] = begun(table, planner, 0)
    table.put_member(replace(table.members[3], silent_since_ms=0))
    table.put_member(PlacedMember(4, "n4"))
    later = LIMITS.replace_after_ms + 1
    changes = planner.look(later).changes
    assert not states_of(table, later).must_be_replaced(3) or changes
    apply(table, *operations.drain(table, states_of(table, later), "n3"))
    apply(table, *planner.look(later + 1).changes)
    assert table.placement.tasks[task.number].state is TaskState.CANCELLING


def test_a_cancelled_split_begins_again_only_when_somebody_asks() -> None:
    table = two_groups(4)
    planner = PlacementPlanner(table, LIMITS)
    [task] = begun(table, planner, 0)
    apply(table, *operations.cancel(table, task.number))
    undone = {task.number: PartitionMove(is_forbidden=True)}
    apply(table, *planner.look(1, undone).changes)
    assert begun(table, planner, 2) == []
    apply(table, *operations.balance())
    assert [each.kind for each in begun(table, planner, 3)] == [TaskKind.SPLIT]
