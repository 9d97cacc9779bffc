"""Where a new topic lives, and how many copies it gets if its creator names no number.

Invariant: the default counts when a topic is created, as the goal of its groups. A later default
changes no topic (rule placement.21).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from samelog.placement.values import Placement

EVERYWHERE = 0
"""No goal: the topic is in group 0, with a copy on every node."""
AS_SHIPPED = EVERYWHERE
"""The default of a cluster whose operators set none. It alone decides where such topics live."""
DEFAULT_COPIES = "default.replication.factor"
"""The name of the setting."""
_PAIR = 2
_NAMED_AT_MOST = 5


def default_copies(placement: Placement) -> int:
    """Return the goal of topics created without a number; EVERYWHERE: they have none."""
    return placement.default_copies or AS_SHIPPED


def copies_of_new(placement: Placement, asked: int | None, nodes: int) -> int:
    """Return the goal of a new topic, EVERYWHERE if it belongs into group 0. `asked`: the number
    that its creator names, if any.
    """
    default = default_copies(placement)
    if asked is None:
        return default
    return EVERYWHERE if default == EVERYWHERE and asked == nodes else asked


def goal_of_topic(placement: Placement, partitions: Iterable[int]) -> int:
    """Return the least goal of a topic's partitions (by number) that are in data groups;
    EVERYWHERE if none is.
    """
    groups = {placement.group_of(each) for each in partitions}
    found = (placement.groups[each].goal for each in groups if each in placement.groups)
    return min(found, default=EVERYWHERE)


def is_pair(voters: int) -> bool:
    """Return whether the loss of one of so many voters loses nothing, and stops writes."""
    return voters == _PAIR


def risk_of_pairs(groups: Collection[int]) -> str:
    """Return what it means that these groups have two voters each."""
    names = ", ".join(map(str, sorted(groups)[:_NAMED_AT_MOST]))
    if (more := len(groups) - _NAMED_AT_MOST) > 0:
        names += f" and {more} more"
    which = f"groups {names} have" if len(groups) > 1 else f"group {names} has"
    what = "losing one of its nodes loses no record, but stops writes until it is back"
    return f"{which} two voters: {what}"


def risk_of(copies: int) -> str:
    """Return what so few copies mean, as the end of a sentence; empty for three or more."""
    if copies == 1:
        return "with one copy, a node that is lost takes its partitions along"
    if is_pair(copies):
        return "with two copies, losing one node loses no record, but stops writes until it is back"
    return ""
