"""What operators ask for: the changes that it takes, or why it cannot be.

Invariant: what would leave something without a copy, or could never end, is refused, with what is
in the way and what to do.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable

from samelog.format.nouns import counted
from samelog.placement.changes import (
    AllowTasks,
    AnyChange,
    DrainMember,
    RecoverGroup,
    TurnTask,
    task_numbered,
)
from samelog.placement.members import MemberStates
from samelog.placement.table import PlacedMember, PlacementTable
from samelog.placement.tasks import PlacementRefused, PlacementTask, TaskKind, TaskState
from samelog.placement.values import PlacedGroup, Placement

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


def drain(table: PlacementTable, states: MemberStates, *names: str) -> list[AnyChange]:
    """Empty members, all of them or none. Raises PlacementRefused if no others can take what they
    have. Members that cannot be reached are given up by this, which takes nothing from any other.
    """
    members = [_member(table, name) for name in names]
    begun = [each for each in members if not table.is_leaving(each.number)]
    if any(table.is_heard(each.number) for each in begun):
        _check_homes(table, states, [each.number for each in begun])
    for member in begun:
        _check_loss(table, member)
    return [DrainMember(each.number, is_draining=True) for each in begun]


def _check_loss(table: PlacementTable, member: PlacedMember) -> None:
    """A member that cannot be reached may not have the only copy of anything."""
    if not table.is_heard(member.number) and (alone := _alone(table, member.number)):
        text = f"{member.name} has the only copy of {_some(alone)}, and cannot be reached"
        remedy = f"start {member.name}; if it is lost, delete the topics"
        raise PlacementRefused("LAST_COPY", text, remedy)


def effects(table: PlacementTable, names: Iterable[str], *, ends: bool) -> dict[str, str]:
    """Describe what draining members, or its end, changes for each. Raises PlacementRefused."""
    members = [_member(table, name) for name in names]
    return {each.name: _effect(table, each.number, ends=ends) for each in members}


def _effect(table: PlacementTable, number: int, *, ends: bool) -> str:
    if ends:
        return "may have replicas again" if table.is_leaving(number) else "was not drained"
    held = len(table.held.get(number, ()))
    if not held:
        return "has no replicas, and gets none"
    replicas = counted(held, "replica")
    if not table.is_heard(number):
        return f"cannot be reached: {replicas} of it {'is' if held == 1 else 'are'} made elsewhere"
    already = "is drained already, and still " if table.is_leaving(number) else ""
    return f"{already}moves {replicas} to others"


def _alone(table: PlacementTable, number: int) -> list[int]:
    """Groups of which nobody else has a copy that is whole and can be reached."""
    groups = [table.groups[each] for each in table.held.get(number, ())]
    return [
        each.number
        for each in groups
        if not {*table.healthy(each)} - {number} and not table.is_empty(each)
    ]


def _check_homes(table: PlacementTable, states: MemberStates, members: Collection[int]) -> None:
    """With all that are drained already, enough members have to be left for every group."""
    others = [each for each in states.expected if each not in members]
    leaving = {*filter(table.is_heard, members), *filter(table.is_draining, table.members)}
    groups = set[int]().union(*[table.held.get(each, ()) for each in leaving])
    homeless = [
        each
        for each in groups
        if states.places_for(table.groups[each], others) < _least(table, states, each)
    ]
    if homeless:
        names = table.names(others) or "nobody"
        text = (
            f"without {table.names(members)}, {_some(homeless)} would have too few members: {names}"
        )
        remedy = "add a node (samelog node add), or have fewer copies: samelog topic alter"
        raise PlacementRefused("NO_MEMBER", text, remedy)


def _least(table: PlacementTable, states: MemberStates, number: int) -> int:
    """Return how many members a group needs to be no worse off than now. A goal beyond the hosts
    that exist is no obstacle, nor is a group that is about to end.
    """
    group = table.groups[number]
    if table.is_empty(group):
        return 0
    is_short = group.goal > states.copies_of(group)
    return 1 if is_short else min(group.goal, len(group.replicas))


def stop_draining(table: PlacementTable, *names: str) -> list[AnyChange]:
    """Members may have replicas again. Raises PlacementRefused."""
    members = [_member(table, name) for name in names]
    return [
        DrainMember(each.number, is_draining=False)
        for each in members
        if table.is_leaving(each.number)
    ]


def check_removal(table: PlacementTable, name: str) -> None:
    """Raises PlacementRefused while a member that is to leave the cluster has anything."""
    member = _member(table, name)
    held = table.held.get(member.number, set())
    if not held:
        return
    if alone := _alone(table, member.number):
        text, remedy = f"{name} has the only copy of {_some(alone)}", f"samelog node drain {name}"
        if not table.is_heard(member.number):
            remedy = f"start {name}, and drain it; if it is lost, delete the topics"
        raise PlacementRefused("LAST_COPY", text, remedy)
    text = f"{name} has replicas of {_some(held)}"
    raise PlacementRefused("HOLDS_GROUPS", text, f"samelog node drain {name}")


def check_readmission(table: PlacementTable, name: str, *, has_all: bool) -> None:
    """Raise PlacementRefused if a member to be readmitted has lost nothing (`has_all`) and holds
    the only copy of something.
    """
    member = _member(table, name)
    alone = _alone(table, member.number) if has_all and table.is_heard(member.number) else []
    if alone:
        text = f"{name} has forgotten nothing, and has the only copy of {_some(alone)}"
        raise PlacementRefused("LAST_COPY", text, f"samelog node drain {name}")


# --- groups ---------------------------------------------------------------------------------------


def recover(
    table: PlacementTable, name: str, group: int, suspect: Collection[str] = ()
) -> list[AnyChange]:
    """Let a group go on with one member's replica, because its majority is lost for ever. Who is
    `suspect` by its own word counts for nothing until a majority lets it in. Raises
    PlacementRefused.
    """
    member, known = _member(table, name), table.groups.get(group)
    if known is None:
        raise PlacementRefused("UNKNOWN_GROUP", f"there is no group {group}", "samelog placement")
    names = table.names(known.members)
    if known.replica_of(member.number) is None:
        text = f"{name} has no replica of group {group}"
        raise PlacementRefused("NO_REPLICA", text, f"{names} have")
    if not table.is_heard(member.number):
        raise PlacementRefused("SILENT", f"{name} cannot be reached", f"start {name}")
    heard = _sure_voters(table, known, suspect)
    if len(heard) * 2 > len(known.voters):
        text = f"{table.names(heard)} are a majority of group {group}: nothing is lost"
        raise PlacementRefused("HAS_MAJORITY", text, "wait until it has a leader")
    return [RecoverGroup(group, member.number)]


def _sure_voters(table: PlacementTable, group: PlacedGroup, suspect: Collection[str]) -> list[int]:
    """Those that can be reached, and may have forgotten nothing."""
    doubted = {each.number for each in table.members.values() if each.name in suspect}
    return [each for each in group.voters if each not in doubted and table.is_heard(each)]


def go_on_with_readers(
    placement: Placement, members: Container[int], own: int
) -> list[RecoverGroup]:
    """At the promotion of a site that `own` and `members` are in: groups of which nobody that is
    left has a replica that votes go on with one that only read.
    """
    found = []
    for number, group in placement.groups.items():
        left = [each for each in group.readers if each.member in members]
        best = max(left, key=lambda each: (each.is_whole, each.member == own), default=None)
        if best is not None and not any(each in members for each in group.voters):
            found.append(RecoverGroup(number, best.member))
    return found


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
    kinds = (TaskKind.BALANCE, TaskKind.SPREAD, TaskKind.LEAD, TaskKind.SPLIT)
    return [AllowTasks(kinds)]


def allow(group: int | None = None) -> list[AnyChange]:
    """What was cancelled, of all groups or of one, is begun again where it is still needed."""
    return [AllowTasks(tuple(TaskKind), group)]
