"""What a group needs: the difference between how it is and how it shall be, one step of it.

Invariant: a need follows from the table and the members' states alone. What cannot be done is a
need too, with what is in the way, so that it can be seen; it never hides a need that can be met. A
goal beyond the hosts that exist is no need.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from zlib import crc32

from samelog.format.nouns import counted
from samelog.placement.domains import Domains
from samelog.placement.guards import refuse_removal
from samelog.placement.holdings import Holdings
from samelog.placement.members import MemberStates
from samelog.placement.table import PlacementTable
from samelog.placement.tasks import TaskKind
from samelog.placement.values import PlacedGroup

_AS_BAD_AS_LOST = (TaskKind.REPLACE, TaskKind.FILL)


@dataclass(frozen=True, slots=True)
class Need:
    """A task that should run. `obstacle`: why it cannot, empty if it can; `waits_for`: what has to
    end before it begins.
    """

    kind: TaskKind
    group: int
    gets: int | None = None
    loses: int | None = None
    reason: str = ""
    obstacle: str = ""
    healthy: int = 0
    partition: int | None = None
    target: int | None = None
    waits_for: str = ""

    @property
    def urgency(self) -> tuple[int, ...]:
        """Least comes first: what is lost or missing, by how many copies are left; then by kind."""
        if self.kind in _AS_BAD_AS_LOST:
            return (0, self.healthy, self.kind, self.group)
        return (1, self.kind, self.group, -1 if self.partition is None else self.partition)


@dataclass(frozen=True, slots=True)
class Outlook:
    """All that needs are judged by."""

    table: PlacementTable
    states: MemberStates
    domains: Domains
    holdings: Holdings

    def member_for(self, group: PlacedGroup, loses: int | None = None) -> int | None:
        """Who had best get a copy: whom an operator named, who is far from the others, who has
        least. No host gets two, unless an operator chose the members.
        """
        rest = [each for each in group.members if each != loses]
        able = [each for each in self.states.in_service if each not in group.everybody]
        named = [each for each in group.wanted if each in able]
        return min(
            named or (able if group.is_pinned else self.domains.apart(able, rest)),
            key=lambda each: (self.domains.shared(each, rest), self.holdings.count(each), each),
            default=None,
        )

    def reader_of(self, group: PlacedGroup, site: str, reading: Collection[int]) -> int | None:
        """Who of a site that only reads should have the replica there. `reading`: who has one that
        is good. Whoever comes gets a share of all groups, and others keep what they have.
        """
        able = [each for each in self.states.may_read(site) if each not in group.members]
        those = [*able, *reading]
        return max(those, key=lambda each: reads_first(group.number, each), default=None)

    def need(
        self,
        kind: TaskKind,
        group: PlacedGroup,
        reason: str,
        gets: int | None = None,
        loses: int | None = None,
    ) -> Need:
        """A need of a group, with how badly it stands."""
        healthy = len(self.table.healthy(group))
        return Need(kind, group.number, gets, loses, reason, healthy=healthy)

    def removal(self, kind: TaskKind, group: PlacedGroup, reason: str, loses: int) -> Need:
        """Return the need to remove a copy that is one too many: blocked while it must stay."""
        healthy, copies = self.table.healthy(group), self.states.copies_of(group)
        obstacle = refuse_removal(group, loses, healthy, copies)
        if obstacle:
            return self.blocked(kind, group, reason, obstacle)
        return self.need(kind, group, reason, loses=loses)

    def blocked(self, kind: TaskKind, group: PlacedGroup, reason: str, obstacle: str) -> Need:
        """A need that nothing can be done about."""
        healthy = len(self.table.healthy(group))
        return Need(kind, group.number, reason=reason, healthy=healthy, obstacle=obstacle)


def needs_of(look: Outlook, group: PlacedGroup) -> tuple[list[Need], Need | None]:
    """Return the blocked needs that come before the most urgent need that can be met, and that
    one; None if no need can be met.
    """
    blocked = list[Need]()
    for judge in _JUDGES:
        need = judge(look, group)
        if need is not None and (need.kind, need.group) in look.table.placement.declined:
            obstacle = f"it was cancelled: samelog tasks resume --group {group.number}"
            need = look.blocked(need.kind, group, need.reason, obstacle)
        if need is not None and not need.obstacle:
            return blocked, need
        blocked += [] if need is None else [need]
    return blocked, None


def _nobody(group: PlacedGroup) -> str:
    return f"no host is in service that has no copy of group {group.number}"


def _orphan(look: Outlook, group: PlacedGroup) -> Need | None:
    """No task runs here, so nobody waits for a learner."""
    for each in group.replicas:
        if not each.votes:
            reason = f"{look.table.names([each.member])} has a replica that no task made"
            return look.need(TaskKind.SURPLUS, group, reason, loses=each.member)
    return None


def _lost(look: Outlook, group: PlacedGroup) -> Need | None:
    lost = [each for each in group.members if look.states.must_be_replaced(each)]
    if not lost:
        return None
    reason = f"{look.table.names(lost)} is lost"
    healthy = look.table.healthy(group)
    if len(healthy) * 2 <= len(group.voters):
        obstacle = (
            f"{len(healthy)} of {len(group.voters)} voters are no majority: start the others,"
            f" or if they are lost: samelog recover group"
        )
        return look.blocked(TaskKind.REPLACE, group, reason, obstacle)
    if len(group.replicas) > look.states.copies_of(group):
        return look.need(TaskKind.REPLACE, group, reason, loses=lost[0])
    gets = look.member_for(group, lost[0])
    if gets is None:
        return look.blocked(TaskKind.REPLACE, group, reason, _nobody(group))
    return look.need(TaskKind.REPLACE, group, reason, gets=gets, loses=lost[0])


def _missing(look: Outlook, group: PlacedGroup) -> Need | None:
    copies = look.states.copies_of(group)
    if len(group.replicas) >= copies:
        return None
    reason = f"{len(group.replicas)} of {counted(copies, 'copy', 'copies')}"
    gets = look.member_for(group)
    if gets is None:
        return look.blocked(TaskKind.FILL, group, reason, _nobody(group))
    return look.need(TaskKind.FILL, group, reason, gets=gets)


def _asked_for(look: Outlook, group: PlacedGroup) -> Need | None:
    lacks, surplus = _to_assign(look, group)
    if not (lacks or surplus):
        return None
    reason = f"wanted on {look.table.names(group.wanted)}"
    free = (each for each in lacks if each not in group.everybody)
    gets = next(filter(look.states.may_get, free), None)
    if lacks and gets is None:
        obstacle = f"{look.table.names(lacks)} is not in service"
        return look.blocked(TaskKind.ASSIGN, group, reason, obstacle)
    loses = surplus[0] if surplus else None
    return look.need(TaskKind.ASSIGN, group, reason, gets=gets, loses=loses)


def _to_assign(look: Outlook, group: PlacedGroup) -> tuple[list[int], list[int]]:
    """Return which members that were asked for and exist a group lacks, and which it has too much;
    the latter stay where others do not exist.
    """
    possible = [each for each in group.wanted if look.states.may_hold(each)]
    lacks = [each for each in possible if each not in group.members]
    surplus = sorted({*group.members} - {*group.wanted})
    return lacks, surplus if lacks or (possible and len(possible) == group.goal) else []


def _leaving(look: Outlook, group: PlacedGroup) -> Need | None:
    leaving = [each for each in group.members if look.states.must_be_left(each)]
    if not leaving:
        return None
    reason = f"{look.table.names(leaving)} is drained"
    if len(group.replicas) > look.states.copies_of(group):
        return look.removal(TaskKind.DRAIN, group, reason, leaving[0])
    gets = look.member_for(group, leaving[0])
    if gets is None:
        return look.blocked(TaskKind.DRAIN, group, reason, _nobody(group))
    return look.need(TaskKind.DRAIN, group, reason, gets=gets, loses=leaving[0])


def _surplus(look: Outlook, group: PlacedGroup) -> Need | None:
    copies = look.states.copies_of(group)
    if len(group.replicas) <= copies:
        return None
    healthy = look.table.healthy(group)

    def worth(member: int) -> tuple[bool, tuple[int, ...], int, int]:
        rest = [each for each in group.members if each != member]
        shared = tuple(-each for each in look.domains.shared(member, rest))
        return (member in healthy, shared, -look.holdings.count(member), member)

    loses = min(group.members, key=worth)
    reason = f"{counted(len(group.replicas), 'copy', 'copies')}, {copies} wanted"
    return look.removal(TaskKind.SURPLUS, group, reason, loses)


def _leader(look: Outlook, group: PlacedGroup) -> Need | None:
    leader, preferred = look.table.leaders.get(group.number), group.preferred
    if leader in (None, preferred) or not look.states.may_get(preferred):
        return None
    if preferred not in look.table.healthy(group):
        return None
    reason = f"{look.table.names([preferred])} shall lead"
    return look.need(TaskKind.LEAD, group, reason, gets=preferred)


def _spread(look: Outlook, group: PlacedGroup) -> Need | None:
    """Members of a group that could be further apart, as after racks were renamed."""
    if look.domains.are_one or group.is_pinned:
        return None
    able, members = look.states.in_service, group.members
    shared = look.domains.shared_within(members)
    if shared <= look.domains.least(len(members), able):
        return None
    found = ((*_swapped(look, group, out), out) for out in members)
    best = min((each for each in found if each[0] < shared), default=None)
    if best is None:
        return None
    _, _, gets, loses = best
    return look.need(
        TaskKind.SPREAD, group, "its copies can be further apart", gets=gets, loses=loses
    )


def _swapped(look: Outlook, group: PlacedGroup, out: int) -> tuple[tuple[int, ...], int, int]:
    """How near the members are with another one instead of `out`, that one's load, and who."""
    rest = [each for each in group.members if each != out]
    others = [each for each in look.states.in_service if each not in group.everybody]
    return min(
        (
            (look.domains.shared_within([*rest, each]), look.holdings.count(each), each)
            for each in others
        ),
        default=(((len(rest) + 1) ** 2,), 0, out),
    )


