"""All that changes the replicated state of placement.

Invariant: a change whose preconditions do not hold changes nothing and says why, on every node.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from samelog.format.numbers import Unsigned32
from samelog.placement.table import PlacementTable
from samelog.placement.tasks import PlacementRefused, PlacementTask, TaskKind, TaskState
from samelog.placement.values import NewGroup, PlacedGroup, PlacedPartition, PlacedReplica

ENDED_REMEMBERED = 128


class Change(
    msgspec.Struct, frozen=True, array_like=True, tag_field="c", forbid_unknown_fields=True
):
    """Base of all changes; the tag is their number on disk."""


class StartTask(Change, frozen=True, tag=1):
    """A task runs from here on, unless another one has its group."""

    task: PlacementTask


class TurnTask(Change, frozen=True, tag=2):
    """A task goes on in another state. `declines`: an operator cancelled it, and the same is not
    begun again before somebody asks for it.
    """

    number: Unsigned32
    state: TaskState
    reason: str = ""
    declines: bool = False


class PauseTasks(Change, frozen=True, tag=3):
    """No task is begun, or any may be."""

    are_paused: bool


class AllowTasks(Change, frozen=True, tag=4):
    """What was declined of these kinds may be begun again; of all groups, or of one."""

    kinds: tuple[TaskKind, ...]
    group: Unsigned32 | None = None


class PlaceGroups(Change, frozen=True, tag=5):
    """New groups, with the numbers from `first` on."""

    first: Unsigned32
    groups: tuple[NewGroup, ...]


class DropGroup(Change, frozen=True, tag=6):
    """A group that has no partitions ends."""

    number: Unsigned32


class ConfirmGroup(Change, frozen=True, tag=7):
    """What a group says of its configuration, and of the replicas in it."""

    number: Unsigned32
    version: int
    replicas: tuple[PlacedReplica, ...]


class WantMembers(Change, frozen=True, tag=8):
    """An operator wants these members to have a group; empty: not any more."""

    group: Unsigned32
    members: tuple[Unsigned32, ...]


class ReachMembers(Change, frozen=True, tag=9):
    """A group has the members that an operator wanted, or cannot have them."""

    group: Unsigned32


class PreferLeader(Change, frozen=True, tag=10):
    """Another member shall lead a group."""

    group: Unsigned32
    member: Unsigned32


class PlacePartitions(Change, frozen=True, tag=11):
    """New partitions."""

    partitions: tuple[PlacedPartition, ...]


class DropPartitions(Change, frozen=True, tag=12):
    """Partitions that are deleted."""

    numbers: tuple[Unsigned32, ...]


class WantGroup(Change, frozen=True, tag=13):
    """A partition shall be in another group; None: not any more."""

    partition: Unsigned32
    group: Unsigned32 | None


class PartitionMoved(Change, frozen=True, tag=14):
    """A partition is open in the group that its task moves it to."""

    task: Unsigned32


class DrainMember(Change, frozen=True, tag=15):
    """A member shall have no replicas, or may have some again."""

    number: Unsigned32
    is_draining: bool


AnyChange = (
    StartTask
    | TurnTask
    | PauseTasks
    | AllowTasks
    | PlaceGroups
    | DropGroup
    | ConfirmGroup
    | WantMembers
    | ReachMembers
    | PreferLeader
    | PlacePartitions
    | DropPartitions
    | WantGroup
    | PartitionMoved
    | DrainMember
)


def apply_change(table: PlacementTable, change: Change) -> None:
    """Raises PlacementRefused, and then nothing is changed."""
    _APPLY[type(change)](table, change)
    table.placement.version += 1


# --- tasks ----------------------------------------------------------------------------------------


def _start(table: PlacementTable, change: StartTask) -> None:
    task, placement = change.task, table.placement
    for number in task.groups:
        if number in table.occupied:
            text = f"task {table.occupied[number]} has group {number}"
            raise PlacementRefused("OCCUPIED", text)
        group_numbered(table, number)
    if task.number != placement.next_task:
        raise PlacementRefused("OVERTAKEN", "other tasks were begun meanwhile")
    if task.replica is not None:
        _add_replica(table, task)
    placement.next_task += 1
    placement.tasks[task.number] = task
    table.occupied.update(dict.fromkeys(task.groups, task.number))
    table.changed.update(task.groups)


def _add_replica(table: PlacementTable, task: PlacementTask) -> None:
    """A member that the table names begins a replica, before its group knows of it."""
    group, placement = table.groups[task.group], table.placement
    if task.gets is None or group.replica_of(task.gets) is not None:
        raise PlacementRefused("OVERTAKEN", f"the member has a replica of group {group.number}")
    if task.replica != placement.next_replica:
        raise PlacementRefused("OVERTAKEN", "other replicas were made meanwhile")
    placement.next_replica += 1
    table.put_group(replace(group, replicas=(*group.replicas, _pending(table, task))))


def _pending(table: PlacementTable, task: PlacementTask) -> PlacedReplica:
    version = table.placement.version + 1
    return PlacedReplica(
        task.gets or 0, task.replica or 0, votes=False, is_whole=False, made_at=version
    )


def _turn(table: PlacementTable, change: TurnTask) -> None:
    task, placement = task_numbered(table, change.number), table.placement
    turned = replace(task, state=change.state, reason=change.reason or task.reason)
    if change.declines:
        placement.declined.append((task.kind, task.group))
        placement.moves.pop(-1 if task.partition is None else task.partition, None)
    table.changed.update(task.groups)
    if not turned.is_over:
        placement.tasks[task.number] = turned
        return
    del placement.tasks[task.number]
    for group in task.groups:
        del table.occupied[group]
    placement.ended.append(turned)
    del placement.ended[:-ENDED_REMEMBERED]
    if turned.state is TaskState.DONE and task.partition is not None:
        placement.moves.pop(task.partition, None)


def task_numbered(table: PlacementTable, number: int) -> PlacementTask:
    """A task that is not over. Raises PlacementRefused."""
    task = table.placement.tasks.get(number)
    if task is None:
        text = f"no task {number} is running or paused"
        raise PlacementRefused("UNKNOWN_TASK", text, "samelog tasks list")
    return task


def _pause(table: PlacementTable, change: PauseTasks) -> None:
    table.placement.are_paused = change.are_paused


def _allow(table: PlacementTable, change: AllowTasks) -> None:
    for each in list(table.placement.declined):
        kind, group = each
        if kind in change.kinds and change.group in (None, group):
            table.placement.declined.remove(each)
            table.changed.add(group)


# --- groups ---------------------------------------------------------------------------------------


def _place_groups(table: PlacementTable, change: PlaceGroups) -> None:
    placement = table.placement
    if change.first != placement.next_group:
        raise PlacementRefused("OVERTAKEN", "other groups were made meanwhile")
    for each in change.groups:
        replicas = []
        for member in each.members:
            made_at = placement.version + 1
            replicas.append(PlacedReplica(member, placement.next_replica, made_at=made_at))
            placement.next_replica += 1
        table.put_group(
            PlacedGroup(
                placement.next_group,
                each.copies,
                tuple(replicas),
                each.preferred,
                each.members,
                is_pinned=each.is_pinned,
            )
        )
        placement.next_group += 1


def _drop_group(table: PlacementTable, change: DropGroup) -> None:
    number, placement = change.number, table.placement
    group_numbered(table, number)
    if table.contents[number] or number in table.occupied or number in placement.moves.values():
        raise PlacementRefused("IN_USE", f"group {number} is in use")
    table.drop_group(number)
    placement.declined = [each for each in placement.declined if each[1] != number]


def group_numbered(table: PlacementTable, number: int) -> PlacedGroup:
    """A group. Raises PlacementRefused."""
    group = table.groups.get(number)
    if group is None:
        raise PlacementRefused("UNKNOWN_GROUP", f"there is no group {number}")
    return group


def _confirm(table: PlacementTable, change: ConfirmGroup) -> None:
    group = group_numbered(table, change.number)
    if change.version < group.version:
        raise PlacementRefused("OVERTAKEN", f"group {change.number} has a newer configuration")
    replicas = _with_pending(table, group, change.replicas)
    preferred = _preferred(group, [each.member for each in replicas if each.votes])
    changed = replace(group, version=change.version, replicas=replicas, preferred=preferred)
    table.put_group(changed)


def _with_pending(
    table: PlacementTable, group: PlacedGroup, configured: tuple[PlacedReplica, ...]
) -> tuple[PlacedReplica, ...]:
    """What a running task adds is there before the group knows; what a cancelled one added is gone
    as soon as the group says that it is not there.
    """
    task = table.placement.tasks.get(table.occupied.get(group.number, -1))
    if task is None or task.replica is None or task.state is TaskState.CANCELLING:
        return configured
    pending = group.replica_of(-1 if task.gets is None else task.gets)
    if pending is None or any(each.replica == task.replica for each in configured):
        return configured
    return (*configured, pending)


def _preferred(group: PlacedGroup, voters: list[int]) -> int:
    """Who comes instead of the preferred leader is preferred as the newest."""
    return group.preferred if group.preferred in voters or not voters else voters[-1]


def _want_members(table: PlacementTable, change: WantMembers) -> None:
    group, members = group_numbered(table, change.group), change.members
    table.put_group(replace(group, wanted=members, is_pinned=group.is_pinned or bool(members)))


def _reach_members(table: PlacementTable, change: ReachMembers) -> None:
    group = group_numbered(table, change.group)
    first = group.wanted[0] if group.wanted else group.preferred
    preferred = first if first in group.voters else group.preferred
    table.put_group(replace(group, copies=group.goal, wanted=(), preferred=preferred))


def _prefer(table: PlacementTable, change: PreferLeader) -> None:
    group = group_numbered(table, change.group)
    if change.member not in group.voters:
        text = f"member {change.member} is no voter of group {group.number}"
        raise PlacementRefused("NO_VOTER", text)
    table.put_group(replace(group, preferred=change.member))


# --- partitions and members -----------------------------------------------------------------------


def _place_partitions(table: PlacementTable, change: PlacePartitions) -> None:
    for partition in change.partitions:
        group_numbered(table, partition.group)
    for partition in change.partitions:
        table.put_partition(partition)


def _drop_partitions(table: PlacementTable, change: DropPartitions) -> None:
    for number in change.numbers:
        table.drop_partition(number)
        table.placement.moves.pop(number, None)


def _want_group(table: PlacementTable, change: WantGroup) -> None:
    partition = table.partitions.get(change.partition)
    if partition is None:
        text = f"there is no partition {change.partition}"
        raise PlacementRefused("UNKNOWN_PARTITION", text)
    if change.group is not None:
        group_numbered(table, change.group)
    before = table.placement.moves.pop(change.partition, partition.group)
    table.changed.update({partition.group, before})
    if change.group is not None:
        table.placement.moves[change.partition] = change.group
        table.changed.add(change.group)


def _partition_moved(table: PlacementTable, change: PartitionMoved) -> None:
    task = task_numbered(table, change.task)
    partition = table.partitions.get(-1 if task.partition is None else task.partition)
    if partition is not None and task.target is not None:
        table.put_partition(replace(partition, group=task.target))


def _drain(table: PlacementTable, change: DrainMember) -> None:
    placement, member = table.placement, change.number
    placement.draining = [each for each in placement.draining if each != member]
    if change.is_draining:
        placement.draining.append(member)
    held = table.held.get(member, set())
    placement.declined = [
        (kind, group)
        for kind, group in placement.declined
        if kind is not TaskKind.DRAIN or group not in held
    ]
    table.changed.update(held)


_APPLY: Mapping[type[Change], Callable[[PlacementTable, Any], None]] = {
    StartTask: _start,
    TurnTask: _turn,
    PauseTasks: _pause,
    AllowTasks: _allow,
    PlaceGroups: _place_groups,
    DropGroup: _drop_group,
    ConfirmGroup: _confirm,
    WantMembers: _want_members,
    ReachMembers: _reach_members,
    PreferLeader: _prefer,
    PlacePartitions: _place_partitions,
    DropPartitions: _drop_partitions,
    WantGroup: _want_group,
    PartitionMoved: _partition_moved,
    DrainMember: _drain,
}
