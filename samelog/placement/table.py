"""What is placed where, with what is looked up in it, and what is known of members now.

The table follows what is replicated, keeps what is looked up (which groups a member holds), and
notes which groups changed, so that planning is work in proportion to that.

Invariant: a lookup is what a look through all values would give.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Set
from dataclasses import dataclass

from samelog.placement.tasks import PlacementTask, TaskKind
from samelog.placement.values import METADATA, PlacedGroup, PlacedPartition, Placement


@dataclass(frozen=True, slots=True)
class PlacedMember:
    """A member as placement sees it. `rack` is where it is, the widest domain first: `lon/r2`;
    `host`: what it shares with others that fail with it; empty: nothing.

    `silent_since_ms`: since when group 0's leader hears nothing of it; None if it does.
    `is_leaving`: another member comes in its place, and it goes once it has no replicas.
    """

    number: int
    name: str
    rack: str = ""
    maintenance_until_ms: int = 0
    silent_since_ms: int | None = None
    is_leaving: bool = False
    host: str = ""


class PlacementTable:
    """What is replicated, `placement`, with what is looked up in it; and what only the leader of
    group 0 knows: members, who leads, who is silent.
    """

    def __init__(self, placement: Placement, members: Iterable[PlacedMember] = ()) -> None:
        self.placement = placement
        self.groups: dict[int, PlacedGroup] = {}
        self.partitions: dict[int, PlacedPartition] = {}
        self.members = {each.number: each for each in members}
        self.leaders: dict[int, int] = {}
        """Group -> who leads it, as far as is known."""
        self.own: Container[int] = frozenset()
        """Partitions of group 0; and others, which are named in the table."""
        self.held: dict[int, set[int]] = {}
        """Member -> groups of which it has a replica that counts as a copy."""
        self.read: dict[int, set[int]] = {}
        """Member -> groups of which it has a replica that only reads."""
        self.contents: dict[int, set[int]] = {}
        """Group -> its partitions."""
        self.defaults: Set[int] = frozenset()
        """Default groups, as the planner wants them: they stay though they are empty."""
        self.occupied: dict[int, int] = {}
        """Group -> the task that has it."""
        self.changed: set[int] = set()
        """Groups that changed, or are gone, since a planner took note."""
        self._version = -1
        self._tasks: tuple[dict[int, PlacementTask], set[tuple[TaskKind, int]]] = {}, set()
        """Those that run, and those that were declined."""
        self._moves: dict[int, int] = {}
        self.follow(placement)

    # --- what is replicated -----------------------------------------------------------------------

    def follow(self, placement: Placement) -> None:
        """Take over what is different now: values are replaced, never changed."""
        if placement is self.placement and placement.version == self._version:
            return
        self.placement, self._version = placement, placement.version
        for number in _different(self.groups, placement.groups):
            self._put_group(number, placement.groups.get(number))
        for number in _different(self.partitions, placement.partitions):
            self._put_partition(number, placement.partitions.get(number))
        self._follow_tasks(placement)

    def _put_group(self, number: int, group: PlacedGroup | None) -> None:
        before = self.groups.pop(number, None)
        for member in () if before is None else before.members:
            self.held[member].discard(number)
        for each in () if before is None else (*before.readers, *before.coming):
            self.read[each.member].discard(number)
        if group is None:
            self.leaders.pop(number, None)
        else:
            self.groups[number] = group
            self.contents.setdefault(number, set())
        for member in () if group is None else group.members:
            self.held.setdefault(member, set()).add(number)
        for each in () if group is None else (*group.readers, *group.coming):
            self.read.setdefault(each.member, set()).add(number)
        self.changed.add(number)

    def _put_partition(self, number: int, partition: PlacedPartition | None) -> None:
        before = self.partitions.pop(number, None)
        if before is not None:
            self.contents[before.group].discard(number)
            self.changed.add(before.group)
        if partition is not None:
            self.partitions[number] = partition
            self.contents.setdefault(partition.group, set()).add(number)

    def _follow_tasks(self, placement: Placement) -> None:
        tasks, declined = dict(placement.tasks), set(placement.declined)
        before, declined_before = self._tasks
        for number in _different(before, tasks):
            found = (each[number] for each in (before, tasks) if number in each)
            self.changed.update(*[task.groups for task in found])
        self.changed.update(group for _, group in declined ^ declined_before)
        self._follow_moves(dict(placement.moves))
        self._tasks = tasks, declined
        self.occupied = {group: task.number for task in tasks.values() for group in task.groups}

    def _follow_moves(self, moves: dict[int, int]) -> None:
        for number in _different(self._moves, moves):
            self.changed.update(each[number] for each in (self._moves, moves) if number in each)
            if number in self.partitions:
                self.changed.add(self.partitions[number].group)
        self._moves = moves

    # --- what only the leader knows ---------------------------------------------------------------

    def put_member(self, member: PlacedMember) -> None:
        """A member is new, or changed."""
        before = self.members.get(member.number)
        self.members[member.number] = member
        if before is None or (before.rack, before.host) != (member.rack, member.host):
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

    # --- lookups ----------------------------------------------------------------------------------

    def group_of(self, partition: int | None) -> int | None:
        """The group that has a partition; None: there is no such partition."""
        placed = self.partitions.get(-1 if partition is None else partition)
        if placed is not None:
            return placed.group
        return METADATA if partition in self.own else None

    def named(self, name: str) -> PlacedMember | None:
        """The member of that name."""
        return next((each for each in self.members.values() if each.name == name), None)

    def host_of(self, member: int) -> str:
        """The host of a member; one that has none is alone on its own."""
        known = self.members.get(member)
        return known.host if known is not None and known.host else f"member {member}"

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
        """Whether a member shall have no replicas that vote, as none has where a site only reads
        (rule sites.13).
        """
        return not self.placement.may_hold(member) or self.is_leaving(member)

    @property
    def sites_to_read_in(self) -> list[str]:
        """Sites that only read."""
        return [site for site, votes in self.placement.sites.votes.items() if not votes]

    def site_read_in(self, member: int) -> str:
        """The site of a member where that only reads; else none."""
        sites = self.placement.sites
        return sites.members[member] if sites.only_reads(member) else ""

    def is_leaving(self, member: int) -> bool:
        """Whether a member shall have no replicas at all."""
        known = self.members.get(member)
        return member in self.placement.draining or (known is not None and known.is_leaving)

    def is_abandoned(self, group: PlacedGroup) -> bool:
        """Return whether a group ends: it is empty, and no default group."""
        return self.is_empty(group) and group.number not in self.defaults

    def is_empty(self, group: PlacedGroup) -> bool:
        """Return whether a group has lost its last partition, or waits for one, and none is to
        come.
        """
        has_none = group.was_used and not self.contents[group.number]
        return has_none and group.number not in self.placement.moves.values()

    def is_owing(self, group: PlacedGroup) -> bool:
        """Return whether a group has yet to drop deleted topics, and may do so one day: most of its
        voters are members, and none of those is drained and silent.
        """
        lost = [
            each
            for each in group.voters
            if each not in self.members or (self.is_leaving(each) and not self.is_heard(each))
        ]
        left = len(group.voters) - len(lost)
        return bool(group.owed) and left * 2 > len(group.voters)

    def size_of(self, group: int) -> int:
        """Return how many partitions a group has."""
        return len(self.contents[group])

    def has_majority(self, group: PlacedGroup) -> bool:
        """Return whether most voters of a group can be reached."""
        return sum(map(self.is_heard, group.voters)) * 2 > len(group.voters)

    def healthy(self, group: PlacedGroup) -> list[int]:
        """Members whose replicas of a group vote, are whole, and can be reached."""
        return [
            each.member
            for each in group.replicas
            if each.votes and each.is_whole and self.is_heard(each.member)
        ]


def _different(old: Mapping[int, object], new: Mapping[int, object]) -> list[int]:
    """Where another value is, or none any more."""
    found = [number for number, value in new.items() if old.get(number) is not value]
    return found + [number for number in old if number not in new]
