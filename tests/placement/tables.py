"""Small tables for tests."""

from __future__ import annotations

from collections.abc import Sequence

from samelog.placement.changes import AnyChange, PlaceGroups, apply_change, put_partition
from samelog.placement.members import MemberStates, PlacementLimits
from samelog.placement.planner import PlacementPlanner
from samelog.placement.table import PlacedMember, PlacementTable
from samelog.placement.tasks import PlacementTask
from samelog.placement.topics import TopicPlacement, place_topic
from samelog.placement.values import NewGroup, PlacedPartition, Placement

LIMITS = PlacementLimits(replace_after_ms=60_000)


def table_of(
    members: int,
    *groups: Sequence[int],
    racks: Sequence[str] = ("",),
    hosts: Sequence[str] = ("",),
) -> PlacementTable:
    """Members 1 and up, and groups on some of them; the first of each shall lead, and does."""
    named = [
        PlacedMember(
            number, f"n{number}", racks[number % len(racks)], host=hosts[number % len(hosts)]
        )
        for number in range(1, members + 1)
    ]
    table = PlacementTable(Placement(), named)
    add_groups(table, *groups)
    return table


def apply(table: PlacementTable, *changes: AnyChange) -> None:
    """Changes are made, and followed."""
    for change in changes:
        apply_change(table.placement, change)
    table.follow(table.placement)


def put_partitions(table: PlacementTable, topic: str, groups: Sequence[int]) -> None:
    """A topic's partitions are in these groups, in order."""
    placement = table.placement
    first = max(placement.partitions, default=0) + 1
    for index, group in enumerate(groups):
        number = first + index
        put_partition(placement, PlacedPartition(number, topic, index, group))
    placement.version += 1
    table.follow(placement)


def add_groups(table: PlacementTable, *groups: Sequence[int]) -> None:
    """More groups, on these members."""
    new = tuple(NewGroup(len(each), tuple(each), each[0]) for each in groups)
    apply(table, PlaceGroups(table.placement.next_group, new))
    for group in table.groups.values():
        table.leaders.setdefault(group.number, group.preferred)


def states_of(table: PlacementTable, now_ms: int = 0) -> MemberStates:
    """The states of its members."""
    return MemberStates(table, LIMITS, now_ms)


def create(table: PlacementTable, partitions: int, copies: int, topic: str = "t") -> TopicPlacement:
    """A topic."""
    placed = place_topic(table, states_of(table), LIMITS, partitions, copies)
    put(table, placed, topic)
    return placed


def put(table: PlacementTable, placed: TopicPlacement, topic: str) -> None:
    """What was decided about a topic is done."""
    apply(table, PlaceGroups(table.placement.next_group, placed.new_groups))
    put_partitions(table, topic, placed.groups)
    for group in table.groups.values():
        table.leaders.setdefault(group.number, group.preferred)


def begun(table: PlacementTable, now_ms: int = 0) -> list[PlacementTask]:
    """What a planner begins now, carried out as far as group 0."""
    apply(table, *PlacementPlanner(table, LIMITS).look(now_ms).changes)
    return [task for _, task in sorted(table.placement.tasks.items())]


def held(table: PlacementTable) -> list[int]:
    """How many groups each member has."""
    return [len(table.held.get(each, ())) for each in table.members]