def _reading(look: Outlook, group: PlacedGroup) -> Need | None:
    """One replica that only reads in each such site, and none elsewhere (rule sites.15)."""
    there: dict[str, list[int]] = {}
    for each in group.readers:
        there.setdefault(look.table.site_read_in(each.member), []).append(each.member)
    for site in [*look.table.sites_to_read_in, ""]:
        need = _read_in(look, group, site, there.get(site, []))
        if need is not None:
            return need
    return None


def reads_first(group: int, member: int) -> tuple[int, int]:
    """How much a member is to have a group's replica that only reads: as good as by chance, and the
    same for ever.
    """
    return crc32(b"%d %d" % (group, member)), member


def _read_in(look: Outlook, group: PlacedGroup, site: str, there: list[int]) -> Need | None:
    """Of one site; where it is empty, nobody is to read. `there`: who has such a replica."""
    if not site:
        return _read_no_more(look, group, there)
    good = [each for each in there if not look.states.reads_no_more(each)]
    bad = [each for each in there if each not in good]
    best = look.reader_of(group, site, good)
    if best is None:  # whoever is away may come back
        return _read_no_more(look, group, list(filter(look.table.is_leaving, bad)))
    if best in good:
        return _read_no_more(look, group, bad + _read_meanwhile(group, good, best))
    loses, reason = next(iter(bad), None), f"to be read in site {site}"
    return look.need(TaskKind.READ, group, reason, gets=best, loses=loses)


def _read_meanwhile(group: PlacedGroup, good: list[int], best: int) -> list[int]:
    """Who was read until the best one is whole, and it is."""
    whole = [each.member for each in group.readers if each.is_whole]
    return [each for each in good if each != best] if best in whole else []


def _read_no_more(look: Outlook, group: PlacedGroup, over: list[int]) -> Need | None:
    if not over:
        return None
    reason = f"{look.table.names(over[:1])} need not read it"
    return look.need(TaskKind.READ, group, reason, loses=over[0])


_JUDGES: tuple[Callable[[Outlook, PlacedGroup], Need | None], ...] = (
    _orphan,
    _lost,
    _missing,
    _asked_for,
    _leaving,
    _surplus,
    _leader,
    _spread,
    _reading,
)
