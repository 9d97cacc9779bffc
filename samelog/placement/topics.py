"""Into which groups the partitions of a new topic go, and which groups are made for them.

Groups are for so many copies each. There are enough of them that every member has a share, and more
as partitions come. Groups of the default goal exist before topics do, and every member leads as
many of them. Members that an operator names get a group of their own for each list and topic.

Invariant: of any members that may get copies and are equally far apart, none holds two groups more
than another.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from operator import attrgetter

from msgspec.structs import replace

from samelog.placement.changes import PlaceGroups, apply_change, use_groups
from samelog.placement.defaults import EVERYWHERE, default_copies
from samelog.placement.domains import Domains
from samelog.placement.members import MemberStates, PlacementLimits
from samelog.placement.table import PlacedMember, PlacementTable
from samelog.placement.tasks import PlacementRefused
from samelog.placement.values import REPLICAS_MOST, NewGroup, PlacedGroup, Placement

LED_PER_MEMBER = 20
"""So many groups for each member are made at most, however many partitions there are."""


@dataclass(frozen=True, slots=True)
class TopicPlacement:
    """The group of each partition, in order, and the groups that have to be made for that: with the
    next numbers.
    """

    groups: tuple[int, ...]
    new_groups: tuple[NewGroup, ...] = ()


class PlannedTable(PlacementTable):
    """A table to plan new topics by, each as if those before it were there. It knows how many
    partitions a group has, not which, so that a plan copies none of them.
    """

    def __init__(self, placement: Placement, members: Iterable[PlacedMember]) -> None:
        """`placement`: as it is now, which the plan does not change."""
        self._sizes = Counter(map(attrgetter("group"), placement.partitions.values()))
        groups = dict(placement.groups)
        super().__init__(replace(placement, groups=groups, partitions={}), members)

    def size_of(self, group: int) -> int:
        return self._sizes[group]

    def add(self, placed: TopicPlacement) -> None:
        """Have new partitions, and the groups that are made for them."""
        table = self.placement
        apply_change(table, PlaceGroups(table.next_group, placed.new_groups))
        use_groups(table, placed.groups)
        self._sizes.update(placed.groups)
        self.follow(table)


def check_copies(copies: int) -> None:
    """Raises PlacementRefused."""
    if not 1 <= copies <= REPLICAS_MOST:
        text = f"replication factor {copies}: there can be 1 to {REPLICAS_MOST} copies"
        raise PlacementRefused("INVALID_REPLICATION_FACTOR", text)


def place_topic(
    table: PlacementTable,
    states: MemberStates,
    limits: PlacementLimits,
    partitions: int,
    copies: int,
) -> TopicPlacement:
    """Partitions go to the groups that have fewest, of those that have a majority now. Raises
    PlacementRefused.
    """
    check_copies(copies)
    domains = Domains(table)
    able = _able(states, domains, copies)
    known = shared_groups(table, copies)
    free = [each for each in known if table.has_majority(each)]
    filled = sum(table.size_of(each.number) for each in free) + partitions
    if copies == default_copies(table.placement):
        wanted = _defaults_wanted(filled, len(able), limits) - len(known)
        missing = max(wanted, 0 if free else 1)
    else:
        missing = _groups_wanted(filled, len(able), copies, limits) - len(free)
    first, made = table.placement.next_group, _make_groups(table, domains, able, copies, missing)
    sizes = [(table.size_of(each.number), each.number) for each in free]
    sizes += [(0, first + place) for place in range(len(made))]
    chosen = [*islice(cycle([number for _, number in sorted(sizes)]), partitions)]
    used = max(0, max(chosen, default=0) - first + 1)  # new ones are taken in order
    return TopicPlacement(tuple(chosen), tuple(made[:used]))


def shared_groups(table: PlacementTable, copies: int) -> list[PlacedGroup]:
    """Groups with this goal whose members no operator chose."""
    return [each for each in table.groups.values() if each.copies == copies and not each.is_pinned]


def default_groups(
    table: PlacementTable, states: MemberStates, limits: PlacementLimits
) -> frozenset[int]:
    """Groups of the default goal that stay though they are empty: as many as are wanted."""
    copies = default_copies(table.placement)
    known = _lasting(table, states, copies) if copies != EVERYWHERE else []
    known.sort(key=lambda each: (not table.size_of(each.number), each.number))
    filled = sum(table.size_of(each.number) for each in known)
    members = sum(map(states.may_hold, table.members))
    return frozenset(each.number for each in known[: _defaults_wanted(filled, members, limits)])


def _lasting(table: PlacementTable, states: MemberStates, copies: int) -> list[PlacedGroup]:
    """Groups with this goal; not those that are empty and have lost their majority."""
    return [
        each
        for each in shared_groups(table, copies)
        if table.size_of(each.number) or not _is_lost(states, each)
    ]


def _is_lost(states: MemberStates, group: PlacedGroup) -> bool:
    return 2 * sum(map(states.must_be_replaced, group.voters)) >= len(group.voters)


def new_default_groups(
    table: PlacementTable, states: MemberStates, limits: PlacementLimits
) -> tuple[NewGroup, ...]:
    """Groups of the default goal that are missing. The first ones wait for all members that will
    soon be in service.
    """
    copies, members = default_copies(table.placement), states.in_service
    if copies == EVERYWHERE or not members:
        return ()
    known = _lasting(table, states, copies)
    if not known and members != states.expected:
        return ()
    filled = sum(table.size_of(each.number) for each in known)
    missing = _defaults_wanted(filled, len(members), limits) - len(known)
    if missing <= 0:
        return ()
    domains = Domains(table)
    made = _make_groups(table, domains, _able(states, domains, copies), copies, missing)
    return tuple(replace(each, is_default=True) for each in made)


def _defaults_wanted(partitions: int, members: int, limits: PlacementLimits) -> int:
    """One for each member, and as many more as hold the partitions: each member leads as many as
    any other.
    """
    for_all = min(-(-partitions // limits.partitions_per_group), _most(members))
    return members * max(1, -(-for_all // max(1, members)))


def _able(states: MemberStates, domains: Domains, copies: int) -> list[int]:
    """Who may hold a new group: of those who are away for a moment, a minority, and only of hosts
    without a member in service.
    """
    able = states.in_service
    if not able:
        text = "no member is in service"
        raise PlacementRefused("NO_MEMBER", text, "samelog node list shows why")
    hosts = states.count_hosts(able)
    away = [each for each in states.expected if domains.neighbours(each).isdisjoint(able)]
    lacks = max(0, copies - hosts)
    return able + domains.choose(min(lacks, hosts - 1), away, lambda _each: ())


def _groups_wanted(partitions: int, members: int, copies: int, limits: PlacementLimits) -> int:
    """Every member has a share; as many more as hold the partitions, within bounds."""
    for_all = -(-members // copies)
    return max(1, for_all, min(-(-partitions // limits.partitions_per_group), _most(members)))


def _most(members: int) -> int:
    return LED_PER_MEMBER * members


def _make_groups(
    table: PlacementTable, domains: Domains, able: Sequence[int], copies: int, missing: int
) -> list[NewGroup]:
    """Each on those who hold fewest, as far apart as can be; led by who shall lead fewest."""
    made = []
    held = {each: len(table.held.get(each, ())) for each in able}
    led = dict.fromkeys(able, 0)
    for group in table.groups.values() if missing > 0 else ():
        if group.preferred in led:
            led[group.preferred] += 1
    for _ in range(missing):
        members = domains.choose(copies, able, lambda each: (held[each], led[each]))
        members.sort(key=lambda each: (led[each], held[each], each))
        made.append(NewGroup(copies, tuple(members), members[0]))
        led[members[0]] += 1
        for member in members:
            held[member] += 1
    return made


def place_by_hand(table: PlacementTable, assignments: Sequence[Sequence[int]]) -> TopicPlacement:
    """One list of members for each partition, the first of which shall lead. Raises
    PlacementRefused.
    """
    lists = list(dict.fromkeys(map(tuple, assignments)))
    check_assignments(table, lists)
    for members in lists:
        _check_majority(table, members)
    numbers = {members: table.placement.next_group + place for place, members in enumerate(lists)}
    made = [NewGroup(len(members), members, members[0], is_pinned=True) for members in lists]
    return TopicPlacement(tuple(numbers[tuple(each)] for each in assignments), tuple(made))


def _check_majority(table: PlacementTable, members: Sequence[int]) -> None:
    """A group begins only with a majority of its members. Raises PlacementRefused."""
    away = [each for each in members if not table.is_heard(each)]
    if 2 * len(away) >= len(members):
        text = f"{table.names(away)} is away, takes nothing in, or has yet to be let in"
        raise PlacementRefused("NOT_THERE", text, "samelog node list shows why")


def check_assignments(table: PlacementTable, assignments: Iterable[Sequence[int]]) -> None:
    """Raises PlacementRefused for lists of members that cannot hold a group."""
    lengths = set()
    for members in assignments:
        check_assignment(table, members)
        lengths.add(len(members))
    if len(lengths) != 1:
        text = "every partition needs a list of members, all equally long"
        raise PlacementRefused("INVALID_ASSIGNMENT", text)


def check_assignment(table: PlacementTable, members: Sequence[int]) -> None:
    """Raises PlacementRefused for a list of members that cannot hold a group."""
    check_copies(len(members))
    if len(set(members)) != len(members):
        text = f"members {list(members)}: one is named twice"
        raise PlacementRefused("INVALID_ASSIGNMENT", text)
    unknown = [each for each in members if each not in table.members]
    if unknown:
        known = ", ".join(map(str, sorted(table.members)))
        text = f"no member has the number {', '.join(map(str, unknown))}"
        raise PlacementRefused("UNKNOWN_MEMBER", text, f"there are {known}")
    leaving = [each for each in members if table.is_draining(each)]
    if leaving:
        names = table.names(leaving)
        text = f"{names} is being drained, or in a site that only reads"
        raise PlacementRefused("DRAINING", text, "samelog node drain NAME --end")
