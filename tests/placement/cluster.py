"""A simulated cluster for the planner: what groups and members really are, and what they do.

Orders are delayed, doubled, lost and overtake each other; reports come late. Invariant: the cluster
itself keeps to the rules of groups (a majority, one configuration after another), so harm is the
planner's.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from samelog.placement.changes import ConfirmGroup
from samelog.placement.orders import ordered
from samelog.placement.tasks import Action, GroupOrder, PartitionMove
from samelog.placement.values import PlacedGroup, PlacedReplica


class Harm(AssertionError):
    """A promise was broken."""


@dataclass
class RealGroup:
    """A group's configuration in force: member -> its replica."""

    number: int
    replicas: dict[int, PlacedReplica]
    version: int = 0
    leader: int | None = None
    whole: set[int] = field(default_factory=set)
    """Numbers of replicas."""

    def voters(self) -> list[int]:
        return [each.member for each in self.replicas.values() if each.votes]

    def as_placed(self) -> PlacedGroup:
        replicas = tuple(self.replicas.values())
        return PlacedGroup(self.number, len(replicas), replicas, 0, (), self.version)


@dataclass
class RealPartition:
    """Where a partition is open, and where files of it are."""

    number: int
    open_in: int | None
    files: set[int]
    sealed_by: int | None = None
    held_by: int | None = None
    copied_by: int | None = None
    forbidden: set[int] = field(default_factory=set)
    dropped: set[tuple[int, int]] = field(default_factory=set)
    """(task, group): the group remembers to have dropped it, so it comes no more by that task."""
    newest_task: int = 0


