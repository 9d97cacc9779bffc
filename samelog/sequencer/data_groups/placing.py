"""What the leader of group 0 does about placement: it looks at the table, proposes what the planner
comes to, and asks the leaders of data groups for the next steps.

Invariant: nothing that it remembers is needed by the next leader; it looks again only once what it
proposed is applied here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import suppress

from samelog.consensus import Busy, NotLeader
from samelog.placement.changes import AnyChange
from samelog.placement.defaults import EVERYWHERE, default_copies
from samelog.placement.members import MemberStates, PlacementLimits
from samelog.placement.needs import Need
from samelog.placement.planner import PlacementPlanner
from samelog.placement.table import PlacedMember, PlacementTable
from samelog.placement.tasks import GroupOrder, PartitionMove, PlacementTask
from samelog.placement.values import METADATA, PassStage
from samelog.runtime.clock import Clock
from samelog.sequencer.cluster.presence import Presence
from samelog.sequencer.data_groups.hosting import DataGroups
from samelog.sequencer.raft.group import RaftGroup
from samelog.sequencer.state.tables.members import Member
from samelog.sequencer.state.tables.placement import ChangePlacement
from samelog.sequencer.state.types import State
from samelog.wire.peer_messages import ORDERS_MOST, GroupOrders, PassReport

CHANGES_MOST = 200
ASK_AGAIN_S = 1.0
NEVER_MS = 1 << 62


class Placing:
    """One member's; only the leader of group 0 plans."""

    def __init__(
        self,
        replace_after_s: float,
        *,
        group: RaftGroup,
        cluster: Callable[[], State],
        data_groups: DataGroups,
        presence: Presence,
        clock: Clock,
        send: Callable[[int, GroupOrders], bool],
    ) -> None:
        """`cluster`: the state of group 0, as it is here."""
        self.limits = PlacementLimits(replace_after_ms=int(replace_after_s * 1000))
        self._group = group
        self._cluster = cluster
        self._data_groups = data_groups
        self._presence = presence
        self._clock = clock
        self._send = send
        self._planner: PlacementPlanner | None = None
        self._table = PlacementTable(cluster().placement)
        self._proposed_at = 0
        self._silent: dict[int, int] = {}
        """Members that are not up -> since when, as far as this leader knows."""
        self._asked: dict[tuple[int, GroupOrder], float] = {}
        """(leader of the group, order) -> when it was asked for last."""
        self._passes: dict[int, dict[int, PassReport]] = {}
        """Task -> group -> how far it says that it is with the partition that moves."""
        self.waits: dict[int, str] = {}
        """Task -> what it waits for."""

    def tick(self) -> None:
        """To be called about four times a second."""
        if not self._group.is_leader:
            self._planner = None
            self._silent.clear()
            self._passes.clear()
            return
        if self._planner is not None and self._group.applied_index < self._proposed_at:
            return
        table = self.look()
        if not table.groups and not self._wants_groups(table):
            return
        if self._planner is None:
            self._planner = PlacementPlanner(table, self.limits)
        moved = self._moved(table)
        planned = self._planner.look(self._now_ms(), moved, wall_ms=self._clock.wall_ms())
        self.waits = planned.waits
        self._propose(planned.changes[:CHANGES_MOST])
        self._ask(planned.orders)

    def _wants_groups(self, table: PlacementTable) -> bool:
        """Whether groups are to be made before there are topics: once the cluster has begun."""
        return default_copies(table.placement) != EVERYWHERE and self._cluster().members.level > 0

    def hear(self, report: PassReport) -> None:
        """How far a group is with a partition that a task moves."""
        if report.task in self._cluster().placement.tasks:
            self._passes.setdefault(report.task, {})[report.group] = report

    def _moved(self, table: PlacementTable) -> dict[int, PartitionMove]:
        """Task -> how far the partition is that it moves, as far as is known to this leader."""
        tasks = table.placement.tasks
        self._passes = {task: said for task, said in self._passes.items() if task in tasks}
        return {
            number: moved_by(task, self._passes.get(number, {}), is_late=self._is_late(task))
            for number, task in tasks.items()
            if task.target is not None
        }

    def _is_late(self, task: PlacementTask) -> bool:
        return self._clock.wall_ms() - task.began_ms >= self.limits.pause_most_ms

    @property
    def needs(self) -> list[Need]:
        """Return the needed tasks that have not begun, by the present table; empty if this member
        does not lead group 0.
        """
        if self._planner is None:
            return []
        self.look()
        return self._planner.outstanding(self._now_ms())

    def look(self) -> PlacementTable:
        """The table as it is now, with what is known of members and leaders."""
        state, table = self._cluster(), self._table
        table.own, table.leaders[METADATA] = state.partitions.by_number, self._presence.number
        table.follow(state.placement)
        self._notice(state)
        for number in table.members.keys() - state.members.by_number.keys():
            table.drop_member(number)
        replaced = {each.replaces for each in state.members.by_number.values()}
        for number, member in state.members.by_number.items():
            placed = PlacedMember(
                number,
                member.name,
                state.rack_of(number),
                self._excused_until_ms(state, member),
                self._silent.get(number),
                number in replaced,
                state.members.host_of(number),
            )
            if table.members.get(number) != placed:
                table.put_member(placed)
        for number, leader in self._data_groups.take_leaders(table.groups).items():
            table.put_leader(number, leader)
        return table

    def _excused_until_ms(self, state: State, member: Member) -> int:
        """In maintenance, or as long as it takes nothing in, a member gets nothing, and need not
        lead; nor does one that is up before its host is known.
        """
        if member.number not in state.members.started and self._presence.is_there(member.number):
            return NEVER_MS
        if not self._presence.takes_in(member.number, self._clock.now()):
            return NEVER_MS
        until_ms = state.members.maintenance.get(member.name, 0) - self._clock.wall_ms()
        return self._now_ms() + until_ms if until_ms > 0 else 0

    def states(self) -> MemberStates:
        """The states of all members now."""
        return MemberStates(self._table, self.limits, self._now_ms())

    def _now_ms(self) -> int:
        return int(self._clock.now() * 1000)

    def _notice(self, state: State) -> None:
        """Who is silent, from the first look on that finds it so."""
        for number in state.members.by_number:
            if self._presence.is_there(number):
                self._silent.pop(number, None)
            else:
                self._silent.setdefault(number, self._now_ms())
        for number in self._silent.keys() - state.members.by_number.keys():
            del self._silent[number]

    def _propose(self, changes: list[AnyChange]) -> None:
        if changes:
            with suppress(NotLeader, Busy):
                self._proposed_at = self._group.propose([ChangePlacement(-1, changes)])

    def _ask(self, orders: list[GroupOrder]) -> None:
        """Whoever leads the group; if nobody is known to, the next time."""
        by_leader: dict[int, list[GroupOrder]] = defaultdict(list)
        for order in self._due(orders):
            by_leader[self._table.leaders[order.group]].append(order)
        for leader, found in by_leader.items():
            if leader == self._presence.number:
                self._data_groups.carry_out(leader, found)
            else:
                self._send(leader, GroupOrders(tuple(found[:ORDERS_MOST])))

    def _due(self, orders: list[GroupOrder]) -> list[GroupOrder]:
        """Those that were not asked for just now, of whoever leads now."""
        now, asked, due = self._clock.now(), self._asked, list[GroupOrder]()
        self._asked = {}
        for order in orders:
            leader = self._table.leaders.get(order.group)
            if leader is None:
                continue
            key = leader, order
            self._asked[key] = asked.get(key, now)
            if key not in asked or now - asked[key] >= ASK_AGAIN_S:
                self._asked[key] = now
                due.append(order)
        return due


def moved_by(
    task: PlacementTask, said: Mapping[int, PassReport], *, is_late: bool = False
) -> PartitionMove:
    """What both groups say of a partition. A target of which nothing was heard may have files.
    `is_late`: no compaction may wait for the task any longer.
    """
    source = said.get(task.group)
    target = None if task.target is None else said.get(task.target)
    left = None if source is None else source.stage
    came = None if target is None else target.stage
    is_whole = target is not None and target.is_whole
    return PartitionMove(
        is_held=left in (PassStage.HELD, PassStage.SEALED, PassStage.GONE),
        is_copied=came in (PassStage.COPYING, PassStage.OPEN) and is_whole,
        is_sealed=left in (PassStage.SEALED, PassStage.GONE) or came == PassStage.OPEN,
        is_open=came == PassStage.OPEN and is_whole,
        is_dropped=left == PassStage.GONE,
        has_files=came != PassStage.GONE,
        is_forbidden=left == PassStage.FORBIDDEN,
        is_overdue=is_late and source is not None and source.pauses,
    )
