"""All that changes the replicated state of placement.

Invariant: a change whose preconditions do not hold changes nothing and says why, on every node.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from samelog.format.numbers import Unsigned32
from samelog.placement import wishes
from samelog.placement.tasks import PlacementRefused, PlacementTask, TaskKind, TaskState
from samelog.placement.values import (
    EPOCHS_PER_MOVE,
    METADATA,
    REPLICAS_MOST,
    NewGroup,
    PlacedGroup,
    PlacedPartition,
    PlacedReplica,
    Placement,
)

ENDED_REMEMBERED = 128
RECOVERY_STEP = 1000
"""So far a recovered group's configuration is above what its lost replicas can have had."""


class TableChange(
    msgspec.Struct, frozen=True, array_like=True, tag_field="c", forbid_unknown_fields=True
):
    """Base of all changes; the tag is their number on disk."""


class StartTask(TableChange, frozen=True, tag=1):
    """A task runs from here on, unless another one has its group."""

    task: PlacementTask


class TurnTask(TableChange, frozen=True, tag=2):
    """A task goes on in another state. `declines`: an operator cancelled it, and the same is not
    begun again before somebody asks for it.
    """

    number: Unsigned32
    state: TaskState
    reason: str = ""
    declines: bool = False


class PauseTasks(TableChange, frozen=True, tag=3):
    """No task is begun, or any may be."""

    are_paused: bool


class AllowTasks(TableChange, frozen=True, tag=4):
    """What was declined of these kinds may be begun again; of all groups, or of one."""

    kinds: tuple[TaskKind, ...]
    group: Unsigned32 | None = None


class PlaceGroups(TableChange, frozen=True, tag=5):
    """New groups, with the numbers from `first` on."""

    first: Unsigned32
    groups: tuple[NewGroup, ...]


class DropGroup(TableChange, frozen=True, tag=6):
    """A group that has no partitions ends."""

    number: Unsigned32


class ConfirmGroup(TableChange, frozen=True, tag=7):
    """What a group says of its configuration, and of the replicas in it."""

    number: Unsigned32
    version: int
    replicas: tuple[PlacedReplica, ...]


class WantMembers(TableChange, frozen=True, tag=8):
    """An operator wants these members to have a group; empty: not any more."""

    group: Unsigned32
    members: tuple[Unsigned32, ...]


class ReachMembers(TableChange, frozen=True, tag=9):
    """A group has the members that an operator wanted, or cannot have them."""

    group: Unsigned32


class PreferLeader(TableChange, frozen=True, tag=10):
    """Another member shall lead a group."""

    group: Unsigned32
    member: Unsigned32


class WantGroup(TableChange, frozen=True, tag=11):
    """A partition shall be in another group; None: not any more."""

    partition: Unsigned32
    group: Unsigned32 | None


class PartitionMoved(TableChange, frozen=True, tag=12):
    """A partition is open in the group that its task moves it to."""

    task: Unsigned32


class DrainMember(TableChange, frozen=True, tag=13):
    """A member shall have no replicas, or may have some again."""

    number: Unsigned32
    is_draining: bool


class GroupBegunAnew(TableChange, frozen=True, tag=14):
    """A group has restarted its logs for a hard reset; its terms are at least `term`."""

    number: Unsigned32
    reset_id: str
    term: int


class RecoverGroup(TableChange, frozen=True, tag=15):
    """A group whose majority is lost for ever goes on with the replica of one member."""

    number: Unsigned32
    member: Unsigned32


class SetDefaultCopies(TableChange, frozen=True, tag=16):
    """Topics created without a number have this goal from now on; 0: the one of samelog."""

    copies: Unsigned32


class TopicsDropped(TableChange, frozen=True, tag=17):
    """A group has dropped all topics that were deleted up to this version of the table."""

    number: Unsigned32
    version: int


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
    | WantGroup
    | PartitionMoved
    | DrainMember
    | GroupBegunAnew
    | RecoverGroup
    | SetDefaultCopies
    | TopicsDropped
)


def apply_change(
    placement: Placement,
    change: AnyChange,
    *,
    may_leave: Container[int] = frozenset(),
) -> None:
    """Raises PlacementRefused, and then nothing is changed. Where a partition shall be counts
    though another move of it ends. `may_leave`: partitions that group 0 may pass on.
    """
    if isinstance(change, WantGroup):
        wishes.check_known(placement, change.partition, may_leave)
    task = placement.tasks.get(change.number) if isinstance(change, TurnTask) else None
    wish = wishes.newer_wish(placement, task)
    _APPLY[type(change)](placement, change)
    if wish is not None:
        placement.moves[wish[0]] = wish[1]
    if (moved := change if isinstance(change, WantGroup) else task) is not None:
        wishes.forget_if_fulfilled(placement, moved.partition)
    placement.version += 1