class Cluster:
    """Groups and members as they are."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.up: set[int] = set()
        self.groups: dict[int, RealGroup] = {}
        self.partitions: dict[int, RealPartition] = {}
        self.under_way: list[GroupOrder] = []
        self.reports: dict[int, list[ConfirmGroup]] = {}

    # --- how it is --------------------------------------------------------------------------------

    def healthy(self, group: RealGroup) -> set[int]:
        return {
            each.member
            for each in group.replicas.values()
            if each.votes and each.replica in group.whole and each.member in self.up
        }

    def is_led(self, group: RealGroup) -> bool:
        voters = group.voters()
        return len([each for each in voters if each in self.up]) * 2 > len(voters) > 0

    def can_lose(self, member: int) -> bool:
        """Whether every group keeps a whole copy and a majority without it."""
        for group in self.groups.values():
            if member not in group.replicas:
                continue
            rest = self.healthy(group) - {member}
            if not rest or len(rest) * 2 <= len(group.voters()):
                return False
        return True

    def found(self, group: PlacedGroup) -> None:
        """A group that the table has is made."""
        replicas = {each.member: each for each in group.replicas}
        whole = {each.replica for each in group.replicas}
        self.groups[group.number] = RealGroup(group.number, replicas, whole=whole)

    # --- what happens by itself -------------------------------------------------------------------

    def live(self) -> None:
        """Leaders are elected, and copies go on."""
        for group in self.groups.values():
            if not self.is_led(group):
                group.leader = None
                continue
            if group.leader not in self.healthy(group):
                healthy = sorted(self.healthy(group))
                group.leader = self.chance.choice(healthy) if healthy else None
            for each in group.replicas.values():
                has_source = bool(self.healthy(group) - {each.member})
                if each.member in self.up and has_source and self.chance.random() < 0.4:
                    group.whole.add(each.replica)

    def report(self, number: int) -> None:
        """A group's leader says how it is; that may come late, and not before what it said."""
        group = self.groups[number]
        if group.leader is None:
            return
        replicas = tuple(
            PlacedReplica(each.member, each.replica, each.votes, each.replica in group.whole)
            for each in group.replicas.values()
        )
        said = self.reports.setdefault(number, [])
        said.append(ConfirmGroup(number, group.version, replicas))

    # --- orders -----------------------------------------------------------------------------------

    def carry_out_some(self, share: float) -> None:
        """Some of the orders arrive, in any order, some twice, some never."""
        self.chance.shuffle(self.under_way)
        rest = []
        for order in self.under_way:
            luck = self.chance.random()
            if luck < share:
                self.carry_out(order)
            if luck > share or luck < share / 10:
                rest.append(order)
        self.under_way = rest[-200:]

    def carry_out(self, order: GroupOrder) -> None:
        """What the leader of a group does when it is asked."""
        group = self.groups.get(order.group)
        if group is None or not self.is_led(group) or group.leader is None:
            return
        if order.partition is not None:
            self._move(order, order.partition)
        elif order.action is Action.LEAD:
            if order.member in self.healthy(group):
                group.leader = order.member
        elif self._configure(group, order):
            group.version += 1

    def _configure(self, group: RealGroup, order: GroupOrder) -> bool:
        assert order.member is not None
        assert order.replica is not None
        if order.action is Action.REMOVE and group.leader == order.member:
            return False
        healthy = {
            each.member
            for each in group.replicas.values()
            if each.replica in group.whole and each.member in self.up
        }
        new = PlacedReplica(order.member, order.replica, votes=False, is_whole=False)
        replicas = ordered(order, group.as_placed(), new, healthy)
        if replicas is None:
            return False
        has = group.replicas.get(order.member)
        group.replicas = {each.member: each for each in replicas}
        if has is not None and order.member not in group.replicas:
            self._check_removal(group, order, has)
            group.whole.discard(has.replica)
        return True

    def _check_removal(self, group: RealGroup, order: GroupOrder, has: PlacedReplica) -> None:
        if not has.votes:
            return
        rest = self.healthy(group)
        if not rest:
            raise Harm(f"the last copy of group {group.number} was removed: {order}")
        was_healthy = has.member in self.up and has.replica in group.whole
        if len(rest) < order.copies - (not was_healthy):
            raise Harm(f"{len(rest)} copies of group {group.number} are left: {order}")

    # --- partitions -------------------------------------------------------------------------------

    def moved(self, task: int, number: int, target: int) -> PartitionMove:
        """How far a move is."""
        real = self.partitions.get(number)
        if real is None:
            return PartitionMove()
        return PartitionMove(
            is_held=real.held_by == task,
            is_copied=real.copied_by == task,
            is_sealed=real.sealed_by == task,
            is_open=real.sealed_by == task and real.open_in == target,
            is_dropped=real.open_in == target and real.files == {target},
            has_files=(task, target) not in real.dropped,
            is_forbidden=task in real.forbidden,
        )

    def _move(self, order: GroupOrder, number: int) -> None:
        real = self.partitions.get(number)
        if real is None or order.task < real.newest_task:
            return
        real.newest_task = order.task
        if order.action is Action.HOLD_PARTITION:
            if order.task not in real.forbidden and real.open_in == order.group:
                real.held_by = order.task
        elif order.action is Action.COPY_PARTITION:
            if (order.task, order.group) in real.dropped:
                return
            if real.held_by != order.task:
                raise Harm(f"partition {number} is copied while it may be compacted")
            real.files.add(order.group)
            if self.chance.random() < 0.5:
                real.copied_by = order.task
        elif order.action is Action.SEAL_PARTITION:
            if order.task not in real.forbidden and real.open_in == order.group:
                if real.copied_by != order.task:
                    raise Harm(f"partition {number} is sealed before it is copied")
                real.sealed_by, real.open_in = order.task, None
        elif order.action is Action.FORBID_SEAL:
            if real.sealed_by != order.task:
                real.forbidden.add(order.task)
        elif order.action is Action.OPEN_PARTITION:
            if real.sealed_by == order.task and real.open_in is None:
                real.open_in = order.group
        elif order.action is Action.DROP_PARTITION:
            if real.open_in in (None, order.group):
                raise Harm(f"partition {number} is dropped where it lives: {order}")
            real.files.discard(order.group)
            real.dropped.add((order.task, order.group))
