"""The planner of placement: what group 0's leader proposes, and asks of the leaders of groups.

It works from what changed: groups that the table notes, and groups of members whose state is
another one now. A new leader begins with all of them. Nothing that it remembers is needed for what
is under way: that follows from the table.

Invariant: no group has two tasks, no member more than the limit, and nothing is begun that is not
needed when it begins.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator
from copy import deepcopy
from dataclasses import dataclass, field, replace

from samelog.placement.changes import (
    AnyChange,
    DropGroup,
    PlaceGroups,
    PreferLeader,
    ReachMembers,
    StartTask,
    TurnTask,
)
from samelog.placement.colocation import are_kept
from samelog.placement.domains import Domains
from samelog.placement.evening import Evening
from samelog.placement.holdings import Holdings
from samelog.placement.members import MemberStates, PlacementLimits
from samelog.placement.needs import Need, Outlook, needs_of
from samelog.placement.sites import Sites
from samelog.placement.splits import splits
from samelog.placement.steps import next_step
from samelog.placement.table import PlacementTable
from samelog.placement.tasks import GroupOrder, PartitionMove, PlacementTask, TaskKind, TaskState
from samelog.placement.topics import default_groups, new_default_groups
from samelog.placement.values import METADATA, NewGroup, PlacedGroup, Placement

SEAL_MS, TRY_AGAIN_MS = 60_000, 3_600_000
"""A partition that is copied, and still not sealed after so long, is left where it is for so long:
a transaction, or a staged batch, may be open in it.
"""
STARTS_AT_ONCE = 256
"""So many tasks are begun by one look at most: they are one entry."""


@dataclass(slots=True)
class Planned:
    """What one look came to: changes to propose, orders to send again and again."""

    changes: list[AnyChange] = field(default_factory=list)
    orders: list[GroupOrder] = field(default_factory=list)
    waits: dict[int, str] = field(default_factory=dict)
    """Task -> what it waits for."""


class StuckSplits:
    """Partitions that could not be sealed when groups were to be evened out, as far as this leader
    knows: they are left where they are for a while.
    """

    def __init__(self) -> None:
        self._copied: dict[int, int] = {}
        """Task -> when its partition was found to be copied."""
        self._until: dict[int, int] = {}

    def __contains__(self, partition: int) -> bool:
        return partition in self._until

    def follow(self, tasks: Container[int], now_ms: int) -> None:
        """Forget tasks that are over, and partitions that may be tried again."""
        self._copied = {each: since for each, since in self._copied.items() if each in tasks}
        self._until = {each: until for each, until in self._until.items() if now_ms < until}

    def waits(self, task: PlacementTask, now_ms: int) -> bool:
        """Whether the partition of a task has waited too long for its seal."""
        since = self._copied.setdefault(task.number, now_ms)
        if task.partition is None or now_ms - since < SEAL_MS:
            return False
        self._until[task.partition] = now_ms + TRY_AGAIN_MS
        return True


class PlacementPlanner:
    """Looks at the table; what it proposes has to be applied before it looks again."""

    def __init__(self, table: PlacementTable, limits: PlacementLimits) -> None:
        self._table = table
        self._limits = limits
        self._states = MemberStates(PlacementTable(Placement()), limits, 0)
        self._holdings = Holdings()
        self._domains = Domains(table)
        self._needs: dict[int, Need] = {}
        """Group -> its most urgent need that can be met; groups with a task are not here."""
        self._blocked: dict[int, list[Need]] = {}
        """Group -> needs that come before that and cannot be met."""
        self._settling: dict[int, AnyChange] = {}
        """Group -> what group 0 changes of it without a task."""
        self._is_even = False
        self._counted: tuple[int, list[int], list[int]] | None = None
        """With which table and members default groups were counted last."""
        self._has_counted = False
        """Whether partitions may be elsewhere since groups were evened out."""
        self._stuck = StuckSplits()
        self._to_make: tuple[NewGroup, ...] = ()
        """Default groups that are missing."""
        self._sites = Sites()
        """As they were looked at last."""
        table.changed.update(table.groups)

    @property
    def needs(self) -> list[Need]:
        """What is to be done and is not under way, the most urgent first."""
        blocked = (need for found in self._blocked.values() for need in found)
        return sorted([*self._needs.values(), *blocked], key=lambda each: each.urgency)

    def outstanding(self, now_ms: int) -> list[Need]:
        """Return what is to be done by the table as it is now, and what each need waits for."""
        self._table.follow(self._table.placement)
        self._think_again(MemberStates(self._table, self._limits, now_ms))
        running = self._running()
        found = [
            need if need.obstacle else replace(need, waits_for=self._why_it_waits(need, running))
            for need in self.needs
        ]
        return [*found, *self._waiting_moves({each.partition for each in found}, running)]

    def _waiting_moves(self, shown: set[int | None], running: Counter[int]) -> Iterator[Need]:
        """Partitions that are wanted elsewhere, behind other tasks or partitions of their group."""
        shown.update(task.partition for task in self._table.placement.tasks.values())
        for partition, target in self._table.placement.moves.items():
            here = self._table.group_of(partition)
            if partition in shown or here is None or here == target:
                continue
            need = self._move(here, partition, target)
            reason = self._why_it_waits(need, running) or f"other tasks of group {here}"
            yield replace(need, waits_for=reason)

    def _why_it_waits(self, need: Need, running: Counter[int]) -> str:
        """Return what keeps a need that can be met from being begun; empty if nothing does."""
        table = self._table
        if table.placement.are_paused:
            return "no task is begun: samelog tasks resume"
        task = self._task(need, 0, 0, 0)
        for group in {*task.groups} & table.occupied.keys():
            return f"task {table.occupied[group]}, which has group {group}"
        full = [each for each in self._touched(task) if running[each] >= self._limits.per_member]
        return f"other tasks of {table.names(sorted(full))}" if full else ""

    def look(
        self, now_ms: int, moved: dict[int, PartitionMove] | None = None, *, wall_ms: int = 0
    ) -> Planned:
        """What is to be done now. `moved`: task -> how far the partition is that it moves;
        `wall_ms`: the time of day, for people.
        """
        self._table.follow(self._table.placement)
        planned = Planned()
        states = MemberStates(self._table, self._limits, now_ms)
        self._go_on(states, planned, moved or {}, now_ms)
        self._think_again(states)
        if self._to_make:
            planned.changes.append(PlaceGroups(self._table.placement.next_group, self._to_make))
        planned.changes += [self._settling[each] for each in sorted(self._settling)]
        if not planned.changes and not self._is_even:
            self._even_out(planned)
        if not self._table.placement.are_paused and not planned.changes:
            planned.changes += self._starts(wall_ms)
        return planned

    # --- what is under way ------------------------------------------------------------------------

    def _go_on(
        self,
        states: MemberStates,
        planned: Planned,
        moved: dict[int, PartitionMove],
        now_ms: int,
    ) -> None:
        self._stuck.follow(self._table.placement.tasks, now_ms)
        for number in sorted(self._table.placement.tasks):
            task = self._table.placement.tasks[number]
            has_moved = moved.get(number, PartitionMove())
            if why := self._why_given_up(states, task, has_moved, now_ms):
                planned.changes.append(TurnTask(number, TaskState.CANCELLING, why))
                continue
            step = next_step(self._table, states, task, has_moved)
            if step.order is not None:
                planned.orders.append(step.order)
            if step.change is not None:
                planned.changes.append(step.change)
            planned.waits[number] = step.waits_for

    def _why_given_up(
        self, states: MemberStates, task: PlacementTask, moved: PartitionMove, now_ms: int
    ) -> str:
        """Why a task that evens out is undone: it holds up what is more urgent, or waits for what
        may never come. Empty if there is no reason.
        """
        is_under_way = task.state is TaskState.RUNNING and not moved.is_sealed
        if task.kind is not TaskKind.SPLIT or not is_under_way:
            return ""
        if self._gives_way(states, task):
            return "its groups have to give up a member"
        is_stuck = moved.is_copied and self._stuck.waits(task, now_ms)
        return "its partition cannot be sealed now" if is_stuck else ""

    def _gives_way(self, states: MemberStates, task: PlacementTask) -> bool:
        """Whether a group of a task has to give up a member."""
        groups = (self._table.groups[each] for each in task.groups if each in self._table.groups)
        return any(states.has_to_go(each) for group in groups for each in group.members)

    # --- what is needed ---------------------------------------------------------------------------

    def _think_again(self, states: MemberStates) -> None:
        """Judge again the groups that may have changed."""
        moved, self._states = states.changed_since(self._states), states
        self._count_defaults(states)
        groups = self._touched_by(moved)
        if moved or groups:
            self._domains = Domains(self._table)
        before = {number: self._holdings.of(number) for number in groups}
        for number in sorted(groups):
            self._forget(number)
        look = Outlook(self._table, states, self._domains, self._holdings)
        for number in sorted(groups & self._table.groups.keys()):
            self._judge(look, self._table.groups[number])
        self._look_at_metadata()
        is_same = all(self._holdings.of(number) == before[number] for number in groups)
        self._is_even = self._is_even and is_same and not (moved or self._has_counted)
        self._has_counted = False

    def _count_defaults(self, states: MemberStates) -> None:
        """Whether there are as many default groups as there should be, whenever it may matter."""
        table = self._table
        now = table.placement.version, states.in_service, states.expected
        if now == self._counted:
            return
        self._counted, self._has_counted = now, True
        for number in [n for n, need in self._needs.items() if need.kind is TaskKind.SPLIT]:
            del self._needs[number]  # sizes may be others now
        wanted, before = default_groups(table, states, self._limits), table.defaults
        table.defaults = wanted
        table.changed |= wanted ^ before
        self._to_make = new_default_groups(table, states, self._limits)

    def _look_at_metadata(self) -> None:
        """The first partition of group 0 that shall be in a data group."""
        self._needs.pop(METADATA, None)
        self._blocked.pop(METADATA, None)
        is_occupied = METADATA in self._table.occupied
        move = None if is_occupied else self._partition_to_move(METADATA)
        if move is not None and move.obstacle:
            self._blocked[METADATA] = [move]
        elif move is not None:
            self._needs[METADATA] = move

    def _touched_by(self, moved: set[int]) -> set[int]:
        """Groups that changed, and those that members matter to who are in another state now."""
        groups, self._table.changed = self._table.changed, set()
        if self._table.placement.sites != self._sites:
            self._sites = deepcopy(self._table.placement.sites)
            groups.update(self._table.groups)
        if moved:
            groups.update(*[self._table.held.get(each, ()) for each in moved])
            groups.update(self._table.groups if any(map(self._sites.only_reads, moved)) else ())
            groups.update(self._blocked)
            groups.update(n for n, need in self._needs.items() if need.gets is not None)
        return groups

    def _forget(self, number: int) -> None:
        self._needs.pop(number, None)
        self._blocked.pop(number, None)
        self._settling.pop(number, None)
        self._holdings.forget(number)
        group = self._table.groups.get(number)
        if group is not None:
            self._holdings.plan(group)

    def _judge(self, look: Outlook, group: PlacedGroup) -> None:
        task = self._table.placement.tasks.get(self._table.occupied.get(group.number, -1))
        if task is not None:
            self._holdings.plan_task(group, task)
            return
        if self._table.is_abandoned(group):
            if not self._table.is_owing(group):
                self._settling[group.number] = DropGroup(group.number)
            return
        blocked, need = self._needs_of(look, group)
        if blocked:
            self._blocked[group.number] = blocked
        if need is not None:
            self._needs[group.number] = need
            if need.kind is not TaskKind.READ:
                self._holdings.plan(group, need.gets, need.loses)
        elif (change := self._to_settle(group, blocked)) is not None:
            self._settling[group.number] = change

    def _needs_of(self, look: Outlook, group: PlacedGroup) -> tuple[list[Need], Need | None]:
        """Return the blocked needs of a group, and the most urgent one that can be met."""
        blocked, need = needs_of(look, group)
        move = None if need is not None else self._partition_to_move(group.number)
        if move is not None and move.obstacle:
            return [*blocked, move], None
        return blocked, need or move

    def _partition_to_move(self, group: int) -> Need | None:
        """Return the first partition of a group that shall be in another one, and can."""
        table, moves = self._table, self._table.placement.moves
        some = moves.keys() if group == METADATA else moves.keys() & table.contents[group]
        here = sorted(each for each in some if table.group_of(each) == group != moves[each])
        needs = [self._move(group, each, moves[each]) for each in here]
        return min(needs, key=lambda each: bool(each.obstacle), default=None)

    def _move(self, group: int, partition: int, target: int) -> Need:
        reason, there = f"partition {partition} is wanted elsewhere", self._table.groups[target]
        is_stuck = not self._table.has_majority(there)
        obstacle = f"group {target} has no majority: start its members" if is_stuck else ""
        kind = TaskKind.MOVE_PARTITION
        return Need(kind, group, None, None, reason, obstacle, partition=partition, target=target)

    # --- what group 0 changes by itself -----------------------------------------------------------

    def _to_settle(self, group: PlacedGroup, blocked: list[Need]) -> AnyChange | None:
        """Return the change for a group that has the members that were wanted, as far as they
        exist, or whose leader should be in another site.
        """
        if group.wanted:
            is_awaited = any(each.kind is TaskKind.ASSIGN for each in blocked)
            return None if is_awaited else ReachMembers(group.number)
        leader = self._leader_in_site(group)
        return None if leader is None else PreferLeader(group.number, leader)

    def _leader_in_site(self, group: PlacedGroup) -> int | None:
        """Who shall lead instead, where leaders should be in sites that the leader is not in."""
        may_lead = self._sites.may_lead
        if may_lead(group.preferred):
            return None
        able = [each for each in self._table.healthy(group) if may_lead(each)]
        return min(able, key=lambda each: (self._holdings.leads(each), each), default=None)

    def _even_out(self, planned: Planned) -> None:
        """Only when nothing else is to be done: first copies, then leaders."""
        if self._needs:
            return
        if any(each.state is not TaskState.PAUSED for each in self._table.placement.tasks.values()):
            return
        members = self._states.in_service
        evening = Evening(self._table, self._holdings, self._domains, members, self._may_move)
        moves = evening.copies()
        for move in moves:
            self._needs[move.group] = Need(
                TaskKind.BALANCE, move.group, move.gets, move.loses, "to even out"
            )
        if not moves:
            planned.changes += [PreferLeader(each.group, each.gets) for each in evening.leaders()]
        if not moves and not planned.changes:
            self._split()
        self._is_even = not self._needs and not planned.changes

    def _split(self) -> None:
        """Even out partitions between groups, one of each group at once."""
        table, kind = self._table, TaskKind.SPLIT
        wished = table.placement.moves
        touched = {*wished.values(), *map(table.group_of, wished)}

        def is_free(group: int) -> bool:
            is_declined = (kind, group) in table.placement.declined
            return self._may_move(group) and group not in touched and not is_declined

        def may_move(partition: int) -> bool:
            topic_id = table.partitions[partition].topic_id
            return partition not in self._stuck and not are_kept(table.placement, topic_id)

        for each in splits(table, is_free, may_move):
            need = Need(kind, each.group, reason="to even out")
            self._needs[each.group] = replace(need, partition=each.partition, target=each.target)

    def _may_move(self, number: int) -> bool:
        if any(number in each for each in (self._table.occupied, self._needs, self._blocked)):
            return False
        if (TaskKind.BALANCE, number) in self._table.placement.declined:
            return False
        return not self._table.groups[number].is_pinned

    # --- what begins ------------------------------------------------------------------------------

    def _starts(self, wall_ms: int) -> list[AnyChange]:
        """The most urgent needs, as far as there is room on the members."""
        placement, running = self._table.placement, self._running()
        occupied, starts = set(self._table.occupied), list[AnyChange]()
        replica = placement.next_replica
        for need in self.needs:
            task = self._task(need, placement.next_task + len(starts), replica, wall_ms)
            members = self._touched(task)
            if need.obstacle or not occupied.isdisjoint(task.groups):
                continue
            if any(running[each] >= self._limits.per_member for each in members):
                continue
            if task.takes_room:
                running.update(members)
            occupied.update(task.groups)
            replica += task.replica is not None
            starts.append(StartTask(task))
            if len(starts) >= STARTS_AT_ONCE:
                break
        return starts

    def _task(self, need: Need, number: int, replica: int, wall_ms: int) -> PlacementTask:
        is_new = need.gets is not None and need.kind is not TaskKind.LEAD
        return PlacementTask(
            number,
            need.kind,
            need.group,
            gets=need.gets,
            loses=need.loses,
            replica=replica if is_new else None,
            partition=need.partition,
            target=need.target,
            began_ms=wall_ms,
            reason=need.reason,
        )

    def _running(self) -> Counter[int]:
        """How many tasks give to a member, or take from it."""
        running = Counter[int]()
        for task in self._table.placement.tasks.values():
            if task.takes_room:
                running.update(self._touched(task))
        return running

    def _touched(self, task: PlacementTask) -> set[int]:
        """Members that a task gives to, or takes from; who cannot be reached has no part in it."""
        touched = {task.gets, task.loses}
        if task.target is not None:
            source, target = (self._table.groups.get(each) for each in (task.group, task.target))
            touched.update(() if target is None else target.members)
            touched.difference_update(() if source is None else source.members)
        return {each for each in touched if each is not None and self._table.is_heard(each)}
