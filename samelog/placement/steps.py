"""What a running task asks for next, by what its group says of itself.

A task is undone while that leaves as many copies as before; where it does not, it is carried on to
its end. So whatever becomes of it, no replica is left that nobody knows of.

Invariant: a step is asked for only while the group is as the task left it; asking twice does the
same as asking once.
"""

from __future__ import annotations

from dataclasses import dataclass

from msgspec.structs import replace

from samelog.format.nouns import counted
from samelog.placement.changes import AnyChange, PartitionMoved, TurnTask
from samelog.placement.guards import refuse_removal
from samelog.placement.members import Availability, MemberStates
from samelog.placement.table import PlacementTable
from samelog.placement.tasks import (
    Action,
    GroupOrder,
    PartitionMove,
    PlacementTask,
    TaskKind,
    TaskState,
)
from samelog.placement.values import METADATA, PlacedGroup, PlacedReplica

NOT_MOVED = PartitionMove()


@dataclass(frozen=True, slots=True)
class TaskStep:
    """An order for a group's leader, a change of group 0, or what is waited for."""

    order: GroupOrder | None = None
    change: AnyChange | None = None
    waits_for: str = ""


def next_step(
    table: PlacementTable,
    states: MemberStates,
    task: PlacementTask,
    moved: PartitionMove = NOT_MOVED,
) -> TaskStep:
    """What comes next of a task; `moved`: how far its partition is, where it moves one."""
    group = table.groups.get(task.group)
    if group is not None and task.target is None and table.is_abandoned(group):
        return _end(task, TaskState.CANCELLED, "its group has no partitions any more")
    if moved.is_overdue and task.state is not TaskState.CANCELLING:
        reason = "its partition would have been compacted long ago"
        return TaskStep(change=TurnTask(task.number, TaskState.CANCELLING, reason, declines=True))
    if task.state is TaskState.PAUSED:
        return TaskStep(waits_for="paused")
    if task.group == METADATA:
        return _move(table, task, moved)
    if group is None:
        return _end(task, TaskState.CANCELLED, f"group {task.group} is gone")
    if task.kind in (TaskKind.MOVE_PARTITION, TaskKind.SPLIT):
        return _move(table, task, moved)
    return _of_group(table, states, task, group)


def _of_group(
    table: PlacementTable, states: MemberStates, task: PlacementTask, group: PlacedGroup
) -> TaskStep:
    """Return what comes next of a task that changes a group's members, or its leader."""
    if task.kind is TaskKind.LEAD:
        return _lead(table, states, task, group)
    if task.kind is TaskKind.READ:
        return _read(states, task, group)
    if task.state is TaskState.CANCELLING:
        return _undo(table, states, task, group)
    reason = _why_not_any_more(table, states, task, group)
    if reason:
        return _end(task, TaskState.CANCELLING, reason)
    return _carry_on(table, states, task, group)


def _end(task: PlacementTask, state: TaskState, reason: str = "") -> TaskStep:
    return TaskStep(change=TurnTask(task.number, state, reason))


# --- replicas -------------------------------------------------------------------------------------


def _new(task: PlacementTask, group: PlacedGroup) -> PlacedReplica | None:
    """The replica that the task made: not another one of the same member."""
    return next((each for each in group.replicas if each.replica == task.replica), None)


def _carry_on(
    table: PlacementTable, states: MemberStates, task: PlacementTask, group: PlacedGroup
) -> TaskStep:
    new = _new(task, group)
    if task.gets is not None and new is None:
        return _end(task, TaskState.CANCELLING, "its new replica was removed")
    if new is not None and not new.votes:
        action = Action.PROMOTE if new.is_whole else Action.ADD_LEARNER
        return TaskStep(_order(task, group, action, new), waits_for=_ADDED[action])
    if task.loses is None or group.replica_of(task.loses) is None:
        return _end(task, TaskState.DONE)
    if new is not None and len(group.replicas) <= states.copies_of(group):
        return _end(task, TaskState.DONE, "its new copy is needed beside the others")
    step = _remove(table, states, task, task.loses)
    return _yielding(states, task, group, step)


