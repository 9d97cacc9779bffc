"""Topics that stay in one group together, so that what is published into several of them at once is
one entry.

Invariant: the partitions of all topics that are kept together are in one group (rule placement.27).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from samelog.placement.table import PlacementTable
from samelog.placement.tasks import PlacementRefused
from samelog.placement.values import METADATA, Placement


def home_of(
    placement: Placement, table: PlacementTable, name: str, partitions: Collection[int]
) -> int:
    """Return the group of a topic, which another one is to share. `partitions`: its own, by number;
    `table`: of that placement. Raises PlacementRefused.
    """
    groups = {placement.group_of(each) for each in partitions}
    if len(groups) > 1:
        names = ", ".join(map(str, sorted(groups)))
        text = f"the partitions of topic {name!r} are in groups {names}"
        raise PlacementRefused("SEVERAL_GROUPS", text, "name a topic of one partition")
    (group,) = groups
    moving = {task.partition for task in placement.tasks.values()} | {*placement.moves}
    if not moving.isdisjoint(partitions):
        text = f"topic {name!r} is being moved to another group"
        raise PlacementRefused("MOVING", text, "samelog tasks list shows its end")
    if group != METADATA and not table.has_majority(table.groups[group]):
        text = f"group {group}, which has topic {name!r}, has no majority"
        raise PlacementRefused("NO_MAJORITY", text, "start its members: samelog placement")
    return group


def keep_together(placement: Placement, topic_id: str, other_id: str) -> None:
    """A topic stays in the group of another one, and that one in it."""
    first = placement.together.setdefault(other_id, other_id)
    placement.together[topic_id] = first


def are_kept(placement: Placement, topic_id: str) -> bool:
    """Return whether a topic stays in one group with others."""
    return topic_id in placement.together


def check_may_part(placement: Placement, topic_ids: Iterable[str]) -> None:
    """Raises PlacementRefused if any of these topics stays in one group with others."""
    if any(are_kept(placement, each) for each in topic_ids):
        text = "a topic shares the group of another one (--colocate-with): they move together only"
        raise PlacementRefused("COLOCATED", text, "name all partitions of the group")


def let_go(placement: Placement, topic_ids: Iterable[str]) -> None:
    """Topics are deleted: one that is left alone may go where it wants."""
    for topic_id in topic_ids:
        first = placement.together.pop(topic_id, None)
        left = [each for each, its in placement.together.items() if its == first]
        if len(left) == 1:
            del placement.together[left[0]]
