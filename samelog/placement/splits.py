"""Which partitions go from full groups to emptier ones with the same goal, one of each at once.

So a member that joins, and leads a new group, gets its share of what there is. Each such move makes
the sum of squares of the sizes smaller, so they come to an end.

Invariant: where two groups with the same goal differ by two partitions and have no other task or
need, a partition is found that can move, if there is one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from samelog.placement.table import PlacementTable
from samelog.placement.values import PlacedGroup

ONE_MORE = 2
"""Groups that differ by so many partitions are evened out."""


@dataclass(frozen=True, slots=True)
class Split:
    """A partition goes from one group to another."""

    partition: int
    group: int
    target: int


def splits(
    table: PlacementTable, is_free: Callable[[int], bool], may_move: Callable[[int], bool]
) -> list[Split]:
    """Return the partitions that should move now. `is_free`: whether a group has no task
    and no need; `may_move`: whether a partition may be moved alone.
    """
    by_goal: dict[int, list[PlacedGroup]] = {}
    for group in table.groups.values():
        if not group.is_pinned and _is_well(table, group) and is_free(group.number):
            by_goal.setdefault(group.copies, []).append(group)
    return [each for groups in by_goal.values() for each in _between(table, groups, may_move)]


def _is_well(table: PlacementTable, group: PlacedGroup) -> bool:
    """Whether all of its replicas vote, are whole and can be reached."""
    return len(table.healthy(group)) == len(group.replicas)


def _between(
    table: PlacementTable, groups: list[PlacedGroup], may_move: Callable[[int], bool]
) -> Iterator[Split]:
    """Pair the fullest groups with the emptiest, as long as that evens out."""
    order = sorted((table.size_of(each.number), each.number) for each in groups)
    emptiest = iter(order)
    size, target = next(emptiest, (0, -1))
    for fullest, source in reversed(order):
        if fullest - size < ONE_MORE:
            return
        partition = _partition(table, source, target, may_move)
        if partition is not None:
            yield Split(partition, source, target)
            size, target = next(emptiest, (0, -1))


def _partition(
    table: PlacementTable, source: int, target: int, may_move: Callable[[int], bool]
) -> int | None:
    """One of the topic of which the fuller group has most more than the other one."""
    emptier = Counter(table.partitions[each].topic_id for each in table.contents[target])
    fuller = Counter(table.partitions[each].topic_id for each in table.contents[source])

    def worth(number: int) -> tuple[int, int]:
        topic = table.partitions[number].topic_id
        return emptier[topic] - fuller[topic], number

    return min(filter(may_move, table.contents[source]), key=worth, default=None)