_ADDED = {Action.ADD_LEARNER: "copying", Action.PROMOTE: "becoming a voter"}


def _remove(
    table: PlacementTable, states: MemberStates, task: PlacementTask, member: int
) -> TaskStep:
    """Not before the rest are enough, and somebody else leads."""
    group = table.groups[task.group]
    healthy, copies = table.healthy(group), states.copies_of(group)
    obstacle = refuse_removal(group, member, healthy, copies)
    if obstacle:
        return TaskStep(waits_for=obstacle)
    if table.leaders.get(group.number) == member:
        heirs = [each for each in healthy if each != member]
        heir = group.preferred if group.preferred in heirs else heirs[-1]
        replica = group.replica_of(heir)
        return TaskStep(_order(task, group, Action.LEAD, replica), waits_for="another leader")
    replica = group.replica_of(member)
    order = replace(_order(task, group, Action.REMOVE, replica), copies=copies)
    return TaskStep(order, waits_for="removing")


def _yielding(
    states: MemberStates, task: PlacementTask, group: PlacedGroup, step: TaskStep
) -> TaskStep:
    """Where nothing may be removed because others were lost meanwhile, the new replica stays
    instead of one of those.
    """
    others = [each for each in group.members if each != task.loses]
    if step.order is None and any(map(states.must_be_replaced, others)):
        if task.gets is None:
            return _end(task, TaskState.CANCELLED, "others were lost, which are replaced first")
        return _end(task, TaskState.DONE, "its new copy takes the place of one that was lost")
    return step


def _order(
    task: PlacementTask, group: PlacedGroup, action: Action, replica: PlacedReplica | None
) -> GroupOrder:
    return GroupOrder(
        task.number,
        action,
        group.number,
        group.version,
        member=None if replica is None else replica.member,
        replica=None if replica is None else replica.replica,
    )


def _undo(
    table: PlacementTable, states: MemberStates, task: PlacementTask, group: PlacedGroup
) -> TaskStep:
    """Remove what was made. What has taken another's place, or is needed, stays."""
    new = _new(task, group)
    if new is None:
        return _end(task, TaskState.CANCELLED)
    is_replaced = task.loses is not None and group.replica_of(task.loses) is None
    if new.votes and (is_replaced or len(group.replicas) <= states.copies_of(group)):
        return _end(task, TaskState.DONE, "too late to be cancelled")
    if not new.votes:
        return TaskStep(_order(task, group, Action.REMOVE, new), waits_for="undoing")
    step = _remove(table, states, task, new.member)
    if step.order is None and task.loses is not None:
        step = _remove(table, states, task, task.loses)
    return _yielding(states, task, group, step)


def _why_not_any_more(
    table: PlacementTable, states: MemberStates, task: PlacementTask, group: PlacedGroup
) -> str:
    """Why a task has become pointless; empty if it has not, or if that is too late to say."""
    new, gets = _new(task, group), task.gets
    if gets is None:
        return _why_it_is_kept(states, task, group)
    if new is None:
        return ""
    is_done = task.loses is None or group.replica_of(task.loses) is None
    if new.votes and is_done:
        return ""
    if states[gets] is Availability.LOST or table.is_draining(gets):
        return f"{table.names([gets])} is {states[gets].value}"
    if new.votes or task.loses is None:
        return ""
    return _why_it_stays(table, task, group, task.loses)


def _why_it_is_kept(states: MemberStates, task: PlacementTask, group: PlacedGroup) -> str:
    """Return why a copy that was one too many is needed again, as after a host was added."""
    old = None if task.loses is None else group.replica_of(task.loses)
    is_needed = old is not None and old.votes and len(group.replicas) <= states.copies_of(group)
    count = counted(states.copies_of(group), "copy", "copies")
    return f"its group needs {count}" if is_needed else ""


def _why_it_stays(
    table: PlacementTable, task: PlacementTask, group: PlacedGroup, loses: int
) -> str:
    """Why the member need not lose its replica any more."""
    is_drained, name = table.is_draining(loses), table.names([loses])
    if task.kind is TaskKind.REPLACE and not is_drained and loses in table.healthy(group):
        return f"{name} is back"
    if task.kind is TaskKind.DRAIN and not is_drained:
        return f"{name} is not drained any more"
    if task.kind is TaskKind.ASSIGN and task.gets not in group.wanted:
        return "it is not wanted any more"
    return ""


