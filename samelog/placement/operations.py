"""What operators ask for: the changes that it takes, or why it cannot be.

Invariant: what would leave something without a copy, or could never end, is refused, with what is
in the way and what to do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from samelog.placement.changes import (
    AllowTasks,
    AnyChange,
    DrainMember,
    PlaceGroups,
    TurnTask,
    WantGroup,
    WantMembers,
    task_numbered,
)
from samelog.placement.members import MemberStates
from samelog.placement.table import PlacedMember, PlacementTable
from samelog.placement.tasks import PlacementRefused, PlacementTask, TaskKind, TaskState
from samelog.placement.topics import check_assignment
from samelog.placement.values import NewGroup, PlacedPartition

NAMED_AT_MOST = 5


def _member(table: PlacementTable, name: str) -> PlacedMember:
    member = table.named(name)
    if member is None:
        known = ", ".join(each.name for each in table.members.values())
        raise PlacementRefused(
            "UNKNOWN_MEMBER", f"no node is called {name!r}", f"there are {known}"
        )
    return member


def _some(groups: Iterable[int]) -> str:
    """Groups, for a sentence."""
    numbers = sorted(groups)
    more = len(numbers) - NAMED_AT_MOST
    text = ", ".join(map(str, numbers[:NAMED_AT_MOST])) + (f" and {more} more" if more > 0 else "")
    return f"group{'s' if len(numbers) > 1 else ''} {text}"


# --- members --------------------------------------------------------------------------------------


def drain(table: PlacementTable, states: MemberStates, name: str) -> list[AnyChange]:
    """Empty a member. Raises PlacementRefused if nobody else can take what it has; who cannot be
    reached is given up by this, which takes nothing from anybody.
    """
    member = _member(table, name)
    if table.is_draining(member.number):
        return []
    if table.is_heard(member.number):
        _check_homes(table, states, member)
        return [DrainMember(member.number, is_draining=True)]
    if alone := _alone(table, member.number):
        text = f"{name} has the only copy of {_some(alone)}, and cannot be reached"
        raise PlacementRefused("LAST_COPY", text, f"start {name}; if it is lost: samelog recover")
    return [DrainMember(member.number, is_draining=True)]


def _alone(table: PlacementTable, number: int) -> list[int]:
    """Groups of which nobody else has a copy that is whole and can be reached."""
    held = table.held.get(number, set())
    return [each for each in held if not {*table.healthy(table.groups[each])} - {number}]


def _check_homes(table: PlacementTable, states: MemberStates, member: PlacedMember) -> None:
    """With all that are drained already, enough members have to be left for every group."""
    others = [each for each in states.expected if each != member.number]
    leaving = {member.number, *filter(table.is_draining, table.members)}
    groups = set[int]().union(*[table.held.get(each, ()) for each in leaving])
    homeless = [each for each in groups if len(others) < _least(table, each)]
    if homeless:
        names = table.names(others) or "nobody"
        text = f"without {member.name}, {_some(homeless)} would have too few members: {names}"
        remedy = "add a node (samelog node add), or lower the topics' replication.factor"
        raise PlacementRefused("NO_MEMBER", text, remedy)


def _least(table: PlacementTable, number: int) -> int:
    """How many members a group needs to be no worse off than now."""
    group = table.groups[number]
    return min(group.goal, len(group.replicas))


def stop_draining(table: PlacementTable, name: str) -> list[AnyChange]:
    """A member may have replicas again. Raises PlacementRefused."""
    member = _member(table, name)
    return (
        [DrainMember(member.number, is_draining=False)] if table.is_draining(member.number) else []
    )


def check_removal(table: PlacementTable, name: str) -> None:
    """Raises PlacementRefused while a member that is to leave the cluster has anything."""
    member = _member(table, name)
    held = table.held.get(member.number, set())
    if not held:
        return
    if alone := _alone(table, member.number):
        text = f"{name} has the only copy of {_some(alone)}"
        raise PlacementRefused("LAST_COPY", text, f"samelog node drain {name}")
    text = f"{name} has replicas of {_some(held)}"
    raise PlacementRefused("HOLDS_GROUPS", text, f"samelog node drain {name}")


# --- tasks ----------------------------------------------------------------------------------------


def pause(table: PlacementTable, number: int) -> list[AnyChange]:
    """A task makes no step until it is resumed. Raises PlacementRefused."""
    task = _turning(table, number, "paused")
    return [] if task.state is TaskState.PAUSED else [TurnTask(number, TaskState.PAUSED)]


def resume(table: PlacementTable, number: int) -> list[AnyChange]:
    """A paused task goes on. Raises PlacementRefused."""
    task = _turning(table, number, "resumed")
    return [TurnTask(number, TaskState.RUNNING)] if task.state is TaskState.PAUSED else []


def cancel(table: PlacementTable, number: int) -> list[AnyChange]:
    """Undo a task, or let it end where that is too late. Raises PlacementRefused."""
    task = task_numbered(table.placement, number)
    if task.state is TaskState.CANCELLING:
        return []
    return [TurnTask(number, TaskState.CANCELLING, "an operator cancelled it", declines=True)]


def _turning(table: PlacementTable, number: int, how: str) -> PlacementTask:
    task = task_numbered(table.placement, number)
    if task.state is TaskState.CANCELLING:
        text = f"task {number} is being cancelled and cannot be {how}"
        raise PlacementRefused("CANCELLING", text, "samelog tasks list")
    return task


def balance() -> list[AnyChange]:
    """Even out, also what was cancelled before."""
    kinds = (TaskKind.BALANCE, TaskKind.SPREAD, TaskKind.LEAD)
    return [AllowTasks(kinds)]


def allow(group: int | None = None) -> list[AnyChange]:
    """What was cancelled, of all groups or of one, is begun again where it is still needed."""
    return [AllowTasks(tuple(TaskKind), group)]


# --- Kafka's reassignments ------------------------------------------------------------------------


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
        if len(lists) == 1 and table.contents[number] <= partitions:
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
    """Groups that are made for partitions of one topic, and who is to move where."""
    homes = {
        (_topics(table, each.number), each.wanted or each.members): each.number
        for each in table.groups.values()
        if each.is_pinned
    }
    made: list[NewGroup] = []
    moves = []
    for partition, members in single.items():
        home = frozenset({table.partitions[partition].topic_id}), members
        if home not in homes:
            homes[home] = table.placement.next_group + len(made)
            made.append(NewGroup(len(members), members, members[0], is_pinned=True))
        is_there = homes[home] == table.partitions[partition].group
        moves.append(WantGroup(partition, None if is_there else homes[home]))
    new = [PlaceGroups(table.placement.next_group, tuple(made))] if made else []
    return [*new, *moves]


def _topics(table: PlacementTable, group: int) -> frozenset[str]:
    """The topics of a group's partitions, and of those that are on their way."""
    coming = [each for each, number in table.placement.moves.items() if number == group]
    numbers = [*table.contents[group], *coming]
    return frozenset(table.partitions[each].topic_id for each in numbers)


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
    if task.kind is TaskKind.MOVE_PARTITION:
        return task.partition == placed.number
    return task.kind is TaskKind.ASSIGN and task.group == placed.group


def elect(table: PlacementTable, groups: Iterable[int]) -> list[AnyChange]:
    """The preferred members shall lead these groups, whatever was cancelled before."""
    return [AllowTasks((TaskKind.LEAD,), each) for each in groups if each in table.groups]