# --- tasks ----------------------------------------------------------------------------------------


def _start(placement: Placement, change: StartTask) -> None:
    task = change.task
    for number in task.groups:
        if number != METADATA and group_numbered(placement, number).is_recovering:
            raise PlacementRefused("RECOVERING", f"group {number} has yet to go on alone")
        other = _task_of(placement, number)
        if other is not None:
            raise PlacementRefused("OCCUPIED", f"task {other.number} has group {number}")
        if task.partition is not None and number in placement.resetting:
            raise PlacementRefused("RESETTING", f"group {number} is restarting its logs")
    if task.number != placement.next_task:
        raise PlacementRefused("OVERTAKEN", "other tasks were begun meanwhile")
    if task.replica is not None:
        _add_replica(placement, task)
    _prefer_another(placement, task)
    placement.next_task += 1
    placement.tasks[task.number] = task


def _task_of(placement: Placement, group: int) -> PlacementTask | None:
    """The task that has a group: few run at a time."""
    return next((each for each in placement.tasks.values() if group in each.groups), None)


def _add_replica(placement: Placement, task: PlacementTask) -> None:
    """A member that the table names begins a replica, before its group knows of it."""
    group = placement.groups[task.group]
    if task.gets is None or group.replica_of(task.gets) is not None:
        raise PlacementRefused("OVERTAKEN", f"the member has a replica of group {group.number}")
    if task.replica != placement.next_replica:
        raise PlacementRefused("OVERTAKEN", "other replicas were made meanwhile")
    made_at = placement.version + 1
    new = PlacedReplica(task.gets, task.replica, votes=False, is_whole=False, made_at=made_at)
    placement.next_replica += 1
    if task.kind is TaskKind.READ:
        placement.groups[group.number] = replace(group, coming=(new,))
    else:
        placement.groups[group.number] = replace(group, replicas=(*group.replicas, new))


def _prefer_another(placement: Placement, task: PlacementTask) -> None:
    """Who loses its replica shall not lead on: its group would hand leadership back to it."""
    group = placement.groups.get(task.group)
    if task.loses is None or group is None or group.preferred != task.loses:
        return
    heirs = [each.member for each in group.replicas if each.member != task.loses]
    if heirs:
        placement.groups[group.number] = replace(group, preferred=heirs[-1])


def _turn(placement: Placement, change: TurnTask) -> None:
    task = task_numbered(placement, change.number)
    turned = replace(task, state=change.state, reason=change.reason or task.reason)
    if change.declines:
        placement.declined.append((task.kind, task.group))
    if task.partition is not None and (change.declines or turned.state is TaskState.DONE):
        placement.moves.pop(task.partition, None)
    if not turned.is_over:
        placement.tasks[task.number] = turned
        return
    del placement.tasks[task.number]
    group = placement.groups.get(task.group)
    if task.kind is TaskKind.READ and group is not None:
        placement.groups[group.number] = replace(group, coming=())
    placement.ended.append(turned)
    del placement.ended[:-ENDED_REMEMBERED]


def task_numbered(placement: Placement, number: int) -> PlacementTask:
    """A task that is not over. Raises PlacementRefused."""
    task = placement.tasks.get(number)
    if task is None:
        text = f"no task {number} is running or paused"
        raise PlacementRefused("UNKNOWN_TASK", text, "samelog tasks list")
    return task


def _pause(placement: Placement, change: PauseTasks) -> None:
    placement.are_paused = change.are_paused


def _allow(placement: Placement, change: AllowTasks) -> None:
    placement.declined = [
        (kind, group)
        for kind, group in placement.declined
        if kind not in change.kinds or change.group not in (None, group)
    ]


# --- groups ---------------------------------------------------------------------------------------


def _place_groups(placement: Placement, change: PlaceGroups) -> None:
    if change.first != placement.next_group:
        raise PlacementRefused("OVERTAKEN", "other groups were made meanwhile")
    for each in change.groups:
        make_group(placement, each, placement.version + 1)


