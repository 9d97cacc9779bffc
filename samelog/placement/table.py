"""What is placed where, with what is looked up in it, and what is known of members now.

The table is changed by putting whole values into it, keeps what is looked up (which groups a member
holds), and notes which groups changed, so that planning is work in proportion to that.

Invariant: a lookup is what a look through all values would give.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from samelog.placement.values import PlacedGroup, PlacedPartition, Placement


@dataclass(frozen=True, slots=True)
class PlacedMember:
    """A member as placement sees it. `rack` is where it is, the widest domain first: `lon/r2`.

    `silent_since_ms`: since when group 0's leader hears nothing of it; None if it does.
    """

    number: int
    name: str
    rack: str = ""
    maintenance_until_ms: int = 0
    silent_since_ms: int | None = None


class PlacementTable:
    """What is replicated, `placement`, with what is looked up in it; and what only the leader of
    group 0 knows: members, who leads, who is silent.
    """

    def __init__(self, placement: Placement, members: Iterable[PlacedMember] = ()) -> None:
        self.placement = placement
        self.groups, self.partitions = placement.groups, placement.partitions
        self.members = {each.number: each for each in members}
        self.leaders: dict[int, int] = {}
        """Group -> who leads it, as far as is known."""
        self.held: dict[int, set[int]] = {}
        """Member -> groups of which it has a replica."""
        self.contents: dict[int, set[int]] = {}
        """Group -> its partitions."""
        self.occupied: dict[int, int] = {}
        """Group -> the task that has it."""
        self.changed: set[int] = set(self.groups)
        """Groups that changed, or are gone, since a planner took note."""
        for group in self.groups.values():
            self._hold(group)
        for partition in self.partitions.values():
            self.contents[partition.group].add(partition.number)
        for task in placement.tasks.values():
            self.occupied.update(dict.fromkeys(task.groups, task.number))

    # --- what only the leader knows ---------------------------------------------------------------

    def put_member(self, member: PlacedMember) -> None:
        """A member is new, or changed."""
        before = self.members.get(member.number)
        self.members[member.number] = member
        if before is None or before.rack != member.rack:
            self.changed.update(self.groups)

    def drop_member(self, number: int) -> None:
        """A member left the cluster."""
        del self.members[number]
        self.changed.update(self.groups)

    def put_leader(self, group: int, member: int) -> None:
        """Somebody else leads a group."""
        if self.leaders.get(group) != member:
            self.leaders[group] = member
            self.changed.add(group)

    # --- what is replicated -----------------------------------------------------------------------

    def put_group(self, group: PlacedGroup) -> None:
        """A group is new, or changed."""
        self._let_go(group.number)
        self.groups[group.number] = group
        self._hold(group)
        self.changed.add(group.number)

    def drop_group(self, number: int) -> None:
        """A group is gone."""
        self._let_go(number)
        del self.groups[number], self.contents[number]
        self.leaders.pop(number, None)
        self.changed.add(number)

    def _hold(self, group: PlacedGroup) -> None:
        self.contents.setdefault(group.number, set())
        for member in group.members:
            self.held.setdefault(member, set()).add(group.number)

    def _let_go(self, number: int) -> None:
        before = self.groups.get(number)
        for member in () if before is None else before.members:
            self.held[member].discard(number)

    def put_partition(self, partition: PlacedPartition) -> None:
        """A partition is new, or moved to another group."""
        self.drop_partition(partition.number)
        self.partitions[partition.number] = partition
        self.contents[partition.group].add(partition.number)

    def drop_partition(self, number: int) -> None:
        """A partition is gone."""
        before = self.partitions.pop(number, None)
        if before is not None:
            self.contents[before.group].discard(number)
            self.changed.add(before.group)

    # --- lookups ----------------------------------------------------------------------------------

    def named(self, name: str) -> PlacedMember | None:
        """The member of that name."""
        return next((each for each in self.members.values() if each.name == name), None)

    def names(self, numbers: Iterable[int]) -> str:
        """Members, for a sentence."""
        return ", ".join(
            self.members[each].name if each in self.members else f"member {each}"
            for each in numbers
        )

    def is_heard(self, member: int) -> bool:
        """Whether a member is one, and not silent."""
        known = self.members.get(member)
        return known is not None and known.silent_since_ms is None

    def is_draining(self, member: int) -> bool:
        """Whether a member shall have no replicas."""
        return member in self.placement.draining

    def healthy(self, group: PlacedGroup) -> list[int]:
        """Members whose replicas of a group vote, are whole, and can be reached."""
        return [
            each.member
            for each in group.replicas
            if each.votes and each.is_whole and self.is_heard(each.member)
        ]
