"""What Kafka's tools ask for: partitions on other members, and preferred leaders.

Invariant: what cannot be is refused before anything is changed; partitions that nobody named stay
where they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from samelog.placement.changes import (
    AllowTasks,
    AnyChange,
    PlaceGroups,
    TurnTask,
    WantGroup,
    WantMembers,
)
from samelog.placement.colocation import check_may_part
from samelog.placement.table import PlacementTable
from samelog.placement.tasks import PlacementRefused, PlacementTask, TaskKind, TaskState
from samelog.placement.topics import check_assignment
from samelog.placement.values import NewGroup, PlacedGroup, PlacedPartition


def reassign(table: PlacementTable, wanted: Mapping[int, Sequence[int]]) -> list[AnyChange]:
    """Partitions (by number) shall be on these members. Those that are all of a group take it
    along, others move to one that has these members, or that is made. Raises PlacementRefused.
    """
    for partition, members in wanted.items():
        if partition not in table.partitions:
            raise PlacementRefused("UNKNOWN_PARTITION", f"there is no partition {partition}")
        check_assignment(table, members)
    changes: list[AnyChange] = []
    single: dict[int, tuple[int, ...]] = {}
    for number, partitions in _by_group(table, wanted).items():
        lists = {tuple(wanted[each]) for each in partitions}
        is_whole = table.contents[number] <= partitions and not _coming(table, number)
        if len(lists) == 1 and is_whole:
            changes += [WantGroup(each, None) for each in sorted(partitions & _moving(table))]
            changes.append(WantMembers(number, lists.pop()))
        else:
            single.update((each, tuple(wanted[each])) for each in sorted(partitions))
    return changes + _moves(table, single)


def _by_group(table: PlacementTable, partitions: Iterable[int]) -> dict[int, set[int]]:
    found: dict[int, set[int]] = {}
    for each in partitions:
        found.setdefault(table.partitions[each].group, set()).add(each)
    return found


def _moving(table: PlacementTable) -> set[int]:
    return set(table.placement.moves)


def _moves(table: PlacementTable, single: Mapping[int, tuple[int, ...]]) -> list[AnyChange]:
    """Groups that are made for partitions of one topic, and who is to move where. Raises
    PlacementRefused.
    """
    check_may_part(table.placement, _topics_of(table, single))
    homes = {
        (_topics(table, each.number), each.wanted or each.in_order): each.number
        for each in table.groups.values()
        if each.is_pinned
    }
    made: list[NewGroup] = []
    moves = []
    for partition, members in single.items():
        home = frozenset({table.partitions[partition].topic_id}), members
        if _is_there(table, partition, members):
            homes[home] = table.partitions[partition].group
        if home not in homes:
            homes[home] = table.placement.next_group + len(made)
            made.append(NewGroup(len(members), members, members[0], is_pinned=True))
        stays = homes[home] == table.partitions[partition].group and not _leaves(table, partition)
        moves.append(WantGroup(partition, None if stays else homes[home]))
    new = [PlaceGroups(table.placement.next_group, tuple(made))] if made else []
    return [*new, *moves]


def _leaves(table: PlacementTable, partition: int) -> bool:
    """Whether a task moves a partition elsewhere: then it has to come back."""
    return any(each.partition == partition for each in table.placement.tasks.values())


def _is_there(table: PlacementTable, partition: int, members: tuple[int, ...]) -> bool:
    """Whether a partition has what is wanted, be it in a group that others share."""
    group = table.groups[table.partitions[partition].group]
    return group.in_order == members and not group.wanted


def _coming(table: PlacementTable, group: int) -> list[int]:
    """Partitions on their way into a group."""
    return [each for each, number in table.placement.moves.items() if number == group]


def _topics(table: PlacementTable, group: int) -> frozenset[str]:
    """The topics of a group's partitions, and of those that are on their way."""
    return _topics_of(table, [*table.contents[group], *_coming(table, group)])


def _topics_of(table: PlacementTable, partitions: Iterable[int]) -> frozenset[str]:
    """The topics of these partitions."""
    return frozenset(table.partitions[each].topic_id for each in partitions)


def stop_reassigning(table: PlacementTable, partition: int) -> list[AnyChange]:
    """What is under way of a reassignment is undone, or ends. Raises PlacementRefused."""
    placed = table.partitions.get(partition)
    if placed is None:
        raise PlacementRefused("UNKNOWN_PARTITION", f"there is no partition {partition}")
    changes: list[AnyChange] = []
    if partition in table.placement.moves:
        changes.append(WantGroup(partition, None))
    if table.groups[placed.group].wanted:
        changes.append(WantMembers(placed.group, ()))
    changes += [
        TurnTask(task.number, TaskState.CANCELLING, "an operator cancelled it")
        for task in table.placement.tasks.values()
        if task.state is not TaskState.CANCELLING and _reassigns(task, placed)
    ]
    if not changes:
        text = f"partition {partition} is not being reassigned"
        raise PlacementRefused("NO_REASSIGNMENT", text)
    return changes


def _reassigns(task: PlacementTask, placed: PlacedPartition) -> bool:
    if task.kind in (TaskKind.MOVE_PARTITION, TaskKind.SPLIT):
        return task.partition == placed.number
    return task.kind is TaskKind.ASSIGN and task.group == placed.group


# --- what is under way ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Reassignment:
    """Who has a partition, with those that are to get it; who of them gets it, and who loses it."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


def under_way(table: PlacementTable, partition: int) -> Reassignment | None:
    """What becomes of a partition, by an operator's wish or any task; None: it stays."""
    group = table.groups[table.partitions[partition].group]
    target = _target(table, partition, group)
    whole = [each.member for each in group.replicas if each.votes]
    adding = tuple(each for each in target if each not in whole)
    removing = tuple(each for each in group.in_order if each not in target)
    if not adding and not removing:
        return None
    return Reassignment(tuple(dict.fromkeys([*group.in_order, *target])), adding, removing)


def _target(table: PlacementTable, partition: int, group: PlacedGroup) -> tuple[int, ...]:
    """Who shall have a partition in the end."""
    moves_to = table.groups.get(table.placement.moves.get(partition, group.number))
    if moves_to is not None and moves_to.number != group.number:
        return moves_to.wanted or moves_to.in_order
    return group.wanted or _after_its_task(table, group)


def _after_its_task(table: PlacementTable, group: PlacedGroup) -> tuple[int, ...]:
    """Who shall have a group once the task that runs in it is done."""
    task = table.placement.tasks.get(table.occupied.get(group.number, -1))
    return group.in_order if task is None else _behind(task, group)


def _behind(task: PlacementTask, group: PlacedGroup) -> tuple[int, ...]:
    """Who has a group when its task is done."""
    if task.kind is TaskKind.LEAD or task.state is TaskState.CANCELLING:
        return group.in_order
    kept = [each for each in group.in_order if each != task.loses]
    return tuple(kept if task.gets is None else dict.fromkeys([*kept, task.gets]))


def elect(table: PlacementTable, groups: Iterable[int]) -> list[AnyChange]:
    """The preferred members shall lead these groups, whatever was cancelled before."""
    return [AllowTasks((TaskKind.LEAD,), each) for each in groups if each in table.groups]