def make_group(placement: Placement, wanted: NewGroup, made_at: int) -> None:
    """With the next number; each replica with the next replica number, all voters and founders."""
    number, first = placement.next_group, placement.next_replica
    replicas = tuple(
        PlacedReplica(member, replica, made_at=made_at)
        for replica, member in enumerate(wanted.members, first)
    )
    placement.groups[number] = PlacedGroup(
        number,
        wanted.copies,
        replicas,
        wanted.preferred,
        tuple(wanted.members),
        is_pinned=wanted.is_pinned,
        made_at=made_at,
        was_used=wanted.is_default,
    )
    placement.next_group, placement.next_replica = number + 1, first + len(replicas)


def _drop_group(placement: Placement, change: DropGroup) -> None:
    number = change.number
    group_numbered(placement, number)
    is_used = any(each.group == number for each in placement.partitions.values())
    if is_used or _task_of(placement, number) or number in placement.moves.values():
        raise PlacementRefused("IN_USE", f"group {number} is in use")
    del placement.groups[number]
    placement.resetting.pop(number, None)
    placement.declined = [each for each in placement.declined if each[1] != number]


def group_numbered(placement: Placement, number: int) -> PlacedGroup:
    """A group. Raises PlacementRefused."""
    group = placement.groups.get(number)
    if group is None:
        raise PlacementRefused("UNKNOWN_GROUP", f"there is no group {number}")
    return group


def _confirm(placement: Placement, change: ConfirmGroup) -> None:
    group = group_numbered(placement, change.number)
    if change.version < max(group.version, group.recovered):
        raise PlacementRefused("OVERTAKEN", f"group {change.number} has a newer configuration")
    only_read = {each.replica for each in (*group.readers, *group.coming)}
    readers = tuple(each for each in change.replicas if each.replica in only_read)
    counting = tuple(each for each in change.replicas if each.replica not in only_read)
    replicas = _in_order(group, _with_pending(placement, group, counting))
    preferred = _preferred(group, [each.member for each in replicas])
    placement.groups[group.number] = replace(
        group,
        version=change.version,
        replicas=replicas,
        preferred=preferred,
        readers=readers,
        coming=_still_coming(placement, group, readers),
    )


def _still_coming(
    placement: Placement, group: PlacedGroup, here: tuple[PlacedReplica, ...]
) -> tuple[PlacedReplica, ...]:
    """The replica that a task makes to be read from: until the group has it, or says that it has
    not, once the task is cancelled.
    """
    task = _task_of(placement, group.number)
    if task is None or task.state is TaskState.CANCELLING:
        return ()
    known = {each.replica for each in here}
    waits = (each for each in group.coming if each.replica == task.replica)
    return tuple(each for each in waits if each.replica not in known)


def _with_pending(
    placement: Placement, group: PlacedGroup, configured: tuple[PlacedReplica, ...]
) -> tuple[PlacedReplica, ...]:
    """What a running task adds is there before the group knows; what a cancelled one added is gone
    as soon as the group says that it is not there.
    """
    task = _task_of(placement, group.number)
    if task is None or task.replica is None or task.state is TaskState.CANCELLING:
        return configured
    pending = next((each for each in group.replicas if each.member == task.gets), None)
    if pending is None or any(each.replica == task.replica for each in configured):
        return configured
    return (*configured, pending)


def _in_order(group: PlacedGroup, replicas: tuple[PlacedReplica, ...]) -> tuple[PlacedReplica, ...]:
    """As they were before, and new ones behind them: operators gave an order."""
    places = {member: place for place, member in enumerate(group.members)}
    return tuple(sorted(replicas, key=lambda each: places.get(each.member, len(places))))


def _preferred(group: PlacedGroup, members: list[int]) -> int:
    """Who comes instead of the preferred leader is preferred as the newest."""
    return group.preferred if group.preferred in members or not members else members[-1]


def _want_members(placement: Placement, change: WantMembers) -> None:
    group, members = group_numbered(placement, change.group), change.members
    is_pinned = group.is_pinned or bool(members)
    placement.groups[group.number] = replace(group, wanted=members, is_pinned=is_pinned)


def _reach_members(placement: Placement, change: ReachMembers) -> None:
    group = group_numbered(placement, change.group)
    first = group.wanted[0] if group.wanted else group.preferred
    preferred = first if first in group.voters else group.preferred
    places = {member: place for place, member in enumerate(group.wanted)}
    placement.groups[group.number] = replace(
        group,
        copies=group.goal,
        replicas=tuple(sorted(group.replicas, key=lambda each: places.get(each.member, -1))),
        wanted=(),
        preferred=preferred,
    )


