"""Another number of copies for a topic: its partitions move to groups that have so many, one by
one, while they are written. What is in group 0 has as many copies as there are members.

Invariant: what cannot be is refused before anything is changed; a partition that has as many copies
as are wanted stays where it is.
"""

from __future__ import annotations

from collections.abc import Sequence

from samelog.placement.changes import AnyChange, PlaceGroups, WantGroup
from samelog.placement.members import MemberStates, PlacementLimits
from samelog.placement.table import PlacementTable
from samelog.placement.tasks import PlacementRefused
from samelog.placement.topics import check_copies, place_topic
from samelog.placement.values import METADATA


def change_copies(
    table: PlacementTable, states: MemberStates, partitions: Sequence[int], copies: int
) -> list[AnyChange]:
    """These partitions (by number) shall have so many copies. Raises PlacementRefused."""
    check_copies(copies)
    _check_at_rest(table, partitions, copies)
    return [*_stays(table, partitions, copies), *_moves(table, states, partitions, copies)]


def _check_at_rest(table: PlacementTable, partitions: Sequence[int], copies: int) -> None:
    """A move that runs ends what was wanted: another wish has to wait for it. Raises
    PlacementRefused.
    """
    moving = {task.partition for task in table.placement.tasks.values()}
    for each in partitions:
        if each in moving and _goal(table, each) != copies:
            text = "a partition of the topic is being moved"
            raise PlacementRefused("MOVING", text, "samelog tasks list shows its end")


def _goal(table: PlacementTable, partition: int) -> int:
    """How many copies a partition is to have, once it is where it is to be."""
    there = table.placement.moves.get(partition)
    return _copies_here(table, partition) if there is None else table.groups[there].goal


def _copies_here(table: PlacementTable, partition: int) -> int:
    """How many the group that has it now is to have."""
    group = table.group_of(partition)
    return len(table.members) if group in (None, METADATA) else table.groups[group].goal


def _stays(table: PlacementTable, partitions: Sequence[int], copies: int) -> list[AnyChange]:
    """Those that were on their way elsewhere, and are where they are wanted now."""
    return [
        WantGroup(each, None)
        for each in partitions
        if each in table.placement.moves
        and _goal(table, each) != copies
        and _copies_here(table, each) == copies
    ]


def _moves(
    table: PlacementTable, states: MemberStates, partitions: Sequence[int], copies: int
) -> list[AnyChange]:
    here = {each: _copies_here(table, each) for each in partitions}
    moving = [each for each in partitions if copies not in (here[each], _goal(table, each))]
    if not moving:
        return []
    placed = place_topic(table, states, PlacementLimits(), len(moving), copies)
    new = [PlaceGroups(table.placement.next_group, placed.new_groups)] if placed.new_groups else []
    return [*new, *map(WantGroup, moving, placed.groups)]
