"""What each member may be given or must lose, now: the states that all planning goes by.

Invariant: who is in maintenance is not replaced, and when many members are silent nobody is: that
is a partition or a power cut, and no time to make copies.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from samelog.placement.table import PlacedMember, PlacementTable
from samelog.placement.values import PlacedGroup

MANY = 3
"""One in so many hosts is silent: too many to be replaced without an operator's word."""


@dataclass(frozen=True, slots=True)
class PlacementLimits:
    """`per_member`: how many tasks at most give to a member, or take from it, at once.
    `pause_most_ms`: for how long the move of a partition may keep it from being compacted.
    """

    replace_after_ms: int = 600_000
    per_member: int = 2
    partitions_per_group: int = 20
    pause_most_ms: int = 14_400_000


class Availability(Enum):
    """What placement may expect of a member now."""

    IN_SERVICE = "in service"
    DRAINING = "draining"
    MAINTENANCE = "maintenance"
    SILENT = "silent"
    LOST = "lost"


def state_of(
    member: PlacedMember,
    now_ms: int,
    replace_after_ms: int,
    *,
    is_draining: bool,
    is_leaving: bool,
) -> Availability:
    """Maintenance excuses silence; silence for longer than is waited for is a loss. So is that of a
    member that is leaving: its operator does not wait for it.
    """
    if is_draining and member.silent_since_ms is None:
        return Availability.DRAINING
    if now_ms < member.maintenance_until_ms:
        return Availability.MAINTENANCE
    if member.silent_since_ms is not None:
        since = max(member.silent_since_ms, member.maintenance_until_ms)
        is_lost = is_leaving or now_ms - since >= replace_after_ms
        return Availability.LOST if is_lost else Availability.SILENT
    return Availability.IN_SERVICE


class MemberStates:
    """The state of each member at one time."""

    def __init__(self, table: PlacementTable, limits: PlacementLimits, now_ms: int) -> None:
        self._host_of = {number: table.host_of(number) for number in table.members}
        self._draining = frozenset(filter(table.is_draining, table.members))
        self._leaving = frozenset(filter(table.is_leaving, table.members))
        after_ms = limits.replace_after_ms

        def state(number: int, *, is_draining: bool) -> Availability:
            member, is_leaving = table.members[number], number in self._leaving
            return state_of(
                member, now_ms, after_ms, is_draining=is_draining, is_leaving=is_leaving
            )

        self._states: Mapping[int, Availability] = {
            number: state(number, is_draining=number in self._draining) for number in table.members
        }
        able = list(filter(self.may_hold, self._states))
        self._able, self.hosts = len(able), self.count_hosts(able)
        """How many members may hold replicas that vote, up or not, and how many hosts have some."""
        self._are_many_silent = self._many_silent(table)
        self._reading = {
            number: (site, state(number, is_draining=number in self._leaving))
            for number in table.members
            if (site := table.site_read_in(number))
        }
        """Members of sites that only read: where, and what may be expected of them there."""

    def __getitem__(self, member: int) -> Availability:
        return self._states.get(member, Availability.LOST)

    def changed_since(self, before: MemberStates) -> set[int]:
        """Members of which something else has to be thought now."""
        if self._counts != before._counts:
            return {*self._states, *before._states}
        return {
            each
            for each in {*self._states, *before._states}
            if self[each] is not before[each]
            or (each in self._draining) != (each in before._draining)
            or self._reading.get(each) != before._reading.get(each)
        }

    @property
    def _counts(self) -> tuple[bool, int, int]:
        """What matters to every group."""
        return self._are_many_silent, self._able, self.hosts

    def count_hosts(self, members: Iterable[int]) -> int:
        """On how many hosts these members are."""
        return len({self._host_of[each] for each in members})

    def may_hold(self, member: int) -> bool:
        """Return whether a member may hold replicas that vote, up or not."""
        return member in self._states and member not in self._draining

    def places_for(self, group: PlacedGroup, members: Iterable[int]) -> int:
        """How many of these members can have a copy of a group: one of each host, unless an
        operator chose them.
        """
        return len(set(members)) if group.is_pinned else self.count_hosts(members)

    def copies_of(self, group: PlacedGroup) -> int:
        """Return how many copies a group is to have: its goal, as far as hosts exist for it. A dead
        member counts until it is drained or removed.
        """
        return min(group.goal, max(1, self._able if group.is_pinned else self.hosts))

    def may_read(self, site: str) -> list[int]:
        """Who may be given replicas that only read, in a site."""
        wanted = site, Availability.IN_SERVICE
        return sorted(each for each, known in self._reading.items() if known == wanted)

    def reads_no_more(self, member: int) -> bool:
        """Whether what it has to be read from is to be made elsewhere in its site, if it can be."""
        state = self._reading.get(member, ("", Availability.LOST))[1]
        return state in (Availability.LOST, Availability.DRAINING)

    def may_get(self, member: int) -> bool:
        """Whether it may be given copies."""
        return self[member] is Availability.IN_SERVICE

    def must_be_replaced(self, member: int) -> bool:
        """Whether its copies are to be made elsewhere because it is gone. Who drains a member that
        is gone has said so.
        """
        if self[member] is not Availability.LOST:
            return False
        return not self._are_many_silent or member in self._leaving or member not in self._states

    def must_be_left(self, member: int) -> bool:
        """Whether it has to give away what it holds, and is there to do so."""
        return self[member] is Availability.DRAINING

    def has_to_go(self, member: int) -> bool:
        """Whether it is lost, or drained."""
        return self.must_be_replaced(member) or self.must_be_left(member)

    @property
    def in_service(self) -> list[int]:
        """Who may be given copies, in order."""
        return sorted(each for each in self._states if self.may_get(each))

    @property
    def expected(self) -> list[int]:
        """Who is in service, or will soon be again without anybody's doing."""
        away = (Availability.MAINTENANCE, Availability.SILENT)
        return sorted(
            each
            for each, state in self._states.items()
            if each not in self._draining and (state in away or self.may_get(each))
        )

    def _many_silent(self, table: PlacementTable) -> bool:
        """Whether a third of the hosts is silent. Each counts with the share of its members that
        are silent, of those that hold anything; one that holds nothing and says nothing does not
        count.
        """
        gone, members = (Availability.SILENT, Availability.LOST), dict[str, list[int]]()
        for number, host in self._host_of.items():
            members.setdefault(host, []).append(number)
        silent, hosts = 0.0, len(members)
        for there in members.values():
            quiet = {each for each in there if self._states[each] in gone}
            holding = [each for each in there if table.held.get(each)]
            silent += len(quiet.intersection(holding)) / max(1, len(holding))
            hosts -= not holding and len(quiet) == len(there)
        return silent * MANY >= hosts > 0