def _lead(
    table: PlacementTable, states: MemberStates, task: PlacementTask, group: PlacedGroup
) -> TaskStep:
    if table.leaders.get(group.number) == task.gets:
        return _end(task, TaskState.DONE)
    replica = None if task.gets is None else group.replica_of(task.gets)
    is_able = replica is not None and replica.member in table.healthy(group)
    if task.state is TaskState.CANCELLING or replica is None or not is_able:
        return _end(task, TaskState.CANCELLED, "" if is_able else "it cannot lead now")
    if not states.may_get(replica.member) or group.preferred != replica.member:
        return _end(task, TaskState.CANCELLED, "it shall not lead any more")
    return TaskStep(_order(task, group, Action.LEAD, replica), waits_for="another leader")


def _read(states: MemberStates, task: PlacementTask, group: PlacedGroup) -> TaskStep:
    """A replica that only reads is no copy that counts: nobody waits until it is whole."""
    there = (*group.readers, *group.coming)
    new = next((each for each in there if each.replica == task.replica), None)
    if task.state is TaskState.CANCELLING:
        return _read_no_more(task, group, new, TaskState.CANCELLED)
    if task.gets is not None and (new is None or states.reads_no_more(task.gets)):
        return _end(task, TaskState.CANCELLING, "it need not be read there any more")
    if new in group.coming:
        return TaskStep(_order(task, group, Action.ADD_LEARNER, new), waits_for="adding")
    old = next((each for each in group.readers if each.member == task.loses), None)
    return _read_no_more(task, group, old, TaskState.DONE)


def _read_no_more(
    task: PlacementTask, group: PlacedGroup, replica: PlacedReplica | None, then: TaskState
) -> TaskStep:
    if replica is None:
        return _end(task, then)
    return TaskStep(_order(task, group, Action.REMOVE, replica), waits_for="removing")


# --- partitions -----------------------------------------------------------------------------------


def _move(table: PlacementTable, task: PlacementTask, moved: PartitionMove) -> TaskStep:
    """Once the source has sealed the partition there is no way back: it is opened in the target."""
    here = table.group_of(task.partition)
    if here is None:
        return _end(task, TaskState.CANCELLED, "the partition is gone")
    if task.state is TaskState.CANCELLING and not moved.is_sealed:
        return _undo_move(table, task, moved)
    if here == task.target:
        if moved.is_dropped:
            return _end(task, TaskState.DONE)
        return _ask(table, task, Action.DROP_PARTITION, task.group)
    if moved.is_open:
        return TaskStep(change=PartitionMoved(task.number))
    if moved.is_sealed:
        return _ask(table, task, Action.OPEN_PARTITION, task.target)
    return _to_seal(table, task, moved)


def _to_seal(table: PlacementTable, task: PlacementTask, moved: PartitionMove) -> TaskStep:
    if not moved.is_held:
        return _ask(table, task, Action.HOLD_PARTITION, task.group)
    if not moved.is_copied:
        return _ask(table, task, Action.COPY_PARTITION, task.target)
    return _ask(table, task, Action.SEAL_PARTITION, task.group)


def _undo_move(table: PlacementTable, task: PlacementTask, moved: PartitionMove) -> TaskStep:
    """First the source forbids the seal, for one may be under way."""
    if not moved.is_forbidden:
        return _ask(table, task, Action.FORBID_SEAL, task.group)
    if moved.has_files:
        return _ask(table, task, Action.DROP_PARTITION, task.target)
    return _end(task, TaskState.CANCELLED)


def _ask(
    table: PlacementTable, task: PlacementTask, action: Action, number: int | None
) -> TaskStep:
    group = table.groups.get(-1 if number is None else number)
    if number is None or (group is None and number != METADATA):
        return TaskStep(waits_for=f"group {number} is gone")
    version = 0 if group is None else group.version
    order = GroupOrder(task.number, action, number, version, partition=task.partition)
    return TaskStep(order, waits_for=action.name.lower().replace("_", " "))