def _prefer(placement: Placement, change: PreferLeader) -> None:
    group = group_numbered(placement, change.group)
    if change.member not in group.voters:
        text = f"member {change.member} is no voter of group {group.number}"
        raise PlacementRefused("NO_VOTER", text)
    placement.groups[group.number] = replace(group, preferred=change.member)


# --- partitions and members -----------------------------------------------------------------------


def _want_group(placement: Placement, change: WantGroup) -> None:
    if change.group is None:
        placement.moves.pop(change.partition, None)
    else:
        use_groups(placement, [change.group])
        placement.moves[change.partition] = change.group


def put_partition(placement: Placement, partition: PlacedPartition) -> None:
    """Place a partition into its group, be it new or moved. Raises PlacementRefused."""
    put_partitions(placement, [partition])


def put_partitions(placement: Placement, partitions: Sequence[PlacedPartition]) -> None:
    """As `put_partition`, for many."""
    use_groups(placement, [each.group for each in partitions])
    placement.partitions |= {each.number: each for each in partitions}


def use_groups(placement: Placement, numbers: Iterable[int]) -> None:
    """Note that groups end once they are empty. Raises PlacementRefused."""
    for number in dict.fromkeys(numbers):
        group = group_numbered(placement, number)
        if not group.was_used:
            placement.groups[number] = replace(group, was_used=True)


def _partition_moved(placement: Placement, change: PartitionMoved) -> None:
    task = task_numbered(placement, change.task)
    partition = placement.partitions.get(-1 if task.partition is None else task.partition)
    if partition is not None and task.target not in (None, partition.group):
        epoch_base = partition.epoch_base + EPOCHS_PER_MOVE
        put_partition(placement, replace(partition, group=task.target, epoch_base=epoch_base))


def _drain(placement: Placement, change: DrainMember) -> None:
    """What was cancelled of an earlier drain may be begun again."""
    member = change.number
    placement.draining = [each for each in placement.draining if each != member]
    if change.is_draining:
        placement.draining.append(member)
    placement.declined = [
        (kind, group)
        for kind, group in placement.declined
        if kind is not TaskKind.DRAIN or not _holds(placement, member, group)
    ]


def _holds(placement: Placement, member: int, group: int) -> bool:
    known = placement.groups.get(group)
    return known is not None and member in known.members


def _begun_anew(placement: Placement, change: GroupBegunAnew) -> None:
    if placement.resetting.get(change.number) != change.reset_id:
        raise PlacementRefused("OVERTAKEN", f"group {change.number} has no such reset to do")
    del placement.resetting[change.number]
    for number, each in placement.partitions.items():
        if each.group == change.number:
            first_epoch = each.epoch_base + change.term
            placement.partitions[number] = replace(each, first_epoch=first_epoch)


def _recover(placement: Placement, change: RecoverGroup) -> None:
    """Replicas of others are none any more. A task that changes the group ends with that."""
    group = group_numbered(placement, change.number)
    left = group.replica_of(change.member)
    if left is None:
        text = f"member {change.member} has no replica of group {group.number}"
        raise PlacementRefused("NO_REPLICA", text)
    placement.groups[group.number] = replace(
        group,
        replicas=(replace(left, votes=True, is_whole=True),),
        readers=(),
        coming=(),
        preferred=change.member,
        wanted=(),
        recovered=max(group.version, group.recovered) + RECOVERY_STEP,
    )
    task = _task_of(placement, group.number)
    if task is not None and task.partition is None:
        _turn(placement, TurnTask(task.number, TaskState.CANCELLED, "its group was recovered"))


def _set_default_copies(placement: Placement, change: SetDefaultCopies) -> None:
    if change.copies > REPLICAS_MOST:
        text = f"{change.copies} copies; there can be up to {REPLICAS_MOST}"
        raise PlacementRefused("INVALID_REPLICATION_FACTOR", text)
    placement.default_copies = change.copies


def _topics_dropped(placement: Placement, change: TopicsDropped) -> None:
    group = group_numbered(placement, change.number)
    owed = tuple(each for each in group.owed if each.version > change.version)
    placement.groups[group.number] = replace(group, owed=owed)


_APPLY: Mapping[type, Callable[[Placement, Any], None]] = {
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
    WantGroup: _want_group,
    PartitionMoved: _partition_moved,
    DrainMember: _drain,
    GroupBegunAnew: _begun_anew,
    RecoverGroup: _recover,
    SetDefaultCopies: _set_default_copies,
    TopicsDropped: _topics_dropped,
}
